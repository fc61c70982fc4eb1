/** A received text in quotes, as error messages show it. */

/** Characters that are shown. */
const SHOWN_MAX = 80;

/**
 * The text on one line, its control characters as JSON writes them, cut where it is long.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * strictEqual(quoted("0F0\n"), '"0F0\\n"');
 * ```
 */
export function quoted(text: string): string {
  return JSON.stringify(text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text);
}
