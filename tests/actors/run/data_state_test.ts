/** A run goes on with the micro-batches that it would have had, and without making those before. */

import assert from "node:assert/strict";
import {
  type Data,
  type DataSource,
  readCheckpoint,
  train,
  type TrainOptions,
} from "../../../actors/mod.ts";
import { type Batch, shuffledOrder, tokenBatches } from "../../../kernels/mod.ts";
import { folderTest } from "../../in_folder.ts";
import { B, batch, LOOKUP } from "./own_layers.ts";

const OPTIONS = {
  model: LOOKUP,
  steps: 4,
  microBatches: 2,
  workers: 2,
  runtime: "local",
  device: "reference",
} as const;

/** Runs to the end; returns the hash of the weights. */
async function run(data: Data, options: Partial<TrainOptions> = {}): Promise<string> {
  for await (const event of train({ ...OPTIONS, data, ...options })) {
    if (event.type === "end") return event.weightsHash;
  }
  throw new Error("a run must end with an end event");
}

/** Checkpoints of the first two steps. */
const half = (folder: string, config = {}) => ({
  steps: 2,
  checkpoint: { directory: folder, every: 1, config },
});

/** Numbers that each follow from the one before: nobody can say the n-th without those before. */
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
        at = at * 48271 % 0x7fffffff;
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
    const checkpoint = (await readCheckpoint(folder))!, data = walk();
    const { data: kept } = checkpoint.config["progress"] as { data?: unknown };
    assert.equal(await run(data, { resume: checkpoint }), whole);
    assert.deepEqual(data.begun, [[4, (kept as { state: unknown }).state]]);
    assert.equal(data.made, 4);
  },
);

for (const schedule of ["1f1b", "pipedream-2bw"]) {
  folderTest(
    `a run that is told to end keeps the state of the step that it has taken (${schedule})`,
    async (folder) => {
      for (const end of [1, 2, 3]) {
        const options = { schedule, checkpoint: { directory: `${folder}/${end}`, config: {} } };
        const stop = new AbortController();
        const data = walk();
        for await (
          const event of train({ ...OPTIONS, ...options, steps: 9, data, signal: stop.signal })
        ) {
          if (event.type === "step" && event.step === end) stop.abort();
        }
        const { step, config } = (await readCheckpoint(`${folder}/${end}`))!;
        const { data: kept } = config["progress"] as { data?: { microBatches: number } };
        let at = 1;
        for (let i = 0; i < 2 * step; i++) at = at * 48271 % 0x7fffffff;
        assert.deepEqual(kept, { microBatches: 2 * step, state: { at } });
      }
    },
  );
}

folderTest(
  "tokens are begun at step 1,000,000 with as many rows looked at as at step 2",
  async (folder) => {
    const tokens = Uint8Array.from({ length: 201 }, (_, i) => i % 5), order = shuffledOrder(200, 3);
    let looked = 0;
    function opened(): Data {
      const plan = {
        microBatch: B,
        microBatches: 2,
        order: (row: number) => (looked++, order(row)),
      };
      const cut = tokenBatches({ tokens, seq: 1, vocabularySize: 5, ...plan });
      const labelled = ({ ids, targets }: { ids: Int32Array; targets: Int32Array }): Batch => ({
        ids,
        labels: targets.map((id) => id % 2),
      });
      return {
        *from(microBatch) {
          for (const one of cut.from(microBatch)) yield labelled(one);
        },
      };
    }
    const whole = await run(opened());
    await run(opened(), half(folder));
    const checkpoint = (await readCheckpoint(folder))!;
    looked = 0;
    assert.equal(await run(opened(), { resume: checkpoint, steps: 4 }), whole);
    assert.equal(looked, 2 * 2 * B);
    looked = 0;
    await run(opened(), { resume: { ...checkpoint, step: 1e6, config: {} }, steps: 1e6 + 2 });
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
    // What takes a while is told.
    const told: string[] = [], announce = (line: string) => void told.push(line);
    await run(plain(), { resume: { ...resume, step: 5000, config: {} }, steps: 5001, announce });
    assert.deepEqual(told.filter((line) => line.startsWith("The data")), [
      "The data has no from: 10000 micro-batches are made and dropped before step 5001.",
    ]);
  },
);

Deno.test("a state that no checkpoint can keep is told before anything runs", async () => {
  const circle: unknown[] = [];
  circle.push(circle);
  for (
    const [state, told] of [
      [() => 1, /received function$/],
      [undefined, /received undefined$/],
      [1n, /received what it cannot \(.*BigInt/],
      [circle, /received what it cannot \(.*circular/],
      ["x".repeat(70_000), /in 65536 characters, received 70002$/],
    ] as const
  ) {
    const data = { ...walk(), state: () => state };
    await assert.rejects(train({ ...OPTIONS, data }).next(), told);
  }
});

Deno.test("data that cannot be begun is told", async () => {
  const broken = (from: unknown) => train({ ...OPTIONS, data: { from } as DataSource }).next();
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
  const resume = (await readCheckpoint(folder))!;
  for (
    const data of [7, null, {}, { microBatches: -1, state: 1 }, { microBatches: 2 ** 60, state: 1 }]
  ) {
    const config = { progress: { ...resume.config["progress"] as object, data } };
    await assert.rejects(
      train({ ...OPTIONS, data: walk(), resume: { ...resume, config } }).next(),
      /^RangeError: Cannot resume: the progress of step 2 must be that of a run/,
    );
  }
});
