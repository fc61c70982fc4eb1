/**
 * Text from elsewhere, made safe to show: what would move the cursor, clear a screen, forge a line
 * or turn the direction of writing is shown as its number.
 *
 * @module
 */

const UNSAFE = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;

/** As JSON writes it, so that a line of JSON stays the same value. */
const escapeOne = (character: string): string =>
  character === "\n" ? "\\n" : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/**
 * Several lines with all control characters but line ends and tabs shown as numbers.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(escapeControls("a\x1b[2J\n\tb"), "a\\u001b[2J\n\tb");
 * ```
 */
export function escapeControls(text: string): string {
  return text.replace(UNSAFE, (one) => one === "\n" || one === "\t" ? one : escapeOne(one));
}

/**
 * One line: line ends are shown too.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(inOneLine("a\nb\x9b"), "a\\nb\\u009b");
 * ```
 */
export function inOneLine(text: string): string {
  return text.replace(UNSAFE, escapeOne);
}
