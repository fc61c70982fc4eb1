/**
 * `troupe plan`: of all ways to train a model on some devices, those that are fastest.
 *
 * @module
 */

import { commandLine } from "../../actors/options/limits.ts";
import { openForecast, type PlanSpace } from "../../actors/planner/forecast.ts";
import { type Profile, readProfile } from "../../actors/planner/mod.ts";
import { planRuns, type RunPlan } from "../../actors/planner/plan.ts";
import { BUCKET_SIZE, completeOptimizer } from "../../kernels/mod.ts";
import { scheduleDefinitions } from "../../schedules/mod.ts";
import type { CommandContext } from "../command.ts";
import { withDefaults } from "../flag.ts";
import { answersItself, helpOf, parseArguments } from "../parse.ts";
import { inOneLine, print, printError, quoted } from "../terminal.ts";
import {
  PLAN_FLAGS,
  PLAN_SYNTAX,
  type PlanFlags,
  type PlannedModel,
  plannedModel,
} from "./plan_flags.ts";
import {
  factNotes,
  type PlanFacts,
  planLines,
  planRecord,
  trainCommandLine,
} from "./plan_report.ts";

/** Runs `troupe plan`; returns the exit code. */
export async function planCommand(
  args: readonly string[],
  context: Pick<CommandContext, "soFar">,
): Promise<number> {
  if (args.length === 0) return print(helpOf(PLAN_SYNTAX)), 0;
  if (answersItself(args, PLAN_SYNTAX)) return 0;
  const { flags: given, words } = parseArguments(args, PLAN_FLAGS, { takesWords: true });
  const flags = withDefaults(PLAN_FLAGS, given);
  const rank = rankOf(words, flags);
  const profile = profileOf(flags), model = await plannedModel(args, profile, flags.profile!);
  const shown = (facts: PlanFacts, plan: RunPlan): string => {
    if (flags.emit) return emitted(plan, facts, rank);
    if (flags.json || flags.format === "json") return JSON.stringify(planRecord(facts, plan));
    return planLines(facts, plan).join("\n");
  };
  const { plan, facts } = planOf(flags, profile, model, (facts, plan) => {
    if (plan.best.length >= rank) context.soFar?.({ text: `${shown(facts, plan)}\n` });
  });
  print(shown(facts, plan));
  if (flags.emit) { for (const note of factNotes(facts)) printError(`note: ${note}`); }
  return 0;
}

/** Which of the plans is emitted. */
function rankOf(words: readonly string[], { emit, count }: PlanFlags): number {
  const [word, ...more] = words;
  if (word === undefined) return 1;
  const rank = /^\d{1,4}$/.test(word) ? Number(word) : 0;
  if (emit && more.length === 0 && rank >= 1 && rank <= count) return rank;
  throw new TypeError(
    `Cannot plan: arguments must be flags, or with --emit a rank from 1 to ${count}, received ${
      quoted(words.join(" "))
    }`,
  );
}

function emitted({ best }: RunPlan, { model }: PlanFacts, rank: number): string {
  const run = best[rank - 1];
  if (run) return trainCommandLine(model, run);
  throw new RangeError(
    `Cannot emit a plan: its rank must be from 1 to ${best.length}, received ${rank}`,
  );
}

function profileOf({ profile }: PlanFlags): Profile {
  if (profile !== undefined) return readProfile(profile);
  throw new TypeError(
    `Cannot plan: --profile must name what the machine costs, received none; ${
      commandLine("profile", "--out FILE")
    } measures it`,
  );
}

/** Plans, with what was not given as the profile has it. */
function planOf(
  flags: PlanFlags,
  profile: Profile,
  { args, task, options }: PlannedModel,
  soFar: (facts: PlanFacts, plan: RunPlan) => void,
): { readonly plan: RunPlan; readonly facts: PlanFacts } {
  const { batch, devices = profile.machine.cores } = flags;
  if (batch === undefined) {
    throw new TypeError("Cannot plan: --batch must say the samples of a step, received none");
  }
  const { machine, source } = profile,
    memoryLimitBytes = flags["memory-limit"] ?? machine.memoryBytes;
  const forecast = openForecast(profile, {
    model: task.model,
    optimizer: completeOptimizer(options.optimizer),
    device: deviceOf(flags, profile),
    transport: transportOf(flags, profile),
    clip: options.clip,
  });
  const space: PlanSpace = {
    devices,
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
  return {
    plan: planRuns(space, forecast, { memoryLimitBytes, count: flags.count, found }),
    facts,
  };
}

/** Numbers of a bucket that are tried beside that of the device. */
const BUCKET_SIZES = [BUCKET_SIZE / 4, 4 * BUCKET_SIZE];

/** Values of k that are tried beside that of `train`, 4. */
const COARSENINGS = [1, 2, 8];

/** Those that are not tried unless they are named: see the help. */
const NAMED_ONLY = ["search", "chimera-greedy", "chimera-wave", "pipedream", "pipedream-2bw"];

/** Schedules that are tried unless others are named: those whose steps are those of a serial run. */
const SCHEDULES = scheduleDefinitions.map(({ name }) => name)
  .filter((name) => !NAMED_ONLY.includes(name));

function deviceOf({ device }: PlanFlags, { layers }: Profile): string {
  const names = [...new Set(layers.map((one) => one.device))];
  return oneOf("device", device, names, names[0]);
}

function transportOf({ transport }: PlanFlags, { links }: Profile): string {
  const names = Object.keys(links);
  return oneOf("transport", transport, names, names.includes("worker") ? "worker" : names[0]);
}

function oneOf(
  what: string,
  given: string | undefined,
  names: readonly string[],
  otherwise: string | undefined,
): string {
  const name = given ?? otherwise;
  if (name !== undefined && names.includes(name)) return name;
  throw new RangeError(
    `Cannot plan: the profile must have the ${what} ${quoted(name ?? "none")}, received ${
      names.map(quoted).join(", ") || "none"
    }`,
  );
}
