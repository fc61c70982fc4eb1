/**
 * STREAM's triad, a = b + s·c, over arrays far larger than any cache: how fast one thread of this
 * machine moves memory.
 *
 * @module
 */

/** Bytes of each of the three arrays. */
const ARRAY_BYTES = 128 * 2 ** 20;

const PAGE_BYTES = 2 ** 16;

/** Elements of a run. */
export const TRIAD_ELEMENTS = ARRAY_BYTES / 4;

/**
 * Bytes that a run moves for each element: b and c are read, and a is written, which a processor
 * reads before (WebAssembly has no stores past the caches). STREAM counts 12, and so calls the same
 * speed three quarters of this.
 */
export const TRIAD_BYTES = 16;

const text = (name: string) => [name.length, ...new TextEncoder().encode(name)];
const section = (id: number, bytes: readonly number[]) => [id, bytes.length, ...bytes];

/**
 * The module, of which an assembler would be given:
 *
 *     (module
 *       (import "" "memory" (memory 0))
 *       (func (export "triad") (param $a i32) (param $b i32) (param $c i32) (param $end i32)
 *         (param $s f32) (local $factor v128)
 *         (local.set $factor (f32x4.splat (local.get $s)))
 *         (loop $next
 *           (v128.store (local.get $a) (f32x4.add (v128.load (local.get $b))
 *             (f32x4.mul (local.get $factor) (v128.load (local.get $c)))))
 *           ;; three times more, with offset=16, 32 and 48
 *           (local.set $a (i32.add (local.get $a) (i32.const 64)))
 *           ;; likewise $b and $c
 *           (br_if $next (i32.lt_u (local.get $a) (local.get $end))))))
 */
function triadModule(): Uint8Array<ArrayBuffer> {
  const [A, B, C, END, S, FACTOR] = [0, 1, 2, 3, 4, 5] as const;
  const get = (local: number) => [0x20, local], set = (local: number) => [0x21, local];
  const at = (offset: number) => [4, offset]; // 2⁴ bytes aligned
  const vectors = [0, 16, 32, 48].flatMap((offset) => [
    ...get(A),
    ...[...get(B), 0xfd, 0x00, ...at(offset)], // v128.load
    ...get(FACTOR),
    ...[...get(C), 0xfd, 0x00, ...at(offset)],
    ...[0xfd, 0xe6, 0x01], // f32x4.mul
    ...[0xfd, 0xe4, 0x01], // f32x4.add
    ...[0xfd, 0x0b, ...at(offset)], // v128.store
  ]);
  const advance = [A, B, C].flatMap((local) => [
    ...get(local),
    ...[0x41, 0xc0, 0x00], // i32.const 64
    0x6a, // i32.add
    ...set(local),
  ]);
  const body = [
    ...[1, 1, 0x7b], // a local: v128
    ...[...get(S), 0xfd, 0x13, ...set(FACTOR)], // f32x4.splat
    ...[0x03, 0x40, ...vectors, ...advance], // loop
    ...[...get(A), ...get(END), 0x49, 0x0d, 0], // i32.lt_u, br_if
    ...[0x0b, 0x0b], // end, end
  ];
  // Lengths of 128 and more take two bytes.
  const length = (count: number) => [count & 0x7f | 0x80, count >> 7];
  const code = [1, ...length(body.length), ...body];
  return Uint8Array.from([
    ...[0, ...text("asm").slice(1), 1, 0, 0, 0],
    ...section(1, [1, 0x60, 5, 0x7f, 0x7f, 0x7f, 0x7f, 0x7d, 0]),
    ...section(2, [1, ...text(""), ...text("memory"), 2, 0, 0]),
    ...section(3, [1, 0]),
    ...section(7, [1, ...text("triad"), 0, 0]),
    ...[10, ...length(code.length), ...code],
  ]);
}

/** Allocates the arrays; what is returned runs over them once. */
export async function openTriad(): Promise<() => void> {
  const pages = 3 * ARRAY_BYTES / PAGE_BYTES;
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const { instance } = await WebAssembly.instantiate(triadModule(), { "": { memory } });
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
