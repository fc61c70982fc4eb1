/**
 * Standard output and standard error: whole lines, whatever a terminal does meanwhile.
 *
 * @module
 */

import { escapeControls } from "./escape.ts";

/** Writes a line, or several, to standard error; control characters are shown as numbers. */
export function printError(line: string): void {
  writeAll(Deno.stderr, escapeControls(line) + "\n");
}

/** Writes a line, or several, to standard output; control characters are shown as numbers. */
export function print(line: string): void {
  writeAll(Deno.stdout, escapeControls(line) + "\n");
}

/** Where text goes. */
export type Output = { writeSync(data: Uint8Array): number };

const TERMINALS: readonly Output[] = [Deno.stdout, Deno.stderr].filter((to) => to.isTerminal());

/** Writes text without a line's end. What a terminal has hung up on is lost, and no failure. */
export function writeAll(to: Output, text: string): void {
  const bytes = new TextEncoder().encode(text);
  try {
    for (let done = 0; done < bytes.length;) done += to.writeSync(bytes.subarray(done));
  } catch (error) {
    if (!TERMINALS.includes(to) || (error as { code?: string }).code !== "EIO") throw error;
  }
}
