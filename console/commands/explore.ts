/**
 * `troupe explore`: runs a scenario in many orders of its messages until one fails.
 *
 * @module
 */

import { checkJournalFile } from "../../actors/run/run_journal.ts";
import { type Example, findExample } from "../../actors/simulated_training/simulated_training.ts";
import {
  delay,
  dfs,
  fifo,
  pct,
  portfolio,
  pos,
  random,
  type Strategy,
} from "../../actors/simulation/strategies.ts";
import { describeFailedRun, shrink } from "../../actors/simulation/shrink.ts";
import { digestOf } from "../../actors/simulation/digest.ts";
import { type Exploration, explore, type ExploreOptions } from "../../actors/simulation/explore.ts";
import { FAULT_KINDS } from "../../actors/simulation/faults.ts";
import { writeJournal } from "../../actors/simulation/journal_writer.ts";
import { scheduleNames } from "../../schedules/mod.ts";
import { print, printError } from "../terminal.ts";
import { type Command, defineCommand, someOf } from "./common.ts";

const STRATEGIES: Readonly<Record<string, () => Strategy>> = {
  portfolio,
  random,
  pct: () => pct(3),
  pos,
  delay: () => delay(2),
  dfs,
  fifo,
};

const EXPLORE_FLAGS = {
  strategy: {
    kind: "choice",
    choices: Object.keys(STRATEGIES),
    default: "portfolio",
    help: "strategy that picks the next message",
  },
  seeds: { kind: "integer", default: 1000, help: "number of runs, each with another seed" },
  seed: { kind: "integer", minimum: 0, default: 0, help: "the first seed" },
  faults: { ...someOf(FAULT_KINDS, "none", "faults to inject"), value: "KIND,..." },
  once: { kind: "switch", help: "make each run once; the second run would detect nondeterminism" },
  journal: { kind: "path", help: "write the journal of the failing run" },
} as const;

/** Kinds of failures in which a run does not end; they have their own exit code. */
const LIVENESS: readonly string[] = ["deadlock", "livelock", "liveness"];

/** `troupe explore`. */
export const exploreCommand: Command = defineCommand({
  name: "explore",
  summary: "runs a scenario in many orders of its messages",
  usage: ["EXAMPLE [flags]"],
  about: [
    "Runs a scenario in many orders of its messages, under a virtual clock, until one fails.",
    "",
    "EXAMPLE is the name of a schedule, whose training is simulated with real actors and small sums",
    'instead of kernels, or the path of a module that exports "scenario".',
  ],
  words: scheduleNames(),
  flags: EXPLORE_FLAGS,
  notes: ["Exit codes: 0 no failure; 1 a run failed; 2 bad input; 3 a run did not end."],
  needsArguments: true,
  subject: "an EXAMPLE",
  run: async ({ words: [name = ""], flags }, { begin }) => {
    const example = await findExample(name, flags.faults !== undefined);
    const strategy = STRATEGIES[flags.strategy]!();
    const must = flags.faults
      ? `--faults must be left out with --strategy ${strategy.name}`
      : scheduleNames().includes(name) &&
        "--strategy must not be dfs: workers do not expose their whole state";
    if (strategy.isExhaustive && must) throw new TypeError(`Cannot explore ${name}: ${must}`);
    if (flags.journal !== undefined) await checkJournalFile(flags.journal);
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
    const ends = openCounts(flags.seeds, flags.once ? 1 : 2);
    const explored = await explore(options, async (world) => {
      const value = await example.scenario(world);
      ends.add(value);
      return value;
    });
    if (explored.failed) {
      return await reportFailure(name, example, options, explored, flags.journal);
    }
    print(ends.summary(explored));
  },
});

const number = (value: number) => value.toLocaleString("en");

/** Milliseconds between two lines of progress. */
const PROGRESS_MS = 2000;

/** Results that are listed. */
const MAX_ENDS = 10;

/**
 * Counts runs by their result, and prints progress.
 *
 * @param times runs of each seed.
 */
function openCounts(seeds: number, times: number) {
  const start = performance.now(), counts = new Map<string, { value: unknown; runs: number }>();
  let all = 0, printedAt = start;
  return {
    add(value: unknown): void {
      all++;
      counts.getOrInsertComputed(digestOf(value), () => ({ value, runs: 0 })).runs++;
      if (performance.now() - printedAt < PROGRESS_MS) return;
      printedAt = performance.now();
      printError(`${number(Math.floor(all / times))} of ${number(seeds)} runs`);
    },
    summary({ runs, steps, distinct }: Exploration): string {
      const ends = Array.from(counts.values(), (end) => (
        { ...end, runs: Math.ceil(end.runs / times) }
      )).sort((a, b) => b.runs - a.runs);
      const seconds = Math.round((performance.now() - start) / 1000);
      return [
        `${number(runs)} runs, ${number(distinct)} of them different, ${number(steps)} steps, ` +
        `${number(seconds)} s`,
        `${ends.length} ${ends.length === 1 ? "end" : "ends"}:`,
        ...ends.slice(0, MAX_ENDS).map(({ value, runs }) =>
          `  ${number(runs)} × ${inspect(value)}`
        ),
        ...(ends.length > MAX_ENDS ? [`  and ${ends.length - MAX_ENDS} more`] : []),
      ].join("\n");
    },
  };
}

const inspect = (value: unknown) =>
  Deno.inspect(value, { compact: true, breakLength: Infinity, strAbbreviateSize: 1000 });

/** Shrinks the failure and prints it as a test. */
async function reportFailure(
  name: string,
  { scenario, smaller, modules }: Example,
  options: ExploreOptions<unknown>,
  { failed, runs }: Exploration,
  path: string | undefined,
): Promise<number> {
  const { kind, message } = failed!.failure;
  printError(`Run ${number(runs)} failed: ${message}\nMaking it small ...`);
  const shrunk = await shrink({ ...options, ...smaller && { smaller } }, scenario, failed!);
  print(describeFailedRun(name, shrunk));
  if (path !== undefined) {
    const { run: { seed, strategy, faults }, configuration: inner } = shrunk;
    const configuration = { explore: name, configuration: inner, faults };
    const journal = await writeJournal({ path, seed, strategy, configuration, actors: modules });
    shrunk.steps.forEach((step) => journal.onStep(step));
    journal.close();
  }
  return LIVENESS.includes(kind) ? 3 : 1;
}
