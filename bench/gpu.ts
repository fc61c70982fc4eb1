/**
 * Measures a GPU with the webgpu device: products, GPT-2 small, dispatches and copies.
 *
 * It takes less than ten minutes on any adapter: sizes depend on the rate of smaller ones, and each
 * row names its size.
 *
 * @module
 */

import {
  type Adapter,
  type Device,
  Graph,
  openWebgpu,
  type Precision,
  type Run,
  type Value,
} from "../kernels/mod.ts";
import { resolveDevice } from "../kernels/devices/table.ts";
import { encodeGraph } from "../kernels/onnx/encode.ts";
import { jaxOf, race } from "./peers.ts";
import { reasonRow, type Row, rowMaker, valueRow } from "./report.ts";
import { interleave, openProduct, productGflop, spreadOf } from "./timing.ts";
import { closing, drainOf, gflopOf, openBenchStage, tokensOf, type Workload } from "./workload.ts";

/** From GPT-2 small down to a size for software adapters. */
const WORKLOADS: readonly Workload[] = [
  { config: { layers: 12, hidden: 768, heads: 12, seq: 1024, vocab: 50_257 }, microBatch: 1 },
  { config: { layers: 12, hidden: 768, heads: 12, seq: 128, vocab: 50_257 }, microBatch: 1 },
  { config: { layers: 4, hidden: 256, heads: 4, seq: 128, vocab: 1024 }, microBatch: 1 },
  { config: { layers: 2, hidden: 64, heads: 2, seq: 32, vocab: 256 }, microBatch: 1 },
];

/** Models are skipped if they take longer at the rate of products. */
const LONGEST_MS = 5_000;

/** Milliseconds of rounds for each precision. */
const BUDGET_MS = 60_000;

const PEER = "jax-js, webgpu";

const nameOf = ({ config: { layers, hidden, seq, vocab } }: Workload) =>
  `GPT-2 ${layers}×${hidden}, ${seq} tokens, vocabulary ${vocab}`;

/** Measures the largest model that time and memory allow, in each precision; rows have the errors of larger ones. */
async function gptRows(adapter: Adapter, gflopPerSecond: number): Promise<Row[]> {
  const isShort = (one: Workload) => 1000 * gflopOf(one) / gflopPerSecond < LONGEST_MS;
  const workloads = WORKLOADS.filter((one, i) => isShort(one) || i === WORKLOADS.length - 1);
  const rows: Row[] = [];
  for (const precision of ["fp32", "fp16"] as const) {
    if (precision === "fp16" && !adapter.hasF16) {
      rows.push({ name: "GPT-2, fp16", unit: "tokens/s", note: "no shader-f16" });
      continue;
    }
    for (const workload of workloads) {
      try {
        rows.push(...await measure(adapter, workload, precision));
        break;
      } catch (error) {
        rows.push(reasonRow(`${nameOf(workload)}, ${precision}`, error, "tokens/s"));
      }
    }
  }
  return rows;
}

/** Measures a model, in turns with the peer if that computes in the precision: FP32. */
async function measure(adapter: Adapter, workload: Workload, precision: Precision): Promise<Row[]> {
  using device = closing(await openWebgpu({ adapter }));
  const { step, forwardBackward } = await openBenchStage(device, workload, precision);
  await step(); // compiles
  const name = `${nameOf(workload)}, ${precision}`, tokens = tokensOf(workload);
  const { environment } = adapter;
  return await race(
    {
      step: () => ({
        ...{ title: `${name}: forward, backward and step`, tokens },
        step: async () => {
          await step();
          return {};
        },
      }),
      Troupe: () => ({
        ...{ title: `${name}: forward and backward`, tokens },
        step: async () => ({ loss: await forwardBackward() }),
      }),
      ...precision === "fp32" &&
        { [PEER]: jaxOf({ backend: "webgpu", environment }, workload, `  ${PEER}`) },
    },
    [{ ours: "Troupe", theirs: PEER }],
    { rounds: { withinMs: BUDGET_MS } },
  );
}

/** Output of the loop of FMAs: the GFLOP/s of each type that the adapter supports. */
interface FmaRates {
  readonly adapter: string;
  readonly rates: Readonly<Partial<Record<"f32" | "f16", number>>>;
}

/**
 * Runs the loop in a process, on Deno's WebGPU: the library of the device does not run shaders.
 *
 * @returns the row of the limit of a type.
 */
async function measureLimits({ environment }: Adapter) {
  const program = new URL("./fma_loop.ts", import.meta.url).href;
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", "--no-lock", "--no-config", program],
    env: { ...environment, NO_COLOR: "1" },
  }).output();
  const text = new TextDecoder().decode(success ? stdout : stderr).trim();
  return (dtype: "f32" | "f16"): Row => {
    const name = `limit, ${dtype}: the best of some loops of FMAs`, unit = "GFLOP/s";
    if (!success) return { name, unit, note: text.split("\n", 1)[0]! };
    const { adapter, rates: { [dtype]: rate } }: FmaRates = JSON.parse(text);
    if (rate === undefined) return { name, unit, note: "no shader-f16" };
    return valueRow(name, unit, [rate], { note: `Deno's WebGPU on ${adapter}` });
  };
}

const SMALLEST = 256, LARGEST = 4096;

/** Products that probably take longer are skipped. */
const PRODUCTS_LONGEST_MS = 3_000;

/** Milliseconds of rounds for each type. */
const PRODUCTS_BUDGET_MS = 20_000;

/** Opens the largest product that is not too slow. */
async function largestProduct(device: Device, dtype: "f32" | "f16") {
  const drain = drainOf(device);
  for (let size = SMALLEST;; size *= 2) {
    const product = await openProduct(device, size, dtype);
    const run = async () => {
      await product.run();
      await drain();
    };
    await run(); // compiles the shader
    const start = performance.now();
    await run();
    const ms = performance.now() - start;
    if (size === LARGEST || 8 * ms > PRODUCTS_LONGEST_MS) {
      return { size, run, close: product.close };
    }
    product.close();
  }
}

/** Measures products of each type; returns their rows, and the rate of FP32. */
async function productRows(
  device: Device,
  hasF16: boolean,
  limitOf: Awaited<ReturnType<typeof measureLimits>>,
) {
  const rows: Row[] = [];
  let gflopPerSecond = 0;
  for (const dtype of ["f32", "f16"] as const) {
    if (dtype === "f16" && !hasF16) {
      rows.push({ name: "MatMul, f16", unit: "GFLOP/s", note: "no shader-f16" });
      continue;
    }
    const { size, run, close } = await largestProduct(device, dtype);
    const rounds = await interleave({ run }, { rounds: { withinMs: PRODUCTS_BUDGET_MS } });
    close();
    const rate = spreadOf(rounds, ({ run }) => productGflop(size) / (run / 1000));
    if (dtype === "f32") gflopPerSecond = rate.median;
    const limit = limitOf(dtype), most = limit.measured?.median;
    rows.push(limit, { name: `MatMul ${size}³, ${dtype}`, unit: "GFLOP/s", measured: rate });
    if (most === undefined) continue;
    rows.push(
      rowMaker(rounds)(
        `MatMul ${size}³, ${dtype} ÷ limit`,
        "%",
        ({ run }) => 100 * productGflop(size) / (run / 1000) / most,
        dtype === "f16" ? { note: "above 100 % where it has units for matrices" } : {},
      ),
    );
  }
  return { rows, gflopPerSecond };
}

/** Kernels of a run, each of which depends on the one before it. */
const CHAIN = 256;
/** Elements of each kernel of the chain: too few to take time. */
const CHAIN_ELEMENTS = 64;
/** Runs of the chain in a round. */
const CHAIN_RUNS = 4;
/** Single kernels in a round. */
const SINGLES = 16;

const MIB = 2 ** 20, TRANSFER_MIB = 64, F32_BYTES = 4;

type Build = (g: Graph, x: Value) => Value;

/** Returns a run of a graph over a vector. */
async function openVector(device: Device, length: number, build: Build): Promise<Run> {
  const g = new Graph(), x = g.input("x", [length]);
  const kernel = await device.compile(encodeGraph(g, { y: build(g, x) }));
  const alloc = () => device.alloc("f32", [length]);
  return kernel.bind({ x: alloc() }, { y: alloc() });
}

const chain: Build = (g, x) => Array.from({ length: CHAIN }).reduce<Value>((y) => g.neg(y), x);

const copy: Build = (g, x) => g.node("Identity", [x], [x.shape])[0]!;

/** Measures dispatches and transfers. */
async function transferRows(device: Device): Promise<Row[]> {
  const drain = drainOf(device), length = TRANSFER_MIB * MIB / F32_BYTES;
  const many = await openVector(device, CHAIN_ELEMENTS, chain);
  const single = await openVector(device, CHAIN_ELEMENTS, (g, x) => g.neg(x));
  const within = await openVector(device, length, copy);
  const tensor = device.alloc("f32", [length]), bytes = new Float32Array(length).fill(1);
  const rounds = await interleave({
    async chain() {
      for (let i = 0; i < CHAIN_RUNS; i++) await many();
      await drain();
    },
    async queue() {
      const start = performance.now();
      for (let i = 0; i < CHAIN_RUNS; i++) await many();
      const ms = performance.now() - start;
      await drain();
      return ms;
    },
    async single() {
      for (let i = 0; i < SINGLES; i++) {
        await single();
        await drain();
      }
    },
    async upload() {
      device.write(tensor, bytes);
      await drain();
    },
    async download() {
      await device.read(tensor, bytes);
    },
    async copy() {
      await within();
      await drain();
    },
  }, { rounds: 11 });
  device.free(tensor);
  const row = rowMaker(rounds);
  const dispatch = (ms: number) => 1000 * ms / (CHAIN * CHAIN_RUNS);
  const gigabytes = (ms: number) => TRANSFER_MIB * MIB / 1e9 / (ms / 1000);
  return [
    row(`one dispatch of ${CHAIN} in a row`, "µs", ({ chain }) => dispatch(chain)),
    row("  of that, until it is queued", "µs", ({ queue }) => dispatch(queue)),
    row("one dispatch and a read of 4 bytes", "µs", ({ single }) => 1000 * single / SINGLES),
    row(`upload of ${TRANSFER_MIB} MiB`, "GB/s", ({ upload }) => gigabytes(upload)),
    row(`download of ${TRANSFER_MIB} MiB`, "GB/s", ({ download }) => gigabytes(download)),
    row(`copy of ${TRANSFER_MIB} MiB within its memory`, "GB/s", ({ copy }) => gigabytes(copy)),
  ];
}

/** The row of the adapter and its largest buffer. */
const adapterRow = ({ name, kind, maxBufferBytes }: Adapter): Row =>
  valueRow(`${name} (${kind}): largest buffer`, "MiB", [maxBufferBytes / 2 ** 20], {
    ...kind === "software" && { note: "no GPU: these figures say nothing about one" },
  });

/** Measures products and transfers, and closes the device before a model needs its memory. */
async function smallParts(adapter: Adapter) {
  const limits = await measureLimits(adapter);
  using device = closing(await openWebgpu({ adapter }));
  const { rows, gflopPerSecond } = await productRows(device, adapter.hasF16, limits);
  return { rows: [...rows, ...await transferRows(device)], gflopPerSecond };
}

/** Measures the first adapter: a GPU, or software. */
export async function gpuBench(): Promise<Row[]> {
  const adapter = (await resolveDevice("webgpu")).adapter!;
  const { rows, gflopPerSecond } = await smallParts(adapter);
  return [adapterRow(adapter), ...rows, ...await gptRows(adapter, gflopPerSecond)];
}
