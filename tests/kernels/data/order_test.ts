import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { shuffledOrder } from "../../../kernels/data/order.ts";

const rows = fc.integer({ min: 1, max: 50 });
const seed = fc.maxSafeInteger();

const epochOf = (rows: number, seed: number, epoch: number) => {
  const order = shuffledOrder(rows, seed);
  return Array.from({ length: rows }, (_, i) => order(epoch * rows + i));
};

Deno.test("every epoch reads every row once", () => {
  fc.assert(
    fc.property(rows, seed, fc.nat(1000), (rows, seed, epoch) => {
      const read = epochOf(rows, seed, epoch).sort((a, b) => a - b);
      assert.deepEqual(read, Array.from({ length: rows }, (_, i) => i));
    }),
  );
});

Deno.test("a row's place depends on nothing that was asked before", () => {
  fc.assert(
    fc.property(rows, seed, fc.array(fc.nat(500), { maxLength: 20 }), (rows, seed, asked) => {
      const order = shuffledOrder(rows, seed);
      for (const row of asked) assert.equal(order(row), shuffledOrder(rows, seed)(row));
    }),
  );
});

Deno.test("seeds and epochs have permutations of their own", () => {
  const permutations = new Set<string>();
  const seeds = [0, 1, -1, 2, 2 ** 32, 2 ** 32 + 1, -(2 ** 40), Number.MAX_SAFE_INTEGER];
  for (const seed of seeds) {
    for (let epoch = 0; epoch < 10; epoch++) permutations.add(epochOf(30, seed, epoch).join());
  }
  assert.equal(permutations.size, 10 * seeds.length);
});

Deno.test("the order does not change between versions", () => {
  assert.deepEqual(epochOf(8, 1, 0), [2, 0, 6, 4, 1, 7, 5, 3]);
  assert.deepEqual(epochOf(8, 1, 1), [1, 4, 0, 5, 7, 3, 2, 6]);
});

Deno.test("neighbouring epochs and seeds are not correlated", () => {
  const [n, draws] = [4, 8000];
  for (const next of [(i: number) => [1, i], (i: number) => [i, 0]]) {
    // How often row b comes last after row a came last in the epoch, or seed, before.
    const counts = new Array<number>(n * n).fill(0);
    let last = 0;
    for (let i = 0; i < draws; i++) {
      const [seed, epoch] = next(i) as [number, number];
      const row = shuffledOrder(n, seed)(epoch * n + n - 1);
      counts[last * n + row]!++;
      last = row;
    }
    const expected = draws / counts.length;
    const chiSquare = counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
    // 15 degrees of freedom: 37.7 is exceeded once in a thousand.
    assert.ok(chiSquare < 37.7, `chi-square ${chiSquare}`);
  }
});

Deno.test("only whole numbers of rows and seeds are shuffled", () => {
  for (const rows of [0, -1, 1.5, NaN, 2 ** 32]) {
    assert.throws(() => shuffledOrder(rows, 0), new RegExp(`^RangeError: .*received ${rows}$`));
  }
  for (const seed of [0.5, NaN, Infinity]) {
    assert.throws(() => shuffledOrder(1, seed), new RegExp(`^RangeError: .*received ${seed}$`));
  }
});
