/** The all-reduce: its sums, its messages, and its refusals. */

import assert from "node:assert/strict";
import { LATENCY_BYTES, sliceBorder } from "../../../actors/gradients/algorithms.ts";
import {
  type GradientArray,
  openReducer,
  type ReduceAlgorithm,
  type ReduceMessage,
  type ReducerOptions,
} from "../../../actors/gradients/all_reduce.ts";
import { atDepth } from "../../depth.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import fc from "../../fast_check.ts";
import { allReduce, bytesOf, cases, copiesOf, leftToRight } from "./all_reduce/gradients.ts";

/** Half the distance from 1 to the next number: the largest relative error of one rounding. */
const ROUNDING = { f32: 2 ** -24, f16: 2 ** -11 } as const;

for (const isShared of [false, true]) {
  const where = isShared ? "in shared memory" : "in messages";
  Deno.test(`direct sums ${where} are the left-to-right sums, bit for bit, in every rank`, async () => {
    const property = fc.asyncProperty(cases, async (wanted) => {
      const { after, completed } = await allReduce({ ...wanted, algorithm: "direct", isShared });
      const expected = bytesOf(leftToRight(wanted.copies, wanted.dtype));
      for (const gradients of after) assert.deepEqual(bytesOf(gradients), expected);
      for (const chunks of completed) {
        assert.deepEqual(chunks.toSorted((a, b) => a - b), [...wanted.chunks.keys()]);
      }
    });
    await fc.assert(property, { numRuns: atDepth(60, 1000) });
  });
}

for (const algorithm of ["ring", "rabenseifner"] as const) {
  Deno.test(`${algorithm} sums are close, and the same bits in every rank and order of messages`, async () => {
    const property = fc.asyncProperty(cases, async (wanted) => {
      const { copies, dtype } = wanted;
      const { after, completed } = await allReduce({ ...wanted, algorithm });
      const again = await allReduce({ ...wanted, algorithm });
      for (const gradients of [...after, ...again.after]) {
        assert.deepEqual(bytesOf(gradients), bytesOf(after[0]!));
      }
      for (const chunks of completed) assert.equal(new Set(chunks).size, wanted.chunks.length);
      after[0]!.forEach((sum, i) => {
        const terms = copies.map((copy) => copy[i]!);
        const exact = terms.reduce((a, b) => a + b, 0);
        const magnitude = terms.reduce((a, b) => a + Math.abs(b), 0);
        // (1 + u)^(p−1) − 1, without the rounding of 1 + u itself.
        const bound = Math.expm1((copies.length - 1) * Math.log1p(ROUNDING[dtype])) * magnitude;
        assert.ok(Math.abs(sum - exact) <= bound, `${sum} is not within ${bound} of ${exact}`);
      });
    });
    await fc.assert(property, { numRuns: atDepth(60, 1000) });
  });
}

/** The sums of an element by an algorithm, as a tree of copies: each pair is added in copy order. */
type Tree = number | readonly [Tree, Tree];

const sumOf = (tree: Tree, copies: readonly GradientArray[], i: number): number =>
  typeof tree === "number"
    ? copies[tree]![i]!
    : Math.fround(sumOf(tree[0], copies, i) + sumOf(tree[1], copies, i));

/** The tree of slice `slice` on a ring: ranks are added in ring order, from rank `slice` on. */
const ringTree = (slice: number, size: number): Tree =>
  Array.from({ length: size - 1 }, (_, i) => (slice + 1 + i) % size)
    .reduce<Tree>((sum, rank) => [sum, rank], slice);

/** Ranks beyond the power of two fold in first; then partners are the farthest ranks first. */
function halvingTree(size: number): Tree {
  const core = 1 << Math.floor(Math.log2(size));
  let trees: Tree[] = Array.from({ length: core }, (_, r) => r + core < size ? [r, r + core] : r);
  for (let half = core / 2; half >= 1; half /= 2) {
    trees = trees.slice(0, half).map((tree, r) => [tree, trees[r + half]!]);
  }
  return trees[0]!;
}

Deno.test("a ring adds each slice from its rank on, and Rabenseifner pairs the farthest ranks first", async () => {
  for (let size = 2; size <= 8; size++) {
    const length = 10 * size, copies = copiesOf({ size, length, dtype: "f32", seed: size });
    const wanted = { copies, chunks: [{ offset: 0, length }], dtype: "f32" } as const;
    const trees = {
      ring: (i: number) => ringTree(Math.floor(i / 10), size),
      rabenseifner: () => halvingTree(size),
    };
    for (const algorithm of ["ring", "rabenseifner"] as const) {
      const { after: [sums] } = await allReduce({ ...wanted, algorithm });
      const expected = sums!.map((_, i) => sumOf(trees[algorithm](i), copies, i));
      assert.deepEqual(sums, expected, `${algorithm} of ${size}`);
    }
  }
});

Deno.test("a chunk completes without waiting for the chunks before it", async () => {
  const copies = copiesOf({ size: 3, length: 9, dtype: "f32", seed: 1 });
  const chunks = [{ offset: 0, length: 4 }, { offset: 4, length: 5 }];
  const wanted = { copies, chunks, dtype: "f32", algorithm: "direct", started: [1] } as const;
  const { after, completed, reducers } = await allReduce(wanted);
  assert.deepEqual(completed, [[1], [1], [1]]);
  for (const [rank, reducer] of reducers.entries()) {
    assert.deepEqual([reducer.isComplete(0), reducer.isComplete(1)], [false, true]);
    assert.deepEqual(after[rank]!.subarray(0, 4), copies[rank]!.subarray(0, 4));
  }
});

const SIZES = [1, 2, 3, 4, 5, 6, 7, 8];
/** A multiple of every size: all slices are equal. */
const LENGTH = 840;

/** Returns, for each rank, the messages and values that it sends for one chunk. */
async function sentBy(
  algorithm: ReduceAlgorithm | "fast",
  size: number,
  { length = LENGTH, isShared = false } = {},
) {
  const copies = Array.from({ length: size }, () => new Float32Array(length));
  const chunks = [{ offset: 0, length }];
  const { sent } = await allReduce({ copies, chunks, algorithm, dtype: "f32", isShared });
  return copies.map((_, rank) => {
    const own = sent.filter(({ from }) => from === rank);
    assert.ok(own.every(({ to, message }) => to !== rank && message.from === rank));
    return { messages: own.length, volume: own.reduce((sum, { volume }) => sum + volume, 0) };
  });
}

Deno.test("every rank sends as many messages and values as the algorithm says", async () => {
  for (const size of SIZES) {
    const all = { messages: 2 * (size - 1), volume: 2 * (size - 1) / size * LENGTH };
    assert.deepEqual(await sentBy("direct", size), Array(size).fill(all));
    assert.deepEqual(await sentBy("ring", size), Array(size).fill(all));
    const shared = await sentBy("direct", size, { isShared: true });
    assert.deepEqual(shared, Array(size).fill({ ...all, volume: 0 }));
    // A rank beyond the power of two sends its chunk, and gets the sums from the rank below it.
    const core = 1 << Math.floor(Math.log2(size));
    const messages = 2 * Math.log2(core), volume = 2 * (core - 1) / core * LENGTH;
    for (const [rank, sent] of (await sentBy("rabenseifner", size)).entries()) {
      const more = Number(rank + core < size), own = { messages: 1, volume: LENGTH };
      const inner = { messages: messages + more, volume: volume + more * LENGTH };
      assert.deepEqual(sent, rank >= core ? own : inner, `rank ${rank} of ${size}`);
    }
  }
});

Deno.test("fast is Rabenseifner for powers of two, elsewhere the ring from a size on", async () => {
  // Five ranks: 8α + 1.6nβ and 6α + 3.5nβ are equal at n = 2/1.9 of α/β.
  const even = Math.floor(2 / 1.9 * LATENCY_BYTES / Float32Array.BYTES_PER_ELEMENT);
  const chosen: readonly [size: number, length: number, ReduceAlgorithm][] = [
    [8, 8, "rabenseifner"],
    [8, 4 * LATENCY_BYTES, "rabenseifner"],
    [7, 8, "rabenseifner"],
    [7, 4 * LATENCY_BYTES, "ring"],
    [5, even - 1, "rabenseifner"],
    [5, even + 1, "ring"],
  ];
  for (const [size, length, algorithm] of chosen) {
    const sent = await sentBy("fast", size, { length }), what = `${size} ranks, ${length} elements`;
    assert.deepEqual(sent, await sentBy(algorithm, size, { length }), what);
  }
});

/** Offsets of the slices of chunk `index`, and the end of the last slice. */
const cutsOf = (size: number, [offset, length]: [number, number], index: number, to: number[]) =>
  Array.from({ length: size + 1 }, (_, i) => sliceBorder(i, size, { offset, length }, index, to));

Deno.test("slices of whole parameters cover the chunk one after the other, and ranks take turns in adding chunks of one", () => {
  const borders = [0, 16, 32, 48, 848, 864];
  for (const size of SIZES) {
    const owners: number[] = [];
    for (let chunk = 0; chunk < size; chunk++) {
      const cuts = cutsOf(size, [16, 848], chunk, borders);
      assert.deepEqual([cuts[0], cuts.at(-1)], [0, 848]);
      assert.deepEqual(cuts, cuts.toSorted((a, b) => a - b));
      assert.ok(cuts.every((cut) => borders.includes(cut + 16)));
      const one = cutsOf(size, [48, 800], chunk, borders);
      for (let i = 0; i < size; i++) if (one[i + 1]! > one[i]!) owners.push(i);
    }
    assert.deepEqual(owners.sort(), [...Array(size).keys()]);
  }
});

/** Rank 0 of three with two chunks, of 6 and of 3 elements. */
const OPTIONS: ReducerOptions = {
  ...{ rank: 0, size: 3, algorithm: "direct", dtype: "f32" },
  chunks: [{ offset: 0, length: 6 }, { offset: 6, length: 3 }],
  read: (_, length) => Promise.resolve(new Float32Array(length)),
  copy: () => Promise.resolve(),
  ...{ write: () => {}, send: () => {}, onComplete: () => {} },
};

const values = new Float32Array(2);
const MESSAGE: ReduceMessage = { chunk: 0, phase: "scatter", from: 2, slice: 0, values };

Deno.test("a message that is due is taken once, also after one that was refused", async () => {
  const reducer = openReducer(OPTIONS), again = /rank 2 must come once, received it again$/;
  assert.throws(() => reducer.receive({ ...MESSAGE, values: new Float32Array(4) }), /hold 2 f32/);
  reducer.receive(MESSAGE);
  assert.throws(() => reducer.receive(MESSAGE), again);
  await reducer.start(0);
  reducer.receive({ ...MESSAGE, from: 1 });
  assert.throws(() => reducer.receive(MESSAGE), again);
  reducer.receive({ ...MESSAGE, phase: "gather", from: 1, slice: 1 });
  assert.equal(reducer.isComplete(0), false);
  reducer.receive({ ...MESSAGE, phase: "gather", from: 2, slice: 2 });
  assert.equal(reducer.isComplete(0), true);
  assert.throws(() => reducer.receive(MESSAGE), again);
});

const SHARED = new SharedArrayBuffer(3 * 9 * 4);

/** Messages that rank 0 of three refuses, as differences from an expected message. */
const REFUSED: readonly (readonly [Partial<ReduceMessage>, Partial<ReducerOptions>?])[] = [
  [{ from: 0 }],
  [{ from: 3 }],
  [{ from: 1 }, { algorithm: "ring" }],
  [{ slice: 1 }],
  [{ phase: "gather", slice: 1 }],
  [{ phase: "fold" }],
  [{ chunk: 2 }],
  [{ values: new Float32Array(3) }],
  [{ values: new Float16Array(2) }],
  [{ values: undefined! }],
  [{}, { shared: SHARED }],
];

/** Options that the reducer refuses. */
const UNOPENED: readonly Partial<ReducerOptions>[] = [
  { size: 0 },
  { rank: 3 },
  { rank: 0.5 },
  { chunks: [{ offset: 0, length: -1 }] },
  { chunks: [{ offset: 5, length: 5 }, { offset: 0, length: 6 }] },
  { shared: SHARED, algorithm: "ring" },
  { shared: new SharedArrayBuffer(3 * 8 * 4) },
];

Deno.test("messages, chunks, reads and options that cannot be are refused by name", async () => {
  const open = (options: Partial<ReducerOptions> = {}) => openReducer({ ...OPTIONS, ...options });
  const reducer = open(), read = () => Promise.resolve(new Float32Array(5));
  await reducer.start(1);
  await assertRefused("all_reduce", [
    ...REFUSED.map(([change, options]) =>
      [change, () => open(options).receive({ ...MESSAGE, ...change })] as const
    ),
    ...UNOPENED.map((change) => [change, () => open(change)] as const),
    ["starting a chunk again", () => reducer.start(1)],
    ["starting a chunk too many", () => reducer.start(2)],
    ["a chunk before the first", () => reducer.isComplete(-1)],
    ["a read of another length", () => open({ read }).start(0)],
  ]);
  openReducer({ ...OPTIONS, shared: SHARED }).receive({ ...MESSAGE, values: undefined! });
});
