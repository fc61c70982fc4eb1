/**
 * Compares kernels with the matrix product of the same device and with the most operations per second
 * of a core, and the optimizer with memory.
 *
 * A loop of independent FMAs in machine code measures a core: WebAssembly has vectors of four numbers,
 * a quarter of AVX-512, so its loops are far from the limit.
 *
 * @module
 */

import asc from "assemblyscript/asc";
import {
  type Device,
  type DeviceName,
  Graph,
  openDevice,
  type Run,
  type Value,
} from "../kernels/mod.ts";
import { encodeGraph } from "../kernels/onnx/encode.ts";
import { type Row, rowMaker } from "./report.ts";
import { interleave, openProduct, PRODUCT_SIZE, productGflop, spreadOf } from "./timing.ts";
import {
  closing,
  drainOf,
  gflopOf,
  LEARNING_RATE,
  openBenchStage,
  rowsOfDevices,
  SMALL,
  type Workload,
} from "./workload.ts";

/** Chains of dependent FMAs: at least the latency of an FMA times the units of a core. */
const CHAINS = 12;
/** Turns of the loop in a run: some milliseconds. */
const TURNS = 2_000_000;

/** The register with the factors of all products; the chains have those below. */
const FACTORS = 15;

/** Bits of a prefix that extend the numbers of the registers beyond 7, inverted. */
const extension = (result: number, second: number) =>
  0x40 | (result < 8 ? 0x80 : 0) | (second < 8 ? 0x20 : 0);
const inverted = (register: number) => (~register & 15) << 3;
const operands = (result: number, second: number) => 0xc0 | (result & 7) << 3 | second & 7;

/** Encodes an instruction on 512 or 256 bits, by its operation code and its registers. */
function instruction(isWide: boolean, code: number, to: number, first: number, second: number) {
  const bits = extension(to, second) | 2, rest = inverted(first) | 5;
  const prefixes = isWide ? [0x62, bits | 0x10, rest, 0x48] : [0xc4, bits, rest];
  return [...prefixes, code, operands(to, second)];
}

/** Returns `(turns: i64, ones: f32) => f32`: a sum of the first chain after some turns. */
function machineCode(isWide: boolean): Uint8Array<ArrayBuffer> {
  const chains = Array.from({ length: CHAINS }, (_, chain) => chain);
  // vxorps of each register with itself
  const zeros = chains.flatMap((r) => [
    ...[0xc4, 0x41 | (r < 8 ? 0xa0 : 0), inverted(r), 0x57, operands(r, r)],
  ]);
  // vfmadd231ps
  const body = chains.flatMap((chain) => instruction(isWide, 0xb8, chain, FACTORS, FACTORS));
  const dec = [0x48, 0xff, 0xcf], jnz = [0x0f, 0x85]; // of rdi, the first argument
  const back = new Uint8Array(Int32Array.of(-(body.length + dec.length + jnz.length + 4)).buffer);
  const end = [0xc5, 0xf8, 0x77, 0xc3]; // vzeroupper, ret
  const begin = [...instruction(isWide, 0x18, FACTORS, 0, 0), ...zeros]; // vbroadcastss
  return Uint8Array.from([...begin, ...body, ...dec, ...jnz, ...back, ...end]);
}

/** Memory that is private, anonymous, and readable, writable and executable. */
const [PAGE, PROTECTION, FLAGS] = [4096n, 7, 0x22] as const;
/** The address that `mmap` returns if the system forbids it. */
const FORBIDDEN = 2n ** 64n - 1n;

/**
 * Opens the loop of FMAs: `run` runs it once, on this thread.
 *
 * @returns undefined on other systems than Linux on x86-64, without the instruction, and if the system
 * forbids memory that is written and executed.
 */
export async function openFmaLoop() {
  if (Deno.build.target !== "x86_64-unknown-linux-gnu") return undefined;
  const flags = new Set((await Deno.readTextFile("/proc/cpuinfo")).split(/\s+/));
  const isWide = flags.has("avx512f");
  if (!isWide && !flags.has("fma")) return undefined;
  const libc = Deno.dlopen("libc.so.6", {
    mmap: { parameters: ["usize", "usize", "i32", "i32", "i32", "isize"], result: "pointer" },
  });
  const code = machineCode(isWide);
  const page = libc.symbols.mmap(0n, PAGE, PROTECTION, FLAGS, -1, 0n);
  libc.close();
  if (!page || Deno.UnsafePointer.value(page) === FORBIDDEN) return undefined;
  new Uint8Array(Deno.UnsafePointerView.getArrayBuffer(page, code.length)).set(code);
  const type = { parameters: ["i64", "f32"], result: "f32" } as const;
  const loop = new Deno.UnsafeFnPointer(page as Deno.PointerObject<typeof type>, type);
  return {
    gflop: 2 * CHAINS * (isWide ? 16 : 8) * TURNS / 1e9,
    run() {
      const sum = loop.call(BigInt(TURNS), 1);
      if (sum !== TURNS) throw new Error(`The loop of FMAs must give ${TURNS}, received ${sum}`);
    },
  };
}

/** Products in a round: one is too short a sample. */
const PRODUCTS = 3;

/** The share of its matrix product that each device must reach, in percent. */
const SHARES: Partial<Record<DeviceName, number>> = { native: 82, wasm: 92 };

/** Devices whose memory this thread can measure. */
const ON_HOST: readonly DeviceName[] = ["native", "wasm"];

/** The share of the speed of memory that AdamW must reach, in percent. */
const ADAMW_SHARE = 60;

/** Bytes that AdamW moves for each element: it reads w, d, m and v, and writes w, m and v. */
const ADAMW_BYTES = 28;

/** 46 million elements, 740 MB of w, d, m and v: too many for any cache. */
const WIDE: Workload = {
  config: { layers: 1, hidden: 1024, heads: 8, seq: 8, vocab: 16_384 },
  microBatch: 1,
};

/** Measures forward and backward of the small GPT-2, in turns with the product and a loop of FMAs. */
async function modelRows(name: DeviceName, device: Device): Promise<Row[]> {
  const drain = drainOf(device), { forwardBackward } = await openBenchStage(device);
  const product = await openProduct(device, PRODUCT_SIZE);
  const loop = name === "native" ? await openFmaLoop() : undefined;
  const rounds = await interleave({
    loop: () => Promise.resolve(loop?.run()),
    product: async () => {
      for (let i = 0; i < PRODUCTS; i++) await product.run();
      await drain();
    },
    forwardBackward: async () => void await forwardBackward(),
  }, { rounds: name === "native" ? 25 : 11 });
  const parts = {
    loop: ["loop of FMAs", loop?.gflop ?? 0],
    product: [`MatMul ${PRODUCT_SIZE}³`, PRODUCTS * productGflop(PRODUCT_SIZE)],
    forwardBackward: ["forward and backward", gflopOf(SMALL)],
  } as const;
  type Part = keyof typeof parts;
  const row = rowMaker(rounds), share = SHARES[name];
  const titleOf = (part: Part) => parts[part][0];
  const rateOf = (part: Part, ms: Record<Part, number>) => parts[part][1] / (ms[part] / 1000);
  const rate = (part: Part) =>
    row(`${name}: ${titleOf(part)}`, "GFLOP/s", (ms) => rateOf(part, ms));
  const ratio = (part: Part, of: Part, more: Partial<Row> = {}) => {
    const title = `${name}: ${titleOf(part)} ÷ ${titleOf(of)}`;
    return row(title, "%", (ms) => 100 * rateOf(part, ms) / rateOf(of, ms), more);
  };
  const target = share ? { target: { atLeast: share } } : {};
  return [
    ...loop ? [rate("loop")] : [],
    ...[rate("product"), rate("forwardBackward"), ratio("forwardBackward", "product", target)],
    ...loop ? [ratio("product", "loop"), ratio("forwardBackward", "loop")] : [],
  ];
}

/** Measures AdamW over arrays larger than the caches, in turns with the triad on the same thread. */
async function adamwRows(name: DeviceName, device: Device): Promise<Row[]> {
  const drain = drainOf(device), isOnHost = ON_HOST.includes(name);
  const { stage, parameters, forwardBackward } = await openBenchStage(device, WIDE);
  await forwardBackward(); // unwritten pages of zeros would share one page
  const triad = isOnHost ? await openTriad() : () => {};
  let step = 0;
  const rounds = await interleave({
    triad: () => Promise.resolve(triad()),
    async adamw() {
      await stage.optimize(++step, LEARNING_RATE);
      await drain();
    },
  }, { rounds: 11 });
  const gigabytes = (bytes: number, ms: number) => bytes / 1e6 / ms;
  const adamwRate = (ms: number) => gigabytes(ADAMW_BYTES * parameters, ms);
  const triadRate = (ms: number) => gigabytes(TRIAD_BYTES * TRIAD_ELEMENTS, ms);
  const target = { atLeast: ADAMW_SHARE }, row = rowMaker(rounds);
  const elements = spreadOf(rounds, ({ adamw }) => parameters / 1e3 / adamw).median.toFixed(0);
  return [
    row(`${name}: AdamW`, "GB/s", ({ adamw }) => adamwRate(adamw), {
      note: `${elements} Melem/s, ${ADAMW_BYTES} bytes each: reads w, d, m, v, writes w, m, v`,
    }),
    ...isOnHost
      ? [
        row(`${name}: triad, the same thread`, "GB/s", ({ triad }) => triadRate(triad), {
          note: `${TRIAD_BYTES} bytes an element: reads b, c and the lines of a, writes a`,
        }),
        row(
          `${name}: AdamW ÷ triad`,
          "%",
          ({ adamw, triad }) => 100 * adamwRate(adamw) / triadRate(triad),
          {
            target,
            note: "a third more where the triad is counted as STREAM does, 12 bytes an element",
          },
        ),
      ]
      : [],
  ];
}

async function measure(name: DeviceName): Promise<Row[]> {
  using device = closing(await openDevice(name, { isBlocking: true }));
  return [...await modelRows(name, device), ...await adamwRows(name, device)];
}

/** Measures each device against itself. */
export const kernelsBench = (): Promise<Row[]> => rowsOfDevices(measure, true);

/** Rows of x and dy: tokens of a micro-batch. */
const TOKENS = 512;
/** Inputs and outputs of the linear layers of a GPT-2 of width 256, and of the widest for 768. */
const SHAPES = [[256, 256], [256, 768], [256, 1024], [1024, 256], [768, 3072], [
  3072,
  768,
]] as const;
/** Multiplications in a round: a small product is too short a sample. */
const WORK = 2e9;

type Product = (g: Graph, x: Value, dy: Value) => Value;

async function open(device: Device, [inputs, outputs]: readonly number[], product: Product) {
  const g = new Graph(),
    x = g.input("x", [TOKENS, inputs!]),
    dy = g.input("dy", [TOKENS, outputs!]);
  const kernel = await device.compile(encodeGraph(g, { dw: product(g, x, dy) }));
  const [tx, tdy] = [x, dy].map(({ shape }) => device.alloc("f32", shape));
  return kernel.bind({ x: tx!, dy: tdy! }, { dw: device.alloc("f32", [inputs!, outputs!]) });
}

async function measureGradient(name: DeviceName): Promise<Row[]> {
  using device = closing(await openDevice(name));
  const rows: Row[] = [];
  for (const shape of SHAPES) {
    const count = Math.ceil(WORK / (TOKENS * shape[0] * shape[1]));
    const repeat = (run: Run) => async () => {
      for (let i = 0; i < count; i++) await run();
    };
    const rounds = await interleave({
      within: repeat(await open(device, shape, (g, x, dy) => g.matmul(x, dy, { transA: true }))),
      first: repeat(await open(device, shape, (g, x, dy) => g.matmul(g.transpose(x, [1, 0]), dy))),
    }, { rounds: 11 });
    rows.push(
      rowMaker(rounds)(
        `${name}: gradient of weights ${shape.join(" × ")}, transposed first ÷ within`,
        "%",
        ({ first, within }) => 100 * first / within,
      ),
    );
  }
  return rows;
}

/** Measures each CPU device. */
export const weightGradientsBench = (): Promise<Row[]> => rowsOfDevices(measureGradient);

/** Bytes of each of the three arrays of the triad. */
const ARRAY_BYTES = 128 * 2 ** 20;

const PAGE_BYTES = 2 ** 16;

/** Elements of a run of the triad. */
const TRIAD_ELEMENTS = ARRAY_BYTES / 4;

/**
 * Bytes that a run of the triad moves for each element: b and c are read, and a is read and written, as WebAssembly
 * has no stores that bypass the caches. STREAM counts 12, so its rate is three quarters of this one.
 */
const TRIAD_BYTES = 16;

/** Adds up one of the four vectors of a turn of the triad, a = b + s · c. */
const vector = (offset: number) =>
  `v128.store(a, f32x4.add(
    v128.load(b, ${offset}), f32x4.mul(factor, v128.load(c, ${offset}))), ${offset});`;

const TRIAD = `
export function triad(a: usize, b: usize, c: usize, end: usize, s: f32): void {
  const factor = f32x4.splat(s);
  do {
    ${[0, 16, 32, 48].map(vector).join("\n")}
    a += 64;
    b += 64;
    c += 64;
  } while (a < end);
}`;

/** Allocates the arrays of the triad; returns a function that runs over them once. */
export async function openTriad(): Promise<() => void> {
  const pages = 3 * ARRAY_BYTES / PAGE_BYTES;
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const { error, binary } = await asc.compileString(TRIAD, {
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
