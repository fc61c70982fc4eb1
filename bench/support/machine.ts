/**
 * What figures are figures of.
 *
 * @module
 */

import { cpus } from "node:os";
import { webgpuAdapters } from "../../kernels/mod.ts";

/** A machine, as far as speed depends on it. */
export interface Machine {
  readonly system: string;
  readonly processor: string;
  readonly cores: number;
  /** Adapters that the webgpu device can use, software in place of a GPU named as such. */
  readonly adapters: readonly string[];
  readonly deno: string;
  /** Programs that wanted to compute, on average over the minute before. */
  readonly load: number;
}

/** This machine, now. */
export async function thisMachine(): Promise<Machine> {
  const adapters = await webgpuAdapters().catch(() => ({ adapters: [] }));
  return {
    system: `${Deno.build.os} ${Deno.build.arch}`,
    processor: cpus()[0]?.model.trim() ?? "unknown",
    cores: navigator.hardwareConcurrency,
    adapters: adapters.adapters.map(({ name, kind }) => `${name} (${kind})`),
    deno: Deno.version.deno,
    load: Deno.loadavg()[0]!,
  };
}

/** A machine in a line. */
export function machineText(machine: Machine): string {
  const { system, processor, cores, adapters, deno, load } = machine;
  const gpu = adapters.length > 0 ? adapters.join(", ") : "none";
  return `${processor}, ${cores} cores, ${system}; adapters: ${gpu}; Deno ${deno}; load ${
    load.toFixed(1)
  } at the start`;
}
