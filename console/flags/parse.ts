/**
 * The arguments of a command, read by its declaration.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { inOneLine, quoted } from "../escape.ts";
import type { Flags, GivenFlags } from "./flag.ts";
import { dashed, meantFlag, respell } from "./spelling.ts";
import { convertValue } from "./values.ts";

/** How the arguments of a command are read. */
export interface ParseOptions {
  /** Whether words may stand beside the flags. */
  readonly takesWords?: boolean;
  /** Whether each flag may be given but once; else the last counts. */
  readonly isStrict?: boolean;
}

/** Arguments as they were typed: texts, and true for switches. */
export interface RawArguments {
  /** The flags by name. */
  readonly flags: Readonly<Record<string, string | true>>;
  /** The switches that were taken back, by name: with `--no`, or as `false`. */
  readonly takenBack: readonly string[];
  /** What is no flag. */
  readonly words: readonly string[];
}

/** Arguments that were read. */
export interface Arguments<T extends Flags> {
  /** The values of the flags that were given, by name. */
  readonly flags: GivenFlags<T>;
  /** What is no flag. */
  readonly words: readonly string[];
}

/**
 * Reads the arguments of a command.
 *
 * @throws {TypeError} when a flag is unknown or has no value, or a word stands where none may.
 * @throws {RangeError} when a value is not what the flag allows.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { parseArguments } from "@troupe/troupe/cli";
 *
 * const flags = { steps: { kind: "integer", help: "optimizer steps" } } as const;
 * const given = parseArguments(["run", "--steps", "4"], flags, { takesWords: true });
 * assert.deepEqual(given, { flags: { steps: 4 }, words: ["run"] });
 * ```
 */
export function parseArguments<const T extends Flags>(
  args: readonly string[],
  flags: T,
  options?: ParseOptions,
): Arguments<T> {
  const { flags: raw, words } = rawArguments(args, flags, options);
  const values = Object.entries(raw).map(([name, text]) =>
    [name, text === true ? true : convertValue(name, flags[name]!, text)] as const
  );
  return { flags: Object.fromEntries(values) as GivenFlags<T>, words };
}

/**
 * Reads the flags of a command without words; of a flag that is given more than once, the last
 * counts, and `--no-memory` takes a switch back.
 *
 * @throws {TypeError} when a flag is unknown, has no value, or an argument is no flag.
 * @throws {RangeError} when a value is not what the flag allows.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { parseFlags } from "@troupe/troupe/cli";
 *
 * const flags = {
 *   steps: { kind: "integer", aliases: ["max_iters"], help: "optimizer steps" },
 *   device: { kind: "choice", choices: ["native", "wasm"], help: "what computes" },
 * } as const;
 * assert.deepEqual(parseFlags(["--steps", "40"], flags), { steps: 40 });
 * assert.deepEqual(parseFlags(["--max_iters=40", "--steps", "4"], flags), { steps: 4 });
 * assert.throws(() => parseFlags(["--steps", "0"], flags), RangeError);
 * assert.throws(() => parseFlags(["--setps", "4"], flags), /did you mean --steps\?$/);
 * ```
 */
export function parseFlags<const T extends Flags>(
  args: readonly string[],
  flags: T,
): GivenFlags<T> {
  return parseArguments(args, flags).flags;
}

/**
 * The arguments of a command as they were typed.
 *
 * @throws {TypeError} when a flag is unknown, or a word stands where none may.
 * @throws {RangeError} when a switch is neither true nor false.
 */
export function rawArguments(
  args: readonly string[],
  flags: Flags,
  { takesWords = false, isStrict = false }: ParseOptions = {},
): RawArguments {
  const names = Object.keys(flags);
  const switches = names.filter((name) => flags[name]!.kind === "switch");
  const valued = names.filter((name) => !switches.includes(name));
  const respelled = respell(args, flags);
  checkSwitches(respelled, switches);
  checkFormer(args, respelled, flags);
  const parsed = parseArgs(respelled, {
    string: [...valued, "_"],
    boolean: switches,
    negatable: switches,
    collect: isStrict ? valued : [], // so that a flag given twice is seen
    unknown: (argument: string, key?: string) => {
      if (key !== undefined) throw unknownFlag(argument, flags, isStrict);
      return true;
    },
  });
  const words = parsed._.map(String);
  if (words.length > 0 && !takesWords) {
    throw new TypeError(
      `Cannot read flags: every argument must be a flag, received ${quoted(words[0]!)}`,
    );
  }
  const values: Record<string, string | true> = {};
  for (const name of names) {
    const raw: unknown = Array.isArray(parsed[name]) ? once(name, parsed[name]) : parsed[name];
    if (raw !== undefined && raw !== false) values[name] = raw === true ? true : String(raw);
  }
  const takenBack = switches.filter((name) =>
    parsed[name] === false && respelled.includes(`--no-${name}`)
  );
  return { flags: values, takenBack, words };
}

/**
 * Refuses flags that would change nothing.
 *
 * @param what is done, for the sentence.
 * @param read the names of the flags that are read for it.
 */
export function refuseOthers(what: string, read: readonly string[], given: object): void {
  const unread = Object.keys(given).find((name) => !read.includes(name));
  if (unread === undefined) return;
  throw new TypeError(
    `Cannot ${what}: flags must be among ${
      read.map((name) => `--${name}`).join(", ")
    }, received --${unread}`,
  );
}

/** Refuses `--tie=maybe`, which would be read as `--tie`. */
function checkSwitches(args: readonly string[], switches: readonly string[]): void {
  for (const argument of args) {
    if (argument === "--") return;
    const [, name = "", value = ""] = /^--([^=]+)=(.*)$/s.exec(argument) ?? [];
    if (!switches.includes(name)) continue;
    throw new RangeError(
      `Cannot use --${name}: it must be true or false, received ${quoted(value)}`,
    );
  }
}

/** Refuses a flag that has one value by its name and another by its former name. */
function checkFormer(args: readonly string[], respelled: readonly string[], flags: Flags): void {
  for (const [name, { formerly }] of Object.entries(flags)) {
    const given = new Set(respelled.filter((one) => one.startsWith(`--${name}=`)));
    if (given.size < 2 || !args.some((one) => dashed(one).split("=")[0] === `--${formerly}`)) {
      continue;
    }
    throw new TypeError(
      `Cannot read the flags: --${formerly}, the former name of --${name}, must have its value, received ${
        inOneLine([...given].join(" "))
      }`,
    );
  }
}

function unknownFlag(argument: string, flags: Flags, isStrict: boolean): TypeError {
  const [name = ""] = argument.replace(/^-+/, "").split("="), meant = meantFlag(name, flags);
  const all = Object.keys(flags).map((one) => `--${one}`).join(", ");
  return new TypeError(
    isStrict
      ? `Cannot read the flags: each must be one of ${all}, received ${quoted(argument)}${meant}`
      : `Cannot read flags: ${
        inOneLine(argument)
      } is not one of them; run with --help to see them all${meant}`,
  );
}

/** The one value that a flag was given, if any. */
function once(name: string, values: readonly string[]): string | undefined {
  const [value] = values;
  if (values.length <= 1 && value !== "") return value;
  const must = values.length > 1 ? "given once" : "followed by its value";
  throw new TypeError(
    `Cannot read the flags: --${name} must be ${must}, received ${quoted(values.join(" "))}`,
  );
}
