/**
 * A table in Markdown; `deno fmt` makes its columns even.
 *
 * @module
 */

/** @param rows cells, those of the head first. */
export function markdownTable([head = [], ...rows]: readonly (readonly string[])[]): string {
  return [head, head.map(() => "---"), ...rows].map((row) => `| ${row.join(" | ")} |\n`).join("");
}
