/** Options of `train()`, as plain JavaScript may give them: each is checked before anything runs. */

import assert from "node:assert/strict";
import { createSystem, train, type TrainOptions } from "../../../actors/mod.ts";
import { shareCores } from "../../../actors/run/options/core_share.ts";
import { assertRanksHold } from "../../../actors/run/options/run_devices.ts";
import { checkSizes } from "../../../actors/run/options/sizes.ts";
import { eager } from "../../../examples/custom_schedule.ts";
import { openDevice } from "../../../kernels/mod.ts";
import { createSchedule, type ScheduleDefinition } from "../../../schedules/mod.ts";
import { batch, batches, RINGS, trainRings } from "./own_layers.ts";

type Refused = readonly (readonly [Record<string, unknown>, RegExp])[];

const KNOWN = "^every option must be known, received ";
const known = (rest: string) => new RegExp(`${KNOWN}${rest}`);
const rate = { rate: 1, schedule: "cosine", warmup: 0 }, given = [batch(0)];
const adamw = { kind: "adamw", beta1: 0.9, beta2: 0.9, epsilon: 1e-8, weightDecay: 0 };

/** Values of another kind, and names that are not known; the message comes after "Cannot train: ". */
const TYPES: Refused = [
  [{ transport: {} }, /^transport must be one, or several, .*received object$/],
  [{ transport: [], system: createSystem() }, /^transport must be given to the system/],
  [{ device: 1 }, /^device must be one of .*, received 1$/],
  [{ stpes: 3 }, known('"stpes"; did you mean steps\\?$')],
  [{ flavour: 3 }, known('"flavour"; known are model, data')],
  [{ lr: 0.1 }, known('"lr"; learningRate was meant$')],
  [{ learning_rate: 0.1 }, known('"learning_rate"; did you mean learningRate\\?$')],
  [{ micro_batches: 2 }, known('"micro_batches"; did you mean microBatches\\?$')],
  [{ batchSize: 8 }, known('"batchSize"; the samples of a micro-batch are the mod')],
  [{ batch_size: 8 }, known('"batch_size"; the samples of a micro-batch are the mo')],
  [{ epochs: 3 }, known('"epochs"; steps was meant: an epoch has its samples ')],
  [{ num_train_epochs: 3 }, known('"num_train_epochs"; steps was meant')],
  [{ max_iters: 3 }, known('"max_iters"; steps was meant, the optimizer steps')],
  [{ gradientAccumulationSteps: 3 }, /; microBatches was meant$/],
  [{ max_grad_norm: 1 }, known('"max_grad_norm"; clip was meant$')],
  [{ weight_decay: 1 }, known('"weight_decay"; optimizer: \\{ .* \\} was meant$')],
  [{ warmup_steps: 1 }, /; learningRate: \{ rate, schedule: "cosine", warmup, minRate \} /],
  [{ output_dir: "a" }, /; checkpoint: \{ directory, every, keep, config \} was meant$/],
  [{ optimizer: "adam" }, /^optimizer must .*"adam"; \{ kind: "adamw", \.\.\. \} was /],
  [{ optimizer: "SGD" }, /^optimizer must .*; \{ kind: "sgd", momentum, weightDecay \}/],
  [
    { optimizer: { kind: "sgd", momentum: 0, weightDecay: 0, lr: 1 } },
    /^every option of optimizer must be known, received "lr"; learningRate of train\(\) was meant$/,
  ],
  [
    { learningRate: { lr: 1, schedule: "cosine", warmup: 0 } },
    /^every option of learningRate must be known, received "lr"; rate was meant$/,
  ],
  [{ constructor: 1 }, known('"constructor"')],
  [{ steps: undefined }, /^steps must be given/],
  [{ steps: "3" }, /^steps must be a positive integer, received "3"$/],
  [{ replicas: null }, /^replicas must be a positive integer, received null$/],
  [{ clip: "1" }, /^clip must be a number from 0, received "1"$/],
  [{ learningRate: { rate: 1, schedule: "constant" } }, /^learningRate\.warmup must/],
  [{ optimizer: { kind: "sgd", weightDecay: 0 } }, /^optimizer\.momentum must be given/],
  [{ evaluation: { evry: 1, batches: given } }, /of evaluation .*mean every\?$/],
  [{ evaluation: { every: 1, batches: [null] } }, /^evaluation\.batches\[0\] must/],
  [
    { checkpoint: { directory: "none", config: {}, keepBest: true } },
    /^evaluation must be given where checkpoint.keepBest is true, received none$/,
  ],
  [{ checkpoint: { directory: "", config: {} } }, /^checkpoint\.directory must be/],
  [{ schedule: "" }, /^schedule must be/],
  [
    { scheduleOptions: { pipelinelimit: 2 } },
    /^every option of scheduleOptions .*pipelineLimit\?$/,
  ],
  [{ data: 7 }, /^data must be an iterable/],
  [{ data: { next() {} } }, /^data must be an iterable/],
  [{ weights: { a: new Float32Array(1) } }, /^weights must be a Map by name/],
  [{ resume: { step: 0, state: {} } }, /^resume\.state\.weights must be given/],
  [{ frozen: ["a"] }, /^frozen must be a function, received an array of 1$/],
  [{ trace: 1 }, /^trace must be true or false, received 1$/],
  [{ signal: {} }, /^signal must be an AbortSignal/],
  [{ system: {} }, /^system must be an actor system/],
  [{ journal: { path: "" } }, /^journal\.path must be a string/],
];

/** Values out of their range. */
const RANGES: Refused = [
  [{ runtime: "worker" }, /^runtime .*received "worker"; did you mean workers\?$/],
  [{ isolation: "proces" }, /^isolation .*; did you mean process\?$/],
  [
    { transport: [{ name: "process", open: () => {} }] },
    /^the name of a transport must be one that none has yet, received process$/,
  ],
  [{ reduce: "Fast" }, /^reduce must be one of .*; did you mean fast\?$/],
  [{ sync: "eager_opt" }, /^sync must be .*; did you mean eager-opt\?$/],
  [{ precision: "bf16" }, /^precision must be .*; did you mean fp16\?$/],
  [{ recompute: "everything" }, /^recompute must be .*received "everything"$/],
  [{ policy: "greedy" }, /^policy must be one of list, elastic/],
  [{ schedule: "linear" }, /"linear"; it is a learning-rate schedule: .* schedule: "linear", w/],
  [{ schedule: "cosine" }, /^schedule must .*; it is a learning-rate schedule: /],
  [{ schedule: "1F1b" }, /^schedule must be one of .*; did you mean 1f1b\?$/],
  [{ device: "cuda" }, /^device must be .*received "cuda"; webgpu was meant$/],
  [{ precision: "float16" }, /^precision must .*received "float16"; fp16 was meant$/],
  [{ steps: NaN }, /^steps must be a positive integer, received NaN$/],
  [{ steps: 2 ** 40 }, /^steps must be at most/],
  [{ workers: 1.5 }, /^workers must be a positive integer/],
  [{ retries: -1 }, /^retries must be an integer from 0, received -1$/],
  [{ stallMs: 0 }, /^stallMs must be a number above 0/],
  [{ stallMs: 2 ** 31 }, /^stallMs .*at most 2147483647, received 2147483648$/],
  [{ heapLimitMb: -64 }, /^heapLimitMb /],
  [{ memoryLimitBytes: -1 }, /^memoryLimitBytes must be a positive number/],
  [{ clip: NaN }, /^clip must be a number from 0, received NaN$/],
  [{ clip: -1 }, /^clip must be a number from 0, received -1$/],
  [{ precision: "fp16", lossScale: 1e300 }, /^lossScale must be .* at most 1099511627776/],
  [{ lossScale: 0 }, /^lossScale must be a positive number/],
  [{ lossScale: "dynamc" }, /^lossScale .*; did you mean dynamic\?$/],
  [{ seed: 0.5 }, /^seed must be a whole number/],
  [{ learningRate: NaN }, /^learningRate must be a number from 0, received NaN$/],
  [{ learningRate: -1 }, /^learningRate must be a number from 0/],
  [
    { learningRate: { ...rate, schedule: "cosinus" } },
    /^learningRate\.schedule must .*; did you mean cosine\?$/,
  ],
  [
    { learningRate: { ...rate, minRate: -1 } },
    /^learningRate\.minRate must be a number from 0, received -1$/,
  ],
  [
    { learningRate: { ...rate, minRate: 2 } },
    /^the learning rate at the end must be at most the first, 1, received 2$/,
  ],
  [
    { learningRate: { ...rate, schedule: "constant", minRate: 0.5 } },
    /^the learning rate at the end must be left out where it is constant, received 0.5$/,
  ],
  [{ optimizer: { kind: "adam" } }, /^optimizer\.kind .*; did you mean adamw\?$/],
  [
    { optimizer: { ...adamw, beta1: 1 } },
    /^optimizer\.beta1 must be a number from 0 and below 1, received 1$/,
  ],
  [{ link: { latencyUs: 1, gigabytesPerSecond: 0 } }, /^link\.gigabytesPerSecond /],
  [{ evaluation: { every: 1, batches: [] } }, /^evaluation\.batches .* 1 or more/],
  [{ evaluation: { every: 0, batches: given } }, /^evaluation\.every must/],
  [{ evaluation: { every: 1, batches: given, patience: 0 } }, /patience must be/],
  [{ model: { ...RINGS, layers: [] } }, /^model\.layers must be an array of 1/],
  [{ model: { ...RINGS, predictions: 0 } }, /^model\.predictions must/],
  [{ faults: [{ worker: 0, afterActions: 0, kind: "throws" }] }, /^faults\[0\]\.kind/],
  ...[{ every: 0 }, { keep: 0 }, { keep: 1.5 }].map((wrong) => {
    const [[name, value]] = Object.entries(wrong) as [[string, number]];
    const must = `^checkpoint.${name} must be a positive integer, received ${value}$`;
    return [{ checkpoint: { directory: "none", config: {}, ...wrong } }, new RegExp(must)] as const;
  }),
];

Deno.test("every bad option is refused by its name, in one sentence, before anything runs", async () => {
  for (const [name, cases] of [["TypeError", TYPES], ["RangeError", RANGES]] as const) {
    for (const [options, message] of cases) {
      const error = await train({ ...GOOD, ...options } as never).next()
        .then(() => assert.fail(JSON.stringify(options)), (error) => error);
      assert.equal(error.name, name, `${Object.keys(options)}: ${error.message}`);
      assert.match(error.message, /^Cannot train: [^\n]+$/);
      assert.match(error.message.slice("Cannot train: ".length), message);
    }
  }
  for (const none of [undefined, null, 7, "options"]) {
    const refusal = /^TypeError: Cannot train: the options must be (an object|given), received/;
    await assert.rejects(train(none as never).next(), refusal);
  }
});

const GOOD = { model: RINGS, data: batches(), steps: 1, device: "reference", runtime: "local" };

Deno.test("sizes of a run are refused beyond their limits, and served up to them", () => {
  const LIMITS = [
    [{ workers: 128, microBatches: 1, replicas: 2 }, "replicas", "workers times replicas"],
    [{ workers: 1, microBatches: 2 ** 15, replicas: 2 }, "replicas", "microBatches times replicas"],
    [{ workers: 16, microBatches: 2 ** 16, replicas: 1 }, "workers", "workers times microBatches"],
  ] as const;
  for (const [sizes, more, what] of LIMITS) {
    checkSizes(sizes);
    const message = new RegExp(`^RangeError: Cannot train: ${what} must be at most \\d+, received`);
    assert.throws(() => checkSizes({ ...sizes, [more]: sizes[more] + 1 }), message);
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

Deno.test("a learning rate that a function gives is checked at the door and in every step", async () => {
  const events: string[] = [];
  for (
    const [wrong, type, received] of [
      [NaN, RangeError, "a number from 0, received NaN"],
      [Infinity, RangeError, "a number from 0, received Infinity"],
      [-1, RangeError, "a number from 0, received -1"],
      ["0.1", TypeError, 'a number from 0, received "0.1"'],
      [undefined, TypeError, "given, received undefined"],
    ] as const
  ) {
    for (const at of [1, 3]) {
      const learningRate = (step: number) => step === at ? wrong as number : 0.1;
      const message = `Cannot run step ${at}: the learning rate must be ${received}`;
      const ended = (async () => {
        const options = { ...GOOD, data: batches(), steps: 4, learningRate } as TrainOptions;
        for await (const { type } of train(options)) events.push(`${at} ${type}`);
      })();
      await assert.rejects(ended, (error) => error instanceof type && error.message === message);
    }
  }
  assert.ok(!events.some((event) => event.startsWith("1 ")), "nothing runs with a bad first rate");
  assert.ok(events.includes("3 step"));
});

const bitsOf = async (options: Partial<TrainOptions>, count = 8) => {
  const data = Array.from({ length: count }, (_, i) => batch(i));
  return (await trainRings({ data, steps: 2, microBatches: 4, ...options })).bits;
};

Deno.test("a definition of a schedule trains as it is, a short last step included", async () => {
  const made: number[] = [];
  const watched: ScheduleDefinition = {
    ...eager,
    create(options) {
      made.push(options.microBatches);
      return eager.create(options);
    },
  };
  const run = await bitsOf({ schedule: watched, workers: 3 }, 7);
  assert.deepEqual(run, await bitsOf({ schedule: "gpipe", runtime: "serial" }, 7));
  assert.deepEqual([...new Set(made)], [4, 3]);
  assert.deepEqual(await bitsOf({ schedule: "dapple" }), await bitsOf({ schedule: "1f1b" }));
});

Deno.test("an option that the schedule of a run does not read is refused by name", async () => {
  const SIZE = { workers: 2, microBatches: 4 } as const;
  const refused: readonly [Partial<TrainOptions>, RegExp][] = [
    [{ scheduleOptions: { waves: 3 } }, /the schedule 1f1b: it does not read waves; .*hanayo/],
    [
      { schedule: "dapple", scheduleOptions: { chunks: 2 } },
      /the schedule dapple: it does not read chunks; .*interleaved, looped-bfs, interleaved-zb, search$/,
    ],
    [{ schedule: eager, scheduleOptions: { waves: 3 } }, /eager-1f1b: it does not read waves/],
    [
      { schedule: createSchedule("hanayo", SIZE), scheduleOptions: { chunks: 2 } },
      /the schedule hanayo: it does not read chunks/,
    ],
    [
      { policy: "list", scheduleOptions: { activationLimit: 4 } },
      /the schedule 1f1b: it does not read activationLimit; schedules that do: message-driven, search$/,
    ],
    [
      { scheduleOptions: { microBatches: 8 } },
      /scheduleOptions.microBatches must be 4, as microBatches of the run, or left out, received 8/,
    ],
    [{ scheduleOptions: { workers: 4 } }, /scheduleOptions.workers must be 2, .* received 4/],
    [
      { schedule: createSchedule("gpipe", { ...SIZE, microBatches: 8 }) },
      /the schedule must be for 4 micro-batches, received 8$/,
    ],
  ];
  for (const [options, message] of refused) {
    await assert.rejects(bitsOf(options), { name: "RangeError", message });
  }
  const scheduleOptions = { ...SIZE, activationLimit: 4, waves: undefined };
  await bitsOf({ policy: "elastic", scheduleOptions });
});

Deno.test("workers of one rank share no GPU, which one isolate of a process can use", () => {
  assertRanksHold([1, 0], "webgpu");
  assertRanksHold([0, 0, 1], "native");
  assert.throws(() => assertRanksHold([0, 0, 1], "webgpu"), {
    name: "RangeError",
    message: /^Cannot train on webgpu .* a rank of its own, received 0,0,1$/,
  });
});

Deno.test("auto gives each worker its share of the cores, at least one thread", () => {
  const { hardwareConcurrency: cores } = navigator;
  const share = (workers: number, runtime: "workers" | "serial" | "local" = "workers") =>
    shareCores({ threads: "auto" }, runtime, workers, "native");
  assert.deepEqual(share(1), { threads: cores, workersHere: 1, cores });
  assert.deepEqual(share(cores), { threads: 1, workersHere: cores, cores });
  assert.deepEqual(share(2 * cores), { threads: 1, workersHere: 2 * cores, cores });
  assert.equal(share(2, "local").threads, Math.max(1, Math.floor(cores / 2)));
  assert.equal(share(8, "serial").threads, cores); // one worker computes for all
  assert.equal(shareCores({}, "workers", 1, "native").threads, 1);
  assert.equal(shareCores({ threads: 3 }, "workers", 8, "native").threads, 3);
});

Deno.test("devices with one thread have one by auto, and refuse more in one sentence", async () => {
  const threads = 2;
  for (const device of ["wasm", "reference"] as const) {
    assert.equal(shareCores({ threads: "auto" }, "workers", 1, device).threads, 1);
    assert.equal(shareCores({ threads: 1 }, "workers", 1, device).threads, 1);
    const refusal = `${device}: threads must be 1, as only native has more, received 2`;
    const name = "RangeError", message = `Cannot train on ${refusal}`;
    await assert.rejects(trainRings({ device, threads }), { name, message });
    const opening = openDevice(device, { threads });
    await assert.rejects(opening, { name, message: `Cannot open ${refusal}` });
  }
  for (const threads of [0, 1.5, 257, "all"] as never[]) {
    await assert.rejects(trainRings({ threads }), /: Cannot train: threads must be .*, received/);
  }
});
