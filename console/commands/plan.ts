/**
 * `troupe plan`: finds the fastest ways to train a model on some devices.
 *
 * @module
 */

import { commandLine } from "../../actors/options/limits.ts";
import { openForecast, type PlanSpace } from "../../actors/planner/forecast.ts";
import { afterLosses, type RemainingRun } from "../../actors/planner/losses.ts";
import { type Profile, readProfile, spreadOf } from "../../actors/planner/profile.ts";
import { planRuns, type RunPlan } from "../../actors/planner/plan.ts";
import { BUCKET_SIZE, completeOptimizer } from "../../kernels/internal.ts";
import { scheduleDefinitions } from "../../schedules/mod.ts";
import { withDefaults } from "../flag.ts";
import { inOneLine, print, printError, quoted } from "../terminal.ts";
import { type Command, defineCommand, ensure } from "./common.ts";
import {
  PLAN_FLAGS,
  PLAN_SYNTAX,
  type PlanFlags,
  type PlannedModel,
  plannedModel,
} from "./plan_flags.ts";
import {
  factNotes,
  lossLines,
  lossRecords,
  type PlanFacts,
  planLines,
  planRecord,
  trainCommandLine,
} from "./plan_report.ts";

/** Runs `troupe plan`; returns the exit code. */
export const planCommand: Command = defineCommand(
  PLAN_SYNTAX,
  PLAN_FLAGS,
  { needsArguments: true, takesWords: true },
  async ({ flags: given, words }, context, args) => {
    const flags = withDefaults(PLAN_FLAGS, given), rank = rankOf(words, flags);
    ensure(
      flags.profile !== undefined,
      `Cannot plan: --profile must name the profile of a machine, received none; ${
        commandLine("profile", "--out FILE")
      } measures it`,
    );
    const profile = readProfile(flags.profile);
    const model = await plannedModel(args, profile, flags.profile);
    const shown = (
      facts: PlanFacts,
      plan: RunPlan,
      after: readonly RemainingRun[] = [],
    ): string => {
      if (flags.emit) return emitted(plan, facts, rank);
      if (flags.json || flags.format === "json") {
        return JSON.stringify({ ...planRecord(facts, plan), ...lossRecords(after) });
      }
      return [...planLines(facts, plan), ...lossLines(facts, after)].join("\n");
    };
    const { plan, facts, after } = planOf(flags, profile, model, (facts, plan) => {
      if (plan.best.length >= rank) context.soFar?.({ text: `${shown(facts, plan)}\n` });
    });
    print(shown(facts, plan, after));
    if (flags.emit) factNotes(facts).forEach((note) => printError(`note: ${note}`));
    return 0;
  },
);

/** Returns the rank of the plan to print with `--emit`. */
function rankOf(words: readonly string[], { emit, count }: PlanFlags): number {
  const [word, ...more] = words;
  if (word === undefined) return 1;
  const rank = /^\d{1,4}$/.test(word) ? Number(word) : 0;
  ensure(
    emit && more.length === 0 && rank >= 1 && rank <= count,
    `Cannot plan: arguments must be flags, or with --emit a rank from 1 to ${count}, received ${
      quoted(words.join(" "))
    }`,
  );
  return rank;
}

function emitted({ best }: RunPlan, { model }: PlanFacts, rank: number): string {
  const run = best[rank - 1];
  const must = `its rank must be from 1 to ${best.length}, received ${rank}`;
  ensure(run, `Cannot emit a plan: ${must}`, RangeError);
  return trainCommandLine(model, run);
}

/**
 * Makes the plan, and with `--lose` the remains of the best plan that can move. Missing values come
 * from the profile.
 */
function planOf(
  flags: PlanFlags,
  profile: Profile,
  { args, task, options }: PlannedModel,
  soFar: (facts: PlanFacts, plan: RunPlan) => void,
): { readonly plan: RunPlan; readonly facts: PlanFacts; readonly after: RemainingRun[] } {
  const { machine, source, layers } = profile, links = Object.keys(profile.links);
  const { batch, devices = machine.cores, lose: losses = 0 } = flags;
  const { "memory-limit": memoryLimitBytes = machine.memoryBytes } = flags;
  ensure(batch, "Cannot plan: --batch must be the samples of a step, received none");
  ensure(!losses || !flags.emit, "Cannot plan: --lose must come without --emit, received both");
  ensure(
    losses < devices,
    `Cannot plan: --lose must be below the ${devices} workers, received ${losses}`,
  );
  const deviceNames = [...new Set(layers.map((one) => one.device))];
  const link = links.includes("worker") ? "worker" : links[0];
  const forecast = openForecast(profile, {
    model: task.model,
    optimizer: completeOptimizer(options.optimizer),
    device: oneOf("device", flags.device ?? deviceNames[0], deviceNames),
    transport: oneOf("transport", flags.transport ?? link, links),
    clip: options.clip,
  });
  const space: PlanSpace = {
    devices,
    takesFewer: true,
    batch,
    layers: task.model.layers.length,
    schedules: flags.schedules ?? SCHEDULES,
    workers: flags.workers,
    microBatch: flags["micro-batch-size"],
    recompute: flags.recompute ?? ["none", "cheap", "full"],
    precision: flags.precision ?? ["fp32"],
    bucketSizes: BUCKET_SIZES,
    coarsenings: COARSENINGS,
  };
  const facts: PlanFacts = {
    ...{ model: args, devices, batch, memoryLimitBytes },
    profile: { source, machine: inOneLine(machine.name) },
  };
  const found = (plan: RunPlan) => soFar(facts, plan);
  const { count } = flags, { layers: { length } } = task.model;
  const plan = planRuns(space, forecast, {
    ...{ memoryLimitBytes, count, found, spread: spreadOf(profile) },
    ...flags["time-limit"] !== undefined && untilOver(flags["time-limit"]),
  });
  const after = losses > 0
    ? afterLosses(plan.best, forecast, { layers: length, batch, losses })
    : [];
  return { plan, facts, after };
}

/** Milliseconds between two lines of progress. */
const PROGRESS_MS = 2000;

/** Ends a search after some seconds, and prints its progress. */
function untilOver(seconds: number) {
  const began = performance.now();
  let shownAt = began;
  return {
    used: () => (performance.now() - began) / (1000 * seconds),
    progress(what: string, done: number, all: number) {
      if (performance.now() - shownAt < PROGRESS_MS) return;
      shownAt = performance.now();
      printError(`${what}: ${done} of ${all}`);
    },
  };
}

/** Bucket sizes that are tried besides that of the device. */
const BUCKET_SIZES = [BUCKET_SIZE / 4, 4 * BUCKET_SIZE];

/** Values of k that are tried besides 4, the default of `train`. */
const COARSENINGS = [1, 2, 8];

/** Schedules that are tried only if they are named: see the help. */
const NAMED_ONLY = ["search", "chimera-greedy", "chimera-wave", "pipedream", "pipedream-2bw"];

/** Schedules that are tried by default. */
export const SCHEDULES: readonly string[] = scheduleDefinitions.map(({ name }) => name)
  .filter((name) => !NAMED_ONLY.includes(name));

/** Returns a name if the profile has it. */
function oneOf(what: string, name = "none", names: readonly string[]): string {
  const received = names.map(quoted).join(", ") || "none";
  ensure(
    names.includes(name),
    `Cannot plan: the profile must have the ${what} ${quoted(name)}, received ${received}`,
    RangeError,
  );
  return name;
}
