/**
 * Steps a second of simulated training, with stand-ins for the kernels: 4 stages, 8 micro-batches,
 * 2 replicas, two optimizer steps, every invariant checked and every message hashed.
 *
 * @module
 */

import { rehearsal, type RehearsalPlan } from "../actors/mod.ts";
import { fifo, pct, pos, random, simulate, type Strategy } from "../testing.ts";
import type { Row } from "./support/row.ts";
import { interleave, spreadOf } from "./support/timing.ts";

const PLAN: RehearsalPlan = { schedule: "1f1b", steps: 2 };
const ROUNDS = { rounds: 15, warmup: 5 } as const;
const RUNS = 20;

/** Milliseconds of a thousand steps. */
async function timeOf(make: () => Strategy): Promise<number> {
  const start = performance.now();
  let steps = 0;
  for (let seed = 0; seed < RUNS; seed++) {
    const run = await simulate({ seed, strategy: make(), configuration: PLAN }, rehearsal);
    if (run.failure) throw new Error(run.failure.message);
    steps += run.steps;
  }
  return 1000 * (performance.now() - start) / steps;
}

/** Measures simulated training. */
export async function simulationBench(): Promise<Row[]> {
  const rounds = await interleave({
    fifo: () => timeOf(fifo),
    random: () => timeOf(random),
    pct: () => timeOf(() => pct(3)),
    pos: () => timeOf(pos),
  }, ROUNDS);
  return (["fifo", "random", "pct", "pos"] as const).map((name): Row => ({
    name: `simulated training, ${name}`,
    unit: "k steps/s",
    measured: spreadOf(rounds, (round) => 1000 / round[name]),
    target: { atLeast: 100 },
  }));
}
