/**
 * The words that other libraries have for what `train()` is told, and what is meant by them here.
 *
 * @module
 */

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
