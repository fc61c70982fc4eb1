/**
 * The oracle: whatever the schedule, the number of workers, the runtime and the cuts of sums, losses,
 * norms and weights have the bits of the serial loop of the same grouping on the same device, and every
 * worker holds what the analysis says.
 */

import assert from "node:assert/strict";
import { analyze, type Schedule, scheduleDefinitions } from "../../../schedules/mod.ts";
import { atDepth, IS_DEEP } from "../../depth.ts";
import { batchesOf, LARGE, type Sizes } from "../runs.ts";
import { inLanes } from "../../lanes.ts";
import {
  assertNear,
  CUTS,
  DELAYS,
  openOracle,
  type Options,
  READINESS,
  scheduleOf,
  TINY,
  type Trained,
  trained,
  VARIANTS,
} from "./trained.ts";

const FLUSHED = scheduleDefinitions.map(({ name }) => name)
  .filter((name) => !name.startsWith("pipedream"));

/** Schedules that need an even number of workers. */
const EVEN = ["chimera", "chimera-greedy", "dualpipe"];

/** All schedules run on four workers; the other places run some. */
const PLACES = [
  { workers: 2, replicas: 2, tie: true, every: atDepth(12, 1) },
  { workers: 3, replicas: 1, microBatches: 6, every: atDepth(11, 1) },
  { workers: 4, replicas: 1, microBatches: 8, tie: true, every: 1, steps: atDepth(1, 3) },
  ...atDepth([], [{ workers: 4, replicas: 2, microBatches: 8, tie: true, every: 1 }]),
];

for (const { workers, replicas, every, ...more } of PLACES) {
  Deno.test(`schedules with a flush on ${workers} workers in ${replicas} replicas have the bits of their serial runs and the peaks of their analysis, whatever the delays`, async () => {
    const sizes: Sizes = { ...TINY, steps: atDepth(2, 3), ...more }, oracle = openOracle(sizes);
    const firstOfSize = new Map<string, readonly number[]>();
    const names = FLUSHED.filter((name, i) =>
      i % every === 0 && (workers % 2 === 0 || !EVEN.includes(name))
    );
    const cases = names.flatMap((schedule, i) =>
      (VARIANTS[schedule] ?? [{}]).map((scheduleOptions) => ({ schedule, scheduleOptions, i }))
    );
    await inLanes(cases, async ({ i, ...one }) => {
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

/** Asserts the peaks and weights of each worker that the analysis of the lists predicts. */
function assertHeld(schedule: Schedule, replicas: number, { end }: Trained, what: string): void {
  const { peakActivations, weights } = analyze(schedule);
  const all = (values: readonly number[]) => Array.from({ length: replicas }, () => values).flat();
  assert.deepEqual(end.weightsHeld, all(weights), what);
  if (schedule.lists) return assert.deepEqual(end.peakActivations, all(peakActivations), what);
  // What a message-driven worker holds depends on timing; the limit bounds it.
  const most = Math.min(schedule.injectionLimit, schedule.microBatches);
  const peaks = end.peakActivations;
  assert.ok(peaks.every((peak) => peak <= most), `${what}: ${peaks} within ${most}`);
  assert.equal(peaks[0], most, what);
  assert.equal(peaks.at(-1), 1, what);
}

/** Places of workers; deep tests run each policy on each of them. */
const READY_ON: readonly Options[] = [
  { runtime: "local", link: DELAYS },
  { runtime: "workers", link: DELAYS },
  { runtime: "workers", isolation: "process" },
];

/** One of three is in threads, one of all in processes. */
const placeOf = (i: number) => i === 2 ? 2 : i % 3 === 1 ? 1 : 0;

Deno.test("every hint and limit has the bits of one serial run, in an isolate, threads and processes", async () => {
  const oracle = openOracle(TINY);
  const cases = READINESS.flatMap((one, i) =>
    (IS_DEEP ? READY_ON : [READY_ON[placeOf(i)]!]).map((how) => [one, how] as const)
  );
  await inLanes(cases, async ([one, how]) => {
    await oracle("readiness", { workers: 2, schedule: "message-driven", ...one }, how);
  });
});

/** Sums over 512 rows are long enough for a different order of additions to change the bits. */
const LONG: Options[] = [
  { device: "native", schedule: "chimera", replicas: 2, sync: "eager" },
  { device: "wasm", schedule: "message-driven" },
];

Deno.test("512 rows a micro-batch in threads have the serial bits", async () => {
  const oracle = openOracle({ ...LARGE, hidden: 64, microBatches: 2, steps: 1, layers: 1 });
  for (const one of LONG) {
    await oracle(JSON.stringify(one), { ...one, workers: 2 }, { runtime: "workers" });
  }
});

Deno.test("a smaller last step runs on every kind of placement with the serial bits, or is dropped", async () => {
  const oracle = openOracle(TINY), { microBatches } = TINY;
  const names = ["chimera", "hanayo", "zb-h1", "message-driven"];
  await inLanes(names.entries(), async ([i, schedule]) => {
    for (const more of atDepth([1 + i % 3], [1, 2, 3])) {
      const options = { schedule, workers: 2, replicas: 1 + i % 2 };
      const { grouping } = scheduleOf(options, microBatches);
      const count = microBatches * options.replicas + more, data = batchesOf(TINY, count);
      const run = await oracle(`${grouping}, ${count}`, { ...options, data });
      assert.equal(run.end.steps, 2);
    }
  });
  const options = { schedule: "gpipe", workers: 2, runtime: "local", dropLast: true } as const;
  const { end } = await trained(TINY, { ...options, data: batchesOf(TINY, 7) });
  assert.equal(end.steps, 1);
  assert.equal(end.weightsHash, (await trained(TINY, { ...options, steps: 1 })).end.weightsHash);
});
