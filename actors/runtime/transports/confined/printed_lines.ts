/**
 * What a confined process prints, shown on the standard error of the program: line by line, each
 * begun with the name of the actor and without what would move a cursor or forge a line, and not more
 * of it than somebody can read.
 *
 * @module
 */

import { inOneLine } from "../../world/escape.ts";

/** Most characters of a line that are shown. */
const MAX_LINE = 1000;

/** Most lines that are shown within one second. */
const MAX_LINES = 100;

const SECOND_MS = 1000;

/** Milliseconds between two looks at one that prints more than is shown. */
const PATIENCE_MS = 20;

/** Shows what comes until the end. Resolves then, or when the stream is cancelled. */
export async function showLines(
  from: ReadableStreamDefaultReader<Uint8Array>,
  actor: string,
  show: (line: string) => void = write,
): Promise<void> {
  const decoder = new TextDecoder(), name = inOneLine(actor);
  let line = "", shown = 0, hidden = 0, since = performance.now();
  const showLine = () => {
    const now = performance.now();
    if (now - since > SECOND_MS) {
      if (hidden > 0) show(`[${name}] … and ${hidden} lines more`);
      [shown, hidden, since] = [0, 0, now];
    }
    if (shown++ < MAX_LINES) show(`[${name}] ${inOneLine(line)}`);
    else hidden++;
    line = "";
  };
  for (;;) {
    const { done, value } = await from.read().catch(() => ({ done: true, value: undefined }));
    if (done || !value) break;
    const [first = "", ...rest] = decoder.decode(value, { stream: true }).split("\n");
    line = (line + first).slice(0, MAX_LINE);
    for (const next of rest) {
      showLine();
      line = next.slice(0, MAX_LINE);
    }
    if (hidden > 0) await new Promise((resolve) => setTimeout(resolve, PATIENCE_MS));
  }
  if (line) showLine();
  if (hidden > 0) show(`[${name}] … and ${hidden} lines more`);
}

function write(line: string): void {
  const bytes = new TextEncoder().encode(`${line}\n`);
  for (let sent = 0; sent < bytes.length;) sent += Deno.stderr.writeSync(bytes.subarray(sent));
}
