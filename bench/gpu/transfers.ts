/**
 * What it costs to begin a kernel, and to move bytes to, from and within the memory of a GPU.
 *
 * @module
 */

import { type Device, encodeModel, Graph, type Run, type Value } from "../../kernels/mod.ts";
import type { Row } from "../support/row.ts";
import { drainOf } from "../support/stage.ts";
import { interleave, type Round, spreadOf } from "../support/timing.ts";

/** Kernels of a run: a chain, each of which needs the one before it. */
const CHAIN = 256;
/** Elements that each kernel of the chain computes: too few to take time. */
const CHAIN_ELEMENTS = 64;
/** Runs of the chain in a round. */
const CHAIN_RUNS = 4;
/** Single kernels in a round. */
const SINGLES = 16;

const MIB = 2 ** 20, TRANSFER_MIB = 64, F32_BYTES = 4;

type Build = (g: Graph, x: Value) => Value;

/** A run of what `build` makes of a vector. */
async function openVector(device: Device, length: number, build: Build): Promise<Run> {
  const g = new Graph(), x = g.input("x", [length]);
  const model = encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: build(g, x) }]);
  const kernel = await device.compile(model), alloc = () => device.alloc("f32", [length]);
  return kernel.bind({ x: alloc() }, { y: alloc() });
}

const chain: Build = (g, x) => Array.from({ length: CHAIN }).reduce<Value>((y) => g.neg(y), x);

const copy: Build = (g, x) => g.node("Identity", [x], [x.shape])[0]!;

/** Measures dispatches and transfers. */
export async function transferRows(device: Device): Promise<Row[]> {
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
  return rowsOf(rounds);
}

function rowsOf(
  rounds: readonly Round<"chain" | "queue" | "single" | "upload" | "download" | "copy">[],
): Row[] {
  const dispatch = (ms: number) => 1000 * ms / (CHAIN * CHAIN_RUNS);
  const gigabytes = (ms: number) => TRANSFER_MIB * MIB / 1e9 / (ms / 1000);
  return [
    {
      name: `one dispatch of ${CHAIN} in a row`,
      unit: "µs",
      measured: spreadOf(rounds, ({ chain }) => dispatch(chain)),
    },
    {
      name: "  of that, until it is queued",
      unit: "µs",
      measured: spreadOf(rounds, ({ queue }) => dispatch(queue)),
    },
    {
      name: "one dispatch and a read of 4 bytes",
      unit: "µs",
      measured: spreadOf(rounds, ({ single }) => 1000 * single / SINGLES),
    },
    {
      name: `upload of ${TRANSFER_MIB} MiB`,
      unit: "GB/s",
      measured: spreadOf(rounds, ({ upload }) => gigabytes(upload)),
    },
    {
      name: `download of ${TRANSFER_MIB} MiB`,
      unit: "GB/s",
      measured: spreadOf(rounds, ({ download }) => gigabytes(download)),
    },
    {
      name: `copy of ${TRANSFER_MIB} MiB within its memory`,
      unit: "GB/s",
      measured: spreadOf(rounds, ({ copy }) => gigabytes(copy)),
    },
  ];
}
