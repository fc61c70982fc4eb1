/** How near our exponential, and what is made of it, is to the true values. */

import assert from "node:assert/strict";
import { type KernelName, loadKernels } from "../../../../kernels/devices/simd/load_kernels.ts";

const memory = new WebAssembly.Memory({ initial: 64, maximum: 65_536, shared: true });
const kernels = loadKernels(memory);

/** A place for numbers, one behind the other. */
function places(...lengths: number[]): Float32Array[] {
  let at = 0;
  return lengths.map((length) => {
    const place = new Float32Array(memory.buffer, at, length);
    at += 4 * length;
    return place;
  });
}

/** What an elementwise kernel makes of numbers. */
function apply(name: KernelName, ...inputs: Float32Array[]): Float32Array {
  const count = inputs[0]!.length;
  const [y, ...given] = places(count, ...inputs.map(({ length }) => length));
  inputs.forEach((numbers, i) => given[i]!.set(numbers));
  kernels[name](count, ...given.map(({ byteOffset }) => byteOffset), y!.byteOffset);
  return y!.slice();
}

/** eˣ: how the softmax of x and 0 stand to each other, which are rounded twice more. */
function exponentials(x: Float32Array): Float64Array {
  const [rows, y] = places(2 * x.length, 2 * x.length);
  rows!.fill(0);
  x.forEach((value, i) => rows![2 * i] = value);
  kernels.softmax(x.length, 2, rows!.byteOffset, y!.byteOffset);
  return Float64Array.from(x, (_, i) => y![2 * i]! / y![2 * i + 1]!);
}

const evenly = (from: number, to: number, count: number) =>
  Float32Array.from({ length: count }, (_, i) => from + (to - from) * i / (count - 1));

/** The distance in units in the last place of what must be. */
const unitsOff = (got: number, want: number) =>
  Math.abs(got - want) / 2 ** (Math.floor(Math.log2(Math.abs(want))) - 23);

const SPECIAL = Float32Array.of(0, -0, -1e30, -Infinity, NaN, -88, -1e-30, -1e-45);

Deno.test("the exponential is within three units in the last place, and 0 far below", () => {
  for (const [from, to] of [[-87.3, 0.7], [-2, 0], [-0.4, 0.4], [-1e-4, 1e-4]] as const) {
    const x = evenly(from, to, 100_001);
    exponentials(x).forEach((got, i) => {
      assert.ok(unitsOff(got, Math.exp(x[i]!)) <= 3, `e^${x[i]} is ${got}`);
    });
  }
  evenly(-1000, -88, 1000).forEach((x) => assert.equal(exponentials(Float32Array.of(x))[0], 0));
  for (const got of exponentials(evenly(-88, -87.3, 1000))) assert.ok(got >= 0 && got < 2e-38);
  assert.deepEqual([...exponentials(SPECIAL)], [1, 1, 0, 0, NaN, 0, 1, 1]);
});

const SLOPE = Math.sqrt(2 / Math.PI), CUBIC = 0.044715;
/** 1/(1 + e⁻²ᵘ). */
const half = (x: number) => 1 / (1 + Math.exp(-2 * SLOPE * (x + CUBIC * x ** 3)));

Deno.test("GELU and its gradient are within 1e-6 of the larger of 1 and x, and nothing where x is not", () => {
  for (const [from, to] of [[-12, 12], [-1, 1], [-1e4, 1e4], [-1e-20, 1e-20]] as const) {
    const x = evenly(from, to, 50_001), dy = x.map(() => 1);
    const y = apply("gelu", x), dx = apply("geluGrad", dy, x);
    x.forEach((x, i) => {
      const h = half(x), bound = 1e-6 * Math.max(1, Math.abs(x));
      const slope = h + 2 * x * h * (1 - h) * SLOPE * (1 + 3 * CUBIC * x ** 2);
      assert.ok(Math.abs(y[i]! - x * h) <= bound, `GELU(${x}) is ${y[i]}`);
      assert.ok(Math.abs(dx[i]! - slope) <= bound, `GELU'(${x}) is ${dx[i]}`);
    });
  }
  assert.deepEqual([...apply("gelu", Float32Array.of(NaN, Infinity, 0))], [NaN, Infinity, 0]);
  const slopes = apply("geluGrad", Float32Array.of(1, 1), Float32Array.of(NaN, 0));
  assert.deepEqual([...slopes], [NaN, 0.5]);
});

Deno.test("the logarithm of a sum has the digits of f32, of one class and of many", () => {
  for (const classes of [1, 2, 3, 7, 1000, 50_257]) {
    const [x, y] = places(classes, classes);
    x!.fill(3);
    kernels.logSoftmax(1, classes, x!.byteOffset, y!.byteOffset);
    const want = -Math.log(classes);
    assert.ok(Math.abs(y![0]! - want) <= 1e-6 * Math.max(1, -want), `${y![0]} and ${want}`);
  }
});

Deno.test("a row with a number that is none has none, and the others keep theirs", () => {
  const [x, y] = places(15, 15);
  x!.set([1, NaN, 3, 4, 5, 1, 2, 3, 4, 5, -Infinity, -1e30, 0, 0, 0]);
  kernels.softmax(3, 5, x!.byteOffset, y!.byteOffset);
  assert.ok(y!.slice(0, 5).every(Number.isNaN));
  assert.ok(Math.abs(y!.slice(5, 10).reduce((sum, one) => sum + one) - 1) < 1e-6);
  assert.deepEqual(y!.slice(10), Float32Array.of(0, 0, 1 / 3, 1 / 3, 1 / 3));
});
