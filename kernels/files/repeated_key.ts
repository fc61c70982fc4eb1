/**
 * Names that an object of a JSON text has twice, which `JSON.parse` does not tell.
 *
 * @module
 */

/** A string, or what begins or ends an object or a list, or comes after a name. */
const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\]:]/g;

/**
 * The first name that an object has twice, at any depth; undefined where there is none.
 *
 * @param text that `JSON.parse` has accepted.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(repeatedKey('{"a": {"b": 1}, "b": ["a", "a"]}'), undefined);
 * assert.equal(repeatedKey('{"a": {"b": 1, "\\u0062": 2}}'), "b");
 * ```
 */
export function repeatedKey(text: string): string | undefined {
  const open: Set<string>[] = [];
  let last = "";
  for (const [token] of text.matchAll(TOKEN)) {
    if (token === "{" || token === "[") open.push(new Set());
    else if (token === "}" || token === "]") open.pop();
    else if (token === ":") {
      const name = JSON.parse(last) as string, names = open.at(-1)!;
      if (names.has(name)) return name;
      names.add(name);
    } else last = token;
  }
}
