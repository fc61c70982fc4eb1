/**
 * Compares kernels with the matrix product of the same device, and the optimizer with memory.
 *
 * @module
 */

import {
  type Device,
  type DeviceName,
  encodeModel,
  Graph,
  openDevice,
  type Run,
  type Value,
} from "../kernels/mod.ts";
import { openFmaLoop } from "./fma_peak.ts";
import { type Row, rowMaker } from "./report.ts";
import {
  interleave,
  openProduct,
  openTriad,
  PRODUCT_SIZE,
  productGflop,
  spreadOf,
  TRIAD_BYTES,
  TRIAD_ELEMENTS,
} from "./timing.ts";
import {
  benchDevices,
  drainOf,
  gflopOf,
  LEARNING_RATE,
  openBenchStage,
  SMALL,
  type Workload,
} from "./workload.ts";

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
  const loop = name === "native" ? await openFmaLoop("fp32") : undefined;
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
  const device = await openDevice(name, { isBlocking: true });
  try {
    return [...await modelRows(name, device), ...await adamwRows(name, device)];
  } finally {
    device.close();
  }
}

/** Measures each device against itself. */
export async function kernelsBench(): Promise<Row[]> {
  const { names, missing } = await benchDevices(true);
  const rows = [...missing];
  for (const name of names) rows.push(...await measure(name));
  return rows;
}

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
  const ports = [{ name: "x", value: x }, { name: "dy", value: dy }];
  const kernel = await device.compile(
    encodeModel(g, ports, [{ name: "dw", value: product(g, x, dy) }]),
  );
  const [tx, tdy] = [x, dy].map(({ shape }) => device.alloc("f32", shape));
  return kernel.bind({ x: tx!, dy: tdy! }, { dw: device.alloc("f32", [inputs!, outputs!]) });
}

async function measureGradient(name: DeviceName): Promise<Row[]> {
  const device = await openDevice(name), rows: Row[] = [];
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
  device.close();
  return rows;
}

/** Measures each CPU device. */
export async function weightGradientsBench(): Promise<Row[]> {
  const { names, missing } = await benchDevices();
  const rows = [...missing];
  for (const name of names) rows.push(...await measureGradient(name));
  return rows;
}
