/**
 * `troupe journal`: shows a journal, or the first difference of two.
 *
 * @module
 */

import { type Journal, readJournal } from "../../actors/simulation/journal.ts";
import type { StepRecord } from "../../actors/simulation/recorder.ts";
import { checkInputFile } from "../../kernels/internal.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flag.ts";
import { inOneLine, print } from "../terminal.ts";
import { checkCount, checkWord, type Command, defineCommand } from "./common.ts";

/** Returns the parts that a journal lacks, as the end of a sentence. */
export function describeEnds({ isTorn, unfinished }: Journal): string {
  const torn = isTorn ? "; its last line is torn" : "";
  if (unfinished.length === 0) return torn;
  const isolates = unfinished.join(", ");
  return `${torn}; the end of isolate ${isolates} is missing: it was killed, or the journal was cut`;
}

/** Modules that are listed; the others are counted. */
const MODULES_SHOWN = 8;

/** Columns of the steps. */
const COLUMNS = ["time ms", "isolate", "step", "actor", "message", "chain", "what it did"] as const;

/** The first columns, which have numbers and are right-aligned. */
const NUMBERS = 3;

/**
 * Returns a journal as text. Times are relative to its first step. The isolates of a host share a
 * clock, so their steps are sorted by time.
 */
function describeJournal(journal: Journal): string {
  const { header, steps, payloads } = journal;
  const { package: version, seed, strategy, device, deno, configuration, actors } = header;
  const kept = payloads.size > 0 ? `, ${payloads.size} messages kept` : "";
  const isolates = new Set(steps.map(({ isolate }) => isolate)).size;
  const where = isolates > 1 ? ` of ${isolates} isolates` : "";
  return [
    `Troupe ${version}, Deno ${deno}, device ${device}, seed ${seed}, ${strategy}`,
    `configuration ${JSON.stringify(configuration)}`,
    ...describeModules(actors),
    `${steps.length} steps${where}${kept}${describeEnds(journal)}`,
    "Times are since the first step; chain is the running hash of what the actor was sent and did.",
    ...describeSteps(steps),
  ].map(inOneLine).join("\n");
}

function describeModules(hashes: Journal["header"]["actors"]): string[] {
  const modules = Object.entries(hashes), more = modules.length - MODULES_SHOWN;
  return [
    ...modules.slice(0, MODULES_SHOWN).map(([module, hash]) => `${module} ${hash}`),
    ...(more > 0 ? [`and ${more} more modules`] : []),
  ];
}

function* describeSteps(steps: readonly StepRecord[]): Generator<string, void> {
  const ordered = steps.toSorted((a, b) =>
    a.t - b.t || (a.isolate === b.isolate ? a.n - b.n : a.isolate - b.isolate)
  );
  const first = ordered[0]?.t ?? 0;
  const rows = [COLUMNS, ...ordered.map((step) => cellsOf(step, first))];
  // There may be more rows than a call can have arguments.
  const widths = COLUMNS.map((_, i) =>
    rows.reduce((most, row) => Math.max(most, row[i]!.length), 0)
  );
  for (const row of rows) {
    const cells = row.map((cell, i) =>
      i < NUMBERS ? cell.padStart(widths[i]!) : cell.padEnd(widths[i]!)
    );
    yield cells.join("  ").trimEnd();
  }
}

function cellsOf(step: StepRecord, first: number): readonly string[] {
  const { n, t, isolate, actor, from, type, name, chain, choice = 0, arity = 0 } = step;
  const { waits = 0, faults = [] } = step;
  const notes = [
    ...name ? [name] : [],
    ...waits > 0 ? [`after ${waits} ${waits > 1 ? "timers" : "timer"}`] : [],
    ...choice > 0 ? [`choice ${choice} of ${arity}`] : [],
    ...faults,
  ];
  const message = `< ${from} ${type}`;
  return [(t - first).toFixed(3), `${isolate}`, `${n}`, actor, message, chain, notes.join(", ")]
    .map(inOneLine);
}

/** The declaration of `troupe journal`. */
export const JOURNAL_SYNTAX: CommandSyntax = {
  name: "journal",
  summary: "shows a journal, or the first difference of two",
  usage: ["show JOURNAL", "diff JOURNAL JOURNAL"],
  about: [
    "Shows a run message by message, or the first difference of two runs.",
    "",
    "Two journals are compared actor by actor, as real workers share no clock.",
  ],
  words: ["show", "diff"],
  groups: [{ flags: COMMON_FLAGS }],
  notes: ["Exit codes: 0 shown, or no difference; 1 a difference; 2 bad input."],
};

/** Runs `troupe journal`; returns the exit code. */
export const journalCommand: Command = defineCommand(
  JOURNAL_SYNTAX,
  COMMON_FLAGS,
  { needsArguments: true, takesWords: true },
  async ({ words: [what = "", ...paths] }, { begin }) => {
    checkWord("journal", what, JOURNAL_SYNTAX.words!, "show or diff");
    checkCount(what, "journals", paths.length, [what === "show" ? 1 : 2]);
    paths.forEach((path) => checkInputFile(path));
    const [first, second] = await Promise.all(paths.map((path) => readJournal(path)));
    begin();
    if (!second) return print(describeJournal(first!)), 0;
    const difference = differenceOf(first!, second);
    print(difference ?? "No difference.");
    return difference === undefined ? 0 : 1;
  },
);

/** Returns the first step at which the first differing actor differs. */
function differenceOf(one: Journal, other: Journal): string | undefined {
  const [left, right] = [one, other].map(({ steps }) => Map.groupBy(steps, ({ actor }) => actor));
  for (const actor of new Set([...left!.keys(), ...right!.keys()])) {
    const [mine = [], theirs = []] = [left!.get(actor), right!.get(actor)];
    const at = Array.from({ length: Math.max(mine.length, theirs.length) }, (_, n) => n)
      .find((n) => mine[n]?.chain !== theirs[n]?.chain || mine[n]?.state !== theirs[n]?.state);
    if (at === undefined) continue;
    const lines = [`- ${describe(mine[at])}`, `+ ${describe(theirs[at])}`];
    return [`${actor} differs first at its step ${at}:`, ...lines.map((line) => `  ${line}`)]
      .map(inOneLine).join("\n");
  }
}

function describe(step: StepRecord | undefined): string {
  if (!step) return "nothing more";
  const { from, type, name, payload, state = "none" } = step;
  return `< ${from} ${type}${name ? ` (${name})` : ""}, message ${payload}, state ${state}`;
}
