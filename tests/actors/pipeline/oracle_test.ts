/** The oracle in a few seconds: runs of actors have the bits of the serial loop. */

import assert from "node:assert/strict";
import type { Batch } from "../../../kernels/mod.ts";
import { analyze } from "../../../schedules/mod.ts";
import { batch, RINGS } from "../run/own_layers.ts";
import { batchesOf } from "../runs.ts";
import { DELAYS, openOracle, type Options, scheduleOf, TINY } from "./trained.ts";

const SIZES = { ...TINY, layers: 2 };
const oracle = openOracle(SIZES), tiedOracle = openOracle({ ...SIZES, tie: true });

const EVALUATED: Options = { evaluation: { every: 1, batches: batchesOf(SIZES, 6) } };

const CASES: readonly [Options, Options?][] = [
  [{ schedule: "1f1b", workers: 3, ...EVALUATED }, { bucketSize: 100, link: DELAYS }],
  [{ schedule: "message-driven", workers: 2 }],
  [{ schedule: "chimera", workers: 2, replicas: 2 }, { sync: "eager", coarsening: 3 }],
  [{ schedule: "zb-v", workers: 2, clip: 0.1 }],
  [{ schedule: "seq1f1b", workers: 2, scheduleOptions: { slices: 2 } }],
  [{ schedule: "pipedream", workers: 2 }, { link: DELAYS }],
  [{ schedule: "pipedream-2bw", workers: 2 }],
];

for (const [options, how] of CASES) {
  const { evaluation, ...shown } = options, what = evaluation ? ", evaluated," : "";
  Deno.test(`${JSON.stringify(shown)}${what} has the serial bits, and the peaks of its analysis`, async () => {
    const { made, grouping } = scheduleOf(options, SIZES.microBatches);
    const { end } = await (made.updates === "flush" ? tiedOracle : oracle)(
      `${grouping} ${JSON.stringify(options)}`,
      options,
      how,
    );
    if (!made.lists) return;
    const { replicas = 1 } = options, { peakActivations } = analyze(made);
    assert.deepEqual(end.peakActivations, Array(replicas).fill(peakActivations).flat());
  });
}

Deno.test("three tied parameters on four workers have the serial bits", async () => {
  const ties = ["c.weight", "d.weight"].map((name) => ["b.weight", name] as const);
  const data = Array.from({ length: 8 }, (_, i) => batch(i) as Batch);
  const run = { model: { ...RINGS, ties }, data, workers: 4, schedule: "1f1b" };
  await oracle("rings", run, { link: DELAYS });
});
