/** Options of `train()`, as plain JavaScript may give them: each is checked before anything runs. */

import assert from "node:assert/strict";
import { createSystem } from "../../../actors/transports/system.ts";
import { train } from "../../../actors/run/train.ts";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { assertRanksHold, shareCores } from "../../../actors/run/devices.ts";
import { checkSizes } from "../../../actors/options/limits.ts";
import { eager } from "../../../examples/custom_schedule.ts";
import { ADAMW_DEFAULTS, openDevice } from "../../../kernels/mod.ts";
import {
  createSchedule,
  parseCsv,
  type ScheduleDefinition,
  scheduleFromLists,
} from "../../../schedules/mod.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { batch, batches, RINGS, trainRings } from "./own_layers.ts";
import refused from "./refused_options.json" with { type: "json" };

const SIZE = { workers: 2, microBatches: 4 } as const;
const IDLE = { schedule: scheduleFromLists("mine", parseCsv("0F0,0B0\n,\n")), microBatches: 1 };
const WAVES = { ...SIZE, schedule: createSchedule("hanayo", SIZE) };

/** Options as JSON, each with its error message; long messages by start and end. */
const REFUSED: readonly [Record<string, unknown>, string][] = refused as never;

const JOB = { name: "one", data: batches(), lora: { rank: 1, target: ["dense"] } };

const GOOD = { model: RINGS, data: batches(), steps: 1, device: "reference", runtime: "local" };

/** Begins a run, or one of jobs. */
const begin = (options: object) => train({ ...GOOD, ...options } as never).next();
const beginJobs = (options: object) => begin({ data: undefined, jobs: [JOB], ...options });

Deno.test("every bad option is refused by its name, in one sentence, before anything runs", async () => {
  for (const [options, refusal] of REFUSED) {
    const text = refusal.split("…").map((part) => RegExp.escape(part)).join("[^\\n]*");
    await assert.rejects(begin(options), new RegExp(`^${text}$`), JSON.stringify(options));
  }
  await assertRefused("options", [
    () => begin({ transport: [], system: createSystem() }),
    () => begin({ transport: { name: "process", open() {} } }),
    () => begin({ steps: undefined }),
    () => begin({ steps: NaN }),
    () => begin({ clip: NaN }),
    () => begin({ learningRate: NaN }),
    () => begin({ data: { next() {} } }),
    () => begin({ weights: { a: 1 } }),
    () => begin({ model: { ...RINGS, layers: [] } }),
    () => begin({ model: { ...RINGS, predictions: 0 } }),
    () => begin({ schedule: eager, scheduleOptions: { waves: 3 } }),
    () => begin({ ...WAVES, scheduleOptions: { chunks: 2 } }),
    () => begin({ ...WAVES, microBatches: 8 }),
    () => begin(IDLE),
    () => train(undefined as never).next(),
    () => train(null as never).next(),
    () => train(7 as never).next(),
    () => train("options" as never).next(),
  ]);
});

Deno.test("every bad option of a run of jobs is refused by its name, before anything runs", async () => {
  const shared = { ...JOB, data: batches() };
  await assertRefused("options_of_jobs", [
    () => beginJobs({ data: batches() }),
    () => beginJobs({ jobs: 3 }),
    () => beginJobs({ jobs: [] }),
    () => beginJobs({ jobs: new Array(9).fill(JOB) }),
    () => beginJobs({ jobs: [{ ...JOB, step: 3 }] }),
    () => beginJobs({ jobs: [JOB, JOB] }),
    () => beginJobs({ jobs: [JOB, { ...JOB, name: "ONE" }] }),
    () => beginJobs({ jobs: [shared, { ...shared, name: "two" }] }),
    () => beginJobs({ jobs: [{ ...JOB, name: "../one" }] }),
    () => beginJobs({ jobs: [{ ...JOB, name: "run.json" }] }),
    () => beginJobs({ jobs: [{ ...JOB, lora: undefined }] }),
    () => beginJobs({ steps: undefined }),
    () => beginJobs({ jobs: [JOB, { ...JOB, data: batches(), name: "two", start: 3 }] }),
    () => beginJobs({ progress: true }),
    () => beginJobs({ replicas: 2 }),
    () => beginJobs({ runtime: "serial" }),
    () => beginJobs({ precision: "fp16" }),
    () => beginJobs({ schedule: "chimera", workers: 2 }),
    () => beginJobs({ jobs: [{ ...JOB, lora: { rank: 1, target: ["none"] } }] }),
    () =>
      beginJobs({
        jobs: [{ ...JOB, lora: { rank: 1, target: ["b"] } }],
        optimizer: { groups: [{ match: "*lora_A*", frozen: true }] },
      }),
  ]);
});

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
  const WRONG = [
    [-1, "RangeError", "a number from 0, received -1"],
    ["0.1", "TypeError", 'a number from 0, received "0.1"'],
    [undefined, "TypeError", "given, received undefined"],
  ] as const;
  for (const [wrong, name, received] of WRONG) {
    for (const at of [1, 3]) {
      const learningRate = (step: number) => step === at ? wrong as number : 0.1;
      const options = { ...GOOD, data: batches(), steps: 4, learningRate } as TrainOptions;
      const types: string[] = [], run = Array.fromAsync(train(options), (e) => types.push(e.type));
      const message = `Cannot run step ${at}: the learning rate must be ${received}`;
      await assert.rejects(run, { name, message });
      assert.deepEqual(types, at === 1 ? [] : ["plan", "step", "step"]);
    }
  }
});

const bitsOf = async (options: Partial<TrainOptions>, count = 8) => {
  const data = Array.from({ length: count }, (_, i) => batch(i));
  return (await trainRings({ data, steps: 2, microBatches: 4, ...options })).bits;
};

Deno.test("a definition of a schedule trains as it is, a short last step included", async () => {
  const made: number[] = [];
  const watched: ScheduleDefinition = {
    ...eager,
    create: (options) => (made.push(options.microBatches), eager.create(options)),
  };
  const run = await bitsOf({ schedule: watched, workers: 3 }, 7);
  assert.deepEqual(run, await bitsOf({ schedule: "gpipe", runtime: "serial" }, 7));
  assert.deepEqual([...new Set(made)], [4, 3]);
  assert.deepEqual(await bitsOf({ schedule: "dapple" }), await bitsOf({ schedule: "1f1b" }));
  // Its options may repeat those of the run.
  const scheduleOptions = { ...SIZE, activationLimit: 4, waves: undefined };
  await bitsOf({ schedule: "1f1b", policy: "elastic", scheduleOptions });
});

/** Options with parts left out, and the same with their defaults. */
const PARTS: readonly (readonly [object, object])[] = [
  [{ optimizer: {} }, {}],
  [{ optimizer: { weightDecay: 0.1, beta1: undefined } }, {
    optimizer: { ...ADAMW_DEFAULTS, weightDecay: 0.1 },
  }],
  [{ optimizer: { kind: "sgd" } }, { optimizer: { kind: "sgd", momentum: 0, weightDecay: 0 } }],
  [{ learningRate: {} }, { learningRate: 1e-3 }],
  [{ learningRate: { schedule: "cosine" } }, {
    learningRate: { rate: 1e-3, schedule: "cosine", warmup: 0, minRate: 0 },
  }],
  [{ learningRate: { rate: 0.1, warmup: 2 } }, {
    learningRate: { rate: 0.1, schedule: "constant", warmup: 2 },
  }],
  [{ learningRate: { schedule: "linear", steps: 4 } }, {
    learningRate: (step: number) => 1e-3 * (1 - (step - 1) / 4),
  }],
  [{ scheduleOptions: { costs: {}, recomputeAhead: false }, schedule: "search" }, {
    schedule: "search",
  }],
];

Deno.test("parts left out of an option have their defaults, and given parts do not", async () => {
  const all = new Set<string>();
  for (const [part, whole] of PARTS) {
    const bits = await bitsOf(part);
    assert.deepEqual(bits, await bitsOf(whole), JSON.stringify(part));
    all.add(bits.hash);
  }
  assert.equal(all.size, PARTS.length - 2);
});

Deno.test("workers of one rank share no GPU, which one isolate of a process can use", () => {
  assertRanksHold([1, 0], "webgpu");
  assertRanksHold([0, 0, 1], "native");
  const refusal = /^RangeError: Cannot train on webgpu .* a separate rank, received 0,0,1$/;
  assert.throws(() => assertRanksHold([0, 0, 1], "webgpu"), refusal);
});

Deno.test("auto gives each worker its share of the cores, at least one thread", () => {
  const cores = 7;
  Object.defineProperty(navigator, "hardwareConcurrency", { value: cores, configurable: true });
  const share = (workers: number, runtime: "workers" | "serial" | "local" = "workers") =>
    shareCores({ threads: "auto" }, runtime, workers, "native");
  assert.deepEqual(share(1), { threads: cores, workersHere: 1, cores });
  assert.deepEqual(share(2 * cores), { threads: 1, workersHere: 2 * cores, cores });
  assert.deepEqual([2, 4].map((workers) => share(workers, "local").threads), [3, 1]);
  assert.equal(share(8, "serial").threads, cores); // one worker computes for all
  assert.equal(shareCores({}, "workers", 1, "native").threads, 1);
  assert.equal(shareCores({ threads: 3 }, "workers", 8, "native").threads, 3);
  Reflect.deleteProperty(navigator, "hardwareConcurrency");
  assert.notEqual(navigator.hardwareConcurrency, undefined);
});

Deno.test("devices with one thread have one by auto, and refuse more in one sentence", async () => {
  const threads = 2;
  for (const device of ["wasm", "reference"] as const) {
    assert.equal(shareCores({ threads: "auto" }, "workers", 1, device).threads, 1);
    assert.equal(shareCores({ threads: 1 }, "workers", 1, device).threads, 1);
    const refusal = `${device}: threads must be 1, as only native has more, received 2$`;
    const refuses = (door: string) => new RegExp(`^RangeError: Cannot ${door} ${refusal}`);
    await assert.rejects(trainRings({ device, threads }), refuses("train on"));
    await assert.rejects(openDevice(device, { threads }), refuses("open"));
  }
  for (const threads of [0, 1.5, 257, "all"] as never[]) {
    await assert.rejects(trainRings({ threads }), /: Cannot train: threads must be .*, received/);
  }
});
