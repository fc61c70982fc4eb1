/**
 * What the terminal is, and text made to fit into it.
 *
 * @module
 */

/** Columns of the terminal; 80 where it does not tell. */
export function terminalColumns(): number {
  try {
    return Deno.consoleSize().columns || 80;
  } catch {
    return 80;
  }
}

/**
 * Whether standard error is a terminal on which a line can change: with NO_COLOR, and where the
 * terminal is a dumb one, no control character is written.
 */
export const hasChangingLines = (): boolean =>
  Deno.stderr.isTerminal() && !Deno.noColor && Deno.env.get("TERM") !== "dumb";

/**
 * Breaks lines between words; what goes on is indented by two. A word that is too long, such as a
 * path, stays in one piece, to be copied.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(wrap("the loss is not finite\nstep 2", 12), "the loss is\n  not finite\nstep 2");
 * assert.equal(wrap("see runs/of/somebody/else", 8), "see\n  runs/of/somebody/else");
 * ```
 */
export function wrap(text: string, columns: number): string {
  return text.split("\n").map((line) => {
    const rows: string[] = [];
    let row = "";
    for (const [i, word] of line.split(" ").entries()) {
      const next = i === 0 ? word : `${row} ${word}`;
      if (i === 0 || next.length <= columns || row.trim() === "") row = next;
      else {
        rows.push(row);
        row = `  ${word}`;
      }
    }
    return [...rows, row].join("\n");
  }).join("\n");
}

/** A time in its two largest units. */
export function duration(seconds: number): string {
  const whole = Math.ceil(seconds), two = (n: number) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h${two(Math.floor(whole % 3600 / 60))}m`;
}
