/** What messages and steps without work take becomes latencies, bandwidths and overheads. */

import assert from "node:assert/strict";
import { linkOf, openLink } from "../../../../actors/foresight/measuring/measure_links.ts";
import {
  besideActions,
  overheadsOf,
  reduceMs,
} from "../../../../actors/foresight/measuring/measure_overheads.ts";
import { median } from "../../../../actors/foresight/profile/median.ts";
import { createSystem } from "../../../../actors/runtime/mod.ts";

Deno.test("a latency is half of a round trip, a bandwidth what many bytes take longer", () => {
  const copied = linkOf([{ small: [0.2, 0.2, 9], large: [4.2, 4.2] }]);
  assert.equal(copied.latencyMs, 0.1);
  assert.ok(Math.abs(copied.bytesPerMs! - (2 ** 22 - 4) / 2) < 1e-6, `${copied.bytesPerMs}`);
  // A buffer that is handed over takes no longer the larger it is.
  assert.deepEqual(linkOf([{ small: [0.2], large: [0.22] }]), { latencyMs: 0.1 });
});

Deno.test("actors that pass a tensor to and fro tell the time of each round trip", async () => {
  let now = 0;
  await using system = createSystem({ now: () => now++ });
  const { small, large } = await openLink(system, "local")();
  // On a clock that counts its readings nothing reads it between a Ping and its Pong.
  assert.ok(small.length === 25 && [...small, ...large].every((ms) => ms === 1));
});

Deno.test("what a long step takes longer is that of its actions; the rest of a short one, the step's", () => {
  // 4 and 68 micro-batches: 128 actions of 0.5 ms between them.
  const none = overheadsOf([{ fewMs: 9, manyMs: 73 }], 0);
  assert.equal(none.dispatchMs, 0.5);
  assert.equal(none.stepMs, 9 - 8 * 0.5);
  // Messages explain some of it.
  const some = overheadsOf([{ fewMs: 9, manyMs: 73 }], 0.25);
  assert.ok(some.stepMs < none.stepMs && some.stepMs > 0, `${some.stepMs}`);
  assert.equal(overheadsOf([{ fewMs: 1, manyMs: 1 }], 10).stepMs, 0);
});

Deno.test("of a step without work counts what no action ran in", () => {
  const traces = [[{ name: "0F0", start: 1, end: 3 }, { name: "0B0", start: 4, end: 4.5 }]];
  assert.equal(besideActions({ ms: 7, traces }), 4.5);
});

Deno.test("the all-reduce is that of the last copy, as the first takes the norms as well", () => {
  const copy = (end: number) => [
    { name: "0F0", start: 0, end: 1 },
    { name: "reduce 0", start: 2, end },
    { name: "reduce 0", start: 10, end: 11 },
  ];
  assert.equal(reduceMs([copy(9), copy(5)]), 4);
});

Deno.test("the median of an even number is between the two in the middle", () => {
  assert.equal(median([4, 1, 3, 2]), 2.5);
  assert.equal(median([9, 1, 5]), 5);
});
