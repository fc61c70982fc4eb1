/** Errors of input that is refused, and texts from users in them. */

/** Maximum number of characters that {@linkcode quote} shows. */
const SHOWN_MAX = 80;

/**
 * Quotes a text on one line: control characters as JSON writes them, the end cut off if it is long.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * strictEqual(quote("0F0\n"), '"0F0\\n"');
 * ```
 */
export function quote(text: string): string {
  return JSON.stringify(text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text);
}

/** Returns an error of input that is refused: "Cannot X: Y must be Z, received V". */
export const refusal = (cannot: string, must: string, received: unknown): RangeError =>
  new RangeError(`Cannot ${cannot}: ${must}, received ${received}`);

/** Throws {@linkcode refusal} unless a condition holds. @throws {RangeError} */
export function assertInput(
  holds: boolean,
  cannot: string,
  must: string,
  received: unknown,
): asserts holds {
  if (!holds) throw refusal(cannot, must, received);
}

/** The result of `make`; undefined if it refuses its options with a RangeError. */
export function ifServed<T>(make: () => T): T | undefined {
  try {
    return make();
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
