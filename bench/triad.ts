/**
 * The triad of STREAM, a = b + s · c: the rate at which a core reads and writes memory.
 *
 * @module
 */

import asc from "assemblyscript/asc";

/** Bytes of each of the three arrays. */
const ARRAY_BYTES = 128 * 2 ** 20;

const PAGE_BYTES = 2 ** 16;

/** Elements of a run. */
export const TRIAD_ELEMENTS = ARRAY_BYTES / 4;

/**
 * Bytes that a run moves for each element: b and c are read, and a is read and written, as WebAssembly
 * has no stores that bypass the caches. STREAM counts 12, so its rate is three quarters of this one.
 */
export const TRIAD_BYTES = 16;

/** Adds up one of the four vectors of a turn of the loop. */
const vector = (offset: number) =>
  `v128.store(a, f32x4.add(
    v128.load(b, ${offset}), f32x4.mul(factor, v128.load(c, ${offset}))), ${offset});`;

const SOURCE = `
export function triad(a: usize, b: usize, c: usize, end: usize, s: f32): void {
  const factor = f32x4.splat(s);
  do {
    ${[0, 16, 32, 48].map(vector).join("\n")}
    a += 64;
    b += 64;
    c += 64;
  } while (a < end);
}`;

/** Allocates the arrays; returns a function that runs over them once. */
export async function openTriad(): Promise<() => void> {
  const pages = 3 * ARRAY_BYTES / PAGE_BYTES;
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const { error, binary } = await asc.compileString(SOURCE, {
    optimizeLevel: 3,
    runtime: "stub",
    importMemory: true,
    noExportMemory: true,
    enable: ["simd"],
  });
  if (!binary) throw new Error("Cannot build the triad", { cause: error });
  const { instance } = await WebAssembly.instantiate(new Uint8Array(binary), { env: { memory } });
  const triad = instance.exports["triad"] as (...args: number[]) => void;
  const [a, b, c] = [0, 1, 2].map((i) =>
    new Float32Array(memory.buffer, i * ARRAY_BYTES, TRIAD_ELEMENTS)
  ) as [Float32Array, Float32Array, Float32Array];
  b.fill(2);
  c.fill(5);
  const run = () => triad(a.byteOffset, b.byteOffset, c.byteOffset, ARRAY_BYTES, 3);
  run();
  if (a[0] !== 17 || a.at(-1) !== 17) throw new Error(`The triad must give 17, received ${a[0]}`);
  return run;
}
