/**
 * Dropout leaves out the same elements whoever computes them, when, and how often: losses, norms and
 * weights have the bits of the serial run.
 */

import assert from "node:assert/strict";
import { readCheckpoint, train, type TrainOptions } from "../../../actors/mod.ts";
import { compileModel, gpt2, initialValues } from "../../../kernels/mod.ts";
import { createSchedule, scheduleDefinitions } from "../../../schedules/mod.ts";
import { inFolder } from "../../in_folder.ts";
import { batchesOf, fewAtATime, groupingOf, once, outcome, type Sizes, SMALL } from "../runs.ts";

/** Seven layers: enough for the stages of most schedules on two workers. */
const SIZES: Sizes = { ...SMALL, hidden: 16, seq: 8, microBatches: 4, dropout: 0.2 };

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

const serialOf = once((_grouping: string, options: Partial<TrainOptions>) =>
  outcome(SIZES, { ...options, runtime: "serial" })
);

Deno.test("every schedule with dropout has the bits of its serial run, whatever the delays", async () => {
  const names = scheduleDefinitions.map(({ name }) => name);
  const halving = { schedule: "chimera", scheduleOptions: { scale: "halving" } } as const;
  const cases = [...names.map((schedule) => ({ schedule })), halving];
  const alone = new Map<string, readonly number[]>();
  await fewAtATime(cases, async (one) => {
    const isFlushed = !one.schedule.startsWith("pipedream"), replicas = isFlushed ? 2 : 1;
    const options = { ...one, device: "native", workers: 2, replicas } as const;
    const { scheduleOptions = {} } = one as Partial<TrainOptions>;
    const sizes = { ...scheduleOptions, workers: 2, microBatches: SIZES.microBatches };
    const schedule = createSchedule(one.schedule, sizes);
    const grouping = isFlushed ? groupingOf(schedule, replicas) : one.schedule;
    const { bits } = await outcome(SIZES, { ...options, runtime: "local", link: DELAYS });
    assert.deepEqual(bits, (await serialOf(grouping, options)).bits, JSON.stringify(one));
    if (isFlushed && schedule.replicaOf.length === SIZES.microBatches) {
      alone.set(JSON.stringify(one), bits.losses);
    }
  });
  // The first loss depends on no sum of gradients, so not on the schedule either.
  for (const [what, [loss]] of alone) {
    assert.ok(Math.abs(loss! / alone.values().next().value![0]! - 1) < 1e-6, `${what}: ${loss}`);
  }
});

Deno.test("dropout has the serial bits on every device, in workers, and where activations are computed again", async () => {
  const ways: Partial<TrainOptions>[] = [
    { device: "native", runtime: "workers", schedule: "message-driven" },
    { device: "native", runtime: "workers", schedule: "zb-h1", recompute: "cheap" },
    { device: "native", runtime: "local", schedule: "zb-v", recomputeInterval: 2 },
    { device: "wasm", runtime: "workers", schedule: "1f1b", recompute: "full" },
    { device: "reference", runtime: "local", schedule: "zb-h1", recomputeInterval: 1 },
  ];
  const serials = once((device) =>
    outcome(SIZES, { device: device as "native", runtime: "serial" })
  );
  const still = await outcome({ ...SIZES, dropout: 0 }, { device: "native", runtime: "serial" });
  assert.notEqual((await serials("native")).bits.hash, still.bits.hash);
  await fewAtATime(ways, async (way) => {
    const { bits } = await outcome(SIZES, { ...way, workers: 2 });
    assert.deepEqual(bits, (await serials(way.device as string)).bits, JSON.stringify(way));
  });
});

Deno.test("a run with dropout that loses workers, or is resumed, has the bits of one left in peace", async () => {
  const sizes = { ...SIZES, steps: 6 }, options = { device: "native", workers: 2 } as const;
  const { bits } = await outcome(sizes, { ...options, runtime: "serial" });
  const faults = [3, 17, 40].map((afterActions, i) => ({
    ...{ worker: i % 2, afterActions, kind: "throw" as const },
  }));
  const recovered = await outcome(sizes, { ...options, faults });
  assert.deepEqual(recovered.bits, bits);
  await inFolder(async (directory) => {
    const checkpoint = { directory, config: {} };
    await outcome({ ...sizes, steps: 3 }, { ...options, checkpoint });
    const resume = await readCheckpoint(directory);
    const data = batchesOf(sizes, sizes.steps * sizes.microBatches);
    const resumed = await outcome(sizes, { ...options, data, resume, schedule: "gpipe" });
    assert.deepEqual(resumed.bits.losses, bits.losses.slice(3));
    assert.equal(resumed.bits.hash, bits.hash);
  });
});

Deno.test("each step, micro-batch and seed leaves out other elements, and an evaluation none", async () => {
  const [batch] = batchesOf(SIZES, 1), { microBatch } = SIZES;
  const model = (dropout: number) => gpt2({ ...SIZES, dropout }, microBatch);
  const weights = new Map(
    compileModel(model(0), "none").parameters.map((one) => [
      one.name,
      initialValues(one.spec, one.name, 1),
    ]),
  );
  /** The same micro-batch with the same weights again and again. */
  const losses = async (dropout: number, seed: number, microBatches: number) => {
    const found = { step: [] as number[], evaluation: [] as number[] };
    for await (
      const event of train({
        ...{ model: model(dropout), data: Array(4).fill(batch), weights, seed, microBatches },
        ...{ steps: 4 / microBatches, learningRate: 0, device: "reference", runtime: "local" },
        evaluation: { every: 2, batches: [batch!], atStart: true },
      })
    ) if (event.type === "step" || event.type === "evaluation") found[event.type].push(event.loss);
    return found;
  };
  const still = await losses(0, 1, 1), first = await losses(0.2, 1, 1);
  assert.deepEqual(first.evaluation, still.evaluation);
  const drawn = [still, first, await losses(0.2, 2, 1)].flatMap(({ step }) => step);
  assert.equal(new Set(drawn).size, 1 + 4 + 4);
  const both = await losses(0.2, 1, 2);
  assert.notEqual(both.step[0], first.step[0], "the second micro-batch has a mask of its own");
});
