/**
 * Messages and all-reduces between ranks of MPI, and the time of a short run by the number of ranks.
 *
 * @module
 */
// deno-lint-ignore-file determinism/no-ambient -- it measures real time

import process from "node:process";
import type { ActorFactory } from "../actors/runtime/actor.ts";
import type { ActorSpec } from "../actors/runtime/types.ts";
import { findLauncher } from "../console/launch/launcher.ts";
import { linesOf } from "../console/terminal.ts";
import { type Row, rowMaker, talkTo, valueRow } from "./report.ts";
import { interleave, spread } from "./timing.ts";

/** Open MPI refuses root otherwise. */
const AS_ROOT = { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" };

/** All ranks are on this machine. */
const HERE = { hosts: [], isTooMany: false, interface: undefined, remoteShell: undefined };

/**
 * Finds the launcher of `troupe launch`.
 *
 * @throws {TypeError} when there is none.
 */
async function openLauncher() {
  const launcher = await findLauncher({ launcher: "mpirun", "max-restarts": 0 });
  const spawn = (ranks: number, path: string, own: readonly string[], stdin: "piped" | "null") => {
    const url = new URL(path, import.meta.url).href;
    const command = [Deno.execPath(), "run", "-A", "--no-check", url, ...own];
    const { env, words: [program, ...args] } = launcher.line({ ...HERE, ranks, command });
    const options = { args, env: { ...env, ...AS_ROOT }, stdin, stdout: "piped" } as const;
    return new Deno.Command(program!, options).spawn();
  };
  return {
    version: launcher.version,
    /** Starts the program of `mpi_jobs.ts` on two ranks. */
    start: (job: "links" | "actors") => talkTo(spawn(2, "./mpi_jobs.ts", [job], "piped")),
    /** Runs `troupe` on some ranks; yields the lines that it prints. */
    run: (ranks: number, own: readonly string[]) =>
      linesOf(spawn(ranks, "../cli.ts", own, "null").stdout),
  };
}

/** An answer of a job. */
interface Timed {
  readonly ms: number;
  readonly cpuMs?: number;
  readonly waitPercent?: number;
}

const IDLE_ROUNDS = 3;

/** Rounds that do not count. */
const WARMUP = 3;

/** Measures all of it on two ranks. */
export async function mpiBench(): Promise<Row[]> {
  const launcher = await openLauncher();
  const links = launcher.start("links"), actors = launcher.start("actors");
  const answers: Record<string, Timed[]> = {};
  const timed = (job: typeof links, question: string) => async () => {
    const answer = await job.ask<Timed>(question);
    (answers[question] ??= []).push(answer);
    return answer.ms;
  };
  const cases = {
    bare: timed(links, "bare"),
    link: timed(links, "link"),
    afar: timed(actors, "afar"),
    near: timed(actors, "near"),
    compute: timed(actors, "compute"),
    add: timed(actors, "add"),
    both: timed(actors, "both"),
  };
  const rounds = await interleave(cases, { rounds: 15, warmup: WARMUP, isAlone: false });
  const idle: number[] = [];
  for (let i = 0; i < IDLE_ROUNDS; i++) {
    idle.push((await actors.ask<{ percent: number }>("idle")).percent);
  }
  await Promise.all([links.close(), actors.close()]);
  const row = rowMaker(rounds);
  const cpu = (question: string) => spread(answers[question]!.map(({ cpuMs }) => cpuMs!)).median;
  const cpuText = (ms: number) => `CPU of both ranks ${ms.toFixed(1)} ms`;
  const waits = answers.both!.slice(-rounds.length).map(({ waitPercent }) => waitPercent!);
  return [
    row("1 MB one way, MPI_Send and MPI_Recv", "µs", (ms) => 1e3 * ms.bare, {
      note: launcher.version,
    }),
    row("… between communication workers", "µs", (ms) => 1e3 * ms.link),
    row("… ÷ MPI_Send and MPI_Recv", "×", (ms) => ms.link / ms.bare, { target: { atMost: 2 } }),
    row("… between actors of one rank, a hop of workers", "µs", (ms) => 1e3 * ms.near),
    row("… between actors of two ranks", "µs", (ms) => 1e3 * ms.afar),
    row("… ÷ communication workers and two hops", "×", (ms) => ms.afar / (ms.link + 2 * ms.near), {
      target: { atMost: 1 },
    }),
    row("computing alone", "ms", (ms) => ms.compute),
    row("all-reduce of 16 MB alone", "ms", (ms) => ms.add, { note: cpuText(cpu("add")) }),
    row("both at once", "ms", (ms) => ms.both),
    row("… beyond computing alone", "%", (ms) => 100 * (ms.both / ms.compute - 1), {
      target: { atMost: 5 },
      note: `${cpuText(cpu("both") - cpu("compute"))} more`,
    }),
    valueRow("… of that waiting for the sums when all is computed", "% of computing", waits, {
      target: { atMost: 5 },
    }),
    valueRow("an idle rank", "% of a core", idle, { target: { atMost: 2 } }),
  ];
}

const RANKS = [2, 4, 8, 16] as const;
const STEPS = 5;

/** Rounds that do not count. */
const RANKS_WARMUP = 1;

/** One model for all, so that only the ranks grow. */
const FLAGS = `train --runtime mpi --schedule 1f1b --layers 16 --hidden 16 --heads 2 --seq 8
  --device native --steps ${STEPS} --json`.split(/\s+/);

/** Milliseconds until the first step has ended, until the last has, and until all ranks have. */
type Times = readonly [first: number, last: number, end: number];

async function run(
  launcher: Awaited<ReturnType<typeof openLauncher>>,
  ranks: number,
): Promise<Times> {
  const start = performance.now(), steps: number[] = [];
  for await (const line of launcher.run(ranks, [...FLAGS, "--workers", `${ranks}`])) {
    if ("step" in JSON.parse(line)) steps.push(performance.now() - start);
  }
  if (steps.length !== STEPS) throw new Error(`a run on ${ranks} ranks must take ${STEPS} steps`);
  return [steps[0]!, steps.at(-1)!, performance.now() - start];
}

/** Measures 2, 4, 8 and 16 ranks on this machine, in turns. */
export async function mpiRanksBench(): Promise<Row[]> {
  const launcher = await openLauncher(), times = new Map<number, Times[]>();
  const cases = Object.fromEntries(RANKS.map((ranks) => [`${ranks}`, async () => {
    const one = await run(launcher, ranks);
    times.set(ranks, [...times.get(ranks) ?? [], one]);
    return one[2];
  }]));
  const rounds = await interleave(cases, { rounds: 3, warmup: RANKS_WARMUP, isAlone: false });
  const [least, most] = [RANKS[0], RANKS.at(-1)!], row = rowMaker(rounds);
  const middle = (ranks: number, at: 0 | 1) =>
    spread(times.get(ranks)!.slice(RANKS_WARMUP).map((one) => one[at])).median.toFixed(0);
  return [
    ...RANKS.map((ranks): Row =>
      row(`${ranks} ranks: start, ${STEPS} steps and end`, "ms", (ms) => ms[`${ranks}`]!, {
        note: `first step at ${middle(ranks, 0)} ms, last at ${middle(ranks, 1)} ms`,
      })
    ),
    row(`${most} ranks ÷ ${least} ranks`, "×", (ms) => ms[`${most}`]! / ms[`${least}`]!, {
      target: { atMost: most / least },
      note: launcher.version,
    }),
  ];
}

/** Messages of an adder. */
export type AdderMessage =
  /** Returns the number of multiplications that take some milliseconds. */
  | { readonly type: "Calibrate"; readonly ms: number }
  /** Computes multiplications without a pause; replies with {@linkcode Computed}. */
  | { readonly type: "Compute"; readonly count: number; readonly isAdding: boolean }
  /** Replies with the CPU milliseconds of the process. */
  | { readonly type: "Cpu" }
  | { readonly type: "Sums"; readonly sums: Float32Array<ArrayBuffer> };

/** Milliseconds of a computation. */
export interface Computed {
  /** Of the computation and the sums. */
  readonly ms: number;
  /** Of that, from the end of the computation to the sums. */
  readonly waitMs: number;
}

/** Elements of an array: 16 MB. */
const LENGTH = 2 ** 22;

/** An actor that computes while its array is added to that of another one; a member of group 0. */
export const ADDER: ActorSpec<number, AdderMessage> = { module: import.meta.url, export: "adder" };

/** Uses time and no memory. */
function multiply(count: number): number {
  let product = 1;
  for (let i = 0; i < count; i++) product *= 1.0000001;
  return product;
}

/** Makes an adder. */
export const adder: ActorFactory<number, AdderMessage> = (ctx, member) => {
  let values = new Float32Array(LENGTH), start = 0, computed = 0;
  let reply: (computed: Computed) => void;
  return {
    Calibrate({ ms }) {
      const count = 2 ** 22, rates: number[] = [];
      for (let i = 0; i < 20; i++) {
        const start = performance.now();
        multiply(count);
        rates.push(count / (performance.now() - start));
      }
      ctx.reply(Math.round(ms * Math.max(...rates)));
    },
    Compute({ count, isAdding }) {
      reply = ctx.deferReply();
      start = performance.now();
      if (isAdding) {
        ctx.allReduce({ group: 0, member, values }, (sums) => ({ type: "Sums", sums }));
      }
      if (count > 0) multiply(count);
      computed = performance.now();
      if (!isAdding) reply({ ms: computed - start, waitMs: 0 });
    },
    Sums({ sums }) {
      values = sums;
      const now = performance.now();
      reply({ ms: now - start, waitMs: now - computed });
    },
    Cpu() {
      const { user, system } = process.cpuUsage();
      ctx.reply((user + system) / 1000);
    },
  };
};
