/** A step that is given up while its sums are under way. */

import assert from "node:assert/strict";
import type { ReduceAlgorithm } from "../../../actors/commit/all_reduce/mod.ts";
import type { SyncedCopy } from "../../../actors/commit/copy_sync.ts";
import { CHUNKS_UNDER_WAY, openGradientSync } from "../../../actors/commit/gradient_sync.ts";

const BUCKETS = 5, LENGTH = 3;

/** A copy of a stage of some buckets; nothing of it is stepped. */
function copyOf(stage: number): SyncedCopy {
  const buckets = Array.from({ length: BUCKETS }, (_, i) => ({
    offset: i * LENGTH,
    length: LENGTH,
  }));
  const readGradients = (_: number, length: number) => Promise.resolve(new Float32Array(length));
  return { stage, rank: 0, kernels: { buckets, readGradients } as never };
}

/** The chunks of each stage that are sent, by an all-reduce of stage 1 alone that is given up. */
async function sentBy(algorithm: ReduceAlgorithm): Promise<number[][]> {
  const sent: number[][] = [[], []];
  const sync = openGradientSync([0, 1].map(copyOf), {
    algorithm,
    coarsening: 1,
    size: 2,
    shared: [],
    ties: [[], []],
    dtype: "f32",
  }, {
    sendPart: (stage, _, { chunk }) => void sent[stage]!.push(chunk),
    sendTie: () => assert.fail(),
    wake: () => assert.fail(),
    reduced: () => assert.fail(),
  });
  await sync.reduce([1]);
  assert.deepEqual(sent, [[], [0, 1].slice(0, CHUNKS_UNDER_WAY)]);
  await sync.giveUp();
  return sent;
}

Deno.test("sums that the network may have begun elsewhere are all begun, in order, when a step is given up", async () => {
  assert.deepEqual(await sentBy("collective"), [[], [0, 1, 2, 3, 4]]);
});

Deno.test("messages between copies end with a step that is given up", async () => {
  assert.deepEqual(await sentBy("direct"), [[], [0, 1]]);
});
