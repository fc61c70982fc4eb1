/**
 * Profiles: the costs of layers, the optimizer and links on one machine, as plain data in a JSON
 * file. Predictions use nothing else of a machine.
 *
 * @module
 */

import { cpus } from "node:os";
import * as v from "valibot";
import {
  type LayerProgram,
  type Precision,
  PRECISIONS,
  type Recompute,
  RECOMPUTE_POLICIES,
  type StageOptions,
  type StageProgram,
} from "../../kernels/mod.ts";
import {
  activationBytes,
  checkInputFile,
  decodeText,
  DTYPE_BYTES,
  elementCount,
  isSkip,
  repeatedKey,
} from "../../kernels/internal.ts";
import {
  arrayOf,
  checkData,
  describeValue,
  entriesOf,
  integer,
  isObject,
  numberWhere,
  objectOf,
  oneOf,
  text,
} from "../options/file_schema.ts";
import { inOneLine } from "../runtime/types.ts";

/** Value of the field `format`. */
export const PROFILE_FORMAT = "troupe-profile";

/** Version of the format. */
export const PROFILE_VERSION = 1;

/** Origin of the costs: measured, read from a trace, or stated in a document. */
type ProfileSource = "measured" | "trace" | "stated";

/** A cost that grows linearly with a number of elements. */
export interface LinearCost {
  /** Milliseconds for no elements. */
  readonly ms: number;
  /** Milliseconds of each million elements. */
  readonly msPerMillion: number;
}

/** Returns the milliseconds for `count` elements. */
export const linearMs = ({ ms, msPerMillion }: LinearCost, count: number): number =>
  ms + msPerMillion * count / 1e6;

/** Cost of one kind of layer for one micro-batch. */
export interface LayerCost {
  /** Kind: `embedding`, `attention`, `mlp`, `head`, `hidden`, or `block` for a whole block. */
  readonly kind: string;
  /** Sizes of the layer, such as `hidden`, `heads` and `seq`; information for readers only. */
  readonly sizes: Readonly<Record<string, number>>;
  /** Samples of the micro-batch, B. */
  readonly microBatch: number;
  /** Device that ran the layer. */
  readonly device: string;
  /** Precision of its numbers. */
  readonly precision: Precision;
  /** Activations that the backward recomputes. */
  readonly recompute: Recompute;
  /**
   * Number of workers that computed during the measurement. More workers are slower, as they share
   * memory and the clock rate of the machine.
   */
  readonly atOnce: number;
  /**
   * Number of trained elements that each worker held, on average. A worker that holds more is slower,
   * as it finds less in its cache. Default: the cost is the same for any number.
   */
  readonly heldParameters?: number;
  /** Milliseconds of the forward. */
  readonly forwardMs: number;
  /** Milliseconds of the whole backward, B. */
  readonly backwardMs: number;
  /** Milliseconds of the backward for the input, I, if it was measured. */
  readonly inputMs?: number;
  /** Milliseconds of the backward for the weights, W, if it was measured. */
  readonly weightMs?: number;
  /** Milliseconds of the recomputation before a backward. Default: those of the forward. */
  readonly recomputeMs?: number;
  /** Number of trained elements. */
  readonly parameters: number;
  /** Bytes that a micro-batch keeps from F to B. */
  readonly activationBytes: number;
  /** Bytes of the output, which a stage sends if the model is cut after this layer. */
  readonly outputBytes: number;
  /** Floating-point operations of the forward, by which costs are scaled to other sizes. */
  readonly forwardFlops: number;
  /** Floating-point operations of the whole backward. */
  readonly backwardFlops: number;
}

/** Cost of a message between two workers: latency (α) and bandwidth (1/β). */
export interface LinkCost {
  /** Milliseconds from sending to arrival of a message without a tensor. */
  readonly latencyMs: number;
  /** Bytes of a tensor per millisecond; absent if tensors move without a copy. */
  readonly bytesPerMs?: number;
}

/** Costs of the end of a step, apart from the all-reduce and the optimizer. */
interface StepEndCosts {
  /** Check of the gradients before the vote, by the trained elements of a stage. */
  readonly vote: LinearCost;
  /** Norms of the summed gradients, by the trained elements of a stage. */
  readonly norm: LinearCost;
  /** Zeroing of the gradients, by the trained elements of a stage. */
  readonly end: LinearCost;
  /** Milliseconds to start and answer a step, apart from its messages. */
  readonly stepMs: number;
}

/** Costs that occur once a step, under one load. */
export interface LoadCost extends Omit<StepEndCosts, "stepMs"> {
  /** Number of workers at the same time; more workers are slower. */
  readonly atOnce: number;
  /** The optimizer's step, by the trained elements of a stage. */
  readonly optimizer: LinearCost;
}

/** Spread of the measurements under one load. */
export interface Spread {
  /** Samples of the micro-batch. */
  readonly microBatch: number;
  /** Activations that the backward recomputes. */
  readonly recompute: Recompute;
  /** Number of workers that computed at the same time. */
  readonly atOnce: number;
  /** 10th percentile of the forward of the first stage, in milliseconds. */
  readonly p10Ms: number;
  /** Median in milliseconds. */
  readonly medianMs: number;
  /** 90th percentile in milliseconds. */
  readonly p90Ms: number;
  /** Share of the cores that the workers got; below 1, other programs used the rest. */
  readonly cpuShare?: number;
}

/** The measured machine. */
interface ProfiledMachine {
  /** Name of a processor or a cluster. */
  readonly name: string;
  /** Workers that can compute at the same time: cores, or GPUs of the whole machine. */
  readonly cores: number;
  /** Operating system and architecture. */
  readonly system?: string;
  /** Bytes of memory of a worker's device. */
  readonly memoryBytes?: number;
  /** Version of Deno. */
  readonly deno?: string;
  /** Load average during the measurement. */
  readonly load?: number;
}

/** Costs of a machine. */
export interface Profile {
  /** Format of the file. */
  readonly format: typeof PROFILE_FORMAT;
  /** Version of the format. */
  readonly version: typeof PROFILE_VERSION;
  /** Origin of the costs. */
  readonly source: ProfileSource;
  /** The machine. */
  readonly machine: ProfiledMachine;
  /** Costs of layers. */
  readonly layers: readonly LayerCost[];
  /**
   * Quantiles of duration ÷ mean of an action, at evenly spaced ranks from minimum to maximum.
   * Absent or empty if durations do not vary.
   */
  readonly variation?: readonly number[];
  /** Spread of the measurements; absent in older profiles. */
  readonly spread?: readonly Spread[];
  /** Flags of `troupe train` for the measured model, if it was given by flags. */
  readonly model?: Readonly<Record<string, string | number | boolean>>;
  /** The optimizer's step, by the trained elements of a stage. */
  readonly optimizer: LinearCost;
  /** Adding the gradients of one more copy, by the trained elements of a stage. */
  readonly reduce: LinearCost;
  /** Links by transport: `local`, `worker`, `process`, `mpi`, or the name of a network. */
  readonly links: Readonly<Record<string, LinkCost>>;
  /** Milliseconds between two actions of a worker whose inputs have arrived. */
  readonly dispatchMs: number;
  /** End of a step. */
  readonly closing: StepEndCosts;
  /** Optimizer and end of a step under other loads. Default: the above under all loads. */
  readonly loads?: readonly LoadCost[];
  /** Notes for readers. */
  readonly notes: readonly string[];
}

/** Properties of a layer that follow from its program. */
export type LayerFacts = Pick<
  LayerCost,
  | "kind"
  | "precision"
  | "parameters"
  | "activationBytes"
  | "outputBytes"
  | "forwardFlops"
  | "backwardFlops"
>;

/** Facts of programs: a planner asks many times for those of the same layers. */
const knownFacts = new WeakMap<LayerProgram, Map<number | undefined, Omit<LayerFacts, "kind">>>();

/** Returns the facts of each layer of a model or stage, in order, for each slice of a sequence. */
export function slicedFacts(
  { programs, layers, slicing }: StageProgram,
  { recomputeInterval }: Pick<StageOptions, "recomputeInterval"> = {},
): LayerFacts[][] {
  return Array.from(
    { length: slicing?.slices ?? 1 },
    (_, slice) =>
      layers.map(({ slices, ...named }) => {
        const program = programs[slices?.[slice] ?? named.program]!;
        const facts = knownFacts.getOrInsertComputed(program, () => new Map())
          .getOrInsertComputed(
            recomputeInterval,
            () => programFacts(program, named, recomputeInterval),
          );
        return { kind: kindOf(named), ...facts };
      }),
  );
}

function programFacts(
  program: LayerProgram,
  named: StageProgram["layers"][number],
  recomputeInterval: number | undefined,
): Omit<LayerFacts, "kind"> {
  const stage = { programs: [program], layers: [{ ...named, program: 0 }] };
  const options = { backward: "whole", ...recomputeInterval && { recomputeInterval } } as const;
  const trained = program.parameters.filter(({ frozen }) => !frozen);
  return {
    precision: program.precision,
    parameters: trained.reduce((sum, { shape }) => sum + elementCount(shape), 0),
    activationBytes: activationBytes(stage, options).perMicroBatch,
    outputBytes: program.outputs.filter(({ name }) => !isSkip(name))
      .reduce((sum, { dtype, shape }) => sum + elementCount(shape) * DTYPE_BYTES[dtype], 0),
    forwardFlops: program.cost.forward,
    backwardFlops: program.cost.backward,
  };
}

/** Returns `attention` for `block 3 attention`, and `hidden` for `hidden 1`. */
function kindOf({ name, block }: { readonly name: string; readonly block?: string }): string {
  const own = block !== undefined && name.startsWith(block) ? name.slice(block.length) : name;
  return own.replaceAll(/\d+/g, "").trim() || name;
}

/** Returns a key that layers of equal cost share. */
export const factsKey = ({ kind, parameters, forwardFlops, backwardFlops }: LayerFacts): string =>
  JSON.stringify([kind, parameters, forwardFlops, backwardFlops]);

/** Returns the number of trained elements of layers. */
export const parametersOf = (layers: readonly { readonly parameters: number }[]): number =>
  layers.reduce((sum, { parameters }) => sum + parameters, 0);

/** Returns the mean; NaN for no values. */
export const meanOf = (values: readonly number[]): number =>
  values.reduce((sum, one) => sum + one, 0) / values.length;

/** Returns the median; NaN for no values. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b), middle = (sorted.length - 1) / 2;
  return (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2;
}

/** Limit of a profile's file, far above any measured profile. */
export const PROFILE_BYTES_MAX = 2 ** 24;

const TEXT_MAX = 2000, ENTRIES_MAX = 100_000;

const TEXT = text(TEXT_MAX), COUNT = integer(1);

/** The upper bound is above any cost, and low enough that sums stay finite. */
const COST = numberWhere("a number from 0 to 1e18", (value) => value >= 0 && value <= 1e18);

const ABOVE_ZERO = numberWhere("a number above 0", (value) => value > 0 && value < Infinity);

/** Fields with the same schema. */
const each = <T extends v.GenericSchema>(schema: T, ...names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [name, schema]));

const byName = <T extends v.GenericSchema>(entry: T) => entriesOf(entry, TEXT_MAX, ENTRIES_MAX);

const LINEAR = objectOf(each(COST, "ms", "msPerMillion"));

const STEP_END = each(LINEAR, "vote", "norm", "end");

const LAYER = objectOf({
  ...each(TEXT, "kind", "device"),
  ...each(COUNT, "microBatch", "atOnce"),
  ...each(COST, "forwardMs", "backwardMs", "activationBytes", "outputBytes"),
  ...each(COST, "forwardFlops", "backwardFlops"),
  ...each(v.optional(COST), "inputMs", "weightMs", "recomputeMs", "heldParameters"),
  sizes: byName(COST),
  precision: oneOf(PRECISIONS),
  recompute: oneOf(RECOMPUTE_POLICIES),
  parameters: integer(0),
});

const MACHINE = objectOf({
  name: TEXT,
  cores: COUNT,
  ...each(v.optional(TEXT), "system", "deno"),
  memoryBytes: v.optional(ABOVE_ZERO),
  load: v.optional(COST),
});

const SPREAD = objectOf({
  ...each(COUNT, "microBatch", "atOnce"),
  recompute: oneOf(RECOMPUTE_POLICIES),
  ...each(ABOVE_ZERO, "p10Ms", "medianMs", "p90Ms"),
  cpuShare: v.optional(COST),
});

const LOAD = objectOf({ ...STEP_END, atOnce: COUNT, optimizer: LINEAR });

const PROFILE = objectOf({
  source: oneOf(["measured", "trace", "stated"]),
  machine: MACHINE,
  layers: arrayOf(LAYER, 1, ENTRIES_MAX),
  variation: v.optional(arrayOf(ABOVE_ZERO, 0, ENTRIES_MAX)),
  spread: v.optional(arrayOf(SPREAD, 0, ENTRIES_MAX)),
  model: v.optional(byName(v.unknown())), // parsed later as flags
  ...each(LINEAR, "optimizer", "reduce"),
  links: byName(objectOf({ latencyMs: COST, bytesPerMs: v.optional(ABOVE_ZERO) })),
  dispatchMs: COST,
  closing: objectOf({ ...STEP_END, stepMs: COST }),
  loads: v.optional(arrayOf(LOAD, 0, ENTRIES_MAX)),
  notes: arrayOf(TEXT, 0, ENTRIES_MAX),
});

const CANNOT = "Cannot read the profile";

/**
 * Parses a profile.
 *
 * @throws {SyntaxError} when the text is not JSON, is truncated, or has another format.
 * @throws {RangeError} when the version differs or a number is out of bounds.
 * @throws {TypeError} when a field is missing or has another type.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.throws(() => parseProfile('{"format": "troupe-pro'), /must be a profile .* invalid JSON/);
 * assert.throws(
 *   () => parseProfile('{"format": "troupe-profile", "version": 2}'),
 *   /its version must be 1, received 2/,
 * );
 * ```
 */
export function parseProfile(text: string): Profile {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw notAProfile(`invalid JSON: ${inOneLine((cause as Error).message)}`);
  }
  const { format, version } = isObject(value) ? value : {};
  if (format !== PROFILE_FORMAT) {
    throw notAProfile(format === undefined ? "other JSON" : `the format ${describeValue(format)}`);
  }
  if (version !== PROFILE_VERSION) {
    throw new RangeError(
      `${CANNOT}: its version must be ${PROFILE_VERSION}, received ${describeValue(version)}; ` +
        `troupe profile --out FILE measures a new one`,
    );
  }
  const twice = repeatedKey(text);
  if (twice !== undefined) throw notAProfile(`a file with ${describeValue(twice)} twice`);
  return checkData(CANNOT, PROFILE, value) as unknown as Profile;
}

const notAProfile = (received: string) =>
  new SyntaxError(
    `${CANNOT}: it must be a profile written by troupe profile --out, received ${received}`,
  );

/**
 * Reads a profile from a file.
 *
 * @throws {TypeError} when the path is not a regular file, or the file is too large.
 * @throws {Deno.errors.NotFound} when the file does not exist; otherwise as {@linkcode parseProfile}.
 */
export function readProfile(path: string): Profile {
  checkInputFile(path, PROFILE_BYTES_MAX);
  try {
    return parseProfile(decodeText(Deno.readFileSync(path), inOneLine(path)));
  } catch (error) {
    if (error instanceof Error && error.message.startsWith(CANNOT)) {
      error.message = `Cannot read ${inOneLine(path)}${error.message.slice(CANNOT.length)}`;
    }
    throw error;
  }
}

/** Describes this machine. */
export function thisMachine(): ProfiledMachine {
  return {
    name: cpus()[0]?.model.trim() ?? "unknown",
    cores: navigator.hardwareConcurrency,
    system: `${Deno.build.os} ${Deno.build.arch}`,
    memoryBytes: Deno.systemMemoryInfo().total,
    deno: Deno.version.deno,
    load: Deno.loadavg()[0]!,
  };
}

/** Number of intervals between quantiles. */
const RANKS = 100;

/**
 * Returns the relative spread of the measurements: half the distance between the 10th and the 90th
 * percentile, in medians; 0 if it is not known.
 */
export function spreadOf({ spread = [] }: Pick<Profile, "spread">): number {
  const shares = spread.map(({ p10Ms, medianMs, p90Ms }) => (p90Ms - p10Ms) / (2 * medianMs));
  return shares.length === 0 ? 0 : median(shares);
}

/**
 * Returns the variation of durations: quantiles of duration ÷ mean, over all actions.
 *
 * @param groups milliseconds of equal actions.
 */
export function variationOf(groups: Iterable<readonly number[]>): number[] {
  const factors: number[] = [];
  for (const ms of groups) {
    const mean = meanOf(ms);
    if (ms.length > 1 && mean > 0) { for (const one of ms) factors.push(one / mean); }
  }
  if (factors.length === 0) return [];
  const sorted = factors.toSorted((a, b) => a - b);
  const quantiles = Array.from(
    { length: RANKS + 1 },
    (_, rank) => sorted[Math.round(rank / RANKS * (sorted.length - 1))]!,
  );
  // Draws are uniform between neighbours. They are scaled to a mean of 1, as all durations have.
  const ends = (quantiles[0]! + quantiles[RANKS]!) / 2;
  const mean = (quantiles.reduce((sum, one) => sum + one, 0) - ends) / RANKS;
  return quantiles.map((one) => one / mean);
}

const TIMES = ["forwardMs", "backwardMs", "inputMs", "weightMs", "recomputeMs"] as const;

/**
 * Returns a profile in which actions take up to a share `jitter` longer, uniformly, in place of the
 * measured variation.
 */
export function withJitter(profile: Profile, jitter: number): Profile {
  const mean = 1 + jitter / 2;
  const longer = (one: LayerCost) =>
    Object.fromEntries(
      TIMES.filter((name) => one[name] !== undefined).map((name) => [name, mean * one[name]!]),
    );
  return {
    ...profile,
    layers: profile.layers.map((one) => ({ ...one, ...longer(one) })),
    variation: [1 / mean, (1 + jitter) / mean],
  };
}
