import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { Digest, digestOf } from "../../../testing.ts";

Deno.test("equal values have equal digests, and almost no others do", () => {
  fc.assert(fc.property(fc.anything(), (value) => {
    assert.equal(digestOf(value), digestOf(structuredClone(value)));
  }));
  const digests = new Set<string>();
  for (let n = 0; n < 100_000; n++) digests.add(digestOf({ type: "Pass", microBatch: n }));
  assert.equal(digests.size, 100_000);
});

const LIKE_BUT_OTHER: readonly [unknown, unknown][] = [
  [0, -0],
  [1, "1"],
  [null, undefined],
  [[1, [2]], [[1], 2]],
  [{ a: 1, b: 2 }, { b: 2, a: 1 }],
  [{}, []],
  ["ab", "ba"],
  [true, 1],
  [NaN, null],
  [1n, 1],
  [new Uint8Array([1, 0]), new Uint8Array([1])],
  [new Uint8Array([1, 2, 3]), new Int8Array([1, 2, 3])],
  [new Float32Array([1, 2]), new Float32Array([2, 1])],
  // One bit each, the sign, in two places: a plain product loses them.
  [new Float32Array([1, -2, 3]), new Float32Array([-1, 2, 3])],
  [new Float32Array([1, 3, -2]), new Float32Array([-1, 3, 2])],
  [new Map([[1, 2], [3, 4]]), new Map([[3, 4], [1, 2]])],
  [new ArrayBuffer(4), new ArrayBuffer(8)],
  [new Error("a"), new TypeError("a")],
];

for (const [one, other] of LIKE_BUT_OTHER) {
  Deno.test(`the digests of ${Deno.inspect(one)} and ${Deno.inspect(other)} differ`, () => {
    assert.notEqual(digestOf(one), digestOf(other));
  });
}

Deno.test("flipping any one bit, and any two, of a tensor changes its digest", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 9 }), fc.nat(287), fc.nat(287), (n, i, j) => {
      const values = Float32Array.from({ length: n }, (_, index) => index * 0.3 - 1);
      const before = digestOf(values), bytes = new Uint8Array(values.buffer);
      const bits = new Set([i % (32 * n), j % (32 * n)]);
      for (const bit of bits) bytes[bit >> 3]! ^= 1 << (bit & 7);
      assert.notEqual(digestOf(values), before);
    }),
    { numRuns: 3000 },
  );
});

Deno.test("a view counts by what it shows, wherever it lies", () => {
  const bytes = Uint8Array.from({ length: 16 }, (_, n) => n);
  const moved = new Uint8Array(32);
  for (const offset of [1, 4, 7]) {
    moved.set(bytes, offset);
    assert.equal(digestOf(moved.subarray(offset, offset + 16)), digestOf(bytes));
  }
});

Deno.test("an address counts by its name: where an actor lives is not what it is", () => {
  const ref = (isolate: number) => ({ id: "stage-1", isolate, serial: 3 });
  assert.equal(digestOf(ref(0)), digestOf(ref(7)));
  assert.notEqual(digestOf(ref(0)), digestOf({ ...ref(0), id: "stage-2" }));
});

Deno.test("a failure counts by what it says, not by its stack", () => {
  const failure = { name: "Error", message: "out of luck", stack: "at here" };
  assert.equal(digestOf(failure), digestOf({ ...failure, stack: "at there" }));
});

Deno.test("a digest of parts is not that of their sum, and reset forgets", () => {
  const digest = new Digest();
  const one = digest.text("a").text("b").toString();
  assert.notEqual(digest.reset().text("ab").toString(), one);
  assert.equal(digest.reset().text("a").text("b").toString(), one);
  assert.match(one, /^[0-9a-f]{16}$/);
});
