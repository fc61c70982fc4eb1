/**
 * Writes to the terminal: wrapped messages, status lines and progress.
 *
 * @module
 */

import { commandLine } from "../actors/options/limits.ts";
import type { Task } from "../actors/registry/task.ts";
import { escapeControls } from "../actors/runtime/types.ts";
import { type Fetching, watchFetches } from "../kernels/internal.ts";

export { quoted } from "../actors/options/file_schema.ts";
export { escapeControls, inOneLine } from "../actors/runtime/types.ts";

/** Returns the columns of the terminal, or 80 if they are unknown. */
export function terminalColumns(): number {
  try {
    return Deno.consoleSize().columns || 80;
  } catch {
    return 80;
  }
}

/**
 * Returns whether standard error is a terminal on which a line can be redrawn. With NO_COLOR, or on a
 * dumb terminal, no control characters are written.
 */
const hasChangingLines = (): boolean =>
  Deno.stderr.isTerminal() && !Deno.noColor && Deno.env.get("TERM") !== "dumb";

/**
 * Breaks lines between words and indents continued lines by two spaces. A word that is too long, such
 * as a path, is not broken, so that it can be copied.
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

/** Formats a time in its two largest units. */
function duration(seconds: number): string {
  const whole = Math.ceil(seconds), two = (n: number) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h${two(Math.floor(whole % 3600 / 60))}m`;
}

/** A line at the bottom of the terminal. Other output is printed above it. */
interface Foot {
  clear(): void;
  draw(): void;
}

let foot: Foot | undefined;

/** Sets or removes the line at the bottom of the terminal. */
function setFoot(next: Foot | undefined): void {
  foot = next;
}

/** Prints lines to standard error, with control characters as numbers. */
export function printError(line: string): void {
  writeLine(Deno.stderr, escapeControls(line));
}

/** Prints lines to standard output, with control characters as numbers. */
export function print(line: string): void {
  writeLine(Deno.stdout, escapeControls(line));
}

function writeLine(to: Output, line: string): void {
  if (!foot || !TERMINALS.includes(to)) return writeAll(to, line + "\n");
  foot.clear();
  writeAll(to, wrap(line, terminalColumns()) + "\n");
  foot.draw();
}

/** A stream to write text to. */
export type Output = { writeSync(data: Uint8Array): number };

const TERMINALS: readonly Output[] = [Deno.stdout, Deno.stderr].filter((to) => to.isTerminal());

/**
 * Writes text without a final newline. Text to a terminal that has hung up, or to standard error that
 * no program reads, is dropped without an error.
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

/** Remedies for error messages of the system, of Deno and of `node:fs`. */
const REMEDIES: readonly (readonly [message: RegExp, remedy: string])[] = [
  [/symbolic links/i, "name the file or folder itself, as its links lead back to themselves"],
  [/name too long/i, "choose a shorter name"],
  [/open files/i, "close other programs, or raise the limit with ulimit -n"],
  [/space left|quota/i, "free space on its disk, or name another"],
  [/such file/i, "make its folder first, or name another"],
  [/not a directory/i, "name another, below folders alone"],
  [/a directory/i, "name a file"],
  [/permi|read-only/i, "name another, or change what this user may do with it"],
  [/./, "name another"],
];

/** Index of the first remedy that messages of other modules already imply. */
const IMPLIED = 4;

/** `Is a directory (os error 21): open 'x'`, or the same for a module or program. */
const SYSTEM_ERROR =
  /^(?:(?:Failed to \w+|Import) '([^']+)'(?: failed\.\s+0)?: )?([^'\n]+?) \(os error \d+\)(?:: \w+ '(.+)')?$/s;

/** `ELOOP: too many symbolic links encountered, open 'x'`, as in `node:fs`. */
const NODE_ERROR = /^E[A-Z]+: ([^'\n]+), (\w+)(?= '|$)/;

/** A system error at the end of a message. */
const AT_END = /received .*\(os error \d+\)[^;]*$/s;

/** V8's messages for a string or an array that is too large. */
const TOO_LARGE =
  /^(Invalid string length|Invalid (typed )?array length|Array buffer allocation f)/;

/**
 * Returns an error of the system or of memory with a remedy in its message; other errors unchanged.
 *
 * @param args arguments of the running command.
 */
export function explainSystemError(error: unknown, args: readonly string[]): unknown {
  if (!(error instanceof Error)) return error;
  const { message } = error, command = commandLine(...args);
  const [, subject, reason = "", named] =
    SYSTEM_ERROR.exec(message.replace(NODE_ERROR, "$1 (os error 0): $2")) ?? [];
  const path = named ?? subject ?? `the files of ${command}`;
  const remedyIn = (text: string) => REMEDIES.findIndex(([of]) => of.test(text));
  const remedy = REMEDIES[remedyIn(reason || message)]![1];
  if (TOO_LARGE.test(message)) {
    error.message =
      `Cannot run ${command}: each text and array that it makes must fit in memory, ` +
      "a text in 512 MiB, received a larger one; name a smaller file or size";
  } else if (reason !== "" && !message.startsWith("Cannot ")) {
    error.message =
      `Cannot use ${path}: it must be a path that this user can use, received ${reason}; ${remedy}`;
  } else if (AT_END.test(message) && remedyIn(message) < IMPLIED) {
    error.message = `${message}; ${remedy}`;
  }
  return error;
}

/** A line that is redrawn. Disposing removes it. */
interface StatusLine extends Disposable {
  /**
   * Shows a text, immediately or after a short delay.
   *
   * @param render formats the text, with at most `columns` characters.
   */
  show(render: (columns: number) => string): void;
}

/** Least milliseconds between two drawings. */
const DRAW_MS = 100;

/** Columns for the echo of Ctrl-C, plus one: some terminals wrap after the last column. */
const ROOM = 3;

/** Moves to the start of the row and clears it. */
const CLEAR = "\r\x1b[2K";

/** Opens a status line on standard error, which must be a terminal that can clear a row. */
function openStatusLine(): StatusLine {
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
  // Deno.exit does not dispose.
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

const LOOK_MS = 500;

/** Starts to show downloads, if a line of the terminal can be redrawn. */
export function showFetches(): void {
  watchFetches(hasChangingLines() ? show : undefined);
}

function show(fetching: Fetching): Disposable {
  const began = performance.now(), line = openStatusLine();
  const look = () => {
    const bytes = fetching.cachedBytes(), seconds = (performance.now() - began) / 1000;
    line.show((columns) => fetchLine(fetching, bytes, seconds, columns));
  };
  look();
  const timer = setInterval(look, LOOK_MS);
  Deno.unrefTimer(timer);
  return {
    [Symbol.dispose]() {
      clearInterval(timer);
      line[Symbol.dispose]();
    },
  };
}

/**
 * Formats the line of a download, with the most important parts that fit.
 *
 * @param bytes bytes in the cache.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const fetched = { name: "onnxruntime-node", megabytes: 290 };
 * assert.equal(fetchLine(fetched, 0, 7, 50), "onnxruntime-node: fetching 290 MB  7s");
 * assert.equal(fetchLine(fetched, 58e6, 75, 50), "onnxruntime-node: 58 of 290 MB unpacked  1m15s");
 * assert.equal(fetchLine(fetched, 58e6, 75, 21), "58 of 290 MB  1m15s");
 * ```
 */
export function fetchLine(
  { name, megabytes }: Pick<Fetching, "name" | "megabytes">,
  bytes: number,
  seconds: number,
  columns: number,
): string {
  const time = duration(seconds), done = Math.min(megabytes, Math.round(bytes / 1e6));
  const lines = done === 0
    ? [`${name}: fetching ${megabytes} MB  ${time}`, `fetching ${megabytes} MB  ${time}`]
    : [
      `${name}: ${done} of ${megabytes} MB unpacked  ${time}`,
      `${done} of ${megabytes} MB  ${time}`,
    ];
  return [...lines, time].find(({ length }) => length <= columns) ?? "";
}

/** Progress of a run after a step. */
interface Standing {
  /** Steps taken. */
  readonly step: number;
  /** Steps of the whole run. */
  readonly steps: number;
  /** Loss of the last step. */
  readonly loss: number;
  /** Throughput per second. */
  readonly perSecond: number;
  /** Unit of the throughput. */
  readonly unit: Task["unit"];
  /** Seconds left; undefined if unknown. */
  readonly secondsLeft: number | undefined;
}

/** Shows the progress of a run. Disposing removes the status line. */
interface Progress extends Disposable {
  /** Reports a step. */
  step(step: number, loss: number, perSecond: number): void;
}

/** Columns of the bar between step and loss. */
const BAR = { least: 8, most: 40 } as const;

/**
 * Formats the progress line, with the most important parts that fit.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const standing = { step: 150, steps: 600, loss: 3.1415, unit: "tokens", perSecond: 12_345 } as const;
 * const at = (columns: number) => progressLine({ ...standing, secondsLeft: 75 }, columns);
 * assert.equal(at(60), "step 150/600  ██░░░░░░░░░  loss 3.142  12345 tokens/s  1m15s");
 * assert.equal(at(40), "step 150/600  loss 3.142  1m15s left");
 * assert.equal(at(21), "150/600  loss 3.142");
 * assert.equal(at(9), "150/600");
 * ```
 */
export function progressLine(standing: Standing, columns: number): string {
  const { step, steps, loss, perSecond, unit, secondsLeft } = standing;
  const done = `${step}/${steps}`, lossIs = `loss ${loss.toFixed(3)}`;
  const speed = `${Math.round(perSecond)} ${unit}/s`;
  const left = secondsLeft === undefined ? [] : [duration(secondsLeft)];
  const inWords = left.map((time) => `${time} left`);
  const [before, behind] = [`step ${done}`, [lossIs, speed, ...left].join("  ")];
  const room = columns - before.length - behind.length - 4;
  if (room >= BAR.least) {
    return `${before}  ${bar(step / steps, Math.min(BAR.most, room))}  ${behind}`;
  }
  const shorter = [
    [before, lossIs, speed, ...inWords],
    [before, lossIs, speed, ...left],
    [before, lossIs, ...inWords],
    [before, lossIs],
    [done, lossIs],
    [done],
  ].map((parts) => parts.join("  "));
  return shorter.find(({ length }) => length <= columns) ?? done.slice(0, columns);
}

const bar = (share: number, columns: number): string => {
  const full = Math.floor(share * columns);
  return "█".repeat(full) + "░".repeat(columns - full);
};

/** Starts to show the progress of a run. */
export function openProgress(steps: number, unit: Task["unit"]): Progress {
  const every = Math.max(1, Math.round(steps / 12));
  let line: StatusLine | undefined, first: { step: number; at: number } | undefined;
  return {
    step(step, loss, perSecond) {
      if (!hasChangingLines()) {
        if (step % every !== 0 && step !== 1) return;
        const speed = `${Math.round(perSecond)} ${unit}/s`;
        return print(`step ${step}/${steps}  loss ${loss.toFixed(3)}  ${speed}`);
      }
      const at = performance.now();
      first ??= { step, at };
      const each = (at - first.at) / (step - first.step) / 1000;
      const isKnown = step > first.step && step < steps;
      const secondsLeft = isKnown ? each * (steps - step) : undefined;
      const standing = { step, steps, loss, perSecond, unit, secondsLeft };
      line ??= openStatusLine();
      line.show((columns) => progressLine(standing, columns));
    },
    [Symbol.dispose]() {
      line?.[Symbol.dispose]();
      line = undefined;
    },
  };
}
