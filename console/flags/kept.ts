/**
 * Flags that a file remembers: data, converted and bounded as if they had been typed.
 *
 * @module
 */

import { quoted } from "../escape.ts";
import { currentName, type Flags, type GivenFlags } from "./flag.ts";
import { convertValue } from "./values.ts";

/**
 * Reads what a file remembers of flags, each converted and bounded as if it had been typed.
 *
 * @param kept by name, without the dashes; what is none of `flags` is left out.
 * @param where the file, for messages.
 * @param mayImport whether parts may be others than those that come with Troupe: where the user has
 * written the file.
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
  mayImport = false,
): GivenFlags<T> {
  if (typeof kept !== "object" || kept === null || Array.isArray(kept)) {
    throw new TypeError(
      `Cannot use the flags of ${where}: they must be a record, received ${quoted(kept)}`,
    );
  }
  const values: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(kept)) {
    const name = currentName(key, flags);
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
    const known = flag.kind === "part" && !mayImport ? { ...flag, kind: "choice" as const } : flag;
    values[name] = value === true
      ? true
      : convertValue(`${name} of ${where}`, known, String(value));
  }
  return values as GivenFlags<T>;
}
