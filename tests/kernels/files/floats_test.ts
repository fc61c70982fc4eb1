/** F16 and BF16: read exactly, written to the nearest. */

import assert from "node:assert/strict";
import { decodeFloats, encodeFloats } from "../../../kernels/mod.ts";

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** All numbers of 16 bits, those that are none aside. */
const HALVES = Uint16Array.from({ length: 2 ** 16 }, (_, i) => i);

const isSame = (a: Float32Array, b: Float32Array) => {
  assert.deepEqual(new Uint32Array(a.buffer, a.byteOffset, a.length), new Uint32Array(b.buffer));
};

Deno.test("each number of F16 and BF16 is read as itself, and written as it was", () => {
  const view = new DataView(new ArrayBuffer(4));
  const expected = Float32Array.from(HALVES, (half) => {
    view.setUint16(0, half); // the upper half of an F32, whose lower one is zero
    return view.getFloat32(0);
  });
  const finite = HALVES.filter((_, i) => !Number.isNaN(expected[i]));
  isSame(decodeFloats("BF16", bytesOf(finite)), expected.filter((value) => !Number.isNaN(value)));
  for (const dtype of ["F16", "BF16"] as const) {
    const values = decodeFloats(dtype, bytesOf(HALVES)),
      numbers = HALVES.filter((_, i) => !Number.isNaN(values[i]));
    const again = encodeFloats(dtype, decodeFloats(dtype, bytesOf(numbers)));
    assert.deepEqual(again, bytesOf(numbers), dtype);
  }
  // The first above zero, the first that is normal, the largest, and a half.
  const known = Uint16Array.of(0x0001, 0x0400, 0x7bff, 0xb800);
  isSame(decodeFloats("F16", bytesOf(known)), Float32Array.of(2 ** -24, 2 ** -14, 65_504, -0.5));
});

Deno.test("a number between two is the nearer, and of two that are as near the even one", () => {
  const step = 2 ** -7; // of BF16 between 1 and 2
  const cases = [
    [1 + 0.49 * step, 1],
    [1 + 0.5 * step, 1],
    [1 + 0.51 * step, 1 + step],
    [1 + 1.5 * step, 1 + 2 * step],
    [-1 - 1.5 * step, -1 - 2 * step],
    [3.4e38, Infinity],
  ] as const;
  for (const [value, expected] of cases) {
    const [received] = decodeFloats("BF16", encodeFloats("BF16", Float32Array.of(value)));
    assert.equal(received, expected, `${value}`);
  }
  const [nothing] = decodeFloats("BF16", encodeFloats("BF16", Float32Array.of(NaN)));
  assert.ok(Number.isNaN(nothing));
});
