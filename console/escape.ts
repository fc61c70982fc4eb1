/**
 * Values from elsewhere, made safe to show: see escape.ts of the runtime.
 *
 * @module
 */

import { inOneLine } from "../actors/runtime/world/escape.ts";

export { escapeControls, inOneLine } from "../actors/runtime/world/escape.ts";

/** Characters of a value that are shown. */
const SHOWN_MAX = 200;

/**
 * A value in quotes, on one line, and not longer than a reader needs.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(quoted("runs\nmine"), '"runs\\nmine"');
 * assert.equal(quoted("x".repeat(1000)).length, 203);
 * ```
 */
export function quoted(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "nothing";
  return `"${inOneLine(text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text)}"`;
}
