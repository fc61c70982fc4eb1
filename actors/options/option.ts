/**
 * What values must be, for options that plain JavaScript gives: kinds, ranges, names and slips of
 * the pen.
 *
 * @module
 */

import type { System, Transport } from "../runtime/mod.ts";
import { transportsOf } from "../transports/system.ts";

/** What was probably meant, as the end of a sentence; empty where nothing is near. */
export function didYouMean(text: string, names: readonly string[]): string {
  const near = names.map((name) => ({ name, distance: distance(text, name) }))
    .filter(({ name, distance }) => distance <= Math.max(2, name.length / 3))
    .sort((a, b) => a.distance - b.distance)[0];
  return near ? `; did you mean ${near.name}?` : "";
}

/** Insertions, deletions and changes of letters between two words, whatever their case (Levenshtein). */
function distance(one: string, other: string): number {
  const a = one.toLowerCase().slice(0, 100), b = other.toLowerCase();
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(changed, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}

/** Words as PyTorch, Hugging Face and nanoGPT spell them, without `_`, `-` and case. */
type Words = Readonly<Record<string, string>>;

const STEPS = "steps was meant, the optimizer steps of the whole run";
const EPOCHS = "steps was meant: an epoch has its samples divided by those of a step";
const SAMPLES = "the samples of a micro-batch are the model's, as in gpt2(sizes, samples)";
const RATE = `learningRate: { rate, schedule: "cosine", warmup, minRate } was meant`;
const ADAMW = "optimizer: { ...ADAMW_DEFAULTS, weightDecay } was meant";
const KEEPING = "checkpoint: { directory, every, keep, config } was meant";
const HELD_OUT = "evaluation: { every, batches } was meant";
const FP16 = `precision: "fp16" was meant`;
const MODEL = "it is a size of the model, as in gpt2(sizes, samples)";
const EVENTS = "metrics was meant, or the events of train()";

/** What was meant by an option of `train()` that it does not have. */
export const OPTION_WORDS: Words = {
  ...meaning(STEPS, "maxIters maxSteps iterations iters numSteps trainSteps totalSteps"),
  ...meaning(EPOCHS, "epochs epoch numEpochs maxEpochs numTrainEpochs"),
  ...meaning(
    SAMPLES,
    "batchSize microBatchSize microBatch trainBatchSize perDeviceTrainBatchSize trainMicroBatchSizePerGpu",
  ),
  ...meaning(
    "microBatches was meant",
    "gradientAccumulationSteps gradAccumSteps accumulateGradBatches nMicrobatches numMicrobatches chunks",
  ),
  ...meaning("learningRate was meant", "lr maxLr peakLr baseLr rate stepSize"),
  ...meaning(
    RATE,
    "lrScheduler lrSchedulerType lrSchedule scheduler decayLr lrDecayIters lrDecayStyle warmup warmupSteps warmupIters warmupRatio numWarmupSteps minLr",
  ),
  ...meaning(
    "clip was meant",
    "gradClip maxGradNorm maxNorm clipGrad clipGradNorm gradientClipVal",
  ),
  ...meaning(
    ADAMW,
    "weightDecay betas beta1 beta2 eps epsilon momentum adamBeta1 adamBeta2 adamEpsilon optim adam adamw",
  ),
  ...meaning(
    "workers was meant",
    "stages numStages nStages numWorkers ppSize pipelineParallelSize pipelineModelParallelSize numGpus devices nprocPerNode",
  ),
  ...meaning("replicas was meant", "dpSize dataParallelSize dataParallel worldSize ddp"),
  ...meaning(FP16, "fp16 bf16 half amp mixedPrecision dtype torchDtype computeDtype"),
  ...meaning(
    `recompute: "full" was meant`,
    "gradientCheckpointing activationCheckpointing checkpointActivations recomputeGranularity",
  ),
  ...meaning("offload was meant", "cpuOffload offloadOptimizer zeroOffload"),
  ...meaning("data was meant", "dataset trainDataset trainData dataloader trainDataloader loader"),
  ...meaning(
    HELD_OUT,
    "evalDataset valData valDataloader validationData evalSteps evalInterval evalEvery evalIters evalStrategy",
  ),
  ...meaning(
    KEEPING,
    "out outDir outputDir checkpointDir saveDir saveSteps saveInterval saveEvery saveTotalLimit saveStrategy",
  ),
  ...meaning("resume was meant", "resumeFrom resumeFromCheckpoint initFrom loadCheckpoint"),
  ...meaning("seed was meant", "manualSeed randomSeed dataSeed"),
  ...meaning(
    "the last layer of the model returns the loss",
    "loss lossFn lossFunction criterion objective",
  ),
  ...meaning(
    MODEL,
    "layers nLayer numLayers hidden nEmbd hiddenSize heads nHead numAttentionHeads seq blockSize seqLength vocab vocabSize dropout",
  ),
  ...meaning(EVENTS, "callback callbacks onStep onEvent logger logInterval loggingSteps verbose"),
  ...meaning("order the data with shuffledOrder", "shuffle"),
  ...meaning("device was meant", "accelerator backend"),
};

const ofRate = (rate: string) =>
  `it is a learning-rate schedule: learningRate: { rate, schedule: "${rate}", warmup }`;

/** What was meant by a schedule that is none of a pipeline. */
export const SCHEDULE_WORDS: Words = {
  ...meaning(ofRate("linear"), "linear"),
  ...meaning(ofRate("cosine"), "cosine cosineAnnealing cosineWithRestarts"),
  ...meaning(ofRate("constant"), "constant constantWithWarmup"),
  ...meaning("interleaved was meant", "Interleaved1F1B ScheduleInterleaved1F1B"),
  ...meaning("1f1b was meant", "oneFOneB Schedule1F1B pipeDreamFlush"),
  ...meaning("gpipe was meant", "ScheduleGPipe fillDrain"),
  ...meaning("looped-bfs was meant", "ScheduleLoopedBFS breadthFirst"),
  ...meaning("zb-h1 was meant", "zeroBubble"),
  ...meaning("interleaved-zb was meant", "InterleavedZeroBubble ScheduleInterleavedZeroBubble"),
  ...meaning("zb-v was meant", "ZBVZeroBubble ScheduleZBVZeroBubble"),
  ...meaning("dualpipe-v was meant", "ScheduleDualPipeV"),
};

/** What was meant by a field of `learningRate` that it does not have. */
export const RATE_WORDS: Words = {
  ...meaning("rate was meant", "lr learningRate maxLr peakLr baseLr"),
  ...meaning("schedule was meant", "kind type name decay lrSchedulerType"),
  ...meaning("warmup was meant, in steps", "warmupSteps warmupIters numWarmupSteps warmupRatio"),
  ...meaning("minRate was meant", "minLr etaMin"),
};

/** What was meant by a field of `optimizer` that it does not have. */
export const OPTIMIZER_FIELD_WORDS: Words = {
  ...meaning("learningRate of train() was meant", "lr learningRate rate"),
  ...meaning("beta1 and beta2 were meant", "betas"),
  ...meaning("epsilon was meant", "eps"),
};

/** What was meant by an optimizer that is a word. */
export const OPTIMIZER_WORDS: Words = {
  ...meaning(`{ kind: "adamw", ... } was meant, such as ADAMW_DEFAULTS`, "adam adamw adamwTorch"),
  ...meaning(`{ kind: "sgd", momentum, weightDecay } was meant`, "sgd momentum"),
};

/** What was meant by a device. */
export const DEVICE_WORDS: Words = {
  ...meaning("webgpu was meant", "cuda gpu mps rocm vulkan metal"),
  ...meaning("native was meant", "cpu"),
};

/** What was meant by a precision. */
export const PRECISION_WORDS: Words = {
  ...meaning("fp16 was meant", "float16 half f16 mixed amp"),
  ...meaning("fp32 was meant", "float32 float f32 single no"),
};

function meaning(meant: string, words: string): Words {
  return Object.fromEntries(words.split(" ").map((word) => [spelled(word), meant]));
}

/**
 * What was meant by a word, as the end of a sentence; empty where it is none of these.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(whatWasMeant("max_grad_norm", OPTION_WORDS), "; clip was meant");
 * assert.equal(whatWasMeant("flavour", OPTION_WORDS), "");
 * ```
 */
export function whatWasMeant(word: unknown, words: Words): string {
  const key = typeof word === "string" ? spelled(word) : "";
  return Object.hasOwn(words, key) ? `; ${words[key]}` : "";
}

/** A word however it is spelled. */
function spelled(word: string): string {
  return word.slice(0, 100).replace(/[-_ ]/g, "").toLowerCase();
}

/** Checks a value; `what` says in the refusal which one it is. Values that are not given pass. */
export type Must = (what: string, value: unknown) => void;

/** A value as a refusal shows it: short, and in one line. */
function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 100));
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === "function") return "a function";
  if (typeof value === "object" && value !== null) return "an object";
  return typeof value === "bigint" ? `the bigint ${value}` : String(value);
}

function must(
  what: string,
  wanted: string,
  value: unknown,
  Kind: typeof TypeError | typeof RangeError = TypeError,
): never {
  throw new Kind(`${what} must be ${wanted}, received ${shown(value)}`);
}

/** A check of values that are given. */
const given = (check: Must): Must => (what, value) => {
  if (value !== undefined) check(what, value);
};

/** Something that must be given. */
export const required = (check: Must): Must => (what, value) => {
  if (value === undefined) must(subject(what), "given", value);
  check(what, value);
};

const ofType = (type: string, wanted: string): Must =>
  given((what, value) => typeof value === type || must(what, wanted, value));

/** `true` or `false`. */
export const aBoolean: Must = ofType("boolean", "true or false");

/** A function. */
export const aFunction: Must = ofType("function", "a function");

/** A string that is not empty. */
export const aText: Must = given((what, value) => {
  if (typeof value !== "string" || value === "") must(what, "a string that is not empty", value);
});

/** A number for which `holds` is true; never NaN. */
export const aNumber = (wanted: string, holds: (value: number) => boolean): Must =>
  given((what, value) => {
    if (typeof value !== "number") must(what, wanted, value);
    if (!holds(value as number)) must(what, wanted, value, RangeError);
  });

/** A number from 0, and no infinite one. */
export const fromZero: Must = aNumber(
  "a number from 0",
  (value) => value >= 0 && value < Infinity,
);

/** A whole number from `minimum` to `maximum`. */
export const anInteger = (minimum: number, maximum = Number.MAX_SAFE_INTEGER): Must => {
  const wanted = minimum === 1
    ? "a positive integer"
    : minimum === Number.MIN_SAFE_INTEGER
    ? "a whole number"
    : `an integer from ${minimum}`;
  const whole = aNumber(wanted, (value) => Number.isSafeInteger(value) && value >= minimum);
  const small = aNumber(`at most ${maximum}`, (value) => value <= maximum);
  return (what, value) => {
    whole(what, value);
    small(what, value);
  };
};

/** An object of a class, or of one that does what it does. */
export const anInstance = (wanted: string, isIt: (value: object) => boolean): Must =>
  given((what, value) => {
    if (typeof value !== "object" || value === null || !isIt(value)) must(what, wanted, value);
  });

/** One of some strings. */
export const oneOf = (...names: readonly string[]): Must =>
  given((what, value) => {
    if (names.includes(value as string)) return;
    const wanted = `one of ${names.join(", ")}`;
    if (typeof value !== "string") must(what, wanted, value);
    const meant = didYouMean(value as string, names);
    throw new RangeError(`${what} must be ${wanted}, received ${shown(value)}${meant}`);
  });

/** One of two, by whether the value is of a type. */
export const either =
  (type: "number" | "string" | "function", one: Must, other: Must): Must => (what, value) => {
    const its: string = typeof value;
    (its === type ? one : other)(what, value);
  };

/** An array of such values. */
export const anArray = (of: Must, minimum = 0): Must =>
  given((what, value) => {
    const wanted = minimum === 0 ? "an array" : `an array of ${minimum} or more`;
    if (!Array.isArray(value)) must(what, wanted, value);
    const values = value as readonly unknown[];
    if (values.length < minimum) must(what, wanted, value, RangeError);
    for (let i = 0; i < values.length; i++) required(of)(`${what}[${i}]`, values[i]);
  });

/** A check whose refusal says what other libraries mean by a word. */
export const inOtherWords =
  (words: Readonly<Record<string, string>>, check: Must): Must => (what, value) => {
    const meant = whatWasMeant(value, words);
    try {
      check(what, value);
    } catch (error) {
      if (meant === "") throw error;
      const Kind = error instanceof RangeError ? RangeError : TypeError;
      throw new Kind((error as Error).message.replace(/(; did you mean .*)?$/, meant));
    }
  };

/**
 * A record of options: none that is not known, each as it must be.
 *
 * `what` is `Cannot do it:` for all options together, and `Cannot do it: name` for a record in them.
 *
 * @param isOpen whether it may have others as well.
 * @param words what other libraries mean by names that it does not know.
 */
export const aRecord = (
  fields: Readonly<Record<string, Must>>,
  isOpen = false,
  words: Readonly<Record<string, string>> = {},
): Must =>
  given((what, value) => {
    if (typeof value !== "object" || value === null) must(subject(what), "an object", value);
    const names = Object.keys(fields), [cannot, at] = what.split(/: ?/, 2) as [string, string];
    for (const name of isOpen ? [] : Object.keys(value as object)) {
      if (names.includes(name)) continue;
      const meant = whatWasMeant(name, words) || didYouMean(name, names) ||
        `; known are ${names.join(", ")}`;
      const which = at === "" ? "every option" : `every option of ${at}`;
      throw new TypeError(`${cannot}: ${which} must be known, received ${shown(name)}${meant}`);
    }
    for (const [name, check] of Object.entries(fields)) {
      const inner = at === "" ? name : `${at}.${name}`;
      check(`${cannot}: ${inner}`, (value as Record<string, unknown>)[name]);
    }
  });

/** All options together have no name of their own. */
const subject = (what: string) => what.endsWith(":") ? `${what} the options` : what;

/** What decides which transports a run knows. */
export interface PlaceOptions {
  readonly system?: System | undefined;
  readonly transport?: Transport | readonly Transport[] | undefined;
}

/** The transports that a run can name: those of its system, else those that one of its own gets. */
export function knownTransports({ system, transport }: PlaceOptions): readonly Transport[] {
  const own = system?.transports ?? [];
  // In a simulated system every place is local, whatever its name.
  return own.length > 0 ? own : transportsOf(transport);
}

/** Where snapshots lie. */
export type SnapshotPlace = "memory" | "disk";

/** Where snapshots may lie. */
export const SNAPSHOT_PLACES: readonly SnapshotPlace[] = ["memory", "disk"];
