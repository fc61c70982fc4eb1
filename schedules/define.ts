/** Definitions of schedules: options, placements, closed forms, and the rules that make lists. */

import { type Action, type ActionKind, sliced } from "./action.ts";
import { ActionList } from "./action_list.ts";
import type { Costs } from "./costs.ts";
import { assertInput, refusal } from "./errors.ts";
import { checkWorker, listPolicies, type MailboxOrder, type StepPolicy } from "./policies.ts";
import type {
  ListedSchedule,
  PeakBounds,
  PlacedStage,
  Schedule,
  WeightUpdates,
} from "./schedule.ts";
import type { SkipEdge } from "./skip_edges.ts";

/** An option that some schedules read; all read `workers` and `microBatches`. */
export type ScheduleOption = Exclude<keyof ScheduleOptions, "workers" | "microBatches">;

/** Ways of Chimera to serve more micro-batches than workers (section 3.5). */
export type ChimeraScale = "direct" | "doubling" | "halving";

/** Options of all schedules; each schedule reads some of them. */
export interface ScheduleOptions {
  /** Workers of one pipeline. */
  readonly workers: number;
  /** Micro-batches of one optimizer step. */
  readonly microBatches: number;
  /**
   * Message-driven: micro-batches in flight at a time. Default for `fifo` and `backward-first`: the
   * number of workers, but at least 2. Default for `bf` and `bfw`: what `activationLimit` allows.
   */
  readonly pipelineLimit?: number | undefined;
  /**
   * Message-driven: which of the actions that are ready runs first; `bfw` unless given, `fifo` on
   * one worker.
   */
  readonly order?: MailboxOrder | undefined;
  /**
   * Message-driven with `bfw`, elastic: the most micro-batches of a stage whose backward for the
   * input has run and whose backward for the weights has not. Unless given, 2 for `bfw`, and what the
   * list says for the elastic policy.
   */
  readonly weightBacklog?: number | "all" | undefined;
  /**
   * Message-driven: what `activationLimit` counts: micro-batches, or, with `sizes`, bytes in those of
   * the largest micro-batch; `count` unless given.
   */
  readonly limitBy?: "count" | "bytes" | undefined;
  /** The activations of each micro-batch, as a part of those of the largest. Default: all equal. */
  readonly sizes?: readonly number[] | undefined;
  /**
   * Interleaved and looped: stages on each worker; 2 unless given; `search` chooses unless given.
   * Message-driven: 1, or 2 for a V; 1 unless given.
   */
  readonly chunks?: number | undefined;
  /** Hanayo: waves; 1 unless given. Default: `search` chooses. */
  readonly waves?: number | undefined;
  /** Slices of each micro-batch's sequence. Default 1. */
  readonly slices?: number | undefined;
  /** Chimera: the number of down pipes, and of up pipes. Default 1. */
  readonly pipelines?: number | undefined;
  /** Chimera: the way to serve more micro-batches than workers. Default `direct`. */
  readonly scale?: ChimeraScale | undefined;
  /** Search: the costs to optimize for. Default: tF = tI = tW = 1 and no time for messages. */
  readonly costs?: Costs | undefined;
  /**
   * The most activations of a worker, in 1/P of a micro-batch's. Unless given, P for search and
   * message-driven schedules, and the peak of the list for the elastic policy.
   */
  readonly activationLimit?: number | undefined;
  /** Search: the most weights of a worker, in 1/P of the model. Default 1. */
  readonly weightLimit?: number | undefined;
  /**
   * Search: true for the shortest order in which stages keep only their inputs
   * ({@linkcode withRecomputation}); the lists then have its R.
   */
  readonly recomputeAhead?: boolean | undefined;
  /** Search: skip edges between P equal parts of the model. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** Search: called with each schedule within the limits, as soon as it is found. */
  readonly found?: ((schedule: ListedSchedule, makespan: number) => void) | undefined;
}

/**
 * Refuses an option of a schedule.
 *
 * @throws {RangeError} if `holds` is false or `value` is not a whole number.
 *
 * @example
 * ```ts
 * import { throws } from "node:assert/strict";
 * import { requireOption } from "@troupe/troupe/schedules";
 *
 * throws(() => requireOption("chimera", "workers", 3, 3 % 2 === 0, "even"), {
 *   name: "RangeError",
 *   message: "Cannot make the schedule chimera: workers must be even, received 3",
 * });
 * ```
 */
export function requireOption(
  schedule: string,
  option: string,
  value: number,
  holds: boolean,
  must: string,
): void {
  if (Number.isInteger(value) && holds) return;
  const whole = Number.isInteger(value) ? "" : "a whole number, ";
  throw refusal(`make the schedule ${schedule}`, `${option} must be ${whole}${must}`, value);
}

/** Refuses fewer micro-batches than workers. @throws {RangeError} */
export function requireFull(name: string, { workers, microBatches }: ScheduleOptions): void {
  const must = `at least the number of workers, ${workers}`;
  requireOption(name, "microBatches", microBatches, microBatches >= workers, must);
}

/** One value for each of `count` workers. */
export function perWorker<T>(count: number, value: (worker: number) => T): T[] {
  return Array.from({ length: count }, (_, worker) => value(worker));
}

/** The placement of the stages of each pipeline. */
export interface Place {
  /** The number of stages of one copy of the model. */
  readonly stages: number;
  /** The worker that holds a stage of a pipeline. */
  workerOf(stage: number, pipeline: number): number;
  /** Copies of the pipeline. Default 1. */
  readonly pipelineCount?: number;
  /** The pipeline that computes a micro-batch. Default 0. */
  pipelineOf?(microBatch: number): number;
  /** Slices of each micro-batch's sequence. Default 1. */
  readonly slices?: number;
  /** Workers in all. Default: the option `workers`. */
  readonly workers?: number;
  /** Micro-batches in all. Default: the option `microBatches`. */
  readonly microBatches?: number;
}

/** A schedule by rule. Its functions may throw a RangeError for options they cannot serve. */
export interface ScheduleRule<O extends ScheduleOptions = ScheduleOptions> {
  /** The name of the schedule. */
  readonly name: string;
  /** Other names, such as that of another paper. */
  readonly aliases?: readonly string[];
  /** A description of one line. */
  readonly summary: string;
  /**
   * The options that it reads in addition to `workers` and `microBatches`. Others are refused by name;
   * unless given, all are accepted.
   */
  readonly reads?: readonly Exclude<keyof O, "workers" | "microBatches">[];
  /** The time at which weights change. Default `flush`. */
  readonly updates?: WeightUpdates;
  /** The versions of its weights that a worker keeps. Default 1. */
  weightVersions?(worker: number, options: O): number;
  /** Refuses options that it cannot serve, with its name. Called first. */
  check?(name: string, options: O): void;
  /** The placement of the stages. Called next, so it may check options, too. */
  place(options: O): Place;
  /** The actions of a worker, in order. */
  order(worker: number, options: O): Iterable<Action>;
}

/** A schedule whose workers handle messages as they come, without a fixed order. */
export interface PolicyRule<O extends ScheduleOptions = ScheduleOptions>
  extends Omit<ScheduleRule<O>, "order"> {
  /** Micro-batches in flight at a time. */
  injectionLimit(options: O): number;
  /** Maximum number of micro-batches of a stage between I and W. Default: whole backwards. */
  weightBacklog?(options: O): number;
  /** Unit of the limit of activations. Default: micro-batches. */
  limitBy?(options: O): ScheduleOptions["limitBy"];
  /** Bounds of the peak of a worker. Default: up to `injectionLimit`. */
  peak?(worker: number, options: O): PeakBounds;
  /** Makes a policy for a worker and one step. */
  policy(worker: number, options: O): StepPolicy;
}

/** A named schedule that can be made for any options it serves. */
export interface ScheduleDefinition<O extends ScheduleOptions = ScheduleOptions>
  extends Pick<ScheduleRule<O>, "name" | "aliases" | "summary"> {
  /** The options that it reads in addition to `workers` and `microBatches`. Default: all. */
  readonly reads?: readonly string[];
  /**
   * Makes the schedule.
   *
   * @throws {RangeError} if it cannot serve the options, or does not read one of them.
   */
  create(options: O): Schedule;
}

/** The most (stage, micro-batch, slice) of a schedule: to analyze it takes a gigabyte. */
const COMPUTED_MAX = 2 ** 23;

/** The most copies of stages, all pipelines together. */
const COPIES_MAX = 2 ** 20;

/** The most actions of a stage, a micro-batch and a slice: F, B, I, W and R, each in two halves. */
const ACTIONS_MAX = 10;

/** Options that are counts. */
const COUNTS = [
  "workers",
  "microBatches",
  "pipelineLimit",
  "chunks",
  "waves",
  "slices",
  "pipelines",
] as const;

/**
 * Makes the schedule of a rule.
 *
 * @throws {RangeError} if the schedule is too large, a stage is on a worker that does not exist, or an
 * order is no list of actions that ends.
 */
function buildSchedule<O extends ScheduleOptions>(
  rule: ScheduleRule<O> | PolicyRule<O>,
  options: O,
): Schedule {
  rule.check?.(rule.name, options);
  const place = rule.place(options), { stages, slices = 1 } = place;
  const { workers = options.workers, microBatches = options.microBatches } = place;
  checkSize(rule.name, place, workers, microBatches);
  const shared = {
    name: rule.name,
    workers,
    stages,
    microBatches,
    ...slices > 1 && { slices },
    placement: placementTable(rule.name, place, workers),
    pipelineOf: pipelinesOf(rule.name, place, microBatches),
    updates: rule.updates ?? "flush",
    weightVersions: perWorker(workers, (w) => rule.weightVersions?.(w, options) ?? 1),
  };
  if ("policy" in rule) {
    const peaks = rule.peak && shared.placement.map((_, w) => rule.peak!(w, options));
    const weightBacklog = rule.weightBacklog?.(options) ?? 0;
    return Object.freeze({
      ...shared,
      ...weightBacklog > 0 && { weightBacklog },
      ...rule.limitBy?.(options) === "bytes" && { limitBy: "bytes" as const },
      injectionLimit: rule.injectionLimit(options),
      ...peaks && { peaks },
      policy: (worker: number) => rule.policy(checkWorker(worker, workers), options),
    });
  }
  const most = ACTIONS_MAX * stages * microBatches * slices;
  const listOf = (worker: number) => packOrder(rule.name, rule.order(worker, options), most);
  const lists = Object.freeze(perWorker(workers, listOf));
  const policy = listPolicies(lists);
  return Object.freeze({ ...shared, lists, injectionLimit: microBatches, policy });
}

/** Packs the order of a worker. @throws {RangeError} if it is no list of actions, or has no end. */
function packOrder(name: string, order: Iterable<Action>, most: number): ActionList {
  const cannot = `make the schedule ${name}`, must = "order must return an iterable of actions";
  assertInput(typeof order?.[Symbol.iterator] === "function", cannot, must, typeof order);
  const list = ActionList.from(Iterator.from(order).take(most + 1));
  assertInput(list.length <= most, cannot, `its lists must have at most ${most} actions`, "more");
  return list;
}

/**
 * Checks the options that are counts, for schedules that are not placed by a rule as well.
 *
 * @throws {RangeError} if one is not a positive whole number, or there are too many workers.
 */
function checkCounts(name: string, options: ScheduleOptions): void {
  for (const key of COUNTS) {
    const value = key in options ? options[key] : undefined;
    if (value !== undefined) requireOption(name, key, value, value >= 1, "at least 1");
  }
  const { workers } = options;
  requireOption(name, "workers", workers, workers <= COPIES_MAX, `at most ${COPIES_MAX}`);
}

function checkSize(name: string, place: Place, workers: number, microBatches: number): void {
  const { stages, pipelineCount = 1, slices = 1 } = place;
  const counts = { stages, pipelineCount, slices, workers, microBatches };
  for (const [key, value] of Object.entries(counts)) {
    const isCount = Number.isInteger(value) && value >= 1;
    assertInput(isCount, `place ${name}`, `${key} must be a whole number from 1`, value);
  }
  const cannot = `make the schedule ${name}`, cut = slices > 1 ? `, in ${slices} slices each` : "";
  const fewCopies = `workers, and stages of all its pipelines, must be at most ${COPIES_MAX}`;
  const copies = `${workers} and ${stages} times ${pipelineCount}`;
  assertInput(Math.max(workers, stages * pipelineCount) <= COPIES_MAX, cannot, fewCopies, copies);
  const fewCells = `stages times micro-batches must be at most ${COMPUTED_MAX}`;
  const cells = `${stages} times ${microBatches}${cut}`;
  assertInput(stages * microBatches * slices <= COMPUTED_MAX, cannot, fewCells, cells);
}

/** The pipeline of each micro-batch. @throws {RangeError} if one does not exist. */
function pipelinesOf(name: string, place: Place, microBatches: number): number[] {
  const last = (place.pipelineCount ?? 1) - 1;
  return Array.from({ length: microBatches }, (_, m) => {
    const pipeline = place.pipelineOf?.(m) ?? 0, isThere = pipeline >= 0 && pipeline <= last;
    const must = `the replica of micro-batch ${m} must be a whole number from 0 to ${last}`;
    assertInput(isThere && Number.isInteger(pipeline), `place ${name}`, must, pipeline);
    return pipeline;
  });
}

function placementTable(name: string, place: Place, workers: number): readonly PlacedStage[][] {
  const table: PlacedStage[][] = Array.from({ length: workers }, () => []);
  for (let pipeline = 0; pipeline < (place.pipelineCount ?? 1); pipeline++) {
    for (let stage = 0; stage < place.stages; stage++) {
      const worker = place.workerOf(stage, pipeline), held = table[worker];
      const must = `the worker of stage ${stage} of replica ${pipeline} must be from`;
      assertInput(held !== undefined, `place ${name}`, `${must} 0 to ${workers - 1}`, worker);
      held.push({ stage, pipeline });
    }
  }
  return table;
}

/** A schedule with the options that it reads in addition to `workers` and `microBatches`. */
export interface OptionReader {
  /** The name of the schedule. */
  readonly name: string;
  /** The names of the options. Default: all. */
  readonly reads?: readonly string[] | undefined;
}

/**
 * The names of the options that are given and not read. Costs without a value count as not given.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { findSchedule } from "@troupe/troupe/schedules";
 *
 * const options = { workers: 2, microBatches: 4, waves: 2, costs: { send: undefined } };
 * deepStrictEqual(unreadOptions(findSchedule("1f1b"), options), ["waves"]);
 * deepStrictEqual(unreadOptions(findSchedule("hanayo"), options), []);
 * ```
 */
export function unreadOptions({ reads }: OptionReader, options: object): string[] {
  if (reads === undefined) return [];
  const read = new Set(["workers", "microBatches", ...reads]);
  return Object.entries(options)
    .filter(([name, value]) => !read.has(name) && isGiven(value))
    .map(([name]) => name);
}

function isGiven(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return value !== undefined;
  return Object.values(value).some(isGiven);
}

/**
 * Selects the options that a schedule reads.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { findSchedule, readOptions } from "@troupe/troupe/schedules";
 *
 * const options = { workers: 2, microBatches: 4, waves: 2, chunks: 3 };
 * deepStrictEqual(readOptions(findSchedule("hanayo"), options), {
 *   workers: 2,
 *   microBatches: 4,
 *   waves: 2,
 * });
 * ```
 */
export function readOptions<O extends ScheduleOptions>(reader: OptionReader, options: O): O {
  const unread = unreadOptions(reader, options);
  const read = Object.entries(options).filter(([name]) => !unread.includes(name));
  return Object.fromEntries(read) as O;
}

/**
 * Refuses options that are not read.
 *
 * @param definitions Schedules that may read the options; the error names them.
 * @throws {RangeError} with the names of the options.
 */
export function refuseUnread(
  reader: OptionReader,
  options: object,
  definitions: readonly OptionReader[] = [],
): void {
  const unread = unreadOptions(reader, options);
  if (unread.length === 0) return;
  const others = definitions
    .filter(({ reads }) => unread.every((name) => reads?.includes(name)))
    .map(({ name }) => name);
  throw new RangeError(
    `Cannot make the schedule ${reader.name}: it does not read ${unread.join(" or ")}` +
      (others.length === 0 ? "" : `; schedules that do: ${others.join(", ")}`),
  );
}

/**
 * Makes a schedule from a rule: `place` returns the worker of each stage, `order` the actions of each
 * worker. You can train with the result, `train({ schedule: mine })`, measure it and draw it.
 *
 * To add a schedule to this package, define it in a file of `schedules/built_in/` and list it in
 * `registry.ts` there; commands, comparison, search and tests then find it. Write its golden file with
 * `deno task troupe schedule NAME --workers 4 --micro-batches 8 --format csv --out
 * tests/golden/schedules/NAME.csv`.
 *
 * @throws {RangeError} on `create`, if an option is not read or is not a positive whole number, a
 * stage is on a worker that does not exist, or an order is no list of actions that ends.
 *
 * @example All forwards, then all backwards
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, defineSchedule, F } from "@troupe/troupe/schedules";
 *
 * const mine = defineSchedule({
 *   name: "mine",
 *   summary: "all forwards, then all backwards",
 *   place: ({ workers }) => ({ stages: workers, workerOf: (stage) => stage }),
 *   *order(worker, { microBatches }) {
 *     for (let m = 0; m < microBatches; m++) yield F(worker, m);
 *     for (let m = 0; m < microBatches; m++) yield B(worker, m);
 *   },
 * });
 * const schedule = mine.create({ workers: 2, microBatches: 2 });
 * strictEqual(String(schedule.lists?.[1]), "1F0,1F1,1B0,1B1");
 * ```
 */
export function defineSchedule<O extends ScheduleOptions = ScheduleOptions>(
  rule: ScheduleRule<O> | PolicyRule<O>,
): ScheduleDefinition<O> {
  return defineMade(rule, (options) => buildSchedule(rule, options));
}

/** Makes a definition from a function that makes the schedules. */
export function defineMade<O extends ScheduleOptions = ScheduleOptions>(
  { name, aliases, summary, reads }: Pick<
    ScheduleRule<O>,
    "name" | "aliases" | "summary" | "reads"
  >,
  make: (options: O) => Schedule,
): ScheduleDefinition<O> {
  const read = reads?.map(String);
  return {
    name,
    summary,
    ...(aliases && { aliases }),
    ...(read && { reads: read }),
    create(options: O) {
      refuseUnread({ name, reads: read }, options);
      checkCounts(name, options);
      return make(options);
    },
  };
}

/**
 * One stage for each worker: stage s on worker s.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { linear } from "@troupe/troupe/schedules";
 *
 * strictEqual(linear({ workers: 4, microBatches: 8 }).workerOf(3, 0), 3);
 * ```
 */
export function linear({ workers }: ScheduleOptions): Place {
  return { stages: workers, workerOf: (stage) => stage };
}

/**
 * `chunks` stages for each worker, in turn: stage s on worker s mod P.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { looped } from "@troupe/troupe/schedules";
 *
 * strictEqual(looped({ workers: 4, microBatches: 8, chunks: 2 }).workerOf(5, 0), 1);
 * ```
 */
export function looped({ workers, chunks = 2 }: ScheduleOptions): Place {
  return { stages: workers * chunks, workerOf: (stage) => stage % workers };
}

/**
 * Waves: the stages run down the workers and up again, `waves` times, so that the turning points
 * need no message. One wave is the V of ZB-V and DualPipeV.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { wave } from "@troupe/troupe/schedules";
 *
 * const { workerOf } = wave({ workers: 3, microBatches: 3 });
 * deepStrictEqual([0, 1, 2, 3, 4, 5].map((stage) => workerOf(stage, 0)), [0, 1, 2, 2, 1, 0]);
 * ```
 */
export function wave({ workers, waves = 1 }: ScheduleOptions): Place {
  return {
    stages: 2 * workers * waves,
    workerOf(stage) {
      const position = stage % workers;
      return Math.floor(stage / workers) % 2 === 0 ? position : workers - 1 - position;
    },
  };
}

/**
 * Chimera's 2f pipes (section 3.6): down pipe i starts at worker i·D/f, and up pipe i runs the
 * same workers backwards. Unit u holds the micro-batches uD … uD+D-1, the down pipes first; the rest
 * after the last whole unit is shared as evenly as possible, the first pipes first.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { bidirectional } from "@troupe/troupe/schedules";
 *
 * const { workerOf } = bidirectional({ workers: 4, microBatches: 4 });
 * deepStrictEqual([0, 1, 2, 3].map((stage) => workerOf(stage, 1)), [3, 2, 1, 0]);
 * ```
 */
export function bidirectional(
  { workers: depth, microBatches, pipelines = 1 }: ScheduleOptions,
): Required<Pick<Place, "stages" | "workerOf" | "pipelineCount" | "pipelineOf">> {
  const pipelineCount = 2 * pipelines, spacing = depth / pipelines;
  return {
    stages: depth,
    pipelineCount,
    workerOf(stage, pipeline) {
      return pipeline < pipelines
        ? (pipeline * spacing + stage) % depth
        : ((pipeline - pipelines) * spacing + depth - 1 - stage) % depth;
    },
    pipelineOf(microBatch) {
      let rank = microBatch % depth;
      const unit = Math.min(depth, microBatches - (microBatch - rank));
      for (let pipeline = 0;; pipeline++) {
        rank -= evenShare(unit, pipelineCount, pipeline);
        if (rank < 0) return pipeline;
      }
    },
  };
}

/**
 * The part of `total` that one of `count` receivers gets if it is shared as evenly as possible.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 *
 * deepStrictEqual([0, 1, 2].map((index) => evenShare(7, 3, index)), [3, 2, 2]);
 * ```
 */
export function evenShare(total: number, count: number, index: number): number {
  return Math.floor(total / count) + (index < total % count ? 1 : 0);
}

/** Yields `count` forwards and `count` backwards, in turn from the forward `warmUp` on. */
export function* inTurn(
  count: number,
  warmUp: number,
  make: (kind: "F" | "B", k: number) => Action,
): Iterable<Action> {
  for (let k = 0; k < count + warmUp; k++) {
    if (k < count) yield make("F", k);
    if (k >= warmUp) yield make("B", k - warmUp);
  }
}

/** The slices of a micro-batch, if a schedule reads the option; else 1. */
export function slicesIn(rule: Pick<ScheduleRule, "reads">, options: ScheduleOptions): number {
  return rule.reads?.includes("slices") ? options.slices ?? 1 : 1;
}

/** An action of a slice; of the whole micro-batch if there is one slice. */
export function sliceOf(action: Action, slice: number, slices: number): Action {
  return slices === 1 ? action : sliced(action, slice, slices);
}

/**
 * Returns a function that makes the k-th action of a kind of a stage. Forwards take the slices of a
 * micro-batch in order, backwards the last slice first.
 */
export function makerOf(stage: number, slices: number) {
  return (kind: ActionKind, k: number): Action => {
    const slice = kind === "F" ? k % slices : slices - 1 - k % slices;
    return sliceOf({ kind, stage, microBatch: Math.floor(k / slices) }, slice, slices);
  };
}

/** An action and its slot in the table of the paper. */
export type SlottedAction = readonly [slot: number, action: Action];

/** The actions of one worker in the order of their slots. */
export function inSlotOrder(slotted: SlottedAction[]): Action[] {
  return slotted.sort(([a], [b]) => a - b).map(([, action]) => action);
}
