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
  PRECISIONS,
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
  refusal,
  repeatedKey,
} from "../../kernels/internal.ts";
import {
  arrayOf,
  checkData,
  type Checked,
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

const TEXT_MAX = 2000, ENTRIES_MAX = 100_000;

const TEXT = text(TEXT_MAX), COUNT = integer(1);

/** The upper bound is above any cost, and low enough that sums stay finite. */
const COST = numberWhere("a number from 0 to 1e18", (value) => value >= 0 && value <= 1e18);

const ABOVE_ZERO = numberWhere("a number above 0", (value) => value > 0 && value < Infinity);

const byName = <T extends v.GenericSchema>(entry: T) => entriesOf(entry, TEXT_MAX, ENTRIES_MAX);

const LINEAR = objectOf({
  /** Milliseconds for no elements. */
  ms: COST,
  /** Milliseconds of each million elements. */
  msPerMillion: COST,
});

/** A cost that grows linearly with a number of elements. */
export type LinearCost = Checked<typeof LINEAR>;

/** Returns the milliseconds for `count` elements. */
export const linearMs = ({ ms, msPerMillion }: LinearCost, count: number): number =>
  ms + msPerMillion * count / 1e6;

/** Facts about a layer that do not depend on a machine, by which a cost is found. */
const FACTS = {
  /** Kind: `embedding`, `attention`, `mlp`, `head`, `hidden`, or `block` for a whole block. */
  kind: TEXT,
  /** Precision of its numbers. */
  precision: oneOf(PRECISIONS),
  /** Number of trained elements. */
  parameters: integer(0),
  /** Bytes that a micro-batch keeps from F to B. */
  activationBytes: COST,
  /** Bytes of the output, which a stage sends if the model is cut after this layer. */
  outputBytes: COST,
  /** Floating-point operations of the forward, by which costs are scaled to other sizes. */
  forwardFlops: COST,
  /** Floating-point operations of the whole backward. */
  backwardFlops: COST,
};

const LAYER = objectOf({
  ...FACTS,
  /** Sizes of the layer, such as `hidden`, `heads` and `seq`; information for readers only. */
  sizes: byName(COST),
  /** Samples of the micro-batch, B. */
  microBatch: COUNT,
  /** Device that ran the layer. */
  device: TEXT,
  /** Activations that the backward recomputes. */
  recompute: oneOf(RECOMPUTE_POLICIES),
  /**
   * Number of workers that computed during the measurement. More workers are slower, as they share
   * memory and the clock rate of the machine.
   */
  atOnce: COUNT,
  /**
   * Number of trained elements that each worker held, on average. A worker that holds more is slower,
   * as it finds less in its cache. Default: the cost is the same for any number.
   */
  heldParameters: v.exactOptional(COST),
  /** Milliseconds of the forward. */
  forwardMs: COST,
  /** Milliseconds of the whole backward, B. */
  backwardMs: COST,
  /** Milliseconds of the backward for the input, I, if it was measured. */
  inputMs: v.exactOptional(COST),
  /** Milliseconds of the backward for the weights, W, if it was measured. */
  weightMs: v.exactOptional(COST),
  /** Milliseconds of the recomputation before a backward. Default: those of the forward. */
  recomputeMs: v.exactOptional(COST),
});

/** Cost of one kind of layer for one micro-batch. */
export type LayerCost = Checked<typeof LAYER>;

const LINK = objectOf({
  /** Milliseconds from sending to arrival of a message without a tensor. */
  latencyMs: COST,
  /** Bytes of a tensor per millisecond; absent if tensors move without a copy. */
  bytesPerMs: v.exactOptional(ABOVE_ZERO),
});

/** Cost of a message between two workers: latency (α) and bandwidth (1/β). */
export type LinkCost = Checked<typeof LINK>;

/** Costs of the end of a step, apart from the all-reduce and the optimizer. */
const STEP_END = {
  /** Check of the gradients before the vote, by the trained elements of a stage. */
  vote: LINEAR,
  /** Norms of the summed gradients, by the trained elements of a stage. */
  norm: LINEAR,
  /** Zeroing of the gradients, by the trained elements of a stage. */
  end: LINEAR,
};

const LOAD = objectOf({
  ...STEP_END,
  /** Number of workers at the same time; more workers are slower. */
  atOnce: COUNT,
  /** The optimizer's step, by the trained elements of a stage. */
  optimizer: LINEAR,
});

/** Costs that occur once a step, under one load. */
export type LoadCost = Checked<typeof LOAD>;

const SPREAD = objectOf({
  /** Samples of the micro-batch. */
  microBatch: COUNT,
  /** Activations that the backward recomputes. */
  recompute: oneOf(RECOMPUTE_POLICIES),
  /** Number of workers that computed at the same time. */
  atOnce: COUNT,
  /** 10th percentile of the forward of the first stage, in milliseconds. */
  p10Ms: ABOVE_ZERO,
  /** Median in milliseconds. */
  medianMs: ABOVE_ZERO,
  /** 90th percentile in milliseconds. */
  p90Ms: ABOVE_ZERO,
  /** Share of the cores that the workers got; below 1, other programs used the rest. */
  cpuShare: v.exactOptional(COST),
});

/** Spread of the measurements under one load. */
export type Spread = Checked<typeof SPREAD>;

/** The measured machine. */
const MACHINE = objectOf({
  /** Name of a processor or a cluster. */
  name: TEXT,
  /** Workers that can compute at the same time: cores, or GPUs of the whole machine. */
  cores: COUNT,
  /** Operating system and architecture. */
  system: v.exactOptional(TEXT),
  /** Bytes of memory of a worker's device. */
  memoryBytes: v.exactOptional(ABOVE_ZERO),
  /** Version of Deno. */
  deno: v.exactOptional(TEXT),
  /** Load average during the measurement. */
  load: v.exactOptional(COST),
});

const PROFILE = objectOf({
  /** Format of the file. */
  format: v.literal(PROFILE_FORMAT),
  /** Version of the format. */
  version: v.literal(PROFILE_VERSION),
  /** Origin of the costs: measured, read from a trace, or stated in a document. */
  source: oneOf(["measured", "trace", "stated"]),
  /** The machine. */
  machine: MACHINE,
  /** Costs of layers. */
  layers: arrayOf(LAYER, 1, ENTRIES_MAX),
  /**
   * Quantiles of duration ÷ mean of an action, at evenly spaced ranks from minimum to maximum.
   * Absent or empty if durations do not vary.
   */
  variation: v.exactOptional(arrayOf(ABOVE_ZERO, 0, ENTRIES_MAX)),
  /** Spread of the measurements; absent in older profiles. */
  spread: v.exactOptional(arrayOf(SPREAD, 0, ENTRIES_MAX)),
  /** Flags of `troupe train` for the measured model, if it was given by flags; parsed later. */
  model: v.exactOptional(byName(v.unknown())),
  /** The optimizer's step, by the trained elements of a stage. */
  optimizer: LINEAR,
  /** Adding the gradients of one more copy, by the trained elements of a stage. */
  reduce: LINEAR,
  /** Links by transport: `local`, `worker`, `process`, `mpi`, or the name of a network. */
  links: byName(LINK),
  /** Milliseconds between two actions of a worker whose inputs have arrived. */
  dispatchMs: COST,
  /** End of a step; `stepMs` are the milliseconds to start and answer it, apart from its messages. */
  closing: objectOf({ ...STEP_END, stepMs: COST }),
  /** Optimizer and end of a step under other loads. Default: the above under all loads. */
  loads: v.exactOptional(arrayOf(LOAD, 0, ENTRIES_MAX)),
  /** Notes for readers. */
  notes: arrayOf(TEXT, 0, ENTRIES_MAX),
});

/** Costs of a machine. */
export type Profile = Checked<typeof PROFILE>;

/** Properties of a layer that follow from its program. */
export type LayerFacts = Pick<LayerCost, keyof typeof FACTS>;

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

/** Returns the first index below `count` that fits, or `count`; all later ones must fit, too. */
export function firstWhere(count: number, fits: (index: number) => boolean): number {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (fits(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Limit of a profile's file, far above any measured profile. */
export const PROFILE_BYTES_MAX = 2 ** 24;

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
    const received = `${describeValue(version)}; troupe profile --out FILE measures a new one`;
    throw refusal("read the profile", `its version must be ${PROFILE_VERSION}`, received);
  }
  const twice = repeatedKey(text);
  if (twice !== undefined) throw notAProfile(`a file with ${describeValue(twice)} twice`);
  return checkData(CANNOT, PROFILE, value);
}

function notAProfile(received: string): Error {
  const must = "it must be a profile written by troupe profile --out";
  return refusal("read the profile", must, received, SyntaxError);
}

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
export function thisMachine(): Profile["machine"] {
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

/** Times of a layer. */
export const TIMES = ["forwardMs", "backwardMs", "inputMs", "weightMs", "recomputeMs"] as const;

/** Returns a cost whose known times are multiplied by a factor. */
export function scaledCost(cost: LayerCost, factor: number): LayerCost {
  const known = TIMES.filter((name) => cost[name] !== undefined);
  return { ...cost, ...Object.fromEntries(known.map((name) => [name, factor * cost[name]!])) };
}

/**
 * Returns a profile in which actions take up to a share `jitter` longer, uniformly, in place of the
 * measured variation.
 */
export function withJitter(profile: Profile, jitter: number): Profile {
  const mean = 1 + jitter / 2;
  return {
    ...profile,
    layers: profile.layers.map((one) => scaledCost(one, mean)),
    variation: [1 / mean, (1 + jitter) / mean],
  };
}
