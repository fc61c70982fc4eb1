/** Orders by slot: a paper's table of unit time slots becomes the order of a list. */

import type { Action } from "./action.ts";
import { ActionList } from "./action_list.ts";
import type { Costs } from "./costs.ts";
import { listPolicies, type MailboxOrder, type StepPolicy } from "./policies.ts";
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

/** How a Chimera pipeline serves more micro-batches than workers (section 3.5). */
export type ChimeraScale = "direct" | "doubling" | "halving";

/** What a schedule is asked for; each schedule reads those that it knows. */
export interface ScheduleOptions {
  /** Workers of one pipeline. */
  readonly workers: number;
  /** Micro-batches of one optimizer step. */
  readonly microBatches: number;
  /** Message-driven: micro-batches in flight at a time; the number of workers unless given. */
  readonly pipelineLimit?: number | undefined;
  /** Message-driven: which message goes first; `fifo` unless given. */
  readonly order?: MailboxOrder | undefined;
  /** Interleaved and looped: stages on each worker; 2 unless given, and of `search` its choice. */
  readonly chunks?: number | undefined;
  /** Hanayo: waves; 1 unless given, and of `search` its choice. */
  readonly waves?: number | undefined;
  /** Slices of each micro-batch's sequence, where a schedule cuts them; 1 unless given. */
  readonly slices?: number | undefined;
  /** Chimera: the number of down pipes, which is also that of the up pipes; 1 unless given. */
  readonly pipelines?: number | undefined;
  /** Chimera: the way to serve more micro-batches than workers; `direct` unless given. */
  readonly scale?: ChimeraScale | undefined;
  /** Search: what to plan for; tF = tI = tW = 1 and no time for messages unless given. */
  readonly costs?: Costs | undefined;
  /**
   * The most activations of a worker, in 1/P of a micro-batch's. Search: P unless given. The elastic
   * policy: what the list itself needs unless given.
   */
  readonly activationLimit?: number | undefined;
  /** Search: the most weights of a worker, in 1/P of the model; 1 unless given. */
  readonly weightLimit?: number | undefined;
  /**
   * Search: true for the shortest order in which stages keep only their inputs
   * ({@linkcode withRecomputation}); the lists then have its R.
   */
  readonly recomputeAhead?: boolean | undefined;
  /** Search: skip edges between P equal parts of the model ({@linkcode edgesOfParts}). */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** Search: gets each schedule that keeps the limits, as soon as it is found. */
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
  throw new RangeError(
    `Cannot make the schedule ${schedule}: ${option} must be ${whole}${must}, received ${value}`,
  );
}

/** The durations that closed forms speak of: the same for every 1/P of the model, no messages. */
export interface UniformCosts {
  /** A forward, tF. */
  readonly forward: number;
  /** A full backward, tB = tI + tW. */
  readonly backward: number;
  /** The backward for the input, tI. */
  readonly input: number;
  /** The backward for the weights, tW. */
  readonly weight: number;
  /** A forward and a full backward that overlap, tF&B. */
  readonly overlap: number;
}

/**
 * What holds for the workers of a schedule, in the order of the workers or as one number for all.
 * A field is there only where its assumptions hold: the exact ones say what the execution gives,
 * the others bound it.
 */
export interface ClosedForm {
  /** Idle time, the flush included. */
  readonly idle?: number;
  /** Idle time between a worker's first and last action. */
  readonly idleLocal?: number;
  /** Peak activations, in micro-batches of 1/P of the model. */
  readonly peakActivations?: readonly number[];
  /** Weights, in 1/P of the model. */
  readonly weights: readonly number[];
  /** No worker is idle for less. */
  readonly idleAtLeast?: number;
  /** No worker is idle for more. */
  readonly idleAtMost?: number;
  /** No worker is idle for more between its first and last action. */
  readonly idleLocalAtMost?: number;
  /** No worker holds more activations. */
  readonly peakAtMost?: number;
}

/** One number for each of `count` workers. */
export function perWorker(count: number, value: (worker: number) => number): number[] {
  return Array.from({ length: count }, (_, worker) => value(worker));
}

/** Where the stages of each replica of the pipeline sit. */
export interface Place {
  /** The number of stages of one copy of the model. */
  readonly stages: number;
  /** The worker that holds a stage of a replica. */
  workerOf(stage: number, replica: number): number;
  /** Copies of the pipeline; 1 unless given. */
  readonly replicas?: number;
  /** The replica that computes a micro-batch; 0 unless given. */
  replicaOf?(microBatch: number): number;
  /** Slices of each micro-batch's sequence; 1 unless given. */
  readonly slices?: number;
  /** Workers in all, where that is not the `workers` asked for. */
  readonly workers?: number;
  /** Micro-batches in all, where that is not the `microBatches` asked for. */
  readonly microBatches?: number;
}

/** A schedule by rule. `place` and `order` may throw a RangeError for what they cannot serve. */
export interface ScheduleRule<O extends ScheduleOptions = ScheduleOptions> {
  /** The name under which it is asked for. */
  readonly name: string;
  /** Other names of it, such as that of another paper. */
  readonly aliases?: readonly string[];
  /** One line that tells a user what it is. */
  readonly summary: string;
  /**
   * The options that it reads beside `workers` and `microBatches`. Others are refused by name;
   * none is where a schedule does not say what it reads.
   */
  readonly reads?: readonly Exclude<keyof O, "workers" | "microBatches">[];
  /** When the weights change; `flush` unless given. */
  readonly updates?: WeightUpdates;
  /** The versions of its weights that a worker keeps; 1 unless given. */
  weightVersions?(worker: number, options: O): number;
  /** What theory says of it, where it says anything. */
  closedForm?(options: O, costs: UniformCosts): ClosedForm;
  /** Where the stages sit. Called first: the place to refuse options. */
  place(options: O): Place;
  /** What a worker does, in order. */
  order(worker: number, options: O): Iterable<Action>;
}

/** A schedule whose workers take messages as they come, instead of an order known beforehand. */
export interface PolicyRule<O extends ScheduleOptions = ScheduleOptions>
  extends Omit<ScheduleRule<O>, "order"> {
  /** Micro-batches in flight at a time. */
  injectionLimit(options: O): number;
  /** What a worker holds at its peak; up to `injectionLimit` unless given. */
  peak?(worker: number, options: O): PeakBounds;
  /** A new policy for a worker, good for one step. */
  policy(worker: number, options: O): StepPolicy;
}

/** A named schedule that can be made for any options it serves. */
export interface ScheduleDefinition<O extends ScheduleOptions = ScheduleOptions> {
  /** The name under which it is asked for. */
  readonly name: string;
  /** Other names of it. */
  readonly aliases?: readonly string[];
  /** One line that tells a user what it is. */
  readonly summary: string;
  /** The options that it reads beside `workers` and `microBatches`; any where it does not say. */
  readonly reads?: readonly string[];
  /** What theory says of it for the options, where it says anything. */
  closedForm?(options: O, costs: UniformCosts): ClosedForm;
  /**
   * Makes the schedule.
   *
   * @throws {RangeError} if it cannot serve the options, or does not read one of them.
   */
  create(options: O): Schedule;
}

/** The most (stage, micro-batch, slice) of a schedule: to analyze it takes a gigabyte. */
const COMPUTED_MAX = 2 ** 23;

/** The most copies of stages, all replicas of the pipeline together. */
const COPIES_MAX = 2 ** 20;

/** The options that count something. */
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
 * @throws {RangeError} if an option is no positive whole number, the schedule is too large, or a
 * stage is placed on no worker.
 */
function buildSchedule<O extends ScheduleOptions>(
  rule: ScheduleRule<O> | PolicyRule<O>,
  options: O,
): Schedule {
  for (const key of COUNTS) {
    const value = key in options ? options[key] : undefined;
    if (value !== undefined) requireOption(rule.name, key, value, value >= 1, "at least 1");
  }
  const place = rule.place(options);
  const workers = place.workers ?? options.workers;
  const microBatches = place.microBatches ?? options.microBatches;
  checkSize(rule.name, place, workers, microBatches);
  const { stages, slices = 1 } = place;
  const shared = {
    name: rule.name,
    workers,
    stages,
    microBatches,
    ...slices > 1 && { slices },
    placement: placementTable(rule.name, place, workers),
    replicaOf: Array.from({ length: microBatches }, (_, m) => place.replicaOf?.(m) ?? 0),
    updates: rule.updates ?? "flush",
    weightVersions: Array.from(
      { length: workers },
      (_, w) => rule.weightVersions?.(w, options) ?? 1,
    ),
  };
  if ("policy" in rule) {
    const peaks = rule.peak && shared.placement.map((_, w) => rule.peak!(w, options));
    return Object.freeze({
      ...shared,
      injectionLimit: rule.injectionLimit(options),
      ...peaks && { peaks },
      policy: (worker: number) => rule.policy(checkWorker(worker, workers), options),
    });
  }
  const lists = Object.freeze(
    Array.from({ length: workers }, (_, worker) => ActionList.from(rule.order(worker, options))),
  );
  return Object.freeze({
    ...shared,
    lists,
    injectionLimit: microBatches,
    policy: listPolicies(lists),
  });
}

function checkSize(name: string, place: Place, workers: number, microBatches: number): void {
  const { stages, replicas = 1, slices = 1 } = place;
  if (Math.max(workers, stages * replicas) > COPIES_MAX) {
    throw new RangeError(
      `Cannot make the schedule ${name}: workers, and stages of all its pipelines, must be at ` +
        `most ${COPIES_MAX}, received ${workers} and ${stages} times ${replicas}`,
    );
  }
  if (stages * microBatches * slices > COMPUTED_MAX) {
    throw new RangeError(
      `Cannot make the schedule ${name}: stages times micro-batches must be at most ` +
        `${COMPUTED_MAX}, received ${stages} times ${microBatches}${
          slices > 1 ? `, in ${slices} slices each` : ""
        }`,
    );
  }
}

function placementTable(name: string, place: Place, workers: number): readonly PlacedStage[][] {
  const table: PlacedStage[][] = Array.from({ length: workers }, () => []);
  for (let replica = 0; replica < (place.replicas ?? 1); replica++) {
    for (let stage = 0; stage < place.stages; stage++) {
      const worker = place.workerOf(stage, replica);
      const held = table[worker];
      if (held === undefined) {
        throw new RangeError(
          `Cannot place ${name}: the worker of stage ${stage} of replica ${replica} must be from ` +
            `0 to ${workers - 1}, received ${worker}`,
        );
      }
      held.push({ stage, replica });
    }
  }
  return table;
}

function checkWorker(worker: number, workers: number): number {
  if (Number.isInteger(worker) && worker >= 0 && worker < workers) return worker;
  throw new RangeError(
    `Cannot make a policy: the worker must be from 0 to ${workers - 1}, received ${worker}`,
  );
}

/** What says of itself which options it reads beside `workers` and `microBatches`. */
export interface OptionReader {
  /** The name of the schedule. */
  readonly name: string;
  /** The names of the options; any where it does not say. */
  readonly reads?: readonly string[] | undefined;
}

/**
 * The options that are given and not read, by name. Of costs without a value none is given.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { findSchedule, unreadOptions } from "@troupe/troupe/schedules";
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
 * Of options that serve several schedules, those that this one reads.
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
 * @param definitions Among which those are named that read them.
 * @throws {RangeError} naming the options.
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
 * Makes a schedule from a rule: `place` says which worker holds which stage, `order` what each
 * worker does. What it returns can be trained with, `train({ schedule: mine })`, measured and drawn.
 *
 * A schedule joins this package with a file of its own in `schedules/generators/` and its name in
 * the list of `schedules/built_in/registry.ts`; commands, comparison, search and tests find it there. Its
 * order is kept on file by `deno task troupe schedule NAME --workers 4 --micro-batches 8 --format
 * csv --out tests/golden/schedules/NAME.csv`.
 *
 * @throws {RangeError} on `create`, if an option is not read or is no positive whole number, or if a
 * stage is placed on no worker.
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

/** What a definition says of itself. */
type Headline<O extends ScheduleOptions> = Pick<
  ScheduleRule<O>,
  "name" | "aliases" | "summary" | "reads" | "closedForm"
>;

/** A definition that makes its schedules from others, or from a rule. */
export function defineMade<O extends ScheduleOptions = ScheduleOptions>(
  { name, aliases, summary, reads, closedForm }: Headline<O>,
  make: (options: O) => Schedule,
): ScheduleDefinition<O> {
  const read = reads?.map(String);
  return {
    name,
    summary,
    ...(aliases && { aliases }),
    ...(read && { reads: read }),
    ...(closedForm && { closedForm }),
    create(options: O) {
      refuseUnread({ name, reads: read }, options);
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
 * `chunks` stages for each worker, dealt out like cards: stage s on worker s mod P.
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
 * same workers backwards. Unit u holds the micro-batches uD … uD+D-1, the down pipes first; what
 * is left after the last whole unit is shared as evenly as possible, the first pipes first.
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
): Required<Pick<Place, "stages" | "workerOf" | "replicas" | "replicaOf">> {
  const replicas = 2 * pipelines;
  const spacing = depth / pipelines;
  return {
    stages: depth,
    replicas,
    workerOf(stage, replica) {
      return replica < pipelines
        ? (replica * spacing + stage) % depth
        : ((replica - pipelines) * spacing + depth - 1 - stage) % depth;
    },
    replicaOf(microBatch) {
      const start = microBatch - microBatch % depth;
      let rank = microBatch - start;
      const unit = Math.min(depth, microBatches - start);
      for (let replica = 0;; replica++) {
        rank -= evenShare(unit, replicas, replica);
        if (rank < 0) return replica;
      }
    },
  };
}

/**
 * The part of `total` things that one of `count` gets when they are shared as evenly as possible.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { evenShare } from "@troupe/troupe/schedules";
 *
 * deepStrictEqual([0, 1, 2].map((index) => evenShare(7, 3, index)), [3, 2, 2]);
 * ```
 */
export function evenShare(total: number, count: number, index: number): number {
  return Math.floor(total / count) + (index < total % count ? 1 : 0);
}

/**
 * The micro-batches that run through one chunk before the next chunk has its turn: N over as many
 * rounds as there are whole groups of P, so P where P divides N, and all of them where N < P.
 */
export function perRound({ workers, microBatches }: ScheduleOptions): number {
  return microBatches / roundsOf(workers, microBatches);
}

/** The whole groups of as many as there are workers; one where there are fewer. */
export function roundsOf(workers: number, count: number): number {
  return Math.max(1, Math.floor(count / workers));
}

/** The micro-batch and the turn of the chunk, from 0, of the k-th forward or backward of a worker. */
export function virtualStep(
  k: number,
  options: ScheduleOptions,
): { microBatch: number; turn: number } {
  const { chunks = 2 } = options, size = perRound(options);
  const inRound = k % (size * chunks), round = (k - inRound) / (size * chunks);
  return { microBatch: round * size + k % size, turn: Math.floor(inRound / size) };
}

/** What is shared out among rounds of one size. */
interface Shared {
  /** The option that counts it. */
  readonly option: string;
  /** How many there are. */
  readonly count: number;
  /** The rounds. */
  readonly rounds: number;
}

/**
 * Stage s on worker s mod P, for orders of rounds.
 *
 * @param shared What the rounds are made of; micro-batches unless given.
 * @throws {RangeError} if there is but one chunk, or if the rounds would not be of one size.
 */
export function placeRounds(name: string, options: ScheduleOptions, shared?: Shared): Place {
  const { workers, microBatches, chunks = 2 } = options;
  requireOption(name, "chunks", chunks, chunks >= 2, "at least 2");
  const { option, count, rounds } = shared ??
    { option: "microBatches", count: microBatches, rounds: roundsOf(workers, microBatches) };
  const must = `a multiple of their ${rounds} rounds, as many as fill the ${workers} workers`;
  requireOption(name, option, count, count % rounds === 0, must);
  return looped(options);
}

/** An action and its slot in the table of the paper. */
export type SlottedAction = readonly [slot: number, action: Action];

/** The actions of one worker in the order of their slots. */
export function inSlotOrder(slotted: SlottedAction[]): Action[] {
  return slotted.sort(([a], [b]) => a - b).map(([, action]) => action);
}
