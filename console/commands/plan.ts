/**
 * `troupe plan`: finds the fastest ways to train a model on some devices.
 *
 * @module
 */

import { commandLine, WORKERS_MAX } from "../../actors/options/limits.ts";
import { flagName } from "../../actors/options/option.ts";
import { SCHEDULE_FIELDS } from "../../actors/options/train_fields.ts";
import {
  type Candidate,
  type CandidateRun,
  openForecast,
  type PlanSpace,
} from "../../actors/planner/forecast.ts";
import {
  afterLosses,
  planRuns,
  type RemainingRun,
  type RunPlan,
  scheduleWords,
} from "../../actors/planner/plan.ts";
import { type Profile, readProfile, spreadOf, withJitter } from "../../actors/planner/profile.ts";
import { BUCKET_SIZE, completeOptimizer } from "../../kernels/internal.ts";
import { scheduleDefinitions } from "../../schedules/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { ensure, inOneLine, print, printError, quoted } from "../terminal.ts";
import { shellWord } from "../train/data_files.ts";
import { type Command, defineCommand, percent } from "./common.ts";
import {
  PLAN_FLAGS,
  PLAN_GROUPS,
  type PlanFlags,
  type PlannedModel,
  plannedModel,
} from "./plan_flags.ts";

/** `troupe plan`. */
export const planCommand: Command = defineCommand({
  name: "plan",
  summary: "finds the schedule, depth, replicas and micro-batch that train a model fastest",
  usage: ["--profile FILE --batch B [flags]", "--profile FILE --batch B --emit [RANK] [flags]"],
  about: [
    "Tries each schedule with each depth D and D·W = P (and fewer devices), each micro-batch B, chunks,",
    "waves, slices, pipelines, limits and ways to recompute. Plans that cannot fit or be among the best are not simulated.",
    "For the best plans, buckets and k of the all-reduce are tried too, and the fastest layout by the",
    "profile (up to 16 stages, 128 layers and 1024 forwards). Plans whose times overlap within the profile's",
    "spread are equal; the least memory comes first. The same profile gives the same plan.",
  ],
  flags: PLAN_FLAGS,
  groups: PLAN_GROUPS,
  notes: ["Exit codes: 0 planned; 2 bad input, or a model that fits nowhere."],
  needsArguments: true,
  run: async ({ flags, words, args }, context) => {
    const rank = rankOf(words, flags);
    const must = "--profile must name the profile of a machine";
    const received = `none; ${commandLine("profile", "--out FILE")} measures it`;
    ensure(flags.profile !== undefined, "plan", must, received);
    const profile = readProfile(flags.profile);
    const model = await plannedModel(args, profile, flags.profile);
    const shown = (facts: PlanFacts, plan: RunPlan, after: readonly RemainingRun[] = []) => {
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
  },
});

/** Returns the rank of the plan to print with `--emit`. */
function rankOf(words: readonly string[], { emit, count }: PlanFlags): number {
  const [word, ...more] = words;
  if (word === undefined) return 1;
  const rank = /^\d{1,4}$/.test(word) ? Number(word) : 0;
  const must = `arguments must be flags, or with --emit a rank from 1 to ${count}`;
  const received = quoted(words.join(" "));
  ensure(emit && more.length === 0 && rank >= 1 && rank <= count, "plan", must, received);
  return rank;
}

function emitted({ best }: RunPlan, { model }: PlanFacts, rank: number): string {
  const run = best[rank - 1];
  ensure(run, "emit a plan", `its rank must be from 1 to ${best.length}`, rank, RangeError);
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
  const { layers } = profile, links = Object.keys(profile.links), { lose: losses = 0 } = flags;
  const facts = factsOf(flags, profile, args);
  const { devices, batch, memoryLimitBytes, jitter } = facts;
  ensure(!losses || !flags.emit, "plan", "--lose must come without --emit", "both");
  const below = `--lose must be below the number of workers, ${devices}`;
  ensure(losses < devices, "plan", below, losses);
  const deviceNames = [...new Set(layers.map((one) => one.device))];
  const link = links.includes("worker") ? "worker" : links[0];
  const forecast = openForecast(jitter === undefined ? profile : withJitter(profile, jitter), {
    model: task.model,
    optimizer: completeOptimizer(options.optimizer),
    device: oneOf("device", flags.device ?? deviceNames[0], deviceNames),
    transport: oneOf("transport", flags.transport ?? link, links),
    clip: options.clip,
    mustClip: (flags.clip ?? 0) > 0,
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
  const found = (plan: RunPlan) => soFar(facts, plan);
  const plan = planRuns(space, forecast, {
    ...{ memoryLimitBytes, count: flags.count, found, spread: facts.spread },
    ...flags["time-limit"] !== undefined && untilOver(flags["time-limit"]),
  });
  const after = losses > 0 ? afterLosses(plan.best, forecast, { ...space, losses }) : [];
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
  const must = `the profile must have the ${what} ${quoted(name)}`;
  ensure(names.includes(name), "plan", must, received, RangeError);
  return name;
}

/** Returns the arguments of `troupe train` that run a candidate. */
function trainArguments(model: readonly string[], candidate: Candidate): string[] {
  const { schedule, options, workers, replicas, microBatch, microBatches } = candidate;
  const { recompute, precision, bucketSize, coarsening, layout } = candidate;
  const others = Object.entries(options).map(([name, value]) =>
    [flagName(name, SCHEDULE_FIELDS[name as keyof typeof options].flag), value] as const
  );
  const flags: Record<string, string | number | undefined> = {
    ...{ schedule, ...Object.fromEntries(others), workers, replicas },
    ...{ "micro-batch-size": microBatch, "micro-batches": microBatches },
    recompute: recompute === "none" ? undefined : recompute,
    precision: precision === "fp32" ? undefined : precision,
    ...{ "bucket-size": bucketSize, coarsening, layout },
  };
  const given = Object.entries(flags).filter(([, value]) => value !== undefined);
  return [...model, ...given.flatMap(([name, value]) => [`--${name}`, `${value}`])];
}

/** Returns the command as it is typed. */
const trainCommandLine = (model: readonly string[], candidate: Candidate): string =>
  commandLine("train", ...trainArguments(model, candidate).map(shellWord));

/** The input of a plan. */
type PlanFacts = ReturnType<typeof factsOf>;

/** Returns the input of a plan; `model` has the flags of the model. */
function factsOf(flags: PlanFlags, profile: Profile, model: readonly string[]) {
  const { machine, source } = profile, { batch, devices = machine.cores, jitter } = flags;
  const { "memory-limit": memoryLimitBytes = machine.memoryBytes } = flags;
  ensure(batch, "plan", "--batch must be the samples of a step");
  return {
    ...{ model, devices, batch, memoryLimitBytes, jitter, spread: spreadOf(profile) },
    profile: { source, machine: inOneLine(machine.name) },
  };
}

/** Relative spread of a profile above which it does not rank plans. */
const SPREAD_MAX = 0.2;

/** Returns notes that hold for all plans. */
function factNotes({ devices, spread }: PlanFacts): string[] {
  const varied = `the times of the profile vary by ±${(100 * spread).toFixed(0)} %`;
  const why = "too much to rank plans: measure it again while nothing else runs";
  const tooMany = `troupe train takes at most ${WORKERS_MAX} workers: it cannot run this plan`;
  return [
    ...devices > WORKERS_MAX ? [tooMany] : [],
    ...spread > SPREAD_MAX ? [`${varied}, ${why}`] : [],
  ];
}

/** Returns the plan for `--format json`. */
function planRecord(facts: PlanFacts, plan: RunPlan): object {
  const { devices, batch, memoryLimitBytes = null, jitter = null, profile, model } = facts;
  return {
    ...{ format: "troupe-plan", version: 1, model, devices, batch, memoryLimitBytes, jitter },
    profile,
    searched: plan.counts,
    equal: plan.equal,
    plans: plan.best.map((run, index) => runRecord(model, run, index + 1)),
    refused: plan.refusals,
    notes: factNotes(facts),
  };
}

function runRecord(model: readonly string[], run: CandidateRun, rank: number): unknown {
  const { schedule, options, workers, replicas, microBatch, microBatches } = run;
  const { recompute, precision, bucketSize = null, coarsening = null, layout = null } = run;
  const { stepMs, samplesPerSecond, bubble, parts, memoryBytes, peakBytes, reason = null } = run;
  const { alike, notes } = run;
  return {
    ...{ rank, schedule, options, workers, replicas, microBatch, microBatches },
    ...{ recompute, precision, offload: false, bucketSize, coarsening, layout },
    ...{ stepMs, samplesPerSecond, bubble, parts, memoryBytes, peakBytes, reason, alike, notes },
    train: trainArguments(model, run),
    command: trainCommandLine(model, run),
  };
}

/** The columns of the table. */
const HEAD = [
  ...["", "schedule", "D", "W", "B", "N", "recompute", "samples/s", "step, ms", "bubble"],
  ...["MiB a worker", "behind the best by"],
];

/** Returns the lines of a plan as text. */
export function planLines(facts: PlanFacts, plan: RunPlan): string[] {
  const { devices, batch, profile, model, jitter = 0 } = facts, { best, counts } = plan;
  const all = [...new Set(best.flatMap(({ notes }) => notes))];
  const others = all.filter((note) => !note.startsWith("scaled"));
  const scaled = all.length - others.length;
  const { candidates, unserved, tooLarge, tooLong, simulated, untried } = counts;
  const notes = [
    ...scaled > 0
      ? [`${scaled} costs are scaled from sizes that were not measured; --format json lists them`]
      : [],
    ...others,
    ...factNotes(facts),
  ];
  const late = untried > 0 ? `, ${untried} not tried within the time limit` : "";
  const longer = jitter > 0 ? `, actions up to ${percent(jitter)} longer` : "";
  return [
    `${batch} samples a step on ${devices} devices of ${profile.machine} (${profile.source})${longer}:`,
    "",
    ...formatTable([HEAD, ...best.map(rowOf)], { left: [1, 6, 11] }),
    "",
    `${candidates} candidates: ${simulated} simulated, ${tooLong} skipped as too slow, ${tooLarge} too large for the memory, ${unserved} not supported${late}.`,
    ...plan.equal > 1
      ? [`Plans 1 to ${plan.equal} are equal within the profile's spread: least memory first.`]
      : [],
    ...notes.map((note) => `note: ${note}`),
    "",
    "The best:",
    `  ${trainCommandLine(model, best[0]!)}`,
  ];
}

function rowOf(run: CandidateRun, index: number): string[] {
  const { workers, replicas, microBatch, microBatches, recompute, precision, memoryBytes } = run;
  const { bucketSize, coarsening, alike, samplesPerSecond, stepMs, peakBytes, reason = "" } = run;
  const schedule = [
    scheduleWords(run),
    ...bucketSize === undefined ? [] : [`bucket ${bucketSize}`],
    ...coarsening === undefined ? [] : [`k ${coarsening}`],
  ].join(", ");
  return [
    `${index + 1}`,
    schedule + (alike.length > 0 ? ` (or ${alike.join(", ")})` : ""),
    ...[workers, replicas, microBatch, microBatches].map(String),
    [recompute, ...precision === "fp32" ? [] : [precision]].join(", "),
    ...[samplesPerSecond, stepMs].map(inDigits),
    percent(run.bubble),
    memoryWords(memoryBytes, peakBytes),
    reason,
  ];
}

const inDigits = (value: number): string => value.toFixed(value < 100 ? 2 : 0);

/** Returns the least and the most bytes of a worker in MiB. */
function memoryWords(memoryBytes: readonly number[], peakBytes: number): string {
  const mebibytes = (bytes: number) => (bytes / 2 ** 20).toFixed(bytes < 100 * 2 ** 20 ? 1 : 0);
  const range = new Set([mebibytes(Math.min(...memoryBytes)), mebibytes(peakBytes)]);
  return [...range].join("–");
}

/** Returns what remains after losses, for `--format json`; no field if none were asked for. */
function lossRecords(after: readonly RemainingRun[]): object {
  if (after.length === 0) return {};
  const afterLosses = after.map(
    ({ rank, losses, workers, layout, copies, run, speed, canMove }) => {
      const { stepMs, samplesPerSecond, memoryBytes, peakBytes } = run;
      return {
        ...{ rank, losses, workers, ...layout, copies, stepMs, samplesPerSecond, speed },
        ...{ memoryBytes, peakBytes, nextLoss: nextLoss(canMove) },
      };
    },
  );
  return { afterLosses };
}

const nextLoss = (canMove: boolean) => canMove ? "resize" : "restart";

const LOSS_HEAD = [
  ...["lost", "workers", "pipelines", "depth", "copies", "samples/s", "of the full"],
  ...["MiB a worker", "next loss"],
];

/** Returns the lines of what remains after losses. */
function lossLines(
  { memoryLimitBytes = Infinity }: PlanFacts,
  after: readonly RemainingRun[],
): string[] {
  if (after.length === 0) return [];
  const rows = after.map(({ losses, workers, layout, copies, run, speed, canMove }) => [
    ...[losses, workers, layout.pipelines, layout.depth, copies].map(String),
    ...[inDigits(run.samplesPerSecond), percent(speed)],
    ...[memoryWords(run.memoryBytes, run.peakBytes), nextLoss(canMove)],
  ]);
  const large = after.find(({ run }) => run.peakBytes > memoryLimitBytes);
  const alone = "each stage is on one worker, whose loss restarts all workers";
  return [
    "",
    `Plan ${after[0]!.rank}, the best that --failover resize can move, after losses:`,
    ...formatTable([LOSS_HEAD, ...rows], { left: [8] }),
    ...after[0]!.canMove ? [] : [`note: ${alone}`],
    ...large ? [`note: with ${large.losses} lost, a worker is above the memory limit`] : [],
  ];
}
