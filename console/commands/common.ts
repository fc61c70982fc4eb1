/**
 * Helpers of the commands: their arguments, refusals, and lists in flags.
 *
 * @module
 */

import { readListOf } from "../../actors/options/limits.ts";
import { suggest } from "../../actors/options/option.ts";
import type { CommandContext } from "../command.ts";
import {
  type CommandSyntax,
  COMMON_FLAGS,
  type Flags,
  type FlagValues,
  type GivenFlags,
  withDefaults,
} from "../flag.ts";
import { answersItself, helpOf, parseArguments, type ParseOptions } from "../parse.ts";
import { ensure, print, quoted } from "../terminal.ts";

/** The context of a command; without a signal, nothing interrupts it. */
export type Context = Pick<CommandContext, "begin"> & Partial<CommandContext>;

/** A command: its declaration, and the function that runs it and returns the exit code. */
export interface Command<C = Context> {
  readonly syntax: CommandSyntax;
  readonly run: (args: readonly string[], context: C) => Promise<number>;
}

/** The parsed arguments of a command. */
interface CommandArguments<T extends Flags> {
  /** Arguments that are not flags. */
  readonly words: readonly string[];
  /** Values of the given flags by name. */
  readonly given: GivenFlags<T>;
  /** The same, with the defaults of the others. */
  readonly flags: FlagValues<T>;
  /** The arguments as typed. */
  readonly args: readonly string[];
}

/** The declaration of a command with its function. */
interface CommandDefinition<T extends Flags> extends Omit<CommandSyntax, "groups">, ParseOptions {
  /** Its flags besides `--help` and `--version`. */
  readonly flags: T;
  /** With `--help` and `--version`. Default: one group without a title. */
  readonly groups?: CommandSyntax["groups"];
  /** True if the command prints its help if it has no arguments. */
  readonly needsArguments?: boolean;
  /** The name in the help of a first argument that must not be a flag. */
  readonly subject?: string;
  /** Returns the exit code, or nothing for 0. */
  readonly run: (
    given: CommandArguments<T>,
    context: Context,
  ) => number | void | Promise<number | void>;
}

/**
 * Returns a command that answers `--help` and `--version`, and otherwise runs with its arguments. It
 * takes words, unless it says otherwise.
 */
export function defineCommand<const T extends Flags>(
  { flags: own, groups, needsArguments, subject, run, takesWords = true, ...syntax }:
    CommandDefinition<T>,
): Command {
  const flags: T = { ...own, ...COMMON_FLAGS };
  const all = { ...syntax, groups: groups ?? { "": flags } };
  return {
    syntax: all,
    async run(args, context) {
      if (needsArguments && args.length === 0) return print(helpOf(all)), 0;
      if (answersItself(args, all)) return 0;
      const [first = ""] = args;
      const must = `the first argument must be ${subject}`;
      ensure(subject === undefined || !first.startsWith("-"), syntax.name, must, first);
      const parsed = subject === undefined
        ? parseArguments(args, flags, { ...syntax, takesWords })
        : { words: [first], flags: parseArguments(args.slice(1), flags).flags };
      const { words, flags: given } = parsed;
      return await run({ words, given, flags: withDefaults(flags, given), args }, context) ?? 0;
    },
  };
}

/** Checks the number of words after a command. */
export function checkCount(
  cannot: string,
  what: string,
  received: number,
  [least, most = least]: readonly [least: number, most?: number],
): void {
  const must = most === least ? least : `from ${least} to ${most}`;
  const isRight = received >= least && received <= most;
  ensure(isRight, cannot, `the number of ${what} must be ${must}`, received);
}

/** Checks the first word after a command. */
export function checkWord(command: string, word: string, words: readonly string[]): void {
  if (words.includes(word)) return;
  const must = words.length > 2 ? `one of ${words.join(", ")}` : words.join(" or ");
  const near = suggest(word, words), called = quoted(`${command} ${word}`);
  throw new TypeError(`Cannot run ${called}: it must be ${must}${near}`);
}

/** A flag with values from a list, separated by commas; without it, what `otherwise` says. */
export const someOf = <const T extends string>(
  choices: readonly T[],
  otherwise: string,
  help: string,
) => ({
  kind: "own",
  value: "NAME,NAME",
  read: readListOf((name) => choices.find((one) => one === name)),
  must: `one or more of ${choices.join(",")}`,
  ...{ otherwise, help },
} as const);

/** Serves a page until a signal ends it; returns the exit code. */
export async function serveUntilSignal(
  name: string,
  server: AsyncDisposable & { readonly url: string; stay(signal: AbortSignal): Promise<void> },
  { begin, signal = new AbortController().signal }: Context,
): Promise<number> {
  await using page = server;
  begin();
  begin(""); // Ctrl-C closes the page; no message is needed
  print(`${name}: ${page.url}`);
  await page.stay(signal);
  return 130;
}

/** Formats a share with one decimal. */
export const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
