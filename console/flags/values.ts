/**
 * The values of flags: converted from text, and bounded, wherever the text stands.
 *
 * @module
 */

import { quoted } from "../escape.ts";
import { type Flag, INTEGER_MAX } from "./flag.ts";

/**
 * The value of a flag.
 *
 * @param name of the flag, and where it stands if not on the command line.
 * @throws {TypeError} when there is no value.
 * @throws {RangeError} when the value is not what the flag allows.
 */
export function convertValue(name: string, flag: Flag, raw: string): unknown {
  const { kind, choices = [], read, must } = flag;
  if (raw === "") throw new TypeError(`Cannot read flags: --${name} must have a value`);
  if (kind === "choice" && !read && !choices.includes(raw)) {
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

/** The lowest and the highest value of a number. */
export function boundsOf({ kind, minimum, maximum }: Flag): readonly [number, number] {
  return kind === "integer"
    ? [minimum ?? 1, maximum ?? INTEGER_MAX]
    : [minimum ?? 0, maximum ?? Number.MAX_VALUE];
}

function convertNumber(name: string, flag: Flag, raw: string): number {
  const kind = flag.kind as "integer" | "number", { below = Infinity } = flag;
  const [minimum, maximum] = boundsOf(flag);
  const value = DECIMAL[kind].test(raw) ? Number(raw) : NaN;
  const received = `received ${quoted(raw)}`;
  if (value > maximum) {
    throw new RangeError(`Cannot use --${name}: it must be at most ${maximum}, ${received}`);
  }
  if (value >= minimum && value < below) return value;
  const what = kind === "integer" ? "a whole number" : "a number";
  const limit = below === Infinity ? "" : ` and below ${below}`;
  throw new RangeError(
    `Cannot use --${name}: it must be ${what} from ${minimum}${limit}, ${received}`,
  );
}
