/**
 * Steps a second of each strategy, where actors do nothing but pass messages on.
 *
 * @module
 */

import { printError } from "../../console/print.ts";
import { delay, fifo, pct, pos, random, simulate, type Strategy } from "../../testing.ts";
import { playRing } from "../../tests/actors/simulation/players.ts";
import { interleave, spreadOf } from "../support/timing.ts";
import { markdownTable } from "../support/markdown_table.ts";

const STRATEGIES: Readonly<Record<string, () => Strategy>> = {
  fifo,
  random,
  "pct(3)": () => pct(3),
  pos,
  "delay(2)": () => delay(2),
};

const RING = { nodes: 32, tokens: 16, hops: 1500 } as const;
const ROUNDS = { rounds: 9, warmup: 2 } as const;

/** Milliseconds of a thousand steps. */
async function timeOf(make: () => Strategy, digests: boolean): Promise<number> {
  const start = performance.now();
  const { steps, failure } = await simulate(
    { strategy: make(), digests },
    (world) => playRing(world, RING),
  );
  if (failure) throw new Error(failure.message);
  return 1000 * (performance.now() - start) / steps;
}

/** The table of speeds, and what was measured. */
export async function speed(): Promise<string> {
  const rows = [["Strategy", "steps a second", "without digests"]];
  const perSecond = (ms: number) => (1000 * Math.round(1000 / ms)).toLocaleString("en");
  for (const [name, make] of Object.entries(STRATEGIES)) {
    printError(`timing: ${name} …`);
    const rounds = await interleave({
      with: () => timeOf(make, true),
      without: () => timeOf(make, false),
    }, ROUNDS);
    const { median: whole } = spreadOf(rounds, (round) => round.with);
    const { median: less } = spreadOf(rounds, (round) => round.without);
    rows.push([name, perSecond(whole), perSecond(less)]);
  }
  return `${RING.nodes} actors, ${RING.tokens} messages under way, one core, Deno ${Deno.version.deno}.

${markdownTable(rows)}`;
}
