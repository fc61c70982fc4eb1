/**
 * Flags of a command: declared once, checked at the door, listed by `--help`.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { inOneLine, quoted } from "../escape.ts";

/** One flag. */
export interface Flag {
  /** What its values are; a path is taken from nobody but the user who types it. */
  readonly kind: "integer" | "number" | "text" | "path" | "choice" | "switch" | "own";
  /** What stands for the value in the help: `N`, `FILE`. */
  readonly value?: string;
  /** What it does, in a few words. */
  readonly help: string;
  /** Values of a choice. */
  readonly choices?: readonly string[];
  /** Reads a value of its own kind; undefined for what is none. */
  readonly read?: (text: string) => unknown;
  /** What a value of its own kind must be, in words. */
  readonly must?: string;
  /** Lowest value of a number; integers start at 1 unless said otherwise. */
  readonly minimum?: number;
  /** Highest value of a number; {@linkcode INTEGER_MAX} for integers unless said otherwise. */
  readonly maximum?: number;
  /** A number must stay below this. */
  readonly below?: number;
  /** The value where none is given. */
  readonly default?: number | string;
}

/** No count of anything is higher: beyond it, sizes overflow before they are allocated. */
export const INTEGER_MAX = 2 ** 31 - 1;

/** Flags by name, without the dashes. */
export type Flags = Readonly<Record<string, Flag>>;

/** The type of a flag's values. */
export type ValueOf<F extends Flag> = F extends { kind: "integer" | "number" } ? number
  : F extends { kind: "switch" } ? boolean
  : F extends { kind: "choice"; choices: readonly (infer C)[] } ? C
  : F extends { kind: "own"; read: (text: string) => infer V } ? Exclude<V, undefined>
  : string;

/** The values of the flags that were given, by name. */
export type GivenFlags<T extends Flags> = { readonly [K in keyof T]?: ValueOf<T[K]> };

/** The values of all flags: those without a default may be absent. */
export type FlagValues<T extends Flags> =
  & { readonly [K in keyof T as T[K] extends { default: unknown } ? K : never]: ValueOf<T[K]> }
  & { readonly [K in keyof T as T[K] extends { default: unknown } ? never : K]?: ValueOf<T[K]> };

/**
 * Fills in what was not given: from `given`, else from the flags' defaults.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { withDefaults } from "@troupe/troupe/cli";
 *
 * const flags = { steps: { kind: "integer", default: 300, help: "optimizer steps" } } as const;
 * assert.equal(withDefaults(flags, {}).steps, 300);
 * assert.equal(withDefaults(flags, { steps: 40 }).steps, 40);
 * ```
 */
export function withDefaults<const T extends Flags>(
  flags: T,
  given: GivenFlags<T>,
): FlagValues<T> {
  const defaults = Object.entries(flags).flatMap(([name, { default: value }]) =>
    value === undefined ? [] : [[name, value]]
  );
  return { ...Object.fromEntries(defaults), ...given } as FlagValues<T>;
}

/**
 * Reads the flags of a command; of a flag that is given more than once, the last counts.
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
 *   steps: { kind: "integer", help: "optimizer steps" },
 *   device: { kind: "choice", choices: ["native", "wasm"], help: "what computes" },
 * } as const;
 * assert.deepEqual(parseFlags(["--steps", "40"], flags), { steps: 40 });
 * assert.deepEqual(parseFlags(["--steps=40", "--steps", "4"], flags), { steps: 4 });
 * assert.throws(() => parseFlags(["--steps", "0"], flags), RangeError);
 * assert.throws(() => parseFlags(["--setps", "4"], flags), TypeError);
 * ```
 */
export function parseFlags<const T extends Flags>(
  args: readonly string[],
  flags: T,
): GivenFlags<T> {
  const given = Object.entries(rawFlags(args, flags));
  return Object.fromEntries(
    given.map(([name, raw]) => [name, raw === true ? true : convert(name, flags[name]!, raw)]),
  ) as GivenFlags<T>;
}

/**
 * The flags of a command as they were typed, by name: texts, and true for switches.
 *
 * @throws {TypeError} when a flag is unknown, or an argument is no flag.
 */
export function rawFlags(
  args: readonly string[],
  flags: Flags,
): Readonly<Record<string, string | true>> {
  const names = Object.keys(flags);
  const switches = names.filter((name) => flags[name]!.kind === "switch");
  const valued = names.filter((name) => !switches.includes(name));
  const parsed = parseArgs(joinValues(args, valued), {
    string: valued,
    boolean: switches,
    unknown: (argument: string, key?: string) => {
      throw new TypeError(
        key
          ? `Cannot read flags: ${
            inOneLine(argument)
          } is not one of them; run with --help to see them all`
          : `Cannot read flags: every argument must be a flag, received ${quoted(argument)}`,
      );
    },
  });
  const values: Record<string, string | true> = {};
  for (const name of names) {
    const raw: unknown = parsed[name];
    if (raw !== undefined && raw !== false) values[name] = raw === true ? true : String(raw);
  }
  return values;
}

/** `--lr -1` becomes `--lr=-1`: else a value that starts with a dash would be read as a flag. */
function joinValues(args: readonly string[], valued: readonly string[]): string[] {
  const joined: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const flag = args[i]!, value = args[i + 1];
    const isJoined = flag.startsWith("--") && valued.includes(flag.slice(2)) &&
      value !== undefined && !value.startsWith("--");
    joined.push(isJoined ? `${flag}=${args[++i]}` : flag);
  }
  return joined;
}

/**
 * Reads what a file remembers of flags, each converted and bounded as if it had been typed.
 *
 * @param kept by name, without the dashes; what is none of `flags` is left out.
 * @param where the file, for messages.
 * @throws {TypeError} when `kept` is no record, or a value is none that could have been typed.
 * @throws {RangeError} when a value is not what its flag allows.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { readKeptFlags } from "@troupe/troupe/cli";
 *
 * const flags = { steps: { kind: "integer", help: "optimizer steps" } } as const;
 * assert.deepEqual(readKeptFlags({ steps: 40, out: "/" }, flags, "run.json"), { steps: 40 });
 * assert.throws(() => readKeptFlags({ steps: -5 }, flags, "run.json"), {
 *   message: 'Cannot use --steps of run.json: it must be a whole number from 1, received "-5"',
 * });
 * ```
 */
export function readKeptFlags<const T extends Flags>(
  kept: unknown,
  flags: T,
  where: string,
): GivenFlags<T> {
  if (typeof kept !== "object" || kept === null || Array.isArray(kept)) {
    throw new TypeError(
      `Cannot use the flags of ${where}: they must be a record, received ${quoted(kept)}`,
    );
  }
  const values: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(kept)) {
    if (!Object.hasOwn(flags, name)) continue;
    const flag = flags[name]!;
    const isTyped = flag.kind === "switch"
      ? typeof value === "boolean"
      : typeof value === "string" || typeof value === "number";
    if (!isTyped) {
      const must = flag.kind === "switch" ? "true or false" : "text or a number";
      throw new TypeError(
        `Cannot use --${name} of ${where}: it must be ${must}, received ${quoted(value)}`,
      );
    }
    if (value === false) continue;
    values[name] = value === true ? true : convert(`${name} of ${where}`, flag, String(value));
  }
  return values as GivenFlags<T>;
}

function convert(name: string, flag: Flag, raw: string): unknown {
  const { kind, choices = [], read, must } = flag;
  if (raw === "") throw new TypeError(`Cannot read flags: --${name} must have a value`);
  if (kind === "choice" && !choices.includes(raw)) {
    throw new RangeError(
      `Cannot use --${name}: it must be one of ${choices.join(", ")}, received ${quoted(raw)}`,
    );
  }
  if (read !== undefined) {
    const value = read(raw);
    if (value !== undefined) return value;
    throw new RangeError(`Cannot use --${name}: it must be ${must}, received ${quoted(raw)}`);
  }
  return kind === "integer" || kind === "number" ? convertNumber(name, flag, raw) : raw;
}

/** Decimal, as people write it: no `0x10`, and no `1e3` where things are counted. */
const DECIMAL = { integer: /^[+-]?\d+$/, number: /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i };

function convertNumber(name: string, flag: Flag, raw: string): number {
  const kind = flag.kind as "integer" | "number", isInteger = kind === "integer";
  const { minimum = isInteger ? 1 : 0, maximum = isInteger ? INTEGER_MAX : Number.MAX_VALUE } =
    flag;
  const { below = Infinity } = flag;
  const value = DECIMAL[kind].test(raw) ? Number(raw) : NaN;
  const received = `received ${quoted(raw)}`;
  if (value > maximum) {
    throw new RangeError(`Cannot use --${name}: it must be at most ${maximum}, ${received}`);
  }
  if (value >= minimum && value < below) return value;
  const what = isInteger ? "a whole number" : "a number";
  const limit = below === Infinity ? "" : ` and below ${below}`;
  throw new RangeError(
    `Cannot use --${name}: it must be ${what} from ${minimum}${limit}, ${received}`,
  );
}

/** The flags as lines of help. */
export function helpLines(flags: Flags): string[] {
  const width = 30;
  return Object.entries(flags).map(([name, flag]) => {
    const value = flag.value ?? flag.choices?.join("|") ?? "N";
    const left = flag.kind === "switch" ? `--${name}` : `--${name} ${value}`;
    const right = flag.default === undefined ? flag.help : `${flag.help} (${flag.default})`;
    const gap = left.length > width
      ? `\n${" ".repeat(width + 2)}`
      : " ".repeat(width - left.length);
    return `  ${left}${gap}  ${right}`;
  });
}
