/**
 * PyTorch, in a process of its own, with the fastest kernels for this processor.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import type { Workload } from "../support/workload.ts";
import { openProgram, type Peer, type PeerStep } from "./program.ts";

/** The programs that may have PyTorch. */
const PYTHONS = ["python3", "/usr/bin/python3"] as const;

/** Threads of its libraries wait for more to do before they sleep: OpenBLAS's 2²⁶ cycles. */
const WAKE_MS = 50;

/** What the program tells of itself. */
interface TorchAnswer {
  readonly version: string;
  readonly threads: number;
  readonly ways: Readonly<Record<string, string>>;
}

/** PyTorch, ready to train. */
export interface Torch extends Peer {
  /** Version, threads, and which kernels compute the products. */
  readonly title: string;
  /** What it offers several ways of, and the fastest here, which it takes. */
  readonly ways: string;
}

/** Whether a program imports PyTorch. */
async function hasTorch(python: string): Promise<boolean> {
  try {
    const { success } = await new Deno.Command(python, {
      args: ["-c", "import torch"],
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).output();
    return success;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** A Python that imports PyTorch. @throws {Error} where there is none. */
export async function findTorch(): Promise<string> {
  for (const python of PYTHONS) if (await hasTorch(python)) return python;
  throw new Error(`no PyTorch: neither ${PYTHONS.join(" nor ")} imports torch`);
}

/**
 * The best kernels of OpenBLAS for this processor, by its flags: what OpenBLAS picks by itself
 * depends on how it was built. Those with BF16 compute FP32 as SkylakeX does; a PyTorch with another
 * library of products ignores it.
 */
export async function openblasCore(): Promise<string | undefined> {
  const text = await Deno.readTextFile("/proc/cpuinfo").catch(() => "");
  const flags = new Set(/^flags\s*:(.*)$/m.exec(text)?.[1]?.trim().split(/\s+/));
  if (flags.has("avx512_bf16")) return "COOPERLAKE";
  if (flags.has("avx512f")) return "SKYLAKEX";
  return flags.has("avx2") ? "HASWELL" : undefined;
}

/** Starts PyTorch on so many threads, with `microBatches` micro-batches to a step. */
export async function openTorch(
  threads: number,
  workload: Workload,
  microBatches: number,
): Promise<Torch> {
  const python = await findTorch(), core = await openblasCore();
  const program = await openProgram(
    {
      library: "PyTorch",
      command: python,
      args: [new URL("./torch_gpt.py", import.meta.url).pathname, `${threads}`],
      env: {
        OMP_NUM_THREADS: `${threads}`,
        OPENBLAS_NUM_THREADS: `${threads}`,
        ...core && { OPENBLAS_CORETYPE: core },
      },
    },
    workload,
    microBatches,
  );
  const { version, threads: taken, ways } = await program.ask<TorchAnswer>("about");
  return {
    title: `PyTorch ${version}, threads: ${taken}, OPENBLAS_CORETYPE=${core ?? "unset"}`,
    ways: Object.entries(ways).map(([what, way]) => `${what}: ${way}`).join("; "),
    async step() {
      const step = await program.ask<PeerStep>("step");
      await delay(WAKE_MS); // what is measured next has these cores to itself
      return step;
    },
    [Symbol.asyncDispose]: () => program[Symbol.asyncDispose](),
  };
}
