/** Options of `train()` as plain JavaScript may give them: each is checked before anything runs. */

import assert from "node:assert/strict";
import { createSystem, train, type TrainOptions } from "../../../actors/mod.ts";
import { batch, batches, RINGS } from "./own_layers.ts";

const GOOD = { model: RINGS, data: batches(), steps: 1, device: "reference", runtime: "local" };

/** Bad options, and what is said of them after "Cannot train: ". */
const BAD: readonly [Record<string, unknown>, "TypeError" | "RangeError", RegExp][] = [
  [{ runtime: "worker" }, "RangeError", /^runtime .*received "worker"; did you mean workers\?$/],
  [{ isolation: "proces" }, "RangeError", /^isolation .*; did you mean process\?$/],
  [{ transport: {} }, "TypeError", /^transport must be one, or several, .*received object$/],
  [
    { transport: [{ name: "process", open: () => {} }] },
    "RangeError",
    /^the name of a transport must be one that none has yet, received process$/,
  ],
  [
    { transport: [], system: createSystem() },
    "TypeError",
    /^transport must be given to the system/,
  ],
  [{ reduce: "Fast" }, "RangeError", /^reduce must be one of .*; did you mean fast\?$/],
  [{ sync: "eager_opt" }, "RangeError", /^sync must be .*; did you mean eager-opt\?$/],
  [{ precision: "bf16" }, "RangeError", /^precision must be .*; did you mean fp16\?$/],
  [{ recompute: "everything" }, "RangeError", /^recompute must be .*received "everything"$/],
  [{ policy: "greedy" }, "RangeError", /^policy must be one of list, elastic/],
  [{ device: 1 }, "TypeError", /^device must be one of .*, received 1$/],
  [
    { stpes: 3 },
    "TypeError",
    /^every option must be known, received "stpes"; did you mean steps\?$/,
  ],
  [{ flavour: 3 }, "TypeError", /^every option .*received "flavour"; known are model, data/],
  [
    { lr: 0.1 },
    "TypeError",
    /^every option must be known, received "lr"; learningRate was meant$/,
  ],
  [{ learning_rate: 0.1 }, "TypeError", /received "learning_rate"; did you mean learningRate\?$/],
  [{ micro_batches: 2 }, "TypeError", /received "micro_batches"; did you mean microBatches\?$/],
  [{ batchSize: 8 }, "TypeError", /received "batchSize"; the samples of a micro-batch are the mod/],
  [
    { batch_size: 8 },
    "TypeError",
    /received "batch_size"; the samples of a micro-batch are the mo/,
  ],
  [{ epochs: 3 }, "TypeError", /received "epochs"; steps was meant: an epoch has its samples /],
  [{ num_train_epochs: 3 }, "TypeError", /received "num_train_epochs"; steps was meant/],
  [{ max_iters: 3 }, "TypeError", /received "max_iters"; steps was meant, the optimizer steps/],
  [{ gradientAccumulationSteps: 3 }, "TypeError", /; microBatches was meant$/],
  [{ max_grad_norm: 1 }, "TypeError", /received "max_grad_norm"; clip was meant$/],
  [{ weight_decay: 1 }, "TypeError", /received "weight_decay"; optimizer: \{ .* \} was meant$/],
  [
    { warmup_steps: 1 },
    "TypeError",
    /; learningRate: \{ rate, schedule: "cosine", warmup, minRate \} /,
  ],
  [
    { output_dir: "a" },
    "TypeError",
    /; checkpoint: \{ directory, every, keep, config \} was meant$/,
  ],
  [
    { schedule: "linear" },
    "RangeError",
    /received "linear"; it is a learning-rate schedule: learningRate: \{ rate, schedule: "linear", w/,
  ],
  [{ schedule: "cosine" }, "RangeError", /^schedule must .*; it is a learning-rate schedule: /],
  [{ schedule: "1F1b" }, "RangeError", /^schedule must be one of .*; did you mean 1f1b\?$/],
  [
    { optimizer: "adam" },
    "TypeError",
    /^optimizer must .*"adam"; \{ kind: "adamw", \.\.\. \} was /,
  ],
  [
    { optimizer: "SGD" },
    "TypeError",
    /^optimizer must .*; \{ kind: "sgd", momentum, weightDecay \}/,
  ],
  [
    { optimizer: { kind: "sgd", momentum: 0, weightDecay: 0, lr: 1 } },
    "TypeError",
    /^every option of optimizer must be known, received "lr"; learningRate of train\(\) was meant$/,
  ],
  [
    { learningRate: { lr: 1, schedule: "cosine", warmup: 0 } },
    "TypeError",
    /^every option of learningRate must be known, received "lr"; rate was meant$/,
  ],
  [{ device: "cuda" }, "RangeError", /^device must be .*received "cuda"; webgpu was meant$/],
  [{ precision: "float16" }, "RangeError", /^precision must .*received "float16"; fp16 was meant$/],
  [{ constructor: 1 }, "TypeError", /received "constructor"/],
  [{ steps: undefined }, "TypeError", /^steps must be given/],
  [{ steps: "3" }, "TypeError", /^steps must be a positive integer, received "3"$/],
  [{ steps: NaN }, "RangeError", /^steps must be a positive integer, received NaN$/],
  [{ steps: 2 ** 40 }, "RangeError", /^steps must be at most/],
  [{ workers: 1.5 }, "RangeError", /^workers must be a positive integer/],
  [{ replicas: null }, "TypeError", /^replicas must be a positive integer, received null$/],
  [{ retries: -1 }, "RangeError", /^retries must be an integer from 0, received -1$/],
  [{ stallMs: 0 }, "RangeError", /^stallMs must be a number above 0/],
  [{ stallMs: 2 ** 31 }, "RangeError", /^stallMs .*at most 2147483647, received 2147483648$/],
  [{ heapLimitMb: -64 }, "RangeError", /^heapLimitMb /],
  [{ memoryLimitBytes: -1 }, "RangeError", /^memoryLimitBytes must be a positive number/],
  [{ clip: "1" }, "TypeError", /^clip must be a number from 0, received "1"$/],
  [{ clip: NaN }, "RangeError", /^clip must be a number from 0, received NaN$/],
  [{ clip: -1 }, "RangeError", /^clip must be a number from 0, received -1$/],
  [
    { precision: "fp16", lossScale: 1e300 },
    "RangeError",
    /^lossScale must be .* at most 1099511627776/,
  ],
  [{ lossScale: 0 }, "RangeError", /^lossScale must be a positive number/],
  [{ lossScale: "dynamc" }, "RangeError", /^lossScale .*; did you mean dynamic\?$/],
  [{ seed: 0.5 }, "RangeError", /^seed must be a whole number/],
  [{ learningRate: NaN }, "RangeError", /^learningRate must be a number from 0, received NaN$/],
  [{ learningRate: -1 }, "RangeError", /^learningRate must be a number from 0/],
  [
    { learningRate: { rate: 1, schedule: "cosinus", warmup: 0 } },
    "RangeError",
    /^learningRate\.schedule must .*; did you mean cosine\?$/,
  ],
  [{ learningRate: { rate: 1, schedule: "constant" } }, "TypeError", /^learningRate\.warmup must/],
  [
    { learningRate: { rate: 1, schedule: "linear", warmup: 0, minRate: -1 } },
    "RangeError",
    /^learningRate\.minRate must be a number from 0, received -1$/,
  ],
  [
    { learningRate: { rate: 1, schedule: "cosine", warmup: 0, minRate: 2 } },
    "RangeError",
    /^the learning rate at the end must be at most the first, 1, received 2$/,
  ],
  [
    { learningRate: { rate: 1, schedule: "constant", warmup: 0, minRate: 0.5 } },
    "RangeError",
    /^the learning rate at the end must be left out where it is constant, received 0.5$/,
  ],
  [{ optimizer: { kind: "adam" } }, "RangeError", /^optimizer\.kind .*; did you mean adamw\?$/],
  [
    { optimizer: { kind: "sgd", weightDecay: 0 } },
    "TypeError",
    /^optimizer\.momentum must be given/,
  ],
  [
    { optimizer: { kind: "adamw", beta1: 1, beta2: 0.9, epsilon: 1e-8, weightDecay: 0 } },
    "RangeError",
    /^optimizer\.beta1 must be a number from 0 and below 1, received 1$/,
  ],
  [{ link: { latencyUs: 1, gigabytesPerSecond: 0 } }, "RangeError", /^link\.gigabytesPerSecond /],
  [{ evaluation: { every: 1, batches: [] } }, "RangeError", /^evaluation\.batches .* 1 or more/],
  [{ evaluation: { every: 0, batches: [batch(0)] } }, "RangeError", /^evaluation\.every must/],
  [{ evaluation: { evry: 1, batches: [batch(0)] } }, "TypeError", /of evaluation .*mean every\?$/],
  [{ evaluation: { every: 1, batches: [null] } }, "TypeError", /^evaluation\.batches\[0\] must/],
  [
    { evaluation: { every: 1, batches: [batch(0)], patience: 0 } },
    "RangeError",
    /patience must be/,
  ],
  [
    { checkpoint: { directory: "none", config: {}, keepBest: true } },
    "TypeError",
    /^evaluation must be given where checkpoint.keepBest is true, received none$/,
  ],
  [{ checkpoint: { directory: "", config: {} } }, "TypeError", /^checkpoint\.directory must be/],
  [{ schedule: "" }, "TypeError", /^schedule must be/],
  [
    { scheduleOptions: { pipelinelimit: 2 } },
    "TypeError",
    /^every option of scheduleOptions .*pipelineLimit\?$/,
  ],
  [{ data: 7 }, "TypeError", /^data must be an iterable/],
  [{ data: { next() {} } }, "TypeError", /^data must be an iterable/],
  [{ model: { ...RINGS, layers: [] } }, "RangeError", /^model\.layers must be an array of 1/],
  [{ model: { ...RINGS, predictions: 0 } }, "RangeError", /^model\.predictions must/],
  [{ weights: { a: new Float32Array(1) } }, "TypeError", /^weights must be a Map by name/],
  [{ resume: { step: 0, state: {} } }, "TypeError", /^resume\.state\.weights must be given/],
  [
    { faults: [{ worker: 0, afterActions: 0, kind: "throws" }] },
    "RangeError",
    /^faults\[0\]\.kind/,
  ],
  [{ frozen: ["a"] }, "TypeError", /^frozen must be a function, received an array of 1$/],
  [{ trace: 1 }, "TypeError", /^trace must be true or false, received 1$/],
  [{ signal: {} }, "TypeError", /^signal must be an AbortSignal/],
  [{ system: {} }, "TypeError", /^system must be an actor system/],
  [{ journal: { path: "" } }, "TypeError", /^journal\.path must be a string/],
];

Deno.test("every bad option is refused by its name, in one sentence, before anything runs", async () => {
  for (const [options, name, message] of BAD) {
    const run = train({ ...GOOD, ...options } as unknown as TrainOptions).next();
    const error = await run.then(() => assert.fail(JSON.stringify(options)), (error) => error);
    assert.equal(error.name, name, `${Object.keys(options)}: ${error.message}`);
    assert.match(error.message, /^Cannot train: [^\n]+$/);
    assert.match(error.message.slice("Cannot train: ".length), message);
  }
});

Deno.test("options that are no object are refused", async () => {
  for (const none of [undefined, null, 7, "options"]) {
    await assert.rejects(
      train(none as unknown as TrainOptions).next(),
      /^TypeError: Cannot train: the options must be (an object|given), received/,
    );
  }
});

Deno.test("a model whose predictions are no number ends the run before its first step", async () => {
  for (const predictions of [() => NaN, () => 0, () => "many"]) {
    const model = { ...RINGS, predictions: predictions as () => number };
    const run = train({ ...GOOD, model, data: batches() } as TrainOptions);
    await run.next();
    await assert.rejects(run.next(), /^RangeError: .*predictions of a step must be a positive/);
  }
});
