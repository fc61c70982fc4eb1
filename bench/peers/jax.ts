/**
 * jax-js, another library for training in JavaScript, in a process of its own.
 *
 * @module
 */

import type { Workload } from "../support/workload.ts";
import { openProgram, type Peer, type PeerStep } from "./program.ts";

/** Never in deno.json: only a benchmark fetches it, and only when it runs. */
const JAX = "npm:@jax-js/jax@0.1.25";

/** How jax-js computes. */
export interface JaxOptions {
  readonly backend: "wasm" | "webgpu";
  /** Workers of the pool of its WebAssembly backend; none: the calling thread computes. */
  readonly pool?: number;
  /** What makes a process use an adapter. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** Starts jax-js with the weights and the micro-batch of a workload. */
export async function openJax(
  { backend, pool = 0, environment = {} }: JaxOptions,
  workload: Workload,
): Promise<Peer> {
  const program = await openProgram(
    {
      library: JAX,
      command: Deno.execPath(),
      args: [
        "run",
        "--no-prompt",
        "--allow-read",
        "--quiet",
        "--no-lock",
        "--no-config",
        "--node-modules-dir=none",
        new URL("./jax_gpt.ts", import.meta.url).href,
        JAX,
        backend,
        `${pool}`,
      ],
      env: environment,
    },
    workload,
    1,
  );
  return {
    step: () => program.ask<PeerStep>("step"),
    [Symbol.asyncDispose]: () => program[Symbol.asyncDispose](),
  };
}

/** Loss of the first step, in which jax-js compiles; or why there is none. */
export async function firstLoss(jax: Peer): Promise<number | string> {
  try {
    return (await jax.step()).loss;
  } catch (error) {
    return (error as Error).message;
  }
}
