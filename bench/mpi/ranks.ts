/**
 * How the time of a short run grows with the ranks that it is on.
 *
 * @module
 */

import { findLauncher, type RankLauncher } from "./rank_job.ts";
import type { Row } from "../support/row.ts";
import { interleave, spreadOf } from "../support/timing.ts";

const RANKS = [2, 4, 8, 16] as const;
const STEPS = 5;

/** Rounds that do not count. */
const WARMUP = 1;

/** One model for all, so that only the ranks grow. */
const FLAGS = `train --runtime mpi --schedule 1f1b --layers 16 --hidden 16 --heads 2 --seq 8
  --device native --steps ${STEPS} --json`.split(/\s+/);

/** Milliseconds until the first step has ended, until the last has, and until all ranks have. */
type Times = readonly [first: number, last: number, end: number];

async function run(launcher: RankLauncher, ranks: number): Promise<Times> {
  const start = performance.now(), steps: number[] = [];
  for await (const line of launcher.run(ranks, [...FLAGS, "--workers", `${ranks}`])) {
    if ("step" in JSON.parse(line)) steps.push(performance.now() - start);
  }
  if (steps.length !== STEPS) throw new Error(`a run on ${ranks} ranks must take ${STEPS} steps`);
  return [steps[0]!, steps.at(-1)!, performance.now() - start];
}

/** Measures 2, 4, 8 and 16 ranks on this machine, in turns. */
export async function mpiRanksBench(): Promise<Row[]> {
  const launcher = await findLauncher(), times = new Map<number, Times[]>();
  const cases = Object.fromEntries(RANKS.map((ranks) => [`${ranks}`, async () => {
    const one = await run(launcher, ranks);
    times.set(ranks, [...times.get(ranks) ?? [], one]);
    return one[2];
  }]));
  const rounds = await interleave(cases, { rounds: 3, warmup: WARMUP, isAlone: false });
  const [least, most] = [RANKS[0], RANKS.at(-1)!];
  const middle = (ranks: number, at: 0 | 1 | 2) => {
    const all = times.get(ranks)!.slice(WARMUP).map((one) => one[at]).sort((a, b) => a - b);
    return Math.round(all[Math.floor(all.length / 2)]!);
  };
  return [
    ...RANKS.map((ranks): Row => ({
      name: `${ranks} ranks: start, ${STEPS} steps and end`,
      unit: "ms",
      measured: spreadOf(rounds, (ms) => ms[`${ranks}`]!),
      note: `first step at ${middle(ranks, 0)} ms, last at ${middle(ranks, 1)} ms`,
    })),
    {
      name: `${most} ranks ÷ ${least} ranks`,
      unit: "×",
      measured: spreadOf(rounds, (ms) => ms[`${most}`]! / ms[`${least}`]!),
      target: { atMost: most / least },
      note: launcher.version,
    },
  ];
}
