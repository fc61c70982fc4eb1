/**
 * The limit of an adapter: how fast its kernels can compute, where no vendor says it.
 *
 * @module
 */

import type { Adapter } from "../../kernels/mod.ts";
import type { Row } from "../support/row.ts";
import { spread } from "../support/timing.ts";

/** GFLOP/s of a loop of FMAs, by type; absent where the type is. */
export type FmaRates = Partial<Record<"f32" | "f16", number>>;

/** The limits of the adapter, or why they are not known. */
export type Limits =
  | { readonly adapter: string; readonly rates: FmaRates }
  | { readonly problem: string };

/** Runs the loop in a process of its own, on Deno's WebGPU: the library of the device takes no shaders. */
export async function measureLimits({ environment }: Adapter): Promise<Limits> {
  const program = new URL("./fma_loop.ts", import.meta.url).href;
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", "--no-lock", "--no-config", program],
    env: { ...environment, NO_COLOR: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  if (success) return JSON.parse(new TextDecoder().decode(stdout));
  const [problem = "no reason"] = new TextDecoder().decode(stderr).trim().split("\n");
  return { problem };
}

/** The row of a limit. */
export function limitRow(limits: Limits, dtype: "f32" | "f16"): Row {
  const name = `limit, ${dtype}: the best of some loops of FMAs`, unit = "GFLOP/s";
  if ("problem" in limits) return { name, unit, note: limits.problem };
  const { adapter, rates: { [dtype]: rate } } = limits;
  if (rate === undefined) return { name, unit, note: "no shader-f16" };
  return { name, unit, measured: spread([rate]), note: `Deno's WebGPU on ${adapter}` };
}
