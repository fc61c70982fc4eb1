/**
 * Every synchronous schedule trains: losses, norms and weights have the bits of the serial loop of
 * the same schedule, and every worker holds what the analysis says.
 */

import assert from "node:assert/strict";
import { type SyncStrategy, type TrainOptions } from "../../../actors/mod.ts";
import {
  analyze,
  B,
  createSchedule,
  defineSchedule,
  F,
  type Schedule,
  scheduleDefinitions,
  type ScheduleOptions,
} from "../../../schedules/mod.ts";
import {
  fewAtATime,
  groupingOf,
  LARGE,
  once,
  type Outcome,
  outcome,
  type Sizes,
  SMALL,
} from "../runs.ts";

/**
 * Eight layers: enough for the stages of every schedule on four workers, of which the most cut every
 * block between attention and MLP.
 */
const DEEP: Sizes = { ...SMALL, layers: 3, microBatches: 8, steps: 3 };

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

const SYNCHRONOUS = scheduleDefinitions.map(({ name }) => name)
  .filter((name) => !name.startsWith("pipedream"));

/** How sums are cut and when they start differs from schedule to schedule, and must not show. */
const CUTS = [
  { sync: "end", bucketSize: 2048, coarsening: 1 },
  { sync: "eager", bucketSize: 500, coarsening: 3 },
  { sync: "eager-opt", bucketSize: 1000, coarsening: 4 },
] as const satisfies { sync: SyncStrategy; bucketSize: number; coarsening: number }[];

/** Variants of schedules beside their defaults. */
const VARIANTS: Record<string, Partial<ScheduleOptions>[]> = {
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

/** The serial run of a grouping: of any schedule that has it, on however many workers. */
const serialOf = once((_grouping: string, sizes: Sizes, options: Partial<TrainOptions>) =>
  outcome(sizes, { ...options, runtime: "serial" })
);

for (const workers of [2, 3, 4, 8]) {
  for (const replicas of workers === 2 || workers === 4 ? [1, 2] : [1]) {
    Deno.test(`every synchronous schedule on ${workers} workers in ${replicas} replicas has the bits of its serial run and the peaks of its analysis, whatever the delays`, async () => {
      const microBatches = workers === 3 ? 6 : DEEP.microBatches, device = "native";
      const sizes = { ...DEEP, microBatches }, serials = new Map<string, Outcome["bits"]>();
      const possible = SYNCHRONOUS.filter((name) => !IMPOSSIBLE[workers]?.includes(name));
      const cases = possible.flatMap((name, i) =>
        (VARIANTS[name] ?? [{}]).map((variant) => ({ name, variant, cut: CUTS[i % CUTS.length]! }))
      );
      await fewAtATime(cases, async ({ name, variant: scheduleOptions, cut }) => {
        const schedule = createSchedule(name, { ...scheduleOptions, workers, microBatches });
        const what = `${name} ${JSON.stringify(scheduleOptions)}`;
        const options = { device, workers, replicas, schedule: name, scheduleOptions } as const;
        const grouping = groupingOf(schedule, replicas);
        const { bits: serial } = await serialOf(grouping, sizes, options);
        const run = await outcome(sizes, { ...options, ...cut, runtime: "local", link: DELAYS });
        assert.deepEqual(run.bits, serial, what);
        assertHeld(schedule, replicas, run, what);
        serials.set(grouping, serial);
      });
      assertNear(new Map([...serials].sort(([a], [b]) => a < b ? -1 : 1)));
    });
  }
}

/** Peaks and weights of each worker as the analysis of the lists says. */
function assertHeld(schedule: Schedule, replicas: number, run: Outcome, what: string): void {
  const { peakActivations, weights } = analyze(schedule);
  const all = (values: readonly number[]) => Array.from({ length: replicas }, () => values).flat();
  assert.deepEqual(run.weightsHeld, all(weights), what);
  if (schedule.lists) return assert.deepEqual(run.peakActivations, all(peakActivations), what);
  // What a message-driven worker holds depends on timing; the limit bounds it.
  const { injectionLimit } = schedule;
  for (const peak of run.peakActivations) assert.ok(peak <= injectionLimit, `${what}: ${peak}`);
}

/** Another grouping is another order of sums: close, but not the same bits. */
function assertNear(serials: ReadonlyMap<string, Outcome["bits"]>): void {
  const firstOfSize = new Map<string, string>();
  for (const [grouping, { losses }] of serials) {
    // Chimera in waves has twice the micro-batches: another step, not another grouping of one.
    const [size] = grouping.split(":") as [string], first = firstOfSize.get(size);
    if (first === undefined) {
      firstOfSize.set(size, grouping);
      continue;
    }
    for (const [i, loss] of losses.entries()) {
      const distance = Math.abs(loss / serials.get(first)!.losses[i]! - 1);
      assert.ok(distance <= 1e-6, `step ${i + 1}: ${grouping} against ${first}: ${distance}`);
    }
  }
}

Deno.test("copies in workers of their own add 512 rows a micro-batch as the serial loop does", async () => {
  for (const schedule of ["chimera", "gems"]) {
    const options = { device: "native", workers: 2, schedule, replicas: 2 } as const;
    const sizes = { ...LARGE, microBatches: 4 };
    const serial = await outcome(sizes, { ...options, runtime: "serial" });
    const run = await outcome(sizes, { ...options, runtime: "workers", sync: "eager" });
    assert.deepEqual(run.bits, serial.bits, schedule);
  }
});

Deno.test("ring and Rabenseifner's sums stay within 1e-6 of the deterministic ones", async () => {
  const options = { device: "wasm", workers: 2, schedule: "chimera", replicas: 2 } as const;
  const exact = await outcome(DEEP, { ...options, runtime: "local" });
  const fast = await outcome(DEEP, { ...options, runtime: "local", reduce: "fast" });
  for (const [i, loss] of fast.bits.losses.entries()) {
    assert.ok(Math.abs(loss / exact.bits.losses[i]! - 1) <= 1e-6, `step ${i + 1}`);
  }
});

Deno.test("a schedule that a user has defined trains like those that come with the package", async () => {
  const { microBatches } = DEEP, workers = 2;
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
  const options = { device: "native", workers, schedule: mine } as const;
  const serial = await outcome(DEEP, { ...options, runtime: "serial" });
  const run = await outcome(DEEP, { ...options, runtime: "workers" });
  assert.deepEqual(run.bits, serial.bits);
  assertHeld(mine, 1, run, "mine");
});
