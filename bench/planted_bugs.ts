/**
 * How soon each strategy finds each planted bug: makes that table of SIMULATION.md again, which takes
 * some minutes.
 *
 *     deno run -A bench/planted_bugs.ts
 *
 * @module
 */

import { print, printError } from "../console/print.ts";
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
} from "../testing.ts";
import { PLANTED, type Planted } from "../tests/actors/simulation/planted.ts";

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

const BEGIN = "<!-- planted bugs: begin -->\n", END = "<!-- planted bugs: end -->";

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

async function table(): Promise<string> {
  const names = Object.keys(STRATEGIES);
  const rows = [["Bug", ...names], names.map(() => "---").concat("---")];
  for (const planted of PLANTED) {
    printError(`looking for: ${planted.name} …`);
    const row = [planted.name];
    for (const make of Object.values(STRATEGIES)) row.push(await cell(planted, make));
    rows.push(row);
  }
  return rows.map((row) => `| ${row.join(" | ")} |\n`).join("");
}

if (import.meta.main) {
  const page = new URL("../SIMULATION.md", import.meta.url), made = await table();
  const text = await Deno.readTextFile(page);
  const head = text.slice(0, text.indexOf(BEGIN) + BEGIN.length);
  const [, tail] = text.split(END);
  const what = `
Mean number of runs (and the largest) in ${SEARCHES} searches of at most ${MAX_RUNS} runs each; "–":
not found, "n of ${SEARCHES}": found in so many searches, empty: not applicable. Plain order and
exhaustive search are one search, unless faults are drawn.

`;
  await Deno.writeTextFile(page, `${head}${what}${made}\n${END}${tail}`);
  await new Deno.Command(Deno.execPath(), { args: ["fmt", "-q", page.pathname] }).output();
  print("SIMULATION.md has the table");
}
