/**
 * Writes to the terminal: wrapped messages, status lines and progress.
 *
 * @module
 */

import { resultOr } from "../../kernels/internal.ts";
import type { TrainEvent } from "../options/train_events.ts";
import { escapeControls } from "../runtime/types.ts";

/** Returns the columns of the terminal, or 80 if they are unknown. */
export const terminalColumns = (): number => resultOr(() => Deno.consoleSize().columns, 0) || 80;

/**
 * Returns whether standard error is a terminal on which a line can be redrawn. With NO_COLOR, or on a
 * dumb terminal, no control characters are written.
 */
export const hasChangingLines = (): boolean =>
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
export function duration(seconds: number): string {
  const whole = Math.ceil(seconds), two = (n: number) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h${two(Math.floor(whole % 3600 / 60))}m`;
}

/** The line at the bottom of the terminal. Other output is printed above it. */
let foot: { clear(): void; draw(): void } | undefined;

/** Prints lines to standard error, with control characters as numbers. */
export function printError(line: string): void {
  writeLine(Deno.stderr, escapeControls(line));
}

/** Prints lines to standard output, with control characters as numbers. */
export function print(line: string): void {
  writeLine(Deno.stdout, escapeControls(line));
}

let isQuiet = false;

/** Prints nothing while a function runs. */
export async function quietly<T>(run: () => Promise<T>): Promise<T> {
  isQuiet = true;
  try {
    return await run();
  } finally {
    isQuiet = false;
  }
}

function writeLine(to: Output, line: string): void {
  if (isQuiet) return;
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
  foot = { clear, draw };
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
      foot = undefined;
      globalThis.removeEventListener("unload", clear);
    },
  };
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
  readonly unit: string;
  /** Seconds left; undefined if unknown. */
  readonly secondsLeft: number | undefined;
  /** Other measurements, such as `accuracy 0.934`. */
  readonly details?: readonly string[];
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
 * const measured = { ...standing, details: ["accuracy 0.934"], secondsLeft: undefined };
 * assert.match(progressLine(measured, 80), /  loss 3.142  accuracy 0.934  12345 tokens\/s$/);
 * ```
 */
export function progressLine(standing: Standing, columns: number): string {
  const { step, steps, loss, perSecond, unit, secondsLeft, details = [] } = standing;
  const done = `${step}/${steps}`, lossIs = `loss ${loss.toFixed(3)}`;
  const speed = `${Math.round(perSecond)} ${unit}/s`;
  const left = secondsLeft === undefined ? [] : [duration(secondsLeft)];
  const inWords = left.map((time) => `${time} left`);
  const [before, behind] = [`step ${done}`, [lossIs, ...details, speed, ...left].join("  ")];
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

const bar = (share: number, columns: number): string =>
  "█".repeat(Math.floor(share * columns)).padEnd(columns, "░");

/** Starts to show the progress of a run, until it is disposed of. */
export function openProgress(steps: number, unit: string) {
  const every = Math.max(1, Math.round(steps / 12));
  let line: StatusLine | undefined, first: { step: number; at: number } | undefined;
  return {
    step(step: number, loss: number, perSecond: number, details: readonly string[] = []) {
      const at = performance.now();
      first ??= { step, at };
      const each = (at - first.at) / (step - first.step) / 1000;
      const isKnown = step > first.step && step < steps;
      const secondsLeft = isKnown ? each * (steps - step) : undefined;
      if (!hasChangingLines()) {
        if (step % every !== 0 && step !== 1) return;
        const speed = `${Math.round(perSecond)} ${unit}/s`;
        const left = details.length > 0 && isKnown ? [`${duration(secondsLeft!)} left`] : [];
        const parts = [`loss ${loss.toFixed(3)}`, ...details, speed, ...left];
        return print(`step ${step}/${steps}  ${parts.join("  ")}`);
      }
      const standing = { details, step, steps, loss, perSecond, unit, secondsLeft };
      line ??= openStatusLine();
      line.show((columns) => progressLine(standing, columns));
    },
    [Symbol.dispose]() {
      line?.[Symbol.dispose]();
      line = undefined;
    },
  };
}

/** Formats metrics, each with its name. */
export const metricTexts = (metrics: Readonly<Record<string, number>> = {}): string[] =>
  Object.entries(metrics).map(([name, value]) => `${name} ${value.toFixed(3)}`);

/** Formats an evaluation. */
export const evaluationText = (
  { step, loss, metrics }: TrainEvent & { readonly type: "evaluation" },
): string =>
  `after step ${step}: ${[`held-out loss ${loss.toFixed(3)}`, ...metricTexts(metrics)].join("  ")}`;

/** Shows the events of a run of a script. Disposing removes the status line. */
export function openRunProgress(steps: number): ((event: TrainEvent) => void) & Disposable {
  const progress = openProgress(steps, "samples"), dispose = () => progress[Symbol.dispose]();
  let isTrained = false;
  const show = (event: TrainEvent) => {
    switch (event.type) {
      case "step": {
        isTrained = true;
        const { step, loss, tokensPerSecond, seconds, metrics } = event;
        const perSecond = `${(1 / seconds).toFixed(1)} steps/s`;
        return progress.step(step, loss, tokensPerSecond, [...metricTexts(metrics), perSecond]);
      }
      case "evaluation":
        return print(evaluationText(event));
      case "checkpoint":
        return print(`checkpoint ${event.path}`);
      case "end":
        dispose();
        if (isTrained || event.isInterrupted) return;
        return print(`all ${event.steps} steps were taken before: nothing was trained`);
    }
  };
  return Object.assign(show, { [Symbol.dispose]: dispose });
}
