/**
 * `troupe train` as a program of its own whose processes are looked at from its start to its end.
 *
 * @module
 */

import { residentBytes } from "../../console/train/resident_memory.ts";
import type { Gpt2Config } from "../../kernels/mod.ts";
import { linesOf } from "./lines.ts";
import { benchBatches } from "./workload.ts";

/** What is trained. */
export interface WatchedRun {
  readonly config: Gpt2Config;
  /** Samples of a micro-batch. */
  readonly microBatch: number;
  readonly microBatches: number;
  readonly steps: number;
  /** More flags: workers, schedule, isolation ... */
  readonly flags: readonly string[];
}

/** What the system saw of a run, in bytes of all its processes together. */
export interface WatchedMemory {
  /** What the run had planned. */
  readonly planned: number;
  /** The most at any time. */
  readonly peak: number;
  /** The most from its first step to its last. */
  readonly training: number;
  /** The most after its last step, while it wrote a checkpoint. */
  readonly end: number;
}

const EVERY_MS = 200;

/** The URL of a program to start. */
const programUrl = (path: string) => new URL(path, import.meta.url).href;

/** The flags of a GPT-2. */
const configFlags = (config: Gpt2Config) =>
  Object.entries(config).flatMap(([name, value]) => [`--${name}`, `${value}`]);

/**
 * Trains, with a checkpoint at the end. Linux only: elsewhere nobody tells of another's memory.
 *
 * @throws {Error} when the run fails.
 */
export async function trainWatched(run: WatchedRun): Promise<WatchedMemory> {
  const folder = await Deno.makeTempDir({ prefix: "troupe-memory-" });
  try {
    const [batch] = benchBatches(1, 1, { config: run.config, microBatch: rowsOf(run) });
    const tokens = `${folder}/tokens.bin`;
    await Deno.writeFile(tokens, new Uint8Array(Uint16Array.from(batch!.ids).buffer));
    const child = new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "-A", "--no-check", programUrl("../../cli.ts")],
        ...["train", "--json", "--memory", "--tokens", tokens, "--out", `${folder}/run`],
        ...configFlags(run.config),
        ...["--micro-batch-size", `${run.microBatch}`, "--micro-batches", `${run.microBatches}`],
        ...["--steps", `${run.steps}`, ...run.flags],
      ],
      stdin: "null",
      stdout: "piped",
    }).spawn();
    return await watch(child, run.steps);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Rows of tokens that the run reads, and one more for the last target. */
const rowsOf = ({ steps, microBatches, microBatch }: WatchedRun) =>
  steps * microBatches * microBatch + 1;

async function watch(child: Deno.ChildProcess, steps: number): Promise<WatchedMemory> {
  const most = { peak: 0, training: 0, end: 0 };
  let phase: "training" | "end" | undefined, planned = 0;
  const look = () => {
    const bytes = residentBytes(child.pid);
    for (const name of ["peak", ...phase ? [phase] : []] as const) {
      most[name] = Math.max(most[name], bytes);
    }
  };
  const timer = setInterval(look, EVERY_MS);
  try {
    for await (const line of linesOf(child.stdout)) {
      const told = JSON.parse(line);
      if ("loss" in told) {
        phase = "training";
        look();
        if (told.step === steps) phase = "end";
      }
      planned = told.plannedBytes ?? planned;
    }
    const { success } = await child.status;
    if (!success || planned === 0) throw new Error("Cannot measure: the run failed");
    return { planned, ...most };
  } finally {
    clearInterval(timer);
  }
}
