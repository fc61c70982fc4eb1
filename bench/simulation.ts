/**
 * Steps per second of simulated training with fake kernels: 4 stages, 8 micro-batches, 2 replicas and
 * two optimizer steps, with all invariants checked and all messages hashed. As a program it writes
 * the tables of SIMULATION.md:
 *
 *     deno run -A bench/simulation.ts [speed] [states] [bugs]
 *
 * @module
 */

import {
  simulatedTraining,
  type SimulatedTrainingOptions,
} from "../actors/simulated_training/simulated_training.ts";
import { print, printError } from "../console/terminal.ts";
import { refusal } from "../kernels/internal.ts";
import {
  delay,
  dfs,
  explore,
  fifo,
  pct,
  portfolio,
  pos,
  random,
  simulate,
  type Strategy,
} from "../testing.ts";
import { countStates, MODELS, pipelineOf } from "../tests/actors/simulation/count_states.ts";
import { PLANTED, type Planted } from "../tests/actors/simulation/planted.ts";
import { playRing } from "../tests/actors/simulation/players.ts";
import { markdownTable, type Row, rowMaker } from "./report.ts";
import { interleave, spreadOf } from "./timing.ts";

const PLAN: SimulatedTrainingOptions = { schedule: "1f1b", steps: 2 };
const ROUNDS = { rounds: 15, warmup: 5 } as const;
const RUNS = 20;

/** Milliseconds of a thousand steps. */
async function timeOf(make: () => Strategy): Promise<number> {
  const start = performance.now();
  let steps = 0;
  for (let seed = 0; seed < RUNS; seed++) {
    const run = await simulate({ seed, strategy: make(), configuration: PLAN }, simulatedTraining);
    if (run.failure) throw new Error(run.failure.message);
    steps += run.steps;
  }
  return 1000 * (performance.now() - start) / steps;
}

/** Measures simulated training. */
export async function simulationBench(): Promise<Row[]> {
  const cases = { fifo, random, pct: () => pct(3), pos } as const;
  const times = Object.entries(cases).map(([name, make]) => [name, () => timeOf(make)]);
  const row = rowMaker(await interleave(Object.fromEntries(times), ROUNDS));
  return Object.keys(cases).map((name) =>
    row(`simulated training, ${name}`, "k steps/s", (ms) => 1000 / ms[name]!, {
      target: { atLeast: 100 },
    })
  );
}

const STRATEGIES = {
  ...{ fifo, random, "pct(3)": () => pct(3), pos, "delay(2)": () => delay(2), dfs, portfolio },
};

const SEARCHES = 30, MAX_RUNS = 1000;

/** Returns the runs of a successful search. */
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

/** Returns the table of planted bugs, with an explanation. */
async function plantedBugs(): Promise<string> {
  const rows = [["Bug", ...Object.keys(STRATEGIES)]];
  for (const planted of PLANTED) {
    printError(`looking for: ${planted.name} …`);
    const row = [planted.name];
    for (const make of Object.values(STRATEGIES)) row.push(await cell(planted, make));
    rows.push(row);
  }
  return `Mean number of runs (and the largest) in ${SEARCHES} searches of at most ${MAX_RUNS} runs each; "–":
not found, "n of ${SEARCHES}": found in n searches, empty: not applicable. FIFO order and
exhaustive search are one search, unless faults are drawn.

${markdownTable(rows)}`;
}

const { dfs: _, portfolio: __, ...SPEED_STRATEGIES } = STRATEGIES;

const RING = { nodes: 32, tokens: 16, hops: 1500 } as const;
const SPEED_ROUNDS = { rounds: 9, warmup: 2 } as const;

/** Milliseconds of a thousand steps. */
async function speedOf(make: () => Strategy, digests: boolean): Promise<number> {
  const start = performance.now();
  const { steps, failure } = await simulate(
    { strategy: make(), digests },
    (world) => playRing(world, RING),
  );
  if (failure) throw new Error(failure.message);
  return 1000 * (performance.now() - start) / steps;
}

/** Returns the table of speeds. */
async function speed(): Promise<string> {
  const rows = [["Strategy", "steps a second", "without digests"]];
  const perSecond = (ms: number) => (1000 * Math.round(1000 / ms)).toLocaleString("en");
  for (const [name, make] of Object.entries(SPEED_STRATEGIES)) {
    printError(`timing: ${name} …`);
    const rounds = await interleave({
      with: () => speedOf(make, true),
      without: () => speedOf(make, false),
    }, SPEED_ROUNDS);
    const { median: whole } = spreadOf(rounds, (round) => round.with);
    const { median: less } = spreadOf(rounds, (round) => round.without);
    rows.push([name, perSecond(whole), perSecond(less)]);
  }
  return `${RING.nodes} actors, ${RING.tokens} messages in flight, one core, Deno ${Deno.version.deno}.

${markdownTable(rows)}`;
}

const STAGES = [2, 3, 4, 5] as const;

/** Returns the table of states. */
async function states(): Promise<string> {
  const sizes = STAGES.map((stages) => `${stages}×${2 * stages}, ${stages}`);
  const rows = [["Model", ...sizes, "runs of the last"]];
  for (const model of Object.values(MODELS)) {
    printError(`counting: ${model.name} …`);
    const counted = [];
    for (const stages of STAGES) counted.push(await countStates(model, pipelineOf(stages)));
    const counts = [...counted.map(({ states }) => states), counted.at(-1)!.runs];
    rows.push([model.name, ...counts.map((count) => count.toLocaleString("en"))]);
  }
  return `Distinct states, counted by \`dfs\`, for stages × micro-batches, limit.

${markdownTable(rows)}`;
}

const TABLES: Readonly<Record<string, () => Promise<string>>> = {
  speed,
  states,
  bugs: plantedBugs,
};

/** Replaces the text between the marks of a table. */
function replaced(text: string, name: string, made: string): string {
  const begin = `<!-- ${name}: begin -->\n`, end = `<!-- ${name}: end -->`;
  const from = text.indexOf(begin) + begin.length, to = text.indexOf(end);
  if (from < begin.length || to < from) {
    throw new SyntaxError(`Cannot write the table: SIMULATION.md must have the marks of ${name}`);
  }
  return `${text.slice(0, from)}\n${made}\n${text.slice(to)}`;
}

/** Writes the tables of SIMULATION.md again; all of them take some minutes. */
async function writeTables(args: readonly string[]): Promise<void> {
  const names = args.length > 0 ? args : Object.keys(TABLES);
  const unknown = names.find((name) => !Object.hasOwn(TABLES, name));
  if (unknown !== undefined) {
    throw refusal("make tables", `each must be one of ${Object.keys(TABLES).join(", ")}`, unknown);
  }
  const page = new URL("../SIMULATION.md", import.meta.url);
  for (const name of names) {
    const made = await TABLES[name]!();
    await Deno.writeTextFile(page, replaced(await Deno.readTextFile(page), name, made));
    print(`SIMULATION.md has the table of ${name}`);
  }
  await new Deno.Command(Deno.execPath(), { args: ["fmt", "-q", page.pathname] }).output();
}

if (import.meta.main) await writeTables(Deno.args);
