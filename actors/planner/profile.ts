/**
 * What a machine's layers, optimizer and links cost: all that a prediction takes from a machine, as
 * plain data. It is kept as a JSON file, which {@linkcode readProfile} reads.
 *
 * @module
 */

import {
  activationBytes,
  checkInputFile,
  decodeText,
  DTYPE_BYTES,
  elementCount,
  isSkip,
  type LayerProgram,
  outputsOf,
  type Precision,
  PRECISIONS,
  type Recompute,
  RECOMPUTE_POLICIES,
  repeatedKey,
  type StageOptions,
  type StageProgram,
} from "../../kernels/mod.ts";
import {
  anArray,
  anInteger,
  aNumber,
  aRecord,
  type Must,
  oneOf,
  required,
} from "../options/option.ts";
import { inOneLine } from "../runtime/types.ts";

/** What the file says first. */
export const PROFILE_FORMAT = "troupe-profile";

/** Version of what the fields mean. */
export const PROFILE_VERSION = 1;

/**
 * Where the figures come from: measured on the machine, read out of a trace of a run on it, or stated
 * in a document.
 */
export type ProfileSource = "measured" | "trace" | "stated";

/** A cost that grows with the numbers that are worked on. */
export interface LinearCost {
  /** Milliseconds whatever there is to do. */
  readonly ms: number;
  /** Milliseconds for each million of them. */
  readonly msPerMillion: number;
}

/** Milliseconds of a linear cost for so many numbers. */
export const linearMs = ({ ms, msPerMillion }: LinearCost, count: number): number =>
  ms + msPerMillion * count / 1e6;

/** What one kind of layer costs for one micro-batch. */
export interface LayerCost {
  /** Its kind: `embedding`, `attention`, `mlp`, `head`, `hidden`, or `block` for a whole one. */
  readonly kind: string;
  /** The sizes that it was built for, such as `hidden`, `heads` and `seq`: for people to read. */
  readonly sizes: Readonly<Record<string, number>>;
  /** Samples of the micro-batch, B. */
  readonly microBatch: number;
  /** What computed it. */
  readonly device: string;
  /** How its numbers are stored. */
  readonly precision: Precision;
  /** Which activations its backward computes again. */
  readonly recompute: Recompute;
  /**
   * Workers that computed at once while it was measured: the more, the longer each takes, as they
   * share memory and the clock rate of the machine.
   */
  readonly atOnce: number;
  /** Milliseconds of the forward. */
  readonly forwardMs: number;
  /** Milliseconds of the whole backward, B. */
  readonly backwardMs: number;
  /** Milliseconds of its part for the input, I; absent where it was not measured by itself. */
  readonly inputMs?: number;
  /** Milliseconds of its part for the weights, W; absent where it was not measured by itself. */
  readonly weightMs?: number;
  /** Milliseconds of computing it again before its backward; the forward's unless given. */
  readonly recomputeMs?: number;
  /** Trained numbers. */
  readonly parameters: number;
  /** Bytes that are kept from F to B for one micro-batch. */
  readonly activationBytes: number;
  /** Bytes of its output, which go to the next stage where the model is cut behind it. */
  readonly outputBytes: number;
  /** Floating-point operations of the forward, by which costs are scaled to other sizes. */
  readonly forwardFlops: number;
  /** Those of the whole backward. */
  readonly backwardFlops: number;
}

/** What a message between two workers costs: latency (α) and bandwidth (1/β). */
export interface LinkCost {
  /** Milliseconds from sending to arrival of a message without a tensor. */
  readonly latencyMs: number;
  /** Bytes of a tensor that arrive in a millisecond; absent where they move without being copied. */
  readonly bytesPerMs?: number;
}

/** What the end of a step costs beside the all-reduce and the optimizer. */
export interface ClosingCost {
  /** A stage looks at its gradients before it votes; of its trained numbers. */
  readonly vote: LinearCost;
  /** The norms of the summed gradients; of its trained numbers. */
  readonly norm: LinearCost;
  /** What is left when the weights are stepped: gradients become zero; of its trained numbers. */
  readonly end: LinearCost;
  /** What a step takes to begin and to be answered, beside the messages themselves. */
  readonly stepMs: number;
}

/** What is done once a step, while so many workers do it: the more, the longer each takes. */
export interface LoadCost extends Omit<ClosingCost, "stepMs"> {
  /** Workers that did it at once. */
  readonly atOnce: number;
  /** The optimizer's step; of a stage's trained numbers. */
  readonly optimizer: LinearCost;
}

/** The spread of measurements under one load. */
export interface Spread {
  /** Samples of the micro-batch. */
  readonly microBatch: number;
  /** The activations that the backward computes again. */
  readonly recompute: Recompute;
  /** The number of workers that computed at the same time. */
  readonly atOnce: number;
  /** Milliseconds of a forward of the first stage than which a tenth of them took less. */
  readonly p10Ms: number;
  /** The median of them. */
  readonly medianMs: number;
  /** Milliseconds than which nine tenths took less. */
  readonly p90Ms: number;
  /** Share of the time of their cores that the workers got; below 1 other programs took the rest. */
  readonly cpuShare?: number;
}

/** The machine that the figures are of. */
export interface ProfiledMachine {
  /** What it is called: a processor, or a cluster. */
  readonly name: string;
  /** Workers that can compute at once: cores, or GPUs of the whole machine. */
  readonly cores: number;
  /** Operating system and architecture, where known. */
  readonly system?: string;
  /** Bytes of memory of a worker's device, where known. */
  readonly memoryBytes?: number;
  /** Version of Deno that measured. */
  readonly deno?: string;
  /** Programs that wanted to compute meanwhile, on average, where known. */
  readonly load?: number;
}

/** What a machine costs. */
export interface Profile {
  /** Says that it is one. */
  readonly format: typeof PROFILE_FORMAT;
  /** Version of what the fields mean. */
  readonly version: typeof PROFILE_VERSION;
  /** Where the figures come from. */
  readonly source: ProfileSource;
  /** The machine. */
  readonly machine: ProfiledMachine;
  /** What layers cost. */
  readonly layers: readonly LayerCost[];
  /**
   * How durations of one action vary: quantiles of duration ÷ mean at evenly spaced ranks, the least
   * first and the greatest last; absent or empty where they are taken not to vary.
   */
  readonly variation?: readonly number[];
  /** The spread of the measurements, and the load by other programs; absent in older profiles. */
  readonly spread?: readonly Spread[];
  /** The flags of `troupe train` that name the model; absent where none was measured by flags. */
  readonly model?: Readonly<Record<string, string | number | boolean>>;
  /** The optimizer's step; of a stage's trained numbers. */
  readonly optimizer: LinearCost;
  /** Adding the gradients of one more copy; of a stage's trained numbers. */
  readonly reduce: LinearCost;
  /** Messages by transport: `local`, `worker`, `process`, `mpi`, or the name of a network. */
  readonly links: Readonly<Record<string, LinkCost>>;
  /** Milliseconds between two actions of a worker, whose inputs are there. */
  readonly dispatchMs: number;
  /** The end of a step. */
  readonly closing: ClosingCost;
  /** Optimizer and end under other loads; as above for all unless given. */
  readonly loads?: readonly LoadCost[];
  /** What a reader should know. */
  readonly notes: readonly string[];
}

/** What of a layer follows from its program alone. */
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

/**
 * Returns the facts of each layer of a model or stage, in order, once for each slice of a sequence.
 */
export function slicedFacts(
  { programs, layers, slicing }: StageProgram,
  options: Pick<StageOptions, "optimizer">,
): LayerFacts[][] {
  const known = new Map<LayerProgram, Omit<LayerFacts, "kind">>();
  return Array.from(
    { length: slicing?.slices ?? 1 },
    (_, slice) =>
      layers.map(({ slices, ...named }) => {
        const program = programs[slices?.[slice] ?? named.program]!;
        const facts = known.get(program) ?? programFacts(program, named, options);
        known.set(program, facts);
        return { kind: kindOf(named), ...facts };
      }),
  );
}

function programFacts(
  program: LayerProgram,
  named: StageProgram["layers"][number],
  options: Pick<StageOptions, "optimizer">,
): Omit<LayerFacts, "kind"> {
  const alone = { programs: [program], layers: [{ ...named, program: 0 }] };
  const trained = program.parameters.filter(({ frozen }) => !frozen);
  const { forward, backward } = program.cost;
  return {
    precision: program.precision,
    parameters: trained.reduce((sum, { shape }) => sum + elementCount(shape), 0),
    activationBytes: activationBytes(alone, { ...options, backward: "whole" }).perMicroBatch,
    outputBytes: outputsOf(program).filter(({ name }) => !isSkip(name))
      .reduce((sum, { dtype, shape }) => sum + elementCount(shape) * DTYPE_BYTES[dtype], 0),
    forwardFlops: forward,
    backwardFlops: backward,
  };
}

/** `attention` of `block 3 attention`, `hidden` of `hidden 1`. */
function kindOf({ name, block }: { readonly name: string; readonly block?: string }): string {
  const own = block !== undefined && name.startsWith(block) ? name.slice(block.length) : name;
  return own.replaceAll(/\d+/g, "").trim() || name;
}

/** What layers that cost the same have in common. */
export const factsKey = ({ kind, parameters, forwardFlops, backwardFlops }: LayerFacts): string =>
  JSON.stringify([kind, parameters, forwardFlops, backwardFlops]);

/** The middle of some numbers, of two the mean; NaN of none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b), middle = (sorted.length - 1) / 2;
  return (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2;
}

/** Far more than any measurement writes. */
export const PROFILE_BYTES_MAX = 2 ** 24;

/** Characters of a text, and entries of a list or record, that a reader can want. */
const TEXT_MAX = 2000, ENTRIES_MAX = 100_000;

const CANNOT = "Cannot read the profile";

const shortText: Must = (what, value) => {
  if (value === undefined) return;
  if (typeof value === "string" && value.length <= TEXT_MAX) return;
  const received = typeof value === "string" ? `${value.length}` : typeof value;
  throw new TypeError(
    `${what} must be a text of at most ${TEXT_MAX} characters, received ${received}`,
  );
};

const shortList = (of: Must, minimum = 0): Must => (what, value) => {
  const { length = 0 } = (value ?? {}) as { readonly length?: number };
  if (length > ENTRIES_MAX) {
    throw new RangeError(`${what} must have at most ${ENTRIES_MAX} entries, received ${length}`);
  }
  anArray(of, minimum)(what, value);
};

/** More than any figure of a machine, and so little that no sum of many is infinite. */
const FIGURE_MAX = 1e18;

/** A number from 0 that a machine could have. */
const figure = aNumber(
  "a number from 0 to 1e18",
  (value) => value >= 0 && value <= FIGURE_MAX,
);

/** A record with names of its own, all of whose values are alike. */
const byName = (of: Must): Must => (what, value) => {
  if (value === undefined) return;
  aRecord({}, true)(what, value);
  const names = Object.keys(value as object);
  if (Array.isArray(value) || names.length > ENTRIES_MAX) {
    throw new TypeError(`${what} must be an object of at most ${ENTRIES_MAX} entries`);
  }
  for (const name of names) {
    shortText(`${what}: its name`, name);
    required(of)(`${what}.${inOneLine(name)}`, (value as Record<string, unknown>)[name]);
  }
};

const aboveZero = aNumber("a number above 0", (value) => value > 0 && value < Infinity);

const aCost = aRecord({ ms: required(figure), msPerMillion: required(figure) }, true);

const aLink = aRecord({ latencyMs: required(figure), bytesPerMs: aboveZero }, true);

const aLayer = aRecord({
  kind: required(shortText),
  sizes: required(byName(figure)),
  microBatch: required(anInteger(1)),
  device: required(shortText),
  precision: required(oneOf(...PRECISIONS)),
  recompute: required(oneOf(...RECOMPUTE_POLICIES)),
  atOnce: required(anInteger(1)),
  forwardMs: required(figure),
  backwardMs: required(figure),
  inputMs: figure,
  weightMs: figure,
  recomputeMs: figure,
  parameters: required(anInteger(0)),
  activationBytes: required(figure),
  outputBytes: required(figure),
  forwardFlops: required(figure),
  backwardFlops: required(figure),
}, true);

const aMachine = aRecord({
  name: required(shortText),
  cores: required(anInteger(1)),
  system: shortText,
  memoryBytes: aboveZero,
  deno: shortText,
  load: figure,
}, true);

const CLOSING = { vote: required(aCost), norm: required(aCost), end: required(aCost) };

const aClosing = aRecord({ ...CLOSING, stepMs: required(figure) }, true);

const aLoad = aRecord(
  { ...CLOSING, atOnce: required(anInteger(1)), optimizer: required(aCost) },
  true,
);

const aProfile = aRecord({
  source: required(oneOf("measured", "trace", "stated")),
  machine: required(aMachine),
  layers: required(shortList(aLayer, 1)),
  variation: shortList(aboveZero),
  model: byName(() => {}), // each is read as a flag is
  optimizer: required(aCost),
  reduce: required(aCost),
  links: required(byName(aLink)),
  dispatchMs: required(figure),
  closing: required(aClosing),
  loads: shortList(aLoad),
  notes: required(shortList(shortText)),
}, true);

/**
 * Reads a profile from its text.
 *
 * @throws {SyntaxError} when it is no JSON, was cut, or is of another format.
 * @throws {RangeError} when it is of another version, or a figure is out of its bounds.
 * @throws {TypeError} when a field is missing or of another type.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { parseProfile } from "@troupe/troupe/actors";
 *
 * assert.throws(() => parseProfile('{"format": "troupe-pro'), /must be a profile .* no whole JSON/);
 * assert.throws(
 *   () => parseProfile('{"format": "troupe-profile", "version": 2}'),
 *   /its version must be 1, received 2/,
 * );
 * ```
 */
export function parseProfile(text: string): Profile {
  const value = valueOf(text), { format, version } = value;
  if (format !== PROFILE_FORMAT) {
    throw strange(format === undefined ? "other JSON" : `the format ${shown(format)}`);
  }
  if (version !== PROFILE_VERSION) {
    throw new RangeError(
      `${CANNOT}: its version must be ${PROFILE_VERSION}, received ${shown(version)}; ` +
        `troupe profile --out FILE measures a new one`,
    );
  }
  const twice = repeatedKey(text);
  if (twice !== undefined) throw strange(`one that has ${shown(twice)} twice`);
  aProfile(`${CANNOT}:`, value);
  return value as unknown as Profile;
}

/**
 * Reads the file of a profile.
 *
 * @throws {TypeError} when it is no file, or larger than any profile; as {@linkcode parseProfile}.
 * @throws {Deno.errors.NotFound} when there is no such file.
 */
export function readProfile(path: string): Profile {
  checkInputFile(path, PROFILE_BYTES_MAX);
  try {
    return parseProfile(decodeText(Deno.readFileSync(path), inOneLine(path)));
  } catch (error) {
    const { message } = error as Error;
    if (error instanceof Error && message.startsWith(CANNOT)) {
      error.message = `Cannot read ${inOneLine(path)}${message.slice(CANNOT.length)}`;
    }
    throw error;
  }
}

function valueOf(text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw strange(`no whole JSON: ${inOneLine((cause as Error).message)}`);
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as Record<string, unknown>;
  }
  throw strange("other JSON");
}

/** A value of the file, short and in one line. */
const shown = (value: unknown) => inOneLine((JSON.stringify(value) ?? "none").slice(0, 100));

const strange = (received: string) =>
  new SyntaxError(
    `${CANNOT}: it must be a profile that troupe profile --out has written, received ${received}`,
  );

/** Steps between the least and the greatest of the quantiles that are kept. */
const RANKS = 100;

/**
 * How durations of one action vary: quantiles of duration ÷ mean, over all actions.
 *
 * @param groups milliseconds of equal actions.
 */
export function variationOf(groups: Iterable<readonly number[]>): number[] {
  const factors: number[] = [];
  for (const ms of groups) {
    const mean = ms.reduce((sum, one) => sum + one, 0) / ms.length;
    if (ms.length > 1 && mean > 0) { for (const one of ms) factors.push(one / mean); }
  }
  if (factors.length === 0) return [];
  const sorted = factors.toSorted((a, b) => a - b);
  const quantiles = Array.from(
    { length: RANKS + 1 },
    (_, rank) => sorted[Math.round(rank / RANKS * (sorted.length - 1))]!,
  );
  // Draws lie evenly between neighbours: they are to have the mean of all, which is 1.
  const ends = (quantiles[0]! + quantiles[RANKS]!) / 2;
  const mean = (quantiles.reduce((sum, one) => sum + one, 0) - ends) / RANKS;
  return quantiles.map((one) => one / mean);
}
