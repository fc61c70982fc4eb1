/** The data of a run: what it may be, where it is begun, and what is wrong with it. */

import assert from "node:assert/strict";
import {
  type Data,
  type DataOptions,
  type DataSource,
  findPart,
  importPart,
  openTask,
  readCheckpoint,
  train,
  type TrainOptions,
} from "../../../actors/mod.ts";
import { builtInNames } from "../../../actors/registry/mod.ts";
import { type Batch, knowFile, shuffledOrder, tokenBatches } from "../../../kernels/mod.ts";
import { someTokens, writeTokens } from "../../console/command.ts";
import { atDepth } from "../../depth.ts";
import fc from "../../fast_check.ts";
import { folderTest, inFolder } from "../../in_folder.ts";
import { eventsOf } from "../runs.ts";
import { B, batch, batches, LOOKUP, RINGS, trainRings } from "./own_layers.ts";

const OPTIONS = {
  model: LOOKUP,
  steps: 4,
  microBatches: 2,
  workers: 2,
  runtime: "local",
  device: "reference",
} as const;

const hashOf = async (options: Partial<TrainOptions>) => (await trainRings(options)).bits.hash;

/** The hash of the weights of a model that reads ids. */
const run = (data: Data, options: Partial<TrainOptions> = {}) =>
  hashOf({ model: LOOKUP, data, ...options });

/** A run that ends in its first step. */
const begun = (data: Data, options: Partial<TrainOptions> = {}) =>
  train({ ...OPTIONS, data, ...options }).next();

const RUNTIMES = ["serial", "local", "workers"] as const;

/** Micro-batches that all have the same two arrays. */
function* inOneBuffer(): Generator<Batch, void> {
  const points = new Float32Array(8), labels = new Int32Array(4);
  for (let i = 0;; i++) {
    const next = batch(i);
    points.set(next.points as Float32Array);
    labels.set(next.labels as Int32Array);
    yield { points, labels };
    // A reader that kept the arrays would see this.
    points.fill(NaN);
    labels.fill(1);
  }
}

for (
  const [name, options] of Object.entries<Partial<TrainOptions>>({
    "four micro-batches a step": {},
    "no actors": { runtime: "serial" },
    "several steps in flight": { schedule: "pipedream-2bw" },
    "one a step, and steps that are taken again": {
      microBatches: 1,
      steps: 12,
      runtime: "workers",
      faults: [{ worker: 0, afterActions: 19, kind: "throw" }],
    },
  })
) {
  Deno.test(`an iterator that reuses its buffers gives the weights of one that does not: ${name}`, async () => {
    const run = { microBatches: 4, ...options }, { faults: _, ...undisturbed } = run;
    assert.equal(await hashOf({ ...run, data: inOneBuffer() }), await hashOf(undisturbed));
  });
}

Deno.test("held-out micro-batches may share their buffers with the data", async () => {
  const evaluations = async (held: Batch, data: AsyncIterable<Batch>) => {
    const evaluation = { every: 1, atStart: true, batches: [held] };
    const { events } = await trainRings({ data, evaluation });
    return eventsOf(events, "evaluation").map(({ loss }) => loss);
  };
  const shared = batch(0) as { points: Float32Array };
  async function* overwriting() {
    for await (const next of batches()) {
      shared.points.fill(0);
      yield next;
    }
  }
  const losses = await evaluations(shared as Batch, overwriting());
  assert.equal(losses.length, 5);
  assert.deepEqual(losses, await evaluations(batch(0), batches()));
});

/** Micro-batches whose source cannot be closed. */
function unclosable(gone: Error): Iterable<Batch> & { readonly closed: number } {
  let i = 0, closed = 0;
  return {
    [Symbol.iterator]: () => ({
      next: () => ({ value: batch(i++) as Batch, done: false as const }),
      return() {
        closed++;
        throw gone;
      },
    }),
    get closed() {
      return closed;
    },
  };
}

for (const runtime of RUNTIMES) {
  Deno.test(`data that cannot be closed ends the run with its error, and nothing is left (${runtime})`, async () => {
    const gone = new Error("the file is gone"), data = unclosable(gone);
    await assert.rejects(hashOf({ data, runtime, steps: 2 }), (error) => error === gone);
    assert.equal(data.closed, 1);
    const left = async () => {
      const data = unclosable(gone), options = { ...OPTIONS, model: RINGS, data, runtime };
      for await (const event of train(options)) if (event.type === "step") break;
    };
    await assert.rejects(left, (error) => error === gone);
  });
}

Deno.test("the error of the run comes before that of its data, which is attached", async () => {
  const gone = new Error("the file is gone"), data = unclosable(gone);
  const faults = [{ worker: 1, afterActions: 5, kind: "throw" }] as const;
  const run = hashOf({ data, runtime: "workers", retries: 0, faults });
  await assert.rejects(run, (error: Error & { suppressed?: unknown[] }) => {
    assert.match(error.message, /^worker-1 failed in step 1/);
    assert.deepEqual(error.suppressed, [gone]);
    return true;
  });
});

Deno.test("a run takes no more micro-batches than it needs, and closes the iterator", async () => {
  let taken = 0, closed = 0;
  async function* counted() {
    try {
      for await (const batch of batches()) {
        taken++;
        yield batch;
      }
    } finally {
      closed++;
    }
  }
  await trainRings({ data: counted() });
  assert.deepEqual([taken, closed], [8, 1]);
  const early = train({ ...OPTIONS, model: RINGS, data: counted(), steps: 1000 });
  for await (const event of early) if (event.type === "step") break;
  assert.equal(closed, 2); // the test runner's sanitizers see that no worker is left
});

/** Checkpoints of the first two steps. */
const half = (folder: string, config = {}) => ({
  steps: 2,
  checkpoint: { directory: folder, every: 1, config },
});

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

folderTest(
  "data with a state gets it back from the checkpoint, and goes on with the same bits",
  async (folder) => {
    const whole = await run(walk());
    await run(walk(), half(folder));
    const resume = (await readCheckpoint(folder))!, data = walk();
    const { data: kept } = resume.config["progress"] as { data?: unknown };
    const checkpoint = { directory: `${folder}/again`, config: {} };
    assert.equal(await run(data, { resume, checkpoint }), whole);
    const { config } = (await readCheckpoint(checkpoint.directory))!;
    assert.deepEqual(config["progress"], {
      ...resume.config["progress"] as object,
      ...{ step: 4, update: 4, predictions: 4 * 2 * B },
      data: { microBatches: 8, state: data.state!() },
    });
    assert.deepEqual(data.begun, [[4, (kept as { state: unknown }).state]]);
    assert.equal(data.made, 4);
  },
);

for (const schedule of ["1f1b", "pipedream-2bw"]) {
  folderTest(
    `a run that is interrupted keeps the state of the step that it has taken (${schedule})`,
    async (folder) => {
      for (const end of [1, 2, 3]) {
        const checkpoint = { directory: `${folder}/${end}`, config: {} };
        const stop = new AbortController(), { signal } = stop, data = walk();
        for await (
          const event of train({ ...OPTIONS, schedule, checkpoint, steps: 9, data, signal })
        ) {
          if (event.type === "step" && event.step === end) stop.abort();
        }
        const { step, config } = (await readCheckpoint(checkpoint.directory))!;
        const { data: kept } = config["progress"] as { data?: { microBatches: number } };
        let at = 1;
        for (let i = 0; i < 2 * step; i++) at = after(at);
        assert.deepEqual(kept, { microBatches: 2 * step, state: { at } });
      }
    },
  );
}

folderTest(
  "tokens are begun at step 1,000,000 with as many rows looked at as at step 2",
  async (folder) => {
    const tokens = Uint8Array.from({ length: 201 }, (_, i) => i % 5),
      shuffled = shuffledOrder(200, 3);
    let looked = 0;
    function opened(): Data {
      const order = (row: number) => (looked++, shuffled(row));
      const plan = { tokens, seq: 1, vocabularySize: 5, microBatch: B, microBatches: 2, order };
      return {
        *from(microBatch) {
          for (const { ids, targets } of tokenBatches(plan).from(microBatch)) {
            yield { ids, labels: targets.map((id) => id % 2) };
          }
        },
      };
    }
    const whole = await run(opened());
    await run(opened(), half(folder));
    const resume = (await readCheckpoint(folder))!;
    looked = 0;
    assert.equal(await run(opened(), { resume }), whole);
    assert.equal(looked, 2 * 2 * B);
    looked = 0;
    await run(opened(), { resume: { ...resume, step: 1e6, config: {} }, steps: 1e6 + 2 });
    assert.equal(looked, 2 * 2 * B);
  },
);

folderTest(
  "of an iterable the micro-batches of steps already done are made and dropped",
  async (folder) => {
    let made = 0;
    function* plain() {
      for (let i = 0;; i++) {
        made++;
        yield batch(i);
      }
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
    assert.deepEqual(lines.filter((line) => line.startsWith("The data")), [
      "The data has no from: 10000 micro-batches are made and dropped before step 5001.",
    ]);
  },
);

Deno.test("a state that no checkpoint can keep is refused before anything runs", async () => {
  const circle: unknown[] = [];
  circle.push(circle);
  for (
    const [state, message] of [
      [() => 1, /received function$/],
      [undefined, /received undefined$/],
      [1n, /received what it cannot \(.*BigInt/],
      [circle, /received what it cannot \(.*circular/],
      ["x".repeat(70_000), /in 65536 characters, received 70002$/],
    ] as const
  ) {
    await assert.rejects(begun({ ...walk(), state: () => state }), message);
  }
  const broken = (from: unknown) => begun({ from } as DataSource);
  await assert.rejects(broken(() => 7), {
    name: "TypeError",
    message:
      "Cannot begin the data at micro-batch 0: from must return an iterable, or an async one, received number",
  });
  const missing = () => {
    throw new RangeError("Cannot find the shelf");
  };
  await assert.rejects(broken(missing), {
    name: "RangeError",
    message: "Cannot begin the data at micro-batch 0: cannot find the shelf",
  });
});

folderTest("what a forged checkpoint says of data is refused", async (folder) => {
  await run(walk(), half(folder));
  const resume = (await readCheckpoint(folder))!, { progress } = resume.config;
  const forged = [7, null, {}, { microBatches: -1, state: 1 }, { microBatches: 2 ** 60, state: 1 }];
  for (const data of forged) {
    const config = { progress: { ...progress as object, data } };
    await assert.rejects(
      begun(walk(), { resume: { ...resume, config } }),
      /^RangeError: Cannot resume: the progress of step 2 must be that of a run/,
    );
  }
});

/** Micro-batches of which number `at` is another one. */
function* withOne(at: number, wrong: (right: Batch) => unknown): Generator<Batch, void> {
  for (let i = 0;; i++) yield (i === at ? wrong(batch(i)) : batch(i)) as Batch;
}

const IDS = 'it must have the field "ids", Int32Array of [4] (4 elements), received';
const LABELS = 'it must have the field "labels", Int32Array of [4] (4 elements), received';
const lost = Int32Array.of(1, 2, 3, 4);
lost.buffer.transfer();

/** Fields in place of the right ones, and what is said of the micro-batch. */
const MISTAKES: readonly (readonly [unknown, string])[] = [
  [{ ids: Float32Array.of(1, 2, 3, 4) }, `${IDS} Float32Array of 4`],
  [{ ids: [1, 2, 3, 4] }, `${IDS} Array of 4`],
  [{ labels: null }, `${LABELS} null`],
  [{ ids: lost }, `${IDS} Int32Array of 0`],
  [{ ids: Int32Array.of(1, 2, 3) }, `${IDS} Int32Array of 3`],
  [
    { ids: Int32Array.of(1, 2, 5, 3) },
    'the field "ids" must hold whole numbers from -5 to 4, received 5 at position 2',
  ],
  [
    { labels: Int32Array.of(0, 1, 1, -2) },
    'the field "labels" must hold whole numbers from -1 to 1, received -2 at position 3',
  ],
];

/** Whole micro-batches, and what is said of them. */
const NO_BATCHES: readonly (readonly [unknown, string])[] = [
  [{ ids: batch(0).ids }, `${LABELS} ids`],
  [{}, `${IDS} no field`],
  [null, "it must be a record of typed arrays, received null"],
];

Deno.test("a wrong micro-batch of the first step, or a held-out one, is refused before anything runs", async () => {
  const wrongs = [
    ...MISTAKES.map(([fields, problem]) =>
      [{ ...batch(1), ...fields as object }, problem] as const
    ),
    ...NO_BATCHES,
  ];
  for (const [wrong, problem] of wrongs) {
    const message = `Cannot train on micro-batch 1 of step 1: ${problem}`;
    await assert.rejects(begun(withOne(1, () => wrong)), { name: "TypeError", message });
  }
  const heldOut = [batch(0), { ...batch(1), labels: Int32Array.of(7) } as Batch];
  await assert.rejects(begun(batches(), { evaluation: { every: 1, batches: heldOut } }), {
    message: `Cannot train on evaluation.batches[1]: ${LABELS} Int32Array of 1`,
  });
});

for (const runtime of RUNTIMES) {
  Deno.test(`a wrong micro-batch later ends the run in its step, and the last checkpoint stays (${runtime})`, () =>
    inFolder(async (directory) => {
      const [fields, problem] = MISTAKES[0]!, types: string[] = [];
      const checkpoint = { directory, every: 1, config: {} };
      const data = withOne(5, (right) => ({ ...right, ...fields as object }));
      const run = async () => {
        for await (const { type } of train({ ...OPTIONS, runtime, data, checkpoint })) {
          types.push(type);
        }
      };
      await assert.rejects(run(), {
        name: "TypeError",
        message: `Cannot train on micro-batch 1 of step 3: ${problem}`,
      });
      assert.ok(!types.includes("failure"), `${types}`);
      assert.equal((await readCheckpoint(directory))?.step, 2);
    }));
}

Deno.test("a half of a micro-batch is not asked for where a schedule halves them", async () => {
  const model = { ...RINGS, samples: 8, withSamples: () => RINGS };
  const options = { model, schedule: "chimera", scheduleOptions: { scale: "halving" } } as const;
  const twice = (values: unknown) => [...values as number[], ...values as number[]];
  function* data(change: object = {}) {
    for (let i = 0;; i++) {
      const { points, labels } = batch(i);
      const both = {
        points: Float32Array.from(twice(points)),
        labels: Int32Array.from(twice(labels)),
      };
      yield { ...both, ...change };
    }
  }
  const start = (change?: object) => begun(data(change), { ...options, microBatches: 4 });
  await start();
  await assert.rejects(start({ labels: Int32Array.of(1) }), {
    message: "Cannot train on micro-batch 0 of step 1: it must have the field " +
      '"labels", Int32Array of [8] (8 elements), received Int32Array of 1',
  });
  await assert.rejects(start({ other: Int32Array.of(1) }), {
    message: "Cannot train on micro-batch 0 of step 1: the field " +
      '"other" must be divisible by 2, received 1 elements',
  });
});

Deno.test("fields that no message can carry are left out, and what was checked is what is learnt", async () => {
  const odd = withOne(2, (right) => ({ ...right, call: () => "a function", of: Symbol("x") }));
  const right = await run(batches(), { runtime: "serial" });
  assert.equal(await run(odd, { runtime: "workers" }), right);
  // A second read of the field gives another one.
  const changing = withOne(2, (right) => {
    let reads = 0;
    const wrong = Int32Array.of(99, 99, 99, 99);
    return {
      ...right,
      get ids() {
        return reads++ === 0 ? right.ids : wrong;
      },
    };
  });
  assert.equal(await run(changing, { runtime: "workers" }), right);
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

const SIZES = { layers: 1, hidden: 4, heads: 1, seq: 8, vocab: 256, tie: false };
/** Micro-batches that are looked at. */
const LENGTH = atDepth(12, 60);

/** Models for data that is no text. */
const MODELS: Readonly<Record<string, string>> = {
  mnist: "mlp",
  "noisy-mnist": "unet",
  sort: "t5",
  reverse: "t5",
};
const CUT = { microBatch: 2, microBatches: 2, replicas: 1, steps: 50, seed: 3 };

folderTest(
  "built-in data of every name is begun at any micro-batch with those that it would have come to",
  async (folder) => {
    const path = await writeTokens(folder, someTokens(4000)), known = await knowFile(path);
    const bytes = new TextEncoder().encode("Fellow citizens of the Senate. ".repeat(60));
    const files: Readonly<Record<string, DataOptions["file"]>> = {
      text: { path: "a.txt", content: bytes },
      tokens: {
        path,
        known,
        get content(): Uint8Array {
          return assert.fail("tokens must be read in ranges");
        },
      },
    };
    for (const name of builtInNames("data")) {
      const { value: data } = await importPart(await findPart("data", name));
      const model = MODELS[name] ?? "gpt";
      const { value } = await importPart(await findPart("model", model));
      const options = { ...SIZES, ...CUT, tokenizer: undefined, file: files[name], announce() {} };
      const open = async () => (await openTask(value, data, options)).data as DataSource;
      const some = async (from: number, count: number) => {
        const taken: Batch[] = [];
        for await (const batch of (await open()).from(from)) {
          if (taken.push(batch) === count) break;
        }
        return taken;
      };
      const whole = await some(0, LENGTH);
      const property = async (number: number) => {
        assert.deepEqual(
          await some(number, 3),
          whole.slice(number, number + 3),
        );
      };
      const runs = ["text", "tokens"].includes(name) ? atDepth(4, 50) : 2;
      await fc.assert(fc.asyncProperty(fc.nat(LENGTH - 3), property), { numRuns: runs });
    }
  },
);
