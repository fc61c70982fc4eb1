/**
 * The oracle: whatever the schedule, the number of workers, the runtime and the cuts of sums, losses,
 * norms and weights have the bits of the serial loop of the same grouping on the same device, and every
 * worker holds what the analysis says.
 */

import assert from "node:assert/strict";
import type { SyncStrategy } from "../../../actors/mod.ts";
import {
  analyze,
  B,
  defineSchedule,
  F,
  type Schedule,
  scheduleDefinitions,
  type ScheduleOptions,
} from "../../../schedules/mod.ts";
import { atDepth } from "../../depth.ts";
import { batchesOf, fewAtATime, LARGE, type Sizes } from "../runs.ts";
import {
  assertNear,
  DELAYS,
  openOracle,
  type Options,
  scheduleOf,
  TINY,
  type Trained,
  trained,
} from "./trained.ts";

const FLUSHED = scheduleDefinitions.map(({ name }) => name)
  .filter((name) => !name.startsWith("pipedream"));

/** How sums are cut and when they start differs from schedule to schedule, and must not show. */
const CUTS = [
  { sync: "end", bucketSize: 400, coarsening: 1 },
  { sync: "eager", bucketSize: 130, coarsening: 3 },
  { sync: "eager-opt", bucketSize: 250, coarsening: 4 },
] as const satisfies { sync: SyncStrategy; bucketSize: number; coarsening: number }[];

/** Variants of schedules beside their defaults. */
const VARIANTS: Readonly<Record<string, readonly Partial<ScheduleOptions>[]>> = {
  chimera: [{}, { scale: "doubling" }, { scale: "halving" }],
  "message-driven": [{ order: "fifo" }, { order: "backward-first", pipelineLimit: 3 }],
};

/** Those that cannot be: they want an even number of workers, or more stages than eight layers. */
const IMPOSSIBLE: Readonly<Record<number, readonly string[]>> = {
  3: ["chimera", "chimera-greedy", "dualpipe"],
  8: [
    ...["interleaved", "looped-bfs", "chimera-wave", "hanayo", "v-half", "v-min", "search"],
    ...["zb-h2", "zb-v", "interleaved-zb", "slimpipe", "dualpipe", "dualpipe-v"],
  ],
};

const PLACES = [
  { workers: 2, replicas: 2, tie: true },
  { workers: 3, replicas: 1, microBatches: 6 },
  { workers: 4, replicas: 1, microBatches: 8, tie: true },
  ...atDepth([], [
    { workers: 2, replicas: 1, microBatches: 8 },
    { workers: 4, replicas: 2, microBatches: 8, tie: true },
    { workers: 8, replicas: 1, microBatches: 8 },
  ]),
];

for (const { workers, replicas, ...more } of PLACES) {
  Deno.test(`schedules with a flush on ${workers} workers in ${replicas} replicas have the bits of their serial runs and the peaks of their analysis, whatever the delays`, async () => {
    const sizes: Sizes = { ...TINY, ...more, steps: atDepth(2, 3) }, oracle = openOracle(sizes);
    const firstOfSize = new Map<string, readonly number[]>();
    const names = workers === 3 ? FLUSHED.filter((_, i) => i % atDepth(3, 1) === 0) : FLUSHED;
    const cases = names.filter((name) => !IMPOSSIBLE[workers]?.includes(name)).flatMap((
      schedule,
      i,
    ) => (VARIANTS[schedule] ?? [{}]).map((scheduleOptions) => ({ schedule, scheduleOptions, i })));
    await fewAtATime(cases, async ({ i, ...one }) => {
      const options: Options = { ...one, workers, replicas };
      const { made, grouping } = scheduleOf(options, sizes.microBatches);
      const run = await oracle(grouping, options, { ...CUTS[i % CUTS.length], link: DELAYS });
      assertHeld(made, replicas, run, JSON.stringify(one));
      // Another grouping is another order of sums: close, but not the same bits. Chimera in waves has
      // twice the micro-batches: another step, not another grouping of one.
      const [size] = grouping.split(":") as [string], first = firstOfSize.get(size) ?? run.losses;
      firstOfSize.set(size, first);
      assertNear(run.losses, first, 1e-6, grouping);
    });
  });
}

/** Peaks and weights of each worker as the analysis of the lists says. */
function assertHeld(schedule: Schedule, replicas: number, { end }: Trained, what: string): void {
  const { peakActivations, weights } = analyze(schedule);
  const all = (values: readonly number[]) => Array.from({ length: replicas }, () => values).flat();
  assert.deepEqual(end.weightsHeld, all(weights), what);
  if (schedule.lists) return assert.deepEqual(end.peakActivations, all(peakActivations), what);
  // What a message-driven worker holds depends on timing; the limit bounds it.
  const most = Math.min(schedule.injectionLimit, schedule.microBatches),
    peaks = end.peakActivations;
  assert.ok(peaks.every((peak) => peak <= most), `${what}: ${peaks} within ${most}`);
  assert.equal(peaks[0], schedule.workers === 1 ? 1 : most, what);
  assert.equal(peaks.at(-1), 1, what);
}

/** Every limit and order of the message-driven policy, for D workers. */
const messageDriven = (workers: number): Options[] =>
  [...new Set([1, workers, 2 * workers])].flatMap((pipelineLimit) =>
    (["fifo", "backward-first"] as const).map((order) => ({
      ...{ workers, schedule: "message-driven", scheduleOptions: { pipelineLimit, order } },
    }))
  );

/** Where they run, and on how many workers. */
const WHERE: readonly { on: Options; counts: readonly number[] }[] = [
  { on: { device: "native", runtime: "local" }, counts: atDepth([1, 4], [1, 2, 3, 4]) },
  { on: { device: "native", runtime: "workers" }, counts: atDepth([2], [1, 2, 3, 4]) },
  { on: { device: "wasm", runtime: "local" }, counts: atDepth([2], [1, 2, 3, 4]) },
  { on: { device: "wasm", runtime: "workers" }, counts: atDepth([], [1, 2, 3, 4]) },
];

Deno.test("1F1B and message-driven workers have the serial bits on every device and runtime, and hold what their limits say", async () => {
  const sizes = { ...TINY, layers: 2, microBatches: 6 }, oracle = openOracle(sizes);
  const cases = WHERE.flatMap(({ on, counts }, i) =>
    counts.flatMap((workers) => [
      ...messageDriven(workers).slice(atDepth(i && -1, 0)),
      ...atDepth(i, 0) < 2 ? [{ workers, schedule: "1f1b" }] : [],
    ]).map((options) => ({ on, options }))
  );
  await fewAtATime(cases, async ({ on, options }) => {
    const { device } = on as { device: "native" };
    const run = await oracle(device, { ...options, device }, on);
    assertHeld(scheduleOf(options, sizes.microBatches).made, 1, run, JSON.stringify(options));
  });
});

/** 512 rows are a sum so long that another order of its additions shows in the bits. */
const LONG: Options[] = [
  { device: "native", schedule: "message-driven" },
  { device: "native", schedule: "chimera", replicas: 2, sync: "eager" },
  { device: "wasm", schedule: "1f1b" },
  ...atDepth<Options[]>([], [
    { device: "native", schedule: "1f1b" },
    { device: "native", schedule: "gems", replicas: 2, sync: "eager" },
    { device: "wasm", schedule: "message-driven" },
  ]),
];

Deno.test("512 rows a micro-batch in threads have the serial bits", async () => {
  const oracle = openOracle({ ...LARGE, microBatches: 2, steps: 1, layers: 1 });
  for (const one of LONG) {
    await oracle(JSON.stringify(one), { ...one, workers: 2 }, { runtime: "workers" });
  }
});

Deno.test("ring and Rabenseifner's sums stay within 1e-6 of the deterministic ones", async () => {
  const options = { workers: 2, schedule: "chimera", replicas: 2, runtime: "local" } as const;
  const exact = await trained(TINY, options);
  const fast = await trained(TINY, { ...options, reduce: "fast" });
  assertNear(fast.losses, exact.losses, 1e-6, "fast");
});

Deno.test("a schedule that a user has defined trains like those that come with the package", async () => {
  const { microBatches } = TINY, workers = 2;
  const mine = defineSchedule({
    name: "mine",
    summary: "two pipes in opposite directions, each GPipe",
    place: () => ({
      stages: workers,
      replicas: 2,
      workerOf: (stage, replica) => replica === 0 ? stage : workers - 1 - stage,
      replicaOf: (microBatch) => microBatch % 2,
    }),
    *order(worker) {
      const stageOf = (m: number) => m % 2 === 0 ? worker : workers - 1 - worker;
      for (let m = 0; m < microBatches; m++) yield F(stageOf(m), m);
      for (let m = 0; m < microBatches; m++) yield B(stageOf(m), m);
    },
  }).create({ workers, microBatches });
  const run = await openOracle(TINY)("mine", { workers, schedule: mine }, { runtime: "workers" });
  assertHeld(mine, 1, run, "mine");
});

Deno.test("a smaller last step runs on every kind of placement, with the serial bits", async () => {
  const oracle = openOracle(TINY), { microBatches } = TINY;
  const names = ["gpipe", "chimera", "hanayo", "zb-h1", "message-driven", "dualpipe-v"];
  const cases = names.flatMap((schedule, i) =>
    atDepth([[1 + i % 2, 1 + i % 3]], [[1, 1], [1, 3], [2, 1], [2, 3]]).map(([replicas, more]) => ({
      options: { schedule, workers: 2, replicas: replicas! },
      count: microBatches * replicas! + more!,
    }))
  );
  await fewAtATime(cases, async ({ options, count }) => {
    const { grouping } = scheduleOf(options, microBatches), data = batchesOf(TINY, count);
    const run = await oracle(`${grouping}, ${count}`, { ...options, data });
    assert.equal(run.end.steps, 2);
  });
});

Deno.test("a smaller last step can be dropped", async () => {
  const options = { schedule: "gpipe", workers: 2, runtime: "local", dropLast: true } as const;
  const { end } = await trained(TINY, { ...options, data: batchesOf(TINY, 7) });
  assert.equal(end.steps, 1);
  assert.equal(end.weightsHash, (await trained(TINY, { ...options, steps: 1 })).end.weightsHash);
});
