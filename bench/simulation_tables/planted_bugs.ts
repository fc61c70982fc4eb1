/**
 * How soon each strategy finds each planted bug.
 *
 * @module
 */

import { printError } from "../../console/print.ts";
import {
  delay,
  dfs,
  explore,
  fifo,
  pct,
  portfolio,
  pos,
  random,
  type Strategy,
} from "../../testing.ts";
import { markdownTable } from "../support/markdown_table.ts";
import { PLANTED, type Planted } from "../../tests/actors/simulation/planted.ts";

const STRATEGIES: Readonly<Record<string, () => Strategy>> = {
  fifo,
  random,
  "pct(3)": () => pct(3),
  pos,
  "delay(2)": () => delay(2),
  dfs,
  portfolio,
};

const SEARCHES = 30, MAX_RUNS = 1000;

/** Runs that a search took, or nothing. */
async function search(
  { options, scenario }: Planted,
  strategy: Strategy,
  seed: number,
  mostRuns: number,
): Promise<number | undefined> {
  const { failed, runs } = await explore(
    { ...options, strategy, runs: mostRuns, seed, isRepeated: false },
    scenario(true),
  );
  return failed && runs;
}

async function cell(planted: Planted, make: () => Strategy): Promise<string> {
  const { faults } = planted.options;
  if (make().isExhaustive && faults) return "";
  const mostRuns = make === fifo && !faults ? 1 : MAX_RUNS;
  const isOnce = !faults && (make().isExhaustive || make === fifo);
  const found: number[] = [], searches = isOnce ? 1 : SEARCHES;
  for (let nth = 0; nth < searches; nth++) {
    const runs = await search(planted, make(), 1 + nth * MAX_RUNS, mostRuns);
    if (runs !== undefined) found.push(runs);
  }
  if (found.length === 0) return "–";
  if (isOnce) return String(found[0]);
  const mean = found.reduce((sum, runs) => sum + runs) / found.length;
  const few = found.length < searches ? `, ${found.length} of ${searches}` : "";
  return `${mean.toFixed(1)} (${Math.max(...found)})${few}`;
}

/** The table of planted bugs, and what its numbers are. */
export async function plantedBugs(): Promise<string> {
  const rows = [["Bug", ...Object.keys(STRATEGIES)]];
  for (const planted of PLANTED) {
    printError(`looking for: ${planted.name} …`);
    const row = [planted.name];
    for (const make of Object.values(STRATEGIES)) row.push(await cell(planted, make));
    rows.push(row);
  }
  return `Mean number of runs (and the largest) in ${SEARCHES} searches of at most ${MAX_RUNS} runs each; "–":
not found, "n of ${SEARCHES}": found in so many searches, empty: not applicable. Plain order and
exhaustive search are one search, unless faults are drawn.

${markdownTable(rows)}`;
}
