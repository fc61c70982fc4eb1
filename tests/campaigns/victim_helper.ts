/**
 * What campaigns that do harm share: small runs in processes of their own, several at a time, and
 * what becomes of them.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { fileURLToPath } from "node:url";
import { type TrainOptions } from "../../actors/mod.ts";
import { substream } from "../../kernels/mod.ts";
import { print, printError } from "../../console/print.ts";
import { childProcesses } from "../actors/child_processes.ts";
import type { Sizes } from "../actors/runs.ts";

/** When a worker comes to harm. */
export interface Harm {
  /** The line of the victim after which it comes: `start`, `step 3`, `evaluation 2`. */
  readonly moment: string;
  /** Milliseconds after it. */
  readonly afterMs: number;
  /** Which of its workers, from 0 to below 1. */
  readonly which: number;
}

/** What a victim is asked to run. */
export interface VictimOptions extends Partial<Omit<TrainOptions, "model" | "data">> {
  readonly sizes?: Partial<Sizes>;
  /** Harm that a thread does to itself, as nobody else can. */
  readonly thread?: Harm;
}

/** What became of a victim. */
export interface Fate {
  readonly hash: string | undefined;
  readonly output: string;
  readonly seconds: number;
}

/** A run has hung when it takes longer. */
const HANG_MS = 240_000;

const ENTRY = fileURLToPath(new URL("./victim_entry.ts", import.meta.url));

/**
 * Runs a victim to its end, however it ends.
 *
 * @param hurt called with the victim's process at each moment.
 */
export async function suffer(
  options: VictimOptions,
  hurt: (moment: string, pid: number) => void = () => {},
): Promise<Fate> {
  const began = performance.now();
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--quiet", ENTRY, JSON.stringify(options)],
    env: { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    detached: true,
  }).spawn();
  let output = "";
  const timer = setTimeout(() => {
    output += "\nthe campaign has ended it, as it hung";
    for (const pid of [...childProcesses(child.pid), child.pid]) kill(pid, "SIGKILL");
  }, HANG_MS);
  const read = async (stream: ReadableStream<Uint8Array<ArrayBuffer>>, isOut: boolean) => {
    let line = "";
    for await (const text of stream.pipeThrough(new TextDecoderStream())) {
      output += text;
      const lines = (line + text).split("\n");
      line = lines.pop()!;
      if (isOut) { for (const moment of lines) hurt(moment, child.pid); }
    }
  };
  await Promise.all([read(child.stdout, true), read(child.stderr, false)]);
  const { success } = await child.status;
  clearTimeout(timer);
  const hash = success ? /^hash (\w+)$/m.exec(output)?.[1] : undefined;
  return { hash, output, seconds: (performance.now() - began) / 1000 };
}

/** Sends a signal to a process, or to a group, if it is still there. */
export function kill(pid: number, signal: Deno.Signal): boolean {
  try {
    Deno.kill(pid, signal);
    return true;
  } catch {
    return false;
  }
}

/** Random numbers of a campaign: `draw(n)` is an integer below n, `draw.part()` from 0 to below 1. */
export function drawing(seed: number, name: string) {
  const generator = substream(seed, name);
  const part = () => (generator.next() >>> 0) / 2 ** 32;
  return Object.assign((below: number) => Math.floor(part() * below), { part });
}

/** What {@linkcode drawing} returns. */
export type Draw = ReturnType<typeof drawing>;

/** Milliseconds within which a moment is over: workers start, take a step, are saved or evaluate. */
const LASTING_MS = { start: 1500, step: 150, evaluation: 30, save: 30 };

/** A moment of any kind. */
export function drawHarm(draw: Draw, isThread: boolean): Harm {
  const moments = ["start", "step", "evaluation", "save"] as const, kind = moments[draw(4)]!;
  const even = 2 + 2 * draw(2);
  const moment = {
    start: "start",
    step: `step ${1 + draw(4)}`,
    // What follows an even step is an evaluation, and what follows that is a save.
    evaluation: `step ${even}`,
    save: `evaluation ${even}`,
  }[kind];
  const lastingMs = LASTING_MS[kind] / (isThread ? 3 : 1);
  return { moment, afterMs: draw.part() * lastingMs, which: draw.part() };
}

/** The hashes of runs that nobody harms, each made once. */
export function peace(): (options: VictimOptions) => Promise<string | undefined> {
  const known = new Map<string, Promise<string | undefined>>();
  return ({ thread: _, stallMs: _s, retries: _r, isolation: _i, ...options }) => {
    const key = JSON.stringify(options);
    const found = known.get(key) ?? suffer(options).then(({ hash }) => hash);
    known.set(key, found);
    return found;
  };
}

/** A case: what is done, in words, and why it did not survive, if it did not. */
export interface Case {
  readonly name: string;
  run(): Promise<string | undefined>;
}

/** Makes `percent` of a hundred of `count` cases. */
export function casesOf(
  count: number,
  seed: number,
  percent: number,
  name: string,
  make: (draw: Draw, nth: number) => Case,
): Case[] {
  const draw = drawing(seed, name);
  return Array.from({ length: Math.ceil(count * percent / 100) }, (_, nth) => make(draw, nth));
}

/**
 * Runs the cases of a campaign, several at a time, and ends the program.
 *
 * @param make gets the number of cases asked for, and the seed.
 */
export async function runCampaign(
  name: string,
  defaultCases: number,
  make: (count: number, seed: number) => Case[],
): Promise<never> {
  if (Deno.build.os !== "linux") {
    print(`${name} needs Linux, to find the processes of a program`);
    Deno.exit(0);
  }
  const flags = parseArgs(Deno.args, { string: ["cases", "seed"] });
  const count = Number(flags.cases ?? defaultCases), seed = Number(flags.seed ?? 1);
  const cases = make(count, seed), began = performance.now();
  print(`${name}: ${cases.length} cases of seed ${seed}`);
  let done = 0, survived = 0;
  const left = cases.values();
  // The iterator is shared: each takes the next case when it has done with one.
  const work = async () => {
    for (const one of left) {
      const problem = await one.run().catch((error) => (error as Error).message);
      done++;
      if (problem === undefined) survived++;
      else printError(`${one.name}: ${problem}`);
      if (done % 20 === 0) print(`${done} done, ${survived} survived`);
    }
  };
  await Promise.all(Array.from({ length: navigator.hardwareConcurrency }, work));
  print(`${((performance.now() - began) / 1000).toFixed(0)} s`);
  print(`${name}: ${cases.length} cases, ${survived} survived`);
  Deno.exit(survived === cases.length ? 0 : 1);
}
