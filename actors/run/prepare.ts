/**
 * Prepares a run: checks its options, fills in their defaults, and compiles its model.
 *
 * @module
 */

import { assertInput } from "../../kernels/internal.ts";
import {
  assertValid,
  createSchedule,
  findSchedule,
  formatAction,
  type ListedSchedule,
  type Schedule,
  type ScheduleDefinition,
  scheduleDefinitions,
  scheduleNames,
  type ScheduleOptions,
  withPolicy,
} from "../../schedules/mod.ts";
import { followedActions, refuseUnread } from "../../schedules/internal.ts";
import { checkClaim, type Claim, lockFolder } from "../checkpoints/lock.ts";
import { checkWritable, encodeConfig } from "../checkpoints/write.ts";
import { checkSizes } from "../options/limits.ts";
import type { RunOptions, TrainOptions } from "../options/train_options.ts";
import { type CheckedOptions, readOptions } from "../options/train_table.ts";
import { buddiesOf, copiesOf, pipelineCount } from "../pipeline/layout.ts";
import { hostingRefusal, type Verification } from "../pipeline/step.ts";
import type { PlaceName } from "../runtime/mod.ts";
import { tidyRendezvousFolders } from "../transports/rendezvous.ts";
import { compileJobs, compileRun, describePlan, planRun, sizeFinder } from "./compile.ts";
import { assertRanksHold, computedOn, isolationFor, runDevices, shareCores } from "./devices.ts";
import { transportTo } from "./engine.ts";
import { rateOf } from "./events.ts";
import { firstJobStates, firstState } from "./first_state.ts";
import { assertShareable, fillJobs, loraOf, mostJobs } from "./jobs.ts";
import { outlivesMoves } from "./hosts.ts";
import { type CompiledRun, planRunMemory, skipTrafficNote } from "./memory.ts";
import { assertDevicesHold, assertMemory } from "./memory_limit.ts";
import { rankMap } from "./mpi_run.ts";
import { checkHosts } from "./nats_run.ts";
import type { Facts } from "./program_facts.ts";

import { openRunJournal } from "./run_journal.ts";
import type { PreparedRun } from "./events.ts";

/**
 * Refuses options that do not go with `reduce: "mpi"`.
 *
 * @throws {RangeError} with the option.
 */
function checkReduce({ reduce, runtime, link, journal }: FilledOptions): void {
  if (reduce !== "mpi") return;
  const cannot = "train with reduce mpi";
  assertInput(runtime === "mpi", cannot, "the runtime must be mpi", runtime);
  assertInput(!link, cannot, "no link must be emulated, as MPI has its own", "one");
  const must = "no journal must be written, as none can play the sums of MPI again";
  assertInput(!journal, cannot, must, "one");
}

/**
 * Refuses a schedule that cannot train, before anything runs: if it leaves a worker without a stage,
 * its lists are not valid (they would hang), no other isolate could make its policy, or it has no
 * flushes and is neither PipeDream nor PipeDream-2BW.
 *
 * @throws {RangeError} with the schedule and the reason.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { createSchedule, F, scheduleFromLists, ActionList } from "@troupe/troupe/schedules";
 *
 * assertTrainable(createSchedule("chimera", { workers: 4, microBatches: 4 }));
 * const forwardOnly = scheduleFromLists("mine", [ActionList.from([F(0, 0)])]);
 * assert.throws(() => assertTrainable(forwardOnly), RangeError);
 * ```
 */
export function assertTrainable(schedule: Schedule): void {
  const { name, lists, placement } = schedule, cannot = `train with the schedule ${name}`;
  const idle = placement.findIndex(({ length }) => length === 0);
  assertInput(idle < 0, cannot, "each worker must have a stage", `none on worker ${idle}`);
  const must = "without a flush its lists, followed to the letter, and weight versions must be " +
    "those of pipedream or pipedream-2bw";
  assertInput(schedule.updates === "flush" || isKnown(schedule), cannot, must, "others");
  if (lists) return assertValid(schedule as ListedSchedule);
  const received = "a policy; make the lists with withLists",
    isOwn = !scheduleNames().includes(name);
  assertInput(!isOwn, cannot, "your schedule must have action lists", received);
}

/** Returns whether a schedule without flushes equals PipeDream or PipeDream-2BW; its name may differ. */
function isKnown({ workers, microBatches, updates, lists, listPolicy, weightVersions }: Schedule) {
  const name = updates === "every-backward" ? "pipedream" : "pipedream-2bw";
  const known = createSchedule(name, { workers, microBatches });
  return listPolicy?.name !== "elastic" && `${lists}` === `${known.lists}` &&
    `${weightVersions}` === `${known.weightVersions}`;
}

/**
 * Refuses recomputations (R) that the workers cannot serve.
 *
 * [Note: order of an R] Recomputed activations are in memory that all micro-batches of a stage
 * share; otherwise nothing would be saved. So an R must be the last action of its worker on the copy of
 * the stage before the backward that reads it: it may precede the actions of other stages, and
 * fill the time in which the gradient is on its way. A stage keeps inputs only, or all: where it has an
 * R, each of its micro-batches has. A W that does not follow its I at once computes the stage once
 * more by itself, as it does under `recomputeInterval`.
 *
 * @throws {RangeError} with the first such action.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { parseCsv, scheduleFromLists } from "@troupe/troupe/schedules";
 *
 * assertRecomputable(scheduleFromLists("mine", parseCsv("0F0,0F1,0R0,0B0,0R1,0B1")));
 * const early = scheduleFromLists("mine", parseCsv("0F0,0R0,0F1,0B0,0R1,0B1"));
 * assert.throws(() => assertRecomputable(early), /what 0R0 brings back .* received 0F1 after it/);
 * ```
 */
export function assertRecomputable(
  schedule: Schedule,
  { recomputeInterval }: { readonly recomputeInterval?: number | undefined } = {},
): void {
  const { name, listPolicy, slices = 1, microBatches } = schedule,
    counts = new Map<number, number>();
  const cannot = `train with the schedule ${name}`;
  for (const { action, next } of followedActions(schedule)) {
    const { kind, stage, microBatch, part } = action;
    if (kind !== "R") continue;
    counts.set(stage, (counts.get(stage) ?? 0) + 1);
    const isSame = next?.part?.index === part?.index && next?.part?.count === part?.count;
    const isRead = next?.microBatch === microBatch && isSame, one = formatAction(action);
    const must = `what ${one} brings back must be read before anything else of its stage runs`;
    const received = next ? `${formatAction(next)} after it` : "nothing after it";
    assertInput(isRead, cannot, must, received);
  }
  if (counts.size === 0) return;
  for (const [stage, count] of counts) {
    const each = slices > 1 ? `${microBatches * slices} slices` : `${microBatches} micro-batches`;
    const must = `each of ${each} must have an R of stage ${stage}, or none`;
    assertInput(count === microBatches * slices, cannot, must, count);
  }
  const isElastic = listPolicy?.name === "elastic";
  assertInput(!isElastic, cannot, "lists with R must be followed to the letter", "elastic");
  const must = "its R choose the recomputation, so recomputeInterval must be none";
  assertInput(recomputeInterval === undefined, cannot, must, recomputeInterval);
}

/** Options that need all workers to commit a step together. */
type CommitOptions =
  & Required<Pick<RunOptions, "replicas" | "sync" | "precision">>
  & Pick<RunOptions, "clip" | "lossScale">
  & {
    /** Pairs of tied parameters. */
    readonly ties: number;
  };

/** Their values with a schedule without flushes. */
const UNFLUSHED = {
  replicas: 1,
  sync: "end",
  clip: "none",
  precision: "fp32",
  lossScale: 1,
  ties: 0,
} satisfies Record<keyof CommitOptions, unknown>;

/**
 * Refuses options that a schedule without flushes cannot support. Its stages step their optimizers one
 * by one while other stages still compute, so the gradients of a step never exist all at the same time:
 * they cannot be added over replicas or ties, measured for clipping, or checked together.
 *
 * @throws {RangeError} naming the option.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { createSchedule } from "@troupe/troupe/schedules";
 *
 * const pipedream = createSchedule("pipedream", { workers: 2, microBatches: 4 });
 * const options = { replicas: 1, sync: "end", precision: "fp32", ties: 0 } as const;
 * assertServable(pipedream, options);
 * assert.throws(() => assertServable(pipedream, { ...options, clip: 1 }), {
 *   message: "Cannot train with the schedule pipedream: it has no flush, so clip must be none, received 1",
 * });
 * ```
 */
export function assertServable({ name, updates }: Schedule, options: CommitOptions): void {
  if (updates === "flush") return;
  for (const [option, value] of Object.entries(UNFLUSHED)) {
    const received = options[option as keyof CommitOptions] ?? value;
    const must = `it has no flush, so ${option} must be ${value}`;
    assertInput(received === value, `train with the schedule ${name}`, must, received);
  }
}

/** Options that choose the schedule. */
type Choice =
  & Pick<RunOptions, "policy" | "scheduleOptions" | "recomputeInterval">
  & Required<Pick<RunOptions, "schedule" | "workers" | "microBatches">>;

/**
 * Returns the schedule of a run with its policy.
 *
 * @throws {RangeError} if the schedule does not read an option, if a size is not that of the run, or if
 * the schedule cannot train.
 */
export function chooseSchedule(
  { schedule: asked, policy, scheduleOptions = {}, recomputeInterval, workers, microBatches }:
    Choice,
) {
  const sizes = { workers, microBatches };
  for (const name of ["workers", "microBatches"] as const) {
    const size = scheduleOptions[name], isRight = size === undefined || size === sizes[name];
    const right = `${sizes[name]}, as ${name} of the run, or left out`;
    assertInput(isRight, "train", `scheduleOptions.${name} must be ${right}`, size);
  }
  const { activationLimit, weightBacklog } = scheduleOptions;
  const reader = readerOf(asked), reads = (name: string) => reader.reads?.includes(name) ?? false;
  // Options that the schedule does not read belong to the policy.
  const isElastic = policy === "elastic";
  // With an interval, W computes a whole backward once more.
  const isWhole = recomputeInterval !== undefined && reads("weightBacklog");
  const options: ScheduleOptions = {
    ...scheduleOptions,
    ...(isElastic && !reads("activationLimit") && { activationLimit: undefined }),
    ...(isElastic && !reads("weightBacklog") && { weightBacklog: undefined }),
    ...(isWhole && weightBacklog === undefined && { weightBacklog: 0 }),
    ...sizes,
  };
  refuseUnread(reader, options, scheduleDefinitions);
  const made = typeof asked === "string"
    ? createSchedule(asked, options)
    : isDefinition(asked)
    ? asked.create(options)
    : asked;
  const isFit = made !== asked || made.microBatches === microBatches;
  const must = `the schedule must be for ${microBatches} micro-batches`;
  assertInput(isFit, "train", must, made.microBatches);
  const backlog = weightBacklog === "all" ? microBatches : weightBacklog;
  const schedule = policy ? withPolicy(made, policy, activationLimit, backlog) : made;
  assertTrainable(schedule);
  const scheduleDefinition = isDefinition(asked) ? asked : undefined;
  return { schedule, scheduleOptions: options, scheduleDefinition };
}

/** Returns the definition that reads the schedule options; your own lists read none. */
function readerOf(asked: Choice["schedule"]): Pick<ScheduleDefinition, "name" | "reads"> {
  if (typeof asked === "string") return { ...findSchedule(asked), name: asked };
  if (isDefinition(asked)) return asked;
  const { name } = asked;
  return scheduleNames().includes(name) ? { ...findSchedule(name), name } : { name, reads: [] };
}

const isDefinition = (asked: Choice["schedule"]): asked is ScheduleDefinition =>
  typeof asked !== "string" && "create" in asked;

/** Returns the options that must be equal in every process: words, numbers, and records of them. */
export function optionFacts(options: TrainOptions): Facts {
  const { model, schedule, mpi, journal: _journal, ...others } = options;
  const told = Object.entries(others).filter(([name, value]) =>
    ["string", "number", "boolean"].includes(typeof value) ||
    typeof value === "object" && RECORDS.includes(name)
  );
  const named = typeof schedule === "object" ? schedule.name : schedule;
  return Object.fromEntries(
    [...told, ["model", model?.name], ["schedule", named], ["mpi.map", mpi?.map]]
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}

/** The options that are records of words and numbers. */
const RECORDS = [
  ...["scheduleOptions", "optimizer", "learningRate", "link", "adapters", "faults", "lora"],
];

/** Options with defaults and derived values. */
type FilledOptions =
  & Omit<CheckedOptions, "jobs">
  & Pick<PreparedRun, "rate" | "lossScale" | "jobs">;

function fillOptions(given: RunOptions): FilledOptions {
  const options = readOptions(given), { clip, precision } = options;
  const lossScale = options.lossScale ?? (precision === "fp16" ? "dynamic" : undefined);
  const rate = rateOf(options), jobs = fillJobs(options);
  const lora = jobs ? undefined : loraOf(options);
  return { ...options, clip: clip || undefined, rate, lossScale, lora, jobs };
}

/**
 * Checks the options of a run and fills in its defaults; fetches the device where needed.
 *
 * @throws {RangeError} {@linkcode TypeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function prepareRun(options: RunOptions): Promise<PreparedRun> {
  const filled = fillOptions(options), { runtime, replicas, announce, jobs } = filled;
  const microBatches = filled.microBatches * (jobs ? mostJobs(jobs) : 1);
  checkReduce(filled);
  checkSizes({ ...filled, microBatches });
  const nats = runtime === "nats" ? checkHosts(filled) : undefined;
  const chosen = chooseSchedule({ ...filled, microBatches }), { schedule } = chosen;
  if (jobs) assertShareable(schedule);
  const servable = compileServable(filled, schedule), workers = replicas * schedule.workers;
  const freezes = canMove(schedule, filled), verification = verificationOf(schedule, filled);
  const devices = await runDevices(options, runtime, workers), [device] = devices;
  const isolation = runtime === "mpi" || runtime === "nats"
    ? runtime
    : isolationFor(runtime, filled.isolation, device.name);
  const compiled = planRun(servable, schedule, device.name), { predictions } = options.model;
  const isMoved = outlivesMoves({ freezes, system: options.system, devices }, isolation);
  const hasSpare = isMoved && runtime !== "local" && isolation === "process" && filled.retries > 0;
  const { model, stage, halves } = compiled;
  const note = runtime === "serial" ? undefined : skipTrafficNote(compiled, schedule);
  if (note) announce(note);
  // Before the first weights are drawn: they may be too many.
  const run = { options: filled, schedule, compiled, devices, runtime, replicas };
  assertMemory(options.memoryLimitBytes, run);
  assertDevicesHold(run);
  // Ranks that share no folder are sent what rank 0 has read.
  const workersRead = runtime !== "mpi" || !options.mpi?.gather, { jobs: _, ...checked } = filled;
  const state =
    await (jobs
      ? firstJobStates(model, jobs, checked, workersRead)
      : firstState(model, checked, workersRead));
  const { checkpoint, journal } = await openOutputs({ ...filled, isolation });
  const isRanked = runtime === "mpi" && !options.system;
  const ranks = isRanked ? rankMap(options.mpi ?? {}, workers) : undefined;
  if (ranks) assertRanksHold(ranks, device.name);
  // With a journal, messages carry all weights to rank 0.
  const gather = options.mpi?.gather || options.journal !== undefined;
  const mpi = ranks && { ...options.mpi, gather, ranks };
  return {
    ...filled,
    ...chosen,
    mpi,
    nats,
    microBatches: replicas * schedule.microBatches,
    predictionsOf: typeof predictions === "number" ? () => predictions : predictions,
    halves,
    model,
    sizeOf: sizeFinder(compiled),
    state,
    plan: describePlan(compiled, schedule, {
      ...{ runtime, replicas },
      on: computedOn(devices),
      share: shareCores(options, runtime, workers, device.name),
      run: planRunMemory({ ...filled, ...chosen, compiled, devices, isolation, hasSpare }),
    }),
    devices,
    stage,
    isolation,
    hasSpare,
    checkpoint,
    journal,
    isSharded: checkpoint !== undefined && mpi !== undefined && !mpi.gather,
    metrics: options.model.metrics,
    isTraced: filled.trace,
    minWorkers: filled.minWorkers ?? 1,
    freezes,
    verification,
  };
}

/** Compiles the model for its schedule, if these options can serve both. */
function compileServable(options: FilledOptions, schedule: Schedule): CompiledRun {
  const { runtime } = options;
  const isPlayed = runtime !== "serial" || !options.journal;
  const must = "the runtime must have actors, workers or local";
  assertInput(isPlayed, "write a journal", must, runtime);
  refuseOwnActors(options);
  assertRecomputable(schedule, options);
  const { jobs } = options;
  const compiled = jobs ? compileJobs(options, jobs, schedule) : compileRun(options, schedule);
  const hasAverages = !options.evaluation?.ema || schedule.updates === "flush";
  assertInput(hasAverages, "evaluate averages", "the schedule must have a flush", schedule.name);
  assertServable(schedule, { ...options, ties: compiled.model.ties.length });
  return compiled;
}

/**
 * Returns whether a run moves to other workers when one is lost; by default if stages have copies.
 *
 * @throws {RangeError} with the first option that prevents a requested move.
 */
function canMove(schedule: Schedule, options: FilledOptions): boolean {
  const { failover, runtime, replicas, buddy, minWorkers = 1 } = options;
  const workers = replicas * schedule.workers, must = `minWorkers must be at most ${workers}`;
  assertInput(minWorkers <= workers, "train", must, minWorkers);
  if (buddy) assertMirrorable(schedule, options);
  // The same flags serve a serial run, with which others are compared.
  if (runtime === "serial") return false;
  const reason = movingRefusal(schedule, options), isAsked = failover === "resize" || buddy;
  if (isAsked && reason !== undefined) throw new RangeError(reason);
  const isUseful = isAsked || replicas * pipelineCount(schedule) > 1;
  const moves = failover !== "restart" && reason === undefined && isUseful;
  const one = "minWorkers must be 1 where a lost worker restarts all";
  assertInput(moves || minWorkers === 1, "train", one, minWorkers);
  return moves;
}

/** Refuses mirrors if each stage has several copies, or if the run could not move to the mirrors. */
function assertMirrorable(
  schedule: Schedule,
  { failover, replicas, runtime }: FilledOptions,
): void {
  const cannot = "mirror stages", all = replicas * schedule.workers;
  assertInput(runtime !== "serial", cannot, "the runtime must have actors", runtime);
  assertInput(failover !== "restart", cannot, "failover must be resize", failover);
  assertInput(all > 1, cannot, "there must be another worker", "one worker");
  const isAlone = buddiesOf(copiesOf(schedule, replicas), all).some((one) => one !== undefined);
  const received = `${replicas * pipelineCount(schedule)} of each`;
  assertInput(isAlone, cannot, "a stage must have one copy only", received);
}

/** Returns why a run would have other bits on other workers, or its state cannot be read from them. */
function movingRefusal(
  schedule: Schedule,
  { runtime, reduce, journal, system, supervisor, worker, jobs }: FilledOptions,
): string | undefined {
  const refuse = (must: string, received: string) =>
    `Cannot move a run to other workers: ${must}, received ${received}`;
  if (runtime === "mpi") return refuse("the runtime must not be mpi, whose jobs restart", runtime);
  if (reduce !== "deterministic") {
    return refuse("reduce must be deterministic: other sums depend on the workers", reduce);
  }
  if (supervisor ?? worker ?? jobs) {
    return refuse("there must be no jobs and no actors of your own", "some");
  }
  const other = hostingRefusal(schedule);
  if (other !== undefined || !(journal ?? system)) return other;
  return refuse("there must be no journal and no given system", "one");
}

/**
 * Returns how results are verified.
 *
 * @throws {RangeError} when there is nothing to verify, or a wrong result has already reached weights.
 */
function verificationOf(
  schedule: Schedule,
  { verify: mode = "none", verifyEvery, runtime, replicas }: FilledOptions,
): Verification | undefined {
  const cannot = "verify results", isEach = verifyEvery === undefined || mode === "actions";
  assertInput(isEach, cannot, "verifyEvery must come with verify actions", mode);
  if (mode === "none") return undefined;
  const { name, updates } = schedule;
  assertInput(runtime !== "serial", cannot, "the runtime must have actors", runtime);
  assertInput(updates === "flush", cannot, "the schedule must have a flush", name);
  const areCompared = mode !== "sums" || replicas * pipelineCount(schedule) > 1;
  const must = "verify sums must have copies to compare";
  assertInput(areCompared, cannot, must, "one of each stage");
  return { mode, every: verifyEvery ?? 4 };
}

/** Refuses the user's actors in runs without actors, and in journals if they cannot be replayed. */
function refuseOwnActors({ runtime, journal, supervisor, worker }: FilledOptions): void {
  const cannot = "train with a supervisor or workers of your own";
  const hasActors = runtime !== "serial" || !(supervisor ?? worker);
  assertInput(hasActors, cannot, "the runtime must have actors", runtime);
  const isPlayed = !journal || ![supervisor, worker].some((spec) => spec?.argument);
  const must =
    "supervisor and workers must be Troupe's own, or exports of a module, as those of a " +
    "package are not replayed";
  assertInput(isPlayed, "write a journal", must, "a package");
}

/** Checks that the files of the run can be written and that its processes can start. */
async function openOutputs(
  { runtime, isolation, announce, ...options }: FilledOptions & { readonly isolation: PlaceName },
): Promise<Pick<PreparedRun, "checkpoint" | "journal">> {
  const { resume, weights, lora } = options, { config } = { config: {}, ...options.checkpoint };
  const checkpoint = options.checkpoint &&
    { ...options.checkpoint, config: { ...encodeConfig(config), ...lora && { lora } } };
  if (checkpoint) await checkDirectory({ ...checkpoint, resume, weights });
  if (runtime === "workers") transportTo(isolation, options)?.check?.();
  tidyRendezvousFolders();
  const journal = options.journal && await openRunJournal(options.journal, announce);
  return { checkpoint, journal };
}

/** Checks the folder of checkpoints before a journal begins; under the lock it is checked again. */
async function checkDirectory({ directory, ...claim }: Claim & { readonly directory: string }) {
  await checkWritable(directory);
  await checkClaim(directory, claim).catch((error) => {
    using _folder = lockFolder(directory); // the lock of a run in progress is the better reason
    throw error;
  });
}
