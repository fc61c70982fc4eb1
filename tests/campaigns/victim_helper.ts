/**
 * A small run in a separate process that campaigns kill or stop: it prints a line for each moment, and
 * at the end the hash of its weights.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { fileURLToPath } from "node:url";
import { train } from "../../actors/run/train.ts";
import type { TrainOptions } from "../../actors/options/train_options.ts";
import { print } from "../../console/terminal.ts";
import { gpt2 } from "../../kernels/mod.ts";
import { childProcesses, watchThreads } from "../actors/child_processes.ts";
import { batchesOf, type Sizes, SMALL } from "../actors/runs.ts";
import type { Draw } from "./cases_helper.ts";

/** The moment of a fault in a worker. */
export interface Harm {
  /** The line of the victim before the fault: `start`, `step 3`, `evaluation 2`. */
  readonly moment: string;
  /** Milliseconds after this line. */
  readonly afterMs: number;
  /** The worker, as a fraction from 0 to below 1. */
  readonly which: number;
}

/** Options of a victim. */
export interface VictimOptions extends Partial<Omit<TrainOptions, "model" | "data">> {
  readonly sizes?: Partial<Sizes>;
  /** Moments at which a thread is ended. */
  readonly ends?: readonly Harm[];
  /** Steps between two evaluations, each before a checkpoint. */
  readonly every?: number;
}

/** A run that takes longer has hung. */
const HANG_MS = 240_000;

/** Time in which the processes of a program that has ended notice that. */
const GRACE_MS = 5000;

/** Handles a line of a victim, which names a moment. */
export type Hurt = (moment: string, pid: number) => void;

/** Runs a victim to its end; calls `hurt` with its process at each moment. */
export async function suffer(options: VictimOptions, hurt?: Hurt) {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--quiet", fileURLToPath(import.meta.url), JSON.stringify(options)],
    env: { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
    ...{ stdin: "null", stdout: "piped", stderr: "piped", detached: true },
  }).spawn();
  let output = "";
  const timer = setTimeout(() => {
    output += "\nthe campaign ended the hanging run";
    for (const pid of [...childProcesses(child.pid), child.pid]) kill(pid, "SIGKILL");
  }, HANG_MS);
  await Promise.all((["stdout", "stderr"] as const).map(async (name) => {
    let line = "";
    for await (const text of child[name].pipeThrough(new TextDecoderStream())) {
      output += text;
      const lines = (line + text).split("\n");
      line = lines.pop()!;
      if (name === "stdout") { for (const moment of lines) hurt?.(moment, child.pid); }
    }
  }));
  const { success } = await child.status;
  clearTimeout(timer);
  const hash = success ? /^hash (\w+)$/m.exec(output)?.[1] : undefined;
  const ended = performance.now();
  while (kill(-child.pid, "SIGCONT") && performance.now() - ended < GRACE_MS) await delay(20);
  return { hash, output, hasLeft: kill(-child.pid, "SIGKILL") };
}

/** Hashes of undisturbed runs, each computed once. */
const unharmed = new Map<string, Promise<string | undefined>>();

/** Returns the hash of the same run without any harm. */
export function inPeace(
  { ends: _, stallMs: _s, retries: _r, isolation: _i, ...options }: VictimOptions,
): Promise<string | undefined> {
  const key = JSON.stringify(options);
  const found = unharmed.get(key) ?? suffer(options).then(({ hash }) => hash);
  unharmed.set(key, found);
  return found;
}

/**
 * Runs a victim; returns the problem unless it ends with the weights of an undisturbed run.
 *
 * @param never output that it must not print.
 */
export async function survive(
  options: VictimOptions,
  hurt?: Hurt,
  never = /(?!)/,
): Promise<string | undefined> {
  const { hash, output, hasLeft } = await suffer(options, hurt), expected = await inPeace(options);
  if (hasLeft) return `processes were left: ${output}`;
  const isWell = hash !== undefined && hash === expected && !never.test(output);
  return isWell ? undefined : `received ${hash} for ${expected}: ${output}`;
}

/** Sends a signal to a process or a group, if it still exists. */
export function kill(pid: number, signal: Deno.Signal): boolean {
  try {
    Deno.kill(pid, signal);
    return true;
  } catch {
    return false;
  }
}

/** Maximum length of each moment in milliseconds: start, step, save, evaluation. */
const LASTING_MS = { start: 1500, step: 150, evaluation: 30, save: 30 };

/** Draws a moment of any kind. */
export function drawHarm(draw: Draw, isThread = false): Harm {
  const moments = ["start", "step", "evaluation", "save"] as const, kind = moments[draw(4)]!;
  const even = 2 + 2 * draw(2);
  const moment = {
    start: "start",
    step: `step ${1 + draw(4)}`,
    // An even step is followed by an evaluation and then a save.
    evaluation: `step ${even}`,
    save: `evaluation ${even}`,
  }[kind];
  const lastingMs = LASTING_MS[kind] / (isThread ? 3 : 1);
  return { moment, afterMs: draw.part() * lastingMs, which: draw.part() };
}

/** Ends threads at their moments. */
function endThreads(harms: readonly Harm[]): (now: string) => void {
  const { living } = watchThreads();
  const end = (which: number) => {
    const one = [...living][Math.floor(which * living.size)];
    if (one) print("harmed");
    one?.terminate();
  };
  return (now) => {
    for (const { moment, afterMs, which } of harms) {
      if (moment === now) setTimeout(() => end(which), afterMs);
    }
  };
}

/** Main program of the victim. */
async function runVictim(
  { sizes: given, ends = [], every = 2, ...options }: VictimOptions,
): Promise<void> {
  const sizes = { ...SMALL, layers: 4, hidden: 16, seq: 8, microBatches: 4, steps: 6, ...given };
  const harm = endThreads(ends), { replicas = 1 } = options;
  const at = (moment: string) => {
    print(moment);
    harm(moment);
  };
  at("begin");
  const directory = await Deno.makeTempDir();
  try {
    const events = train({
      ...options as Partial<TrainOptions>,
      model: gpt2(sizes, sizes.microBatch),
      data: batchesOf(sizes, 2 * replicas * sizes.microBatches * sizes.steps),
      ...{ steps: sizes.steps, microBatches: sizes.microBatches },
      evaluation: { every, batches: batchesOf(sizes, 2) },
      checkpoint: { directory, every, config: {} },
      announce: (line) => print(`told ${line}`),
    });
    for await (const event of events) {
      if (event.type === "plan") at("start");
      if (event.type === "step" || event.type === "evaluation") at(`${event.type} ${event.step}`);
      if (event.type === "resize" || event.type === "failure") {
        print(`${event.type} ${JSON.stringify(event)}`);
      }
      if (event.type === "end") print(`hash ${event.weightsHash}`);
    }
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}

if (import.meta.main) await runVictim(JSON.parse(Deno.args[0]!) as VictimOptions);
