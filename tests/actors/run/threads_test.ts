/** Threads within an operation: who has how many, and what depends on it. */

import assert from "node:assert/strict";
import { readCheckpoint, train, type TrainOptions } from "../../../actors/mod.ts";
import { shareCores } from "../../../actors/run/options/core_share.ts";
import { gpt2, openDevice } from "../../../kernels/mod.ts";
import { inFolder } from "../../in_folder.ts";
import { batchesOf, outcome, type Sizes, SMALL } from "../runs.ts";

/** Few rows and a wide head: a product's columns are cut where its threads are, and with them its sums. */
const NARROW: Sizes = { ...SMALL, hidden: 128, heads: 2, seq: 33, microBatch: 1, vocab: 1025 };

Deno.test("workers with several threads have the bits of a serial run with as many, however many there are", async () => {
  const options = { device: "native", workers: 2, schedule: "1f1b" } as const;
  const serial = await outcome(NARROW, { ...options, threads: 2, runtime: "serial" });
  for (const runtime of ["local", "workers"] as const) {
    const { bits } = await outcome(NARROW, { ...options, threads: 2, runtime });
    assert.deepEqual(bits, serial.bits, runtime);
  }
});

Deno.test("a device with one thread and one with several compute in one process, whichever opens first", async () => {
  const runs = [1, 4, 2, 1].map((threads) =>
    outcome(NARROW, { device: "native", runtime: "serial", threads }).then(({ bits }) => bits)
  );
  const [first, , , last] = await Promise.all(runs);
  assert.deepEqual(first, last);
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
  for (const device of ["wasm", "reference"] as const) {
    assert.equal(shareCores({ threads: "auto" }, "workers", 1, device).threads, 1);
    assert.equal(shareCores({ threads: 1 }, "workers", 1, device).threads, 1);
    const refusal = `${device}: threads must be 1, as only native has more, received 2`;
    await assert.rejects(endOf({ device, threads: 2 }), {
      name: "RangeError",
      message: `Cannot train on ${refusal}`,
    });
    await assert.rejects(openDevice(device, { threads: 2 }), {
      name: "RangeError",
      message: `Cannot open ${refusal}`,
    });
  }
  for (const threads of [0, 1.5, 257, "all"] as never[]) {
    await assert.rejects(endOf({ threads }), /^\w+: Cannot train: threads must be .*, received/);
  }
});

Deno.test("a checkpoint keeps the number of threads, and a run that goes on with another says so", () =>
  inFolder(async (folder) => {
    const directory = `${folder}/run`, checkpoint = { directory, config: {} };
    const { threads, choice } = await endOf({ threads: 2, checkpoint });
    assert.deepEqual([threads, choice.threads], [2, 2]);
    const resume = (await readCheckpoint(directory))!;
    assert.deepEqual(resume.config["computedOn"], { device: "native", threads: 2 });
    const told: string[] = [], announce = (line: string) => void told.push(line);
    const more = { steps: 2, resume, announce };
    await endOf({ ...more, threads: 2 });
    assert.deepEqual(told, []);
    await endOf(more);
    const change = (before: string, now: string) =>
      `The bits of this run are not those of one that stays on ${before}, where its checkpoint was computed: it goes on on ${now}.`;
    assert.deepEqual(told, [change("native with 2 threads", "native")]);
    // One that was written when there was one thread.
    const old = { ...resume, config: { ...resume.config, computedOn: { device: "native" } } };
    await endOf({ ...more, resume: old });
    assert.equal(told.length, 1);
    await endOf({ ...more, resume: old, threads: 3 });
    assert.equal(told.at(-1), change("native", "native with 3 threads"));
  }));

/** Trains one step, or until a step, and returns the last event. */
async function endOf(options: Partial<TrainOptions>) {
  const model = gpt2(SMALL, SMALL.microBatch), data = batchesOf(SMALL);
  const run = {
    model,
    data,
    steps: 1,
    microBatches: 2,
    device: "native",
    runtime: "local",
  } as const;
  for await (const event of train({ ...run, ...options })) if (event.type === "end") return event;
  return assert.fail("a run must end");
}
