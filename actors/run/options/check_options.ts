/**
 * The options of `train()`, each by what it must be.
 *
 * @module
 */

import {
  DEVICE_SPECS,
  isDeviceSpec,
  LEARNING_RATE_SCHEDULES,
  PRECISIONS,
  RECOMPUTE_POLICIES,
} from "../../../kernels/mod.ts";
import { SCALE_MAX } from "../../commit/loss_scale.ts";
import {
  aBoolean,
  aFunction,
  anArray,
  anInstance,
  anInteger,
  aNumber,
  aRecord,
  aText,
  either,
  fromZero,
  inOtherWords,
  type Must,
  oneOf,
  required,
} from "./must.ts";
import {
  DEVICE_WORDS,
  OPTIMIZER_FIELD_WORDS,
  OPTIMIZER_WORDS,
  OPTION_WORDS,
  PRECISION_WORDS,
  RATE_WORDS,
  SCHEDULE_WORDS,
} from "./other_words.ts";
import { checkTransports } from "../../runtime/checks.ts";
import { scheduleNames } from "../../../schedules/mod.ts";
import { knownTransports } from "../place.ts";
import { SNAPSHOT_PLACES } from "../recovery/snapshots.ts";
import { COUNT_MAX, THREADS_MAX } from "./sizes.ts";
import type { TrainOptions } from "./train_options.ts";

const count = anInteger(1, COUNT_MAX);
const aboveZero = aNumber("a positive number", (value) => value > 0 && value < Infinity);
const aLossScale = aNumber(
  `a positive number, at most ${SCALE_MAX}`,
  (value) => value > 0 && value <= SCALE_MAX,
);
const aDecay = aNumber("a number from 0 and below 1", (value) => value >= 0 && value < 1);

/** Timers of JavaScript take no longer times. */
const DELAY_MAX_MS = 2 ** 31 - 1;

const aMap = anInstance("a Map by name", (value) => value instanceof Map);
const anyObject = anInstance("an object", () => true);

const has = (value: object, ...names: (string | symbol)[]) =>
  names.every((name) => typeof (value as Record<string | symbol, unknown>)[name] === "function");

const aDevice: Must = (what, value) => {
  if (typeof value !== "string" || !isDeviceSpec(value)) oneOf(...DEVICE_SPECS)(what, value);
};

const aScheduleName: Must = (what, value) => {
  aText(what, value);
  inOtherWords(SCHEDULE_WORDS, oneOf(...scheduleNames()))(what, value);
};

const settings = (kind: string, fields: Readonly<Record<string, Must>>) =>
  aRecord({ kind: oneOf(kind), ...fields }, false, OPTIMIZER_FIELD_WORDS);

const ADAMW = { beta1: aDecay, beta2: aDecay, epsilon: aboveZero, weightDecay: fromZero };

const OPTIMIZERS: Readonly<Record<string, Must>> = {
  adamw: settings("adamw", ADAMW),
  sgd: settings("sgd", { momentum: fromZero, weightDecay: fromZero }),
};

const anOptimizer: Must = (what, value) => {
  aRecord({ kind: oneOf(...Object.keys(OPTIMIZERS)) }, true)(what, value);
  OPTIMIZERS[(value as { kind?: string } | undefined)?.kind ?? "adamw"]!(what, value);
};

const RATE = {
  rate: fromZero,
  schedule: oneOf(...LEARNING_RATE_SCHEDULES),
  warmup: anInteger(0, COUNT_MAX),
  minRate: fromZero,
  steps: count,
};

const aRate = aRecord(RATE, false, RATE_WORDS);

const MODEL = aRecord({
  name: required(aText),
  layers: required(
    anArray(aRecord({ name: required(aText), build: required(aFunction) }, true), 1),
  ),
  predictions: required(either("number", aboveZero, aFunction)),
  samples: count,
  withSamples: aFunction,
  withSlices: aFunction,
}, true);

const OPTIONS: { readonly [name in keyof Required<TrainOptions>]: Must } = {
  model: required(MODEL),
  data: required(anInstance(
    "an iterable, or an async one, of micro-batches, or an object with from",
    (value) =>
      has(value, Symbol.iterator) || has(value, Symbol.asyncIterator) || has(value, "from"),
  )),
  steps: required(count),
  microBatches: count,
  workers: count,
  schedule: either("string", aScheduleName, aRecord({ name: required(aText) }, true)),
  scheduleOptions: aRecord({
    workers: count,
    microBatches: count,
    pipelineLimit: count,
    order: oneOf("fifo", "backward-first"),
    chunks: count,
    slices: count,
    waves: count,
    pipelines: count,
    scale: oneOf("direct", "doubling", "halving"),
    costs: anyObject,
    activationLimit: aboveZero,
    weightLimit: aboveZero,
    recomputeAhead: aBoolean,
    edges: anArray(anyObject),
  }),
  policy: oneOf("list", "elastic"),
  layout: aText,
  replicas: count,
  sync: oneOf("end", "eager", "eager-opt"),
  reduce: oneOf("deterministic", "fast", "mpi"),
  bucketSize: count,
  coarsening: count,
  link: aRecord({
    latencyUs: required(fromZero),
    gigabytesPerSecond: required(aboveZero),
    jitterUs: fromZero,
  }),
  precision: inOtherWords(PRECISION_WORDS, oneOf(...PRECISIONS)),
  lossScale: either("number", aLossScale, oneOf("dynamic")),
  clip: aNumber("a number from 0", (value) => value >= 0),
  dropLast: aBoolean,
  recomputeInterval: count,
  offload: aBoolean,
  memoryLimitBytes: aboveZero,
  device: inOtherWords(DEVICE_WORDS, aDevice),
  adapters: anArray(required(anInteger(0)), 1),
  threads: either("string", oneOf("auto"), anInteger(1, THREADS_MAX)),
  runtime: oneOf("workers", "local", "serial", "mpi"),
  mpi: aRecord({
    library: aText,
    map: anArray(anInteger(0)),
    interface: aText,
    gather: aBoolean,
  }),
  recompute: oneOf(...RECOMPUTE_POLICIES),
  optimizer: inOtherWords(OPTIMIZER_WORDS, anOptimizer),
  learningRate: either("function", aFunction, either("number", fromZero, aRate)),
  seed: anInteger(Number.MIN_SAFE_INTEGER),
  weights: either("string", aText, aMap),
  resume: aRecord({
    step: required(anInteger(0, COUNT_MAX)),
    state: required(aRecord({ weights: required(aMap), moments: required(aMap) }, true)),
    config: anyObject,
  }, true),
  evaluation: aRecord({
    every: required(count),
    batches: required(anArray(anyObject, 1)),
    atStart: aBoolean,
    patience: count,
  }),
  checkpoint: aRecord({
    directory: required(aText),
    overwrite: aBoolean,
    every: count,
    keep: count,
    keepBest: aBoolean,
    config: () => {}, // encoded at the door
  }),
  signal: anInstance("an AbortSignal", (value) => value instanceof AbortSignal),
  frozen: aFunction,
  retries: anInteger(0, COUNT_MAX),
  snapshots: oneOf(...SNAPSHOT_PLACES),
  returnWeights: aBoolean,
  isolation: aText,
  transport: anyObject,
  supervisor: anyObject,
  worker: anyObject,
  heapLimitMb: count,
  stallMs: aNumber(
    `a number above 0 and at most ${DELAY_MAX_MS}`,
    (value) => value > 0 && value <= DELAY_MAX_MS,
  ),
  faults: anArray(aRecord({
    worker: required(anInteger(0)),
    afterActions: required(anInteger(0)),
    kind: required(oneOf("throw", "exit", "close", "loop", "memory")),
  })),
  trace: aBoolean,
  journal: aRecord({
    path: required(aText),
    payloads: aBoolean,
    configuration: () => {},
    program: anArray(aText),
    whenFull: oneOf("go-on", "stop"),
  }),
  system: anInstance("an actor system", (value) => has(value, "spawn", "ask", "stop")),
  metrics: aFunction,
  announce: aFunction,
};

/**
 * Checks the options of a run, which plain JavaScript may have given.
 *
 * @throws {TypeError} when one is not known, is missing, or is of another kind than it must be.
 * @throws {RangeError} when a value is out of its range.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { train } from "@troupe/troupe";
 *
 * const options = { model: { name: "none", layers: [] }, runtime: "worker" };
 * await assert.rejects(train({ ...options, isolaton: "process" } as never).next(), {
 *   message: 'Cannot train: every option must be known, received "isolaton"; did you mean isolation?',
 * });
 * ```
 */
export function checkOptions(options: TrainOptions): void {
  required(aRecord(OPTIONS, false, OPTION_WORDS))("Cannot train:", options);
  const { isolation, system, transport, checkpoint, evaluation } = options;
  if (checkpoint?.keepBest && !evaluation) {
    throw new TypeError(
      "Cannot train: evaluation must be given where checkpoint.keepBest is true, received none",
    );
  }
  if (transport && system) {
    throw new TypeError("Cannot train: transport must be given to the system, received beside one");
  }
  checkTransports("Cannot train:", transport ?? []);
  const names = knownTransports(options).map(({ name }) => name);
  oneOf(...names)("Cannot train: isolation", isolation);
}
