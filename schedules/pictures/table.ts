/** Rows of cells as lines of text. */

/** How a table looks. */
export interface TableOptions {
  /** The columns that begin at their left edge, such as words; numbers end at their right edge. */
  readonly left?: readonly number[];
  /** A first cell that is wider stands on a line of its own, above the rest of its row. */
  readonly firstWidthMax?: number;
}

/**
 * A table: a line for each row, columns two spaces apart, each as wide as its widest cell.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 *
 * deepStrictEqual(formatTable([["name", "time", ""], ["gpipe", "21", "x"]], { left: [0, 2] }), [
 *   "name   time",
 *   "gpipe    21  x",
 * ]);
 * ```
 */
export function formatTable(
  rows: readonly (readonly string[])[],
  { left = [0], firstWidthMax = Infinity }: TableOptions = {},
): string[] {
  const columns = Math.max(0, ...rows.map((row) => row.length));
  const isBroken = (cell: string, i: number) => i === 0 && cell.length > firstWidthMax;
  const widths = Array.from(
    { length: columns },
    (_, i) => Math.max(0, ...rows.map((row) => isBroken(row[0]!, i) ? 0 : row[i]?.length ?? 0)),
  );
  const pad = (cell: string, i: number) =>
    left.includes(i) ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!);
  return rows.flatMap((row) => {
    const isBeside = !isBroken(row[0] ?? "", 0), cells = isBeside ? row : ["", ...row.slice(1)];
    const line = cells.map(pad).join("  ").trimEnd();
    return isBeside ? [line] : [row[0]!, line];
  });
}
