/**
 * Tokens per second of a GPT-2 on one worker of a GPU, beside another WebGPU trainer.
 *
 * @module
 */

import { type Adapter, openWebgpu, type Precision } from "../../kernels/mod.ts";
import { firstLoss, openJax } from "../peers/jax.ts";
import type { Peer } from "../peers/program.ts";
import type { Row } from "../support/row.ts";
import { type BenchStage, openBenchStage } from "../support/stage.ts";
import { interleave, spreadOf } from "../support/timing.ts";
import { gflopOf, tokensOf, type Workload } from "../support/workload.ts";
import { roundsWithin } from "./rounds.ts";

/** From GPT-2 small down to what software can do. */
const WORKLOADS: readonly Workload[] = [
  { config: { layers: 12, hidden: 768, heads: 12, seq: 1024, vocab: 50_257 }, microBatch: 1 },
  { config: { layers: 12, hidden: 768, heads: 12, seq: 128, vocab: 50_257 }, microBatch: 1 },
  { config: { layers: 4, hidden: 256, heads: 4, seq: 128, vocab: 1024 }, microBatch: 1 },
  { config: { layers: 2, hidden: 64, heads: 2, seq: 32, vocab: 256 }, microBatch: 1 },
];

/** Larger models than take this long by the rate of products are not tried. */
const LONGEST_MS = 5_000;

/** Milliseconds of rounds for each precision. */
const BUDGET_MS = 60_000;

const PEER = "jax-js, webgpu";

const nameOf = ({ config: { layers, hidden, seq, vocab } }: Workload) =>
  `GPT-2 ${layers}×${hidden}, ${seq} tokens, vocabulary ${vocab}`;

/** Measures the largest model for which there are time and memory, in each precision. */
export async function gptRows(adapter: Adapter, gflopPerSecond: number): Promise<Row[]> {
  const isShort = (one: Workload) => 1000 * gflopOf(one) / gflopPerSecond < LONGEST_MS;
  const workloads = WORKLOADS.filter((one, i) => isShort(one) || i === WORKLOADS.length - 1);
  const rows: Row[] = [];
  for (const precision of ["fp32", "fp16"] as const) {
    if (precision === "fp16" && !adapter.hasF16) {
      rows.push({ name: "GPT-2, fp16", unit: "tokens/s", note: "no shader-f16" });
    } else rows.push(...await largest(adapter, workloads, precision));
  }
  return rows;
}

/** Rows of the first model that can be trained, and why those before it cannot. */
async function largest(
  adapter: Adapter,
  workloads: readonly Workload[],
  precision: Precision,
): Promise<Row[]> {
  const rows: Row[] = [];
  for (const workload of workloads) {
    try {
      return [...rows, ...await measure(adapter, workload, precision)];
    } catch (error) {
      const name = `${nameOf(workload)}, ${precision}`;
      rows.push({ name, unit: "tokens/s", note: (error as Error).message });
    }
  }
  return rows;
}

async function measure(
  adapter: Adapter,
  workload: Workload,
  precision: Precision,
): Promise<Row[]> {
  const device = await openWebgpu({ adapter });
  try {
    const stage = await openBenchStage(device, workload, precision);
    const loss = await stage.forwardBackward(), name = `${nameOf(workload)}, ${precision}`;
    // The peer computes in FP32 alone.
    if (precision === "fp16") return await race(stage, workload, name);
    await using jax = await openJax(
      { backend: "webgpu", environment: adapter.environment },
      workload,
    );
    const peerLoss = await firstLoss(jax);
    if (typeof peerLoss === "string") {
      return [...await race(stage, workload, name), { name: PEER, unit: "", note: peerLoss }];
    }
    const apart = `losses differ by ${Math.abs(loss - peerLoss).toExponential(1)}`;
    return await race(stage, workload, name, { jax, apart });
  } finally {
    device.close();
  }
}

/** Measures a stage, in turns with a peer where there is one. */
async function race(
  { step, forwardBackward }: BenchStage,
  workload: Workload,
  name: string,
  peer?: { readonly jax: Peer; readonly apart: string },
): Promise<Row[]> {
  const cases: Record<string, () => Promise<number | void>> = {
    step,
    forwardBackward: async () => void await forwardBackward(),
    ...peer && { peer: async () => (await peer.jax.step()).ms },
  };
  await step(); // compiles what only a step needs
  const [first] = await interleave(cases, { rounds: 1, warmup: 0, isAlone: false });
  const roundMs = Object.values(first!.ms).reduce((sum, ms) => sum + ms, 0);
  const rounds = await interleave(cases, roundsWithin(BUDGET_MS, roundMs));
  const row = (title: string, key: string, note = ""): Row => ({
    name: title,
    unit: "tokens/s",
    measured: spreadOf(rounds, (ms) => 1000 * tokensOf(workload) / ms[key]!),
    note,
  });
  return [
    row(`${name}: forward, backward and step`, "step"),
    row(`${name}: forward and backward`, "forwardBackward"),
    ...peer
      ? [row(`  ${PEER}: forward and backward`, "peer", peer.apart), {
        name: `  Troupe ÷ ${PEER}`,
        unit: "×",
        measured: spreadOf(rounds, (ms) => ms.peer! / ms.forwardBackward!),
      }]
      : [],
  ];
}
