import assert from "node:assert/strict";
import { substream } from "../../../actors/runtime/world/random.ts";

function draw(seed: number, name: string, count: number): number[] {
  const next = substream(seed, name);
  return Array.from({ length: count }, next);
}

Deno.test("a substream is uniform in [0, 1)", () => {
  const values = draw(1, "uniform", 20_000);
  assert.ok(values.every((value) => value >= 0 && value < 1));
  const buckets = new Array(20).fill(0);
  for (const value of values) buckets[Math.floor(20 * value)]++;
  // Chi-square with 19 degrees of freedom: 43.8 is passed once in a thousand.
  const chiSquare = buckets.reduce((sum, count) => sum + (count - 1000) ** 2 / 1000, 0);
  assert.ok(chiSquare < 43.8, `${chiSquare}`);
});

Deno.test("the first draws of a thousand like-named substreams are uniform too", () => {
  const buckets = new Array(10).fill(0);
  for (let n = 0; n < 1000; n++) buckets[Math.floor(10 * draw(0, `worker-${n}`, 1)[0]!)]++;
  // Chi-square with 9 degrees of freedom: 27.9 is passed once in a thousand.
  const chiSquare = buckets.reduce((sum, count) => sum + (count - 100) ** 2 / 100, 0);
  assert.ok(chiSquare < 27.9, `${chiSquare}`);
});

Deno.test("substreams of other seeds and names are others", () => {
  const all = [draw(1, "a", 4), draw(2, "a", 4), draw(1, "b", 4), draw(12, "", 4), draw(1, "2", 4)];
  assert.equal(new Set(all.flat()).size, 20);
  assert.deepEqual(draw(1, "a", 4), all[0]);
});
