/**
 * `troupe journal`: shows a journal, or where two of them part.
 *
 * @module
 */

import { type Journal, readJournal, type StepRecord } from "../../actors/simulation/mod.ts";
import { checkInputFile } from "../../kernels/mod.ts";
import { didYouMean } from "../../actors/run/options/did_you_mean.ts";
import type { CommandContext } from "../command.ts";
import { answersItself } from "../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import { helpOf } from "../flags/help.ts";
import { parseArguments } from "../flags/parse.ts";
import { print } from "../print.ts";
import { inOneLine } from "../escape.ts";
import { describeJournal } from "../replay/show_journal.ts";

/** The declaration of `troupe journal`. */
export const JOURNAL_SYNTAX: CommandSyntax = {
  name: "journal",
  summary: "shows a journal, or where two of them part",
  usage: ["show JOURNAL", "diff JOURNAL JOURNAL"],
  about: [
    "Shows what a run was, message by message, or where two runs part.",
    "",
    "Two journals are compared actor by actor, as real workers share no clock.",
  ],
  words: ["show", "diff"],
  groups: [{ flags: COMMON_FLAGS }],
  notes: ["Exit codes: 0 shown, or no difference; 1 a difference; 2 bad input."],
};

/** Runs `troupe journal`; returns the exit code. */
export async function journalCommand(
  args: readonly string[],
  { begin }: CommandContext,
): Promise<number> {
  if (args.length === 0) return print(helpOf(JOURNAL_SYNTAX)), 0;
  if (answersItself(args, JOURNAL_SYNTAX)) return 0;
  const [what = "", ...paths] = parseArguments(args, COMMON_FLAGS, { takesWords: true }).words;
  const wanted = { show: 1, diff: 2 }[what];
  if (wanted === undefined) {
    throw new TypeError(
      `Cannot run "journal ${what}": it must be show or diff${
        didYouMean(what, JOURNAL_SYNTAX.words!)
      }`,
    );
  }
  if (paths.length !== wanted) {
    throw new TypeError(
      `Cannot ${what}: the number of journals must be ${wanted}, received ${paths.length}`,
    );
  }
  for (const path of paths) checkInputFile(path);
  const journals = await Promise.all(paths.map((path) => readJournal(path)));
  begin();
  const [first, second] = journals;
  if (!second) return print(describeJournal(first!)), 0;
  const difference = differenceOf(first!, second);
  print(difference ?? "No difference.");
  return difference === undefined ? 0 : 1;
}

/** Where the first actor that differs begins to differ. */
function differenceOf(one: Journal, other: Journal): string | undefined {
  const [left, right] = [byActor(one), byActor(other)];
  for (const actor of new Set([...left.keys(), ...right.keys()])) {
    const [mine = [], theirs = []] = [left.get(actor), right.get(actor)];
    const at = Array.from({ length: Math.max(mine.length, theirs.length) }, (_, n) => n)
      .find((n) => mine[n]?.chain !== theirs[n]?.chain || mine[n]?.state !== theirs[n]?.state);
    if (at === undefined) continue;
    return [
      `${actor} differs first at its step ${at}:`,
      ...[mine[at], theirs[at]].map((step, n) => `  ${n === 0 ? "-" : "+"} ${describe(step)}`),
    ].map(inOneLine).join("\n");
  }
}

function byActor({ steps }: Journal): ReadonlyMap<string, readonly StepRecord[]> {
  return Map.groupBy(steps, ({ actor }) => actor);
}

function describe(step: StepRecord | undefined): string {
  if (!step) return "nothing more";
  const { from, type, name, payload, state = "none" } = step;
  return `< ${from} ${type}${name ? ` (${name})` : ""}, message ${payload}, state ${state}`;
}
