/** The data of a run: its kinds, its start position, and errors in it. */

import type { Data, DataSource } from "../../../actors/options/model_definition.ts";
import assert from "node:assert/strict";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import {
  type DataOptions,
  findComponent,
  importComponent,
} from "../../../actors/registry/component.ts";
import { openTask } from "../../../actors/registry/task.ts";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { train } from "../../../actors/run/train.ts";
import { builtInNames } from "../../../actors/registry/registry.ts";
import type { Batch } from "../../../kernels/mod.ts";
import { knowFile } from "../../../kernels/data/files.ts";
import { someTokens, writeTokens } from "../../console/command.ts";
import { atDepth } from "../../depth.ts";
import { folderTest } from "../../in_folder.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { eventsOf } from "../runs.ts";
import { B, batch, batches, LOOKUP, RINGS, trainRings } from "./own_layers.ts";

const OPTIONS = {
  ...{ model: LOOKUP, steps: 4, microBatches: 2, workers: 2 },
  ...{ runtime: "local", device: "reference" } as const,
};

const hashOf = async (options: Partial<TrainOptions>) => (await trainRings(options)).bits.hash;

/** The hash of the weights of a model that reads ids. */
const run = (data: Data, options: Partial<TrainOptions> = {}) =>
  hashOf({ model: LOOKUP, data, ...options });

/** A run that ends in its first step. */
const begun = (data: Data, options: Partial<TrainOptions> = {}) =>
  train({ ...OPTIONS, data, ...options }).next();

const RUNTIMES = ["serial", "local"] as const;

/** Micro-batches that all have the same array, whose reader would see it change. */
function* inOneBuffer(): Generator<Batch, void> {
  const points = new Float32Array(8);
  for (let i = 0;; i++) {
    points.set(batch(i).points as Float32Array);
    yield { ...batch(i), points } as Batch;
    points.fill(NaN);
  }
}

Deno.test("an iterator that reuses its buffers gives the same weights as without reuse", async () => {
  const same = async (options: Partial<TrainOptions>, more: Partial<TrainOptions> = {}) =>
    assert.equal(await hashOf({ ...options, ...more, data: inOneBuffer() }), await hashOf(options));
  await same({ runtime: "serial" });
  await same({}, { runtime: "workers" });
  await same({ schedule: "pipedream-2bw" });
  const faults = [{ worker: 0, afterActions: 19, kind: "throw" }] as const;
  await same({ microBatches: 1, steps: 12 }, { faults });
});

Deno.test("held-out micro-batches may share their buffers with the data", async () => {
  const held = batch(0), evaluation = { every: 1, atStart: true, batches: [held as Batch] };
  const lossesOf = async (data: Data) =>
    eventsOf((await trainRings({ data, evaluation })).events, "evaluation").map(({ loss }) => loss);
  const right = await lossesOf(batches());
  assert.equal(right.length, 5);
  async function* overwriting() {
    for await (const next of batches()) {
      (held.points as Float32Array).fill(0);
      yield next;
    }
  }
  assert.deepEqual(await lossesOf(overwriting()), right);
});

/** Micro-batches that end with `closing`. */
function* closedBy(closing: () => void): Generator<Batch, void> {
  try {
    for (let i = 0;; i++) yield batch(i);
  } finally {
    closing();
  }
}

/** Leaves a run after its first step. */
async function leave(data: Data, runtime: "local" | "serial" = "local"): Promise<void> {
  const run = train({ ...OPTIONS, model: RINGS, data, runtime, steps: 1000 });
  for await (const event of run) if (event.type === "step") break;
}

Deno.test("data that cannot be closed ends the run with its error, after that of the run", async () => {
  const gone = new Error("the file is gone");
  const unclosable = () =>
    closedBy(() => {
      throw gone;
    });
  for (const runtime of RUNTIMES) {
    const isGone = (error: unknown) => error === gone;
    await assert.rejects(hashOf({ data: unclosable(), runtime, steps: 2 }), isGone);
    await assert.rejects(leave(unclosable(), runtime), isGone);
  }
  const faults = [{ worker: 1, afterActions: 5, kind: "throw" }] as const;
  const both = { message: /^worker-1 failed in step 1/, suppressed: [gone] };
  await assert.rejects(hashOf({ data: unclosable(), retries: 0, faults }), both);
});

Deno.test("workers train on a step while the micro-batches of the next one are drawn", async () => {
  const drawn: number[] = [];
  let count = 0;
  function* data() {
    for (;; count++) yield batch(count) as Batch;
  }
  const onStep = () => void drawn.push(count + 1);
  await Array.fromAsync(train({ ...OPTIONS, runtime: "workers", data: data(), onStep }));
  assert.deepEqual(drawn, [4, 6, 8, 8]);
});

Deno.test("a run takes no more micro-batches than it needs, and closes the iterator", async () => {
  let taken = 0, closed = 0;
  function* counted() {
    for (const batch of closedBy(() => closed++)) yield (taken++, batch);
  }
  await trainRings({ data: counted() });
  assert.deepEqual([taken, closed], [8, 1]);
  await leave(counted());
  assert.equal(closed, 2); // the test runner's sanitizers see that no worker is left
});

/** Checkpoints of the first two steps. */
const half = (directory: string) => ({ steps: 2, checkpoint: { directory, every: 1, config: {} } });

/** The next number of a walk, whose n-th number follows from all before. */
const after = (at: number) => at * 48271 % 0x7fffffff;

function walk(): DataSource & { made: number; begun: unknown[] } {
  let at = 1;
  return {
    made: 0,
    begun: [],
    async *from(microBatch, state) {
      this.begun.push([microBatch, state]);
      at = (state as { at: number } | undefined)?.at ?? 1;
      for (;;) {
        this.made++;
        at = after(at);
        yield batch(at % 97);
      }
    },
    state: () => ({ at }),
  };
}

folderTest("data with a state resumes from it with the same bits", async (folder) => {
  const whole = await run(walk());
  await run(walk(), half(folder));
  const resume = (await readCheckpoint(folder))!, data = walk();
  const before = resume.config["progress"] as { data: { state: unknown } };
  const checkpoint = { directory: `${folder}/again`, config: {} };
  assert.equal(await run(data, { resume, checkpoint }), whole);
  const { config } = (await readCheckpoint(checkpoint.directory))!;
  const after = { step: 4, update: 4, predictions: 4 * 2 * B };
  const kept = { microBatches: 8, state: data.state!() };
  assert.deepEqual(config["progress"], { ...before, ...after, data: kept });
  assert.deepEqual([data.begun, data.made], [[[4, before.data.state]], 4]);
});

folderTest("a run that is interrupted keeps the state of its last step", async (folder) => {
  for (const schedule of ["1f1b", "pipedream-2bw"]) {
    for (const end of [1, 3]) {
      const checkpoint = { directory: `${folder}/${schedule}-${end}`, config: {} };
      const stop = new AbortController(), { signal } = stop, data = walk();
      const options = { ...OPTIONS, schedule, checkpoint, steps: 9, data, signal };
      for await (const event of train(options)) {
        if (event.type === "step" && event.step === end) stop.abort();
      }
      const { step, config } = (await readCheckpoint(checkpoint.directory))!;
      let at = 1;
      for (let i = 0; i < 2 * step; i++) at = after(at);
      const kept = { microBatches: 2 * step, state: { at } };
      assert.deepEqual((config["progress"] as { data?: unknown }).data, kept);
    }
  }
});

folderTest("of an iterable the micro-batches of steps already done are dropped", async (folder) => {
  let made = 0;
  function* plain() {
    for (let i = 0;; i++) yield (made++, batch(i));
  }
  const whole = await run(plain());
  await run(plain(), half(folder));
  made = 0;
  const resume = (await readCheckpoint(folder))!;
  assert.equal(await run(plain(), { resume }), whole);
  assert.equal(made, 8);
  const lines: string[] = [], announce = (line: string) => void lines.push(line);
  for (const step of [4999, 5000]) {
    await run(plain(), { resume: { ...resume, step, config: {} }, steps: step + 1, announce });
  }
  const said = "The data has no from: 10000 micro-batches are made and dropped before step 5001.";
  assert.deepEqual(lines.filter((line) => line.startsWith("The data")), [said]);
});

Deno.test("a state that no checkpoint can keep is refused before anything runs", async () => {
  const circle: unknown[] = [];
  circle.push(circle);
  const kept = (state: unknown) => begun({ ...walk(), state: () => state });
  await assertRefused("states_of_data", [
    () => kept(() => 1),
    () => kept(undefined),
    () => kept(1n),
    () => kept(circle),
    () => kept("x".repeat(70_000)),
    () => begun({ from: () => 7 } as unknown as DataSource),
    () => begun({ from: () => assert.fail("Cannot find the shelf") }),
  ]);
});

/** Yields micro-batches with number `at` replaced. */
function* withOne(at: number, wrong: (right: Batch) => unknown): Generator<Batch, void> {
  for (let i = 0;; i++) yield (i === at ? wrong(batch(i)) : batch(i)) as Batch;
}

const lost = new Int32Array(4);
lost.buffer.transfer();

/** Yields micro-batches with other fields in number `at`. */
const withFields = (at: number, fields: object) =>
  withOne(at, (right) => ({ ...right, ...fields }));

/** Fields that no micro-batch may have. */
const MISTAKES: readonly object[] = [
  { ids: new Float32Array(4) },
  { ids: [1, 2, 3, 4] },
  { labels: null },
  { ids: lost },
  { ids: new Int32Array(3) },
  { ids: Int32Array.of(1, 2, 5, 3) },
  { labels: Int32Array.of(0, 1, 1, -2) },
];

Deno.test("a wrong micro-batch of the first step, or a held-out one, is refused before anything runs", async () => {
  const mistakes = MISTAKES.map((fields) => [fields, () => begun(withFields(1, fields))] as const);
  const held = [batch(0), { ...batch(1), labels: Int32Array.of(7) } as Batch];
  await assertRefused("micro_batches", [
    ...mistakes,
    () => begun(withOne(1, ({ ids }) => ({ ids }))),
    () => begun(withOne(1, () => ({}))),
    () => begun(withOne(1, () => null)),
    () => begun(batches(), { evaluation: { every: 1, batches: held } }),
  ]);
});

folderTest("a wrong micro-batch later ends the run in its step", async (folder) => {
  for (const runtime of RUNTIMES) {
    const types: string[] = [], directory = `${folder}/${runtime}`;
    const checkpoint = { directory, every: 1, config: {} };
    const data = withFields(5, MISTAKES[0]!);
    const events = train({ ...OPTIONS, runtime, data, checkpoint });
    const run = Array.fromAsync(events, ({ type }) => types.push(type));
    const message = /^Cannot train on micro-batch 1 of step 3: it must have the field "ids", .* 4$/;
    await assert.rejects(run, { name: "TypeError", message });
    assert.ok(!types.includes("failure"), `${types}`);
    assert.equal((await readCheckpoint(directory))?.step, 2, "the last checkpoint stays");
  }
});

Deno.test("a half of a micro-batch is not asked for where a schedule halves them", async () => {
  const model = { ...RINGS, samples: 8, withSamples: () => RINGS }, microBatches = 4;
  const scheduleOptions = { scale: "halving" } as const;
  const whole = { points: new Float32Array(4 * B), labels: new Int32Array(2 * B) };
  const start = (change: object = {}) => {
    const data = Array<Batch>(100).fill({ ...whole, ...change });
    return begun(data, { model, schedule: "chimera", scheduleOptions, microBatches });
  };
  await start();
  await assertRefused("halves", [
    () => start({ labels: Int32Array.of(1) }),
    () => start({ other: Int32Array.of(1) }),
  ]);
});

Deno.test("fields that no message can carry are left out, and the checked values are the trained ones", async () => {
  const odd = withOne(2, (right) => {
    let reads = 0;
    // A second read of the field returns a different array.
    const ids = () => reads++ === 0 ? right.ids : Int32Array.of(99, 99, 99, 99);
    const wrong = { ...right, call: () => "a function", of: Symbol("x") };
    return Object.defineProperty(wrong, "ids", { get: ids, enumerable: true });
  });
  assert.equal(await run(odd, { runtime: "workers" }), await run(batches()));
});

Deno.test("a run that is interrupted does not wait for a micro-batch that never comes", async () => {
  const stop = new AbortController();
  async function* stuck(): AsyncGenerator<Batch, void> {
    for (let i = 0; i < 4; i++) yield batch(i);
    setTimeout(() => stop.abort(), 1);
    await new Promise(() => {});
  }
  const { end } = await trainRings({ data: stuck(), signal: stop.signal });
  assert.deepEqual([end.isInterrupted, end.steps], [true, 2]);
});

Deno.test("data that does not answer is reported once, with its step, and can be left", async () => {
  const { setInterval } = globalThis;
  globalThis.setInterval =
    ((run: () => void, ms = 0, ...rest: []) =>
      setInterval(run, ms === 1000 ? 1 : ms, ...rest)) as typeof setInterval;
  using _ = { [Symbol.dispose]: () => void (globalThis.setInterval = setInterval) };
  for (const [at, step, microBatch] of [[0, 1, 0], [5, 3, 1]] as const) {
    for (const end of ["late", "abort", "leave"]) {
      const stop = new AbortController(), late = Promise.withResolvers<void>();
      const stuck = withOne(at, (right) => late.promise.then(() => right));
      const lines: string[] = [], types: string[] = [], { signal } = stop;
      const announce = (line: string) => void lines.push(line);
      for await (const event of train({ ...OPTIONS, data: stuck, signal, announce })) {
        types.push(event.type);
        if (event.type !== "wait") continue;
        assert.deepEqual(event, { type: "wait", step, microBatch });
        if (end === "leave") break;
        if (end === "abort") stop.abort();
        else setTimeout(late.resolve, 60); // longer than the wait: it is not reported again
      }
      const line =
        `The data has not answered for 30 s: step ${step} waits for its micro-batch ${microBatch}`;
      assert.deepEqual(lines, [line]);
      assert.equal(types.filter((type) => type === "wait").length, 1);
      const steps = types.filter((type) => type === "step").length;
      assert.equal(steps, end === "late" ? 4 : step - 1, `${end} ${types}`);
    }
  }
});

/** Number of micro-batches to read. */
const LENGTH = atDepth(12, 60);

/** Models for data other than text. */
const MODELS: Readonly<Record<string, string>> = {
  ...{ mnist: "mlp", "noisy-mnist": "unet", sort: "t5", reverse: "t5" },
};

folderTest("built-in data is begun at any micro-batch with its own", async (folder) => {
  const path = await writeTokens(folder, someTokens(4000)), known = await knowFile(path);
  const bytes = new TextEncoder().encode("Fellow citizens of the Senate. ".repeat(60));
  const unread = { get: () => assert.fail("tokens must be read in ranges") };
  const tokens = Object.defineProperty({ path, known }, "content", unread) as DataOptions["file"];
  const files: Readonly<Record<string, DataOptions["file"]>> = {
    ...{ text: { path: "a.txt", content: bytes }, tokens },
  };
  const options = {
    ...{ layers: 1, hidden: 4, heads: 1, seq: 8, vocab: 256, tie: false, tokenizer: undefined },
    ...{ microBatch: 2, microBatches: 2, replicas: 1, steps: 50, seed: 3, announce() {} },
  };
  for (const name of builtInNames("data")) {
    const { value: data } = await importComponent(await findComponent("data", name));
    const modelName = MODELS[name] ?? "gpt";
    const { value: model } = await importComponent(await findComponent("model", modelName));
    const opened = async () =>
      (await openTask(model, data, { ...options, file: files[name] })).data as DataSource;
    const some = async (source: DataSource, from: number, count: number) => {
      const taken: Batch[] = [];
      for await (const batch of source.from(from)) if (taken.push(batch) === count) break;
      return taken;
    };
    const whole = await some(await opened(), 0, LENGTH), again = await opened();
    for (const number of atDepth([9, 2], [...whole.keys()].slice(0, -2).reverse())) {
      assert.deepEqual(await some(again, number, 3), whole.slice(number, number + 3));
    }
  }
});
