/**
 * A line at the foot of the terminal that changes in place. What is printed meanwhile goes above it.
 *
 * It never wraps, as a terminal takes back one row only; it leaves room for the `^C` that a terminal
 * shows behind it. The cursor stays visible, so nothing is to be put right when a program is killed.
 *
 * @module
 */

import { setFoot, writeAll } from "../print.ts";
import { terminalColumns } from "./terminal.ts";

/** A line that changes; disposing of it takes it away. */
export interface StatusLine extends Disposable {
  /**
   * Shows it, at once or soon.
   *
   * @param render makes the text, of at most so many characters.
   */
  show(render: (columns: number) => string): void;
}

/** It is drawn at most so often. */
const DRAW_MS = 100;

/** What a terminal shows of Ctrl-C, and one column more: in the last one some begin a new row. */
const ROOM = 3;

/** Goes to the begin of the row, and clears it. */
const CLEAR = "\r\x1b[2K";

/** Opens a status line on standard error, which must be a terminal that can clear a row. */
export function openStatusLine(): StatusLine {
  let render: ((columns: number) => string) | undefined, isDrawn = false;
  let drawnAt = -Infinity, timer: ReturnType<typeof setTimeout> | undefined;
  const clear = () => {
    if (isDrawn) writeAll(Deno.stderr, CLEAR);
    isDrawn = false;
  };
  const draw = () => {
    clearTimeout(timer);
    timer = undefined;
    const text = render?.(Math.max(1, terminalColumns() - ROOM));
    if (text === undefined) return;
    writeAll(Deno.stderr, CLEAR + text);
    [isDrawn, drawnAt] = [true, performance.now()];
  };
  setFoot({ clear, draw });
  // Deno.exit disposes of nothing.
  globalThis.addEventListener("unload", clear);
  return {
    show(next) {
      render = next;
      const wait = drawnAt + DRAW_MS - performance.now();
      if (wait <= 0) return draw();
      timer ??= setTimeout(draw, wait);
      Deno.unrefTimer(timer);
    },
    [Symbol.dispose]() {
      clearTimeout(timer);
      clear();
      setFoot(undefined);
      globalThis.removeEventListener("unload", clear);
    },
  };
}
