/**
 * Ranks of MPI: what a megabyte takes from rank to rank, what an all-reduce takes of the computing
 * beside it, and what a rank takes that has nothing to do.
 *
 * @module
 */

import { findLauncher } from "./rank_job.ts";
import type { Row } from "../support/row.ts";
import { interleave, spread, spreadOf } from "../support/timing.ts";

/** What an answer of a job tells. */
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
  const launcher = await findLauncher();
  const links = launcher.start("links_job.ts", 2), actors = launcher.start("actors_job.ts", 2);
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
  type Ms = Parameters<Parameters<typeof spreadOf<keyof typeof cases>>[1]>[0];
  const row = (name: string, unit: string, figure: (ms: Ms) => number): Row => ({
    name,
    unit,
    measured: spreadOf(rounds, figure),
  });
  const cpu = (question: string) => spread(answers[question]!.map(({ cpuMs }) => cpuMs!)).median;
  const waits = answers.both!.slice(WARMUP).map(({ waitPercent }) => waitPercent!);
  return [
    {
      ...row("1 MB one way, MPI_Send and MPI_Recv", "µs", (ms) => 1e3 * ms.bare),
      note: launcher.version,
    },
    row("… between communication workers", "µs", (ms) => 1e3 * ms.link),
    { ...row("… ÷ MPI_Send and MPI_Recv", "×", (ms) => ms.link / ms.bare), target: { atMost: 2 } },
    row("… between actors of one rank, a hop of workers", "µs", (ms) => 1e3 * ms.near),
    row("… between actors of two ranks", "µs", (ms) => 1e3 * ms.afar),
    {
      ...row(
        "… ÷ communication workers and two hops",
        "×",
        (ms) => ms.afar / (ms.link + 2 * ms.near),
      ),
      target: { atMost: 1 },
    },
    row("computing alone", "ms", (ms) => ms.compute),
    {
      ...row("all-reduce of 16 MB alone", "ms", (ms) => ms.add),
      note: `CPU of both ranks ${cpu("add").toFixed(1)} ms`,
    },
    row("both at once", "ms", (ms) => ms.both),
    {
      ...row("… beyond computing alone", "%", (ms) => 100 * (ms.both / ms.compute - 1)),
      target: { atMost: 5 },
      note: `CPU of both ranks ${(cpu("both") - cpu("compute")).toFixed(1)} ms more`,
    },
    {
      name: "… of that waiting for the sums when all is computed",
      unit: "% of computing",
      measured: spread(waits),
      target: { atMost: 5 },
    },
    { name: "an idle rank", unit: "% of a core", measured: spread(idle), target: { atMost: 2 } },
  ];
}
