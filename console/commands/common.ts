/**
 * Helpers of the commands: their arguments, refusals, and lists in flags.
 *
 * @module
 */

import { suggest } from "../../actors/options/option.ts";
import type { CommandContext } from "../command.ts";
import type { CommandSyntax, Flags } from "../flag.ts";
import {
  answersItself,
  type Arguments,
  helpOf,
  parseArguments,
  parseFlags,
  type ParseOptions,
} from "../parse.ts";
import { print, quoted } from "../terminal.ts";

/** The context of a command; without a signal, nothing interrupts it. */
export type Context = Pick<CommandContext, "begin"> & Partial<CommandContext>;

/** Runs a command; returns its exit code. */
export type Command = (args: readonly string[], context: Context) => Promise<number>;

/** Options of a command. */
interface DefineOptions extends ParseOptions {
  /** True if the command prints its help if it has no arguments. */
  readonly needsArguments?: boolean;
  /** The name in the help of a first argument that must not be a flag. */
  readonly subject?: string;
}

/**
 * Returns a command that answers `--help` and `--version`, and otherwise runs with its arguments.
 *
 * @param flags all flags of `syntax`.
 */
export const defineCommand = <const T extends Flags>(
  syntax: CommandSyntax,
  flags: T,
  { needsArguments = false, subject, ...options }: DefineOptions,
  run: (given: Arguments<T>, context: Context, args: readonly string[]) => Promise<number>,
): Command =>
async (args, context) => {
  if (needsArguments && args.length === 0) return print(helpOf(syntax)), 0;
  if (answersItself(args, syntax)) return 0;
  if (subject === undefined) return await run(parseArguments(args, flags, options), context, args);
  const [first = "", ...rest] = args;
  ensure(
    !first.startsWith("-"),
    `Cannot ${syntax.name}: the first argument must be ${subject}, received ${first}`,
  );
  return await run({ words: [first], flags: parseFlags(rest, flags) }, context, args);
};

/** Throws an error unless a condition holds. */
export function ensure(
  condition: unknown,
  message: string,
  Kind: ErrorConstructor = TypeError,
): asserts condition {
  if (!condition) throw new Kind(message);
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
  ensure(isRight, `Cannot ${cannot}: the number of ${what} must be ${must}, received ${received}`);
}

/** Checks the first word after a command. */
export function checkWord(
  command: string,
  word: string,
  words: readonly string[],
  must = `one of ${words.join(", ")}`,
): void {
  const near = suggest(word, words);
  const isKnown = words.includes(word);
  ensure(isKnown, `Cannot run ${quoted(`${command} ${word}`)}: it must be ${must}${near}`);
}

/** Returns a reader of values from a list, separated by commas. */
export const readSomeOf =
  <const T extends string>(choices: readonly T[]) => (text: string): readonly T[] | undefined => {
    const names = text.split(",") as T[];
    return names.every((name) => choices.includes(name)) ? names : undefined;
  };

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
