/**
 * `troupe explore`: many orders of one scenario, until one fails.
 *
 * @module
 */

import { type Example, findExample } from "../../actors/simulated_training/simulated_training.ts";
import {
  delay,
  describeFailedRun,
  dfs,
  digestOf,
  type Exploration,
  explore,
  type ExploreOptions,
  type Fault,
  FAULT_KINDS,
  type FaultKind,
  fifo,
  pct,
  portfolio,
  pos,
  random,
  shrink,
  type SimulationFailure,
  type Strategy,
  writeJournal,
} from "../../actors/simulation/mod.ts";
import { scheduleNames } from "../../schedules/mod.ts";
import type { CommandContext } from "../command.ts";
import { type CommandSyntax, COMMON_FLAGS, withDefaults } from "../flag.ts";
import { answersItself, helpOf, parseFlags } from "../parse.ts";
import { print, printError } from "../terminal.ts";

const STRATEGIES: Readonly<Record<string, () => Strategy>> = {
  portfolio,
  random,
  pct: () => pct(3),
  pos,
  delay: () => delay(2),
  dfs,
  fifo,
};

function readFaults(text: string): readonly FaultKind[] | undefined {
  const kinds = text.split(",");
  return kinds.every((kind) => (FAULT_KINDS as readonly string[]).includes(kind))
    ? kinds as FaultKind[]
    : undefined;
}

const EXPLORE_FLAGS = {
  strategy: {
    kind: "choice",
    choices: Object.keys(STRATEGIES),
    default: "portfolio",
    help: "who picks the next message",
  },
  seeds: { kind: "integer", default: 1000, help: "runs, each of a seed of its own" },
  seed: { kind: "integer", minimum: 0, default: 0, help: "the first seed" },
  faults: {
    kind: "own",
    value: "KIND,...",
    read: readFaults,
    must: `one or more of ${FAULT_KINDS.join(",")}`,
    otherwise: "none",
    help: "faults to inject",
  },
  once: { kind: "switch", help: "make each run once; twice shows what is not determined" },
  journal: { kind: "path", value: "FILE", help: "write down the run that fails" },
  ...COMMON_FLAGS,
} as const;

/** What a journal says of a run that was explored. */
export interface ExploredRun {
  /** The example. */
  readonly explore: string;
  /** What it was configured with. */
  readonly configuration: unknown;
  /** The faults that happened. */
  readonly faults: readonly Fault[];
}

/** A failure that is one of liveness: nobody could go on, or nobody ever came to an end. */
const EXIT_FAILURE = 1, EXIT_LIVENESS = 3;
const LIVENESS: readonly SimulationFailure["kind"][] = ["deadlock", "livelock", "liveness"];

/** The declaration of `troupe explore`. */
export const EXPLORE_SYNTAX: CommandSyntax = {
  name: "explore",
  summary: "plays a scenario in many orders of its messages",
  usage: ["EXAMPLE [flags]"],
  about: [
    "Plays a scenario in many orders of its messages, under a virtual clock, until one fails.",
    "",
    "EXAMPLE is the name of a schedule: its training is rehearsed, with real actors and small sums",
    'in place of kernels. Or it is the path of a module that exports "scenario".',
  ],
  words: scheduleNames(),
  groups: [{ flags: EXPLORE_FLAGS }],
  notes: ["Exit codes: 0 all went well; 1 a run failed; 2 bad input; 3 a run came to no end."],
};

/** Runs `troupe explore`; returns the exit code. */
export async function exploreCommand(
  args: readonly string[],
  { begin }: CommandContext,
): Promise<number> {
  const [name, ...rest] = args;
  if (args.length === 0) return print(helpOf(EXPLORE_SYNTAX)), 0;
  if (answersItself(args, EXPLORE_SYNTAX)) return 0;
  if (name!.startsWith("-")) {
    throw new TypeError(`Cannot explore: the first argument must be an EXAMPLE, received ${name}`);
  }
  const flags = withDefaults(EXPLORE_FLAGS, parseFlags(rest, EXPLORE_FLAGS));
  const example = await findExample(name!, flags.faults !== undefined);
  const strategy = STRATEGIES[flags.strategy]!();
  if (strategy.isExhaustive && flags.faults) {
    throw new TypeError(
      `Cannot explore ${name}: --faults must be left out with --strategy ${strategy.name}`,
    );
  }
  begin();
  const options: ExploreOptions<unknown> = {
    configuration: example.configuration,
    strategy,
    seed: flags.seed,
    runs: flags.seeds,
    isRepeated: !flags.once,
    ...flags.faults && {
      faults: { kinds: flags.faults, ...example.mayHit && { actors: example.mayHit } },
    },
  };
  const progress = openProgress(flags.seeds, flags.once ? 1 : 2);
  const explored = await explore(options, async (world) => {
    const value = await example.scenario(world);
    progress.count(value);
    return value;
  });
  progress.end();
  if (!explored.failed) return print(summary(explored, progress)), 0;
  return await reportFailure(name!, example, options, explored, flags.journal);
}

/** Milliseconds between two lines of progress. */
const PROGRESS_MS = 2000;

/** Counts runs and what they came to. */
function openProgress(seeds: number, times: number) {
  const start = performance.now();
  /** By digest, what runs returned and how many did. */
  const ends = new Map<string, { readonly value: unknown; runs: number }>();
  let plays = 0, last = start;
  return {
    ends,
    get seconds() {
      return (performance.now() - start) / 1000;
    },
    count(value: unknown) {
      plays++;
      const digest = digestOf(value), end = ends.get(digest);
      if (end) end.runs++;
      else ends.set(digest, { value, runs: 1 });
      if (performance.now() - last < PROGRESS_MS) return;
      last = performance.now();
      printError(`${Math.floor(plays / times).toLocaleString("en")} of ${number(seeds)} runs`);
    },
    end() {
      for (const end of ends.values()) end.runs = Math.ceil(end.runs / times);
    },
  };
}

type Progress = ReturnType<typeof openProgress>;

const number = (value: number) => value.toLocaleString("en");

/** Ends that are listed. */
const MAX_ENDS = 10;

function summary({ runs, steps, distinct }: Exploration, { ends, seconds }: Progress): string {
  const found = [...ends.values()].toSorted((a, b) => b.runs - a.runs);
  return [
    `${number(runs)} runs, ${number(distinct)} of them different, ${number(steps)} steps, ` +
    `${number(Math.round(seconds))} s`,
    `${found.length} ${found.length === 1 ? "end" : "ends"}:`,
    ...found.slice(0, MAX_ENDS).map(({ value, runs }) => `  ${number(runs)} × ${inspect(value)}`),
    ...(found.length > MAX_ENDS ? [`  and ${found.length - MAX_ENDS} more`] : []),
  ].join("\n");
}

function inspect(value: unknown): string {
  return Deno.inspect(value, { compact: true, breakLength: Infinity, strAbbreviateSize: 1000 });
}

/** Makes the failure small and prints it as a test to paste. */
async function reportFailure(
  name: string,
  { scenario, smaller, modules }: Example,
  options: ExploreOptions<unknown>,
  { failed, runs }: Exploration,
  journal: string | undefined,
): Promise<number> {
  const { kind, message } = failed!.failure;
  printError(`Run ${number(runs)} failed: ${message}\nMaking it small ...`);
  const shrunk = await shrink({ ...options, ...smaller && { smaller } }, scenario, failed!);
  print(describeFailedRun(name, shrunk));
  if (journal !== undefined) {
    const { run: { seed, strategy, faults }, configuration } = shrunk;
    const made: ExploredRun = { explore: name, configuration, faults };
    const header = { seed, strategy, configuration: made, actors: modules };
    const pen = await writeJournal({ path: journal, ...header });
    for (const step of shrunk.steps) pen.onStep(step);
    pen.close();
  }
  return LIVENESS.includes(kind) ? EXIT_LIVENESS : EXIT_FAILURE;
}
