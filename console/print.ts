/**
 * Standard output and standard error: whole lines, whatever a terminal does meanwhile.
 *
 * @module
 */

import { escapeControls } from "./escape.ts";
import { terminalColumns, wrap } from "./terminal/terminal.ts";

/** What stands at the foot of the terminal: what is printed goes above it. */
export interface Foot {
  clear(): void;
  draw(): void;
}

let foot: Foot | undefined;

/** Sets what stands at the foot of the terminal, or takes it away. */
export function setFoot(next: Foot | undefined): void {
  foot = next;
}

/** Writes a line, or several, to standard error; control characters are shown as numbers. */
export function printError(line: string): void {
  writeLine(Deno.stderr, escapeControls(line));
}

/** Writes a line, or several, to standard output; control characters are shown as numbers. */
export function print(line: string): void {
  writeLine(Deno.stdout, escapeControls(line));
}

function writeLine(to: Output, line: string): void {
  if (!foot || !TERMINALS.includes(to)) return writeAll(to, line + "\n");
  foot.clear();
  writeAll(to, wrap(line, terminalColumns()) + "\n");
  foot.draw();
}

/** Where text goes. */
export type Output = { writeSync(data: Uint8Array): number };

const TERMINALS: readonly Output[] = [Deno.stdout, Deno.stderr].filter((to) => to.isTerminal());

/**
 * Writes text without a line's end. What a terminal has hung up on, or no program reads of standard
 * error, is lost, and no failure.
 *
 * @throws {Deno.errors.BrokenPipe} when no program reads standard output any more.
 */
export function writeAll(to: Output, text: string): void {
  const bytes = new TextEncoder().encode(text);
  try {
    for (let done = 0; done < bytes.length;) done += to.writeSync(bytes.subarray(done));
  } catch (error) {
    const { code, message } = error as Error & { readonly code?: string };
    if (TERMINALS.includes(to) && code === "EIO" || to === Deno.stderr && code === "EPIPE") return;
    (error as Error).message = `${message}: write 'standard output'`;
    throw error;
  }
}
