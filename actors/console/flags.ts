/**
 * Flags of a command: declared once, checked at the door, listed by `--help`.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";

/** One flag. */
export interface Flag {
  /** What its values are. */
  readonly kind: "integer" | "number" | "text" | "choice" | "switch" | "own";
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
  /** A number must stay below this. */
  readonly below?: number;
  /** The value where none is given. */
  readonly default?: number | string;
}

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
 * import { withDefaults } from "@troupe/troupe/actors";
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
 * import { parseFlags } from "@troupe/troupe/actors";
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
  const names = Object.keys(flags);
  const switches = names.filter((name) => flags[name]!.kind === "switch");
  const valued = names.filter((name) => !switches.includes(name));
  const parsed = parseArgs(joinValues(args, valued), {
    string: valued,
    boolean: switches,
    unknown: (argument: string, key?: string) => {
      throw new TypeError(
        key
          ? `Cannot read flags: ${argument} is not one of them; run with --help to see them all`
          : `Cannot read flags: every argument must be a flag, received "${argument}"`,
      );
    },
  });
  const values: Record<string, unknown> = {};
  for (const name of names) {
    const raw: unknown = parsed[name], flag = flags[name]!;
    if (raw === undefined || raw === false) continue;
    values[name] = raw === true ? true : convert(name, flag, String(raw));
  }
  return values as GivenFlags<T>;
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

function convert(name: string, flag: Flag, raw: string): unknown {
  const { kind, choices = [], read, must } = flag;
  if (raw === "") throw new TypeError(`Cannot read flags: --${name} must have a value`);
  if (kind === "choice" && !choices.includes(raw)) {
    throw new RangeError(
      `Cannot use --${name}: it must be one of ${choices.join(", ")}, received "${raw}"`,
    );
  }
  if (read !== undefined) {
    const value = read(raw);
    if (value !== undefined) return value;
    throw new RangeError(`Cannot use --${name}: it must be ${must}, received "${raw}"`);
  }
  if (kind !== "integer" && kind !== "number") return raw;
  const value = Number(raw), { minimum = kind === "integer" ? 1 : 0, below = Infinity } = flag;
  const isRight = kind === "integer" ? Number.isSafeInteger(value) : Number.isFinite(value);
  if (raw.trim() === "" || !isRight || value < minimum || value >= below) {
    const what = kind === "integer" ? "a whole number" : "a number";
    const limit = below === Infinity ? "" : ` and below ${below}`;
    throw new RangeError(
      `Cannot use --${name}: it must be ${what} from ${minimum}${limit}, received "${raw}"`,
    );
  }
  return value;
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
