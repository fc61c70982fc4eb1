/** Text pictures: a timeline with a row for each worker and time to the right, and tables. */

import { type Action, formatAction } from "../action.ts";
import { type Analysis, timedActions } from "../analysis/analyze.ts";
import { assertInput } from "../errors.ts";

/** The step between ticks: 1, 2 or 5 times a power of ten, so that at most `most` ticks fit. */
export function tickStep(range: number, most: number): number {
  if (range <= 0) return 1;
  const least = range / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5, 10].find((factor) => factor * power >= least * (1 - 1e-9)) ?? 10);
}

/** The ticks from 0 to `range`, and their step. */
export function ticks(range: number, most: number): number[] {
  const step = tickStep(range, most);
  return Array.from({ length: Math.floor(range / step + 1e-9) + 1 }, (_, i) => i * step);
}

/** Formats a number with at most three digits after the point, without trailing zeros. */
export function shortNumber(value: number): string {
  return String(Number(value.toFixed(3)));
}

/** Options of a timeline. */
export interface GridOptions {
  /** The columns of the terminal; 120 unless given. A longer timeline continues below. */
  readonly columns?: number | undefined;
  /** True to colour the cells with ANSI codes. Default false. */
  readonly color?: boolean | undefined;
}

/** The fewest columns of a readable timeline. */
export const COLUMNS_MIN = 40;
const SCALE_MAX = 64;

/** Colours (of 256) that also differ in lightness: blue, orange, green, purple, yellow. */
const BACKGROUNDS = { F: 117, B: 214, I: 78, W: 176, R: 153, overlap: 229 } as const;

/**
 * Draws the timeline of an analysis. Each action shows its name, without the stage if the worker has
 * only one; `─` fills the rest of an action, `·` idle time.
 *
 * @throws {RangeError} if there are fewer than 40 columns.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { analyze, createSchedule, formatGrid } from "@troupe/troupe/schedules";
 *
 * const analysis = analyze(createSchedule("1f1b", { workers: 2, microBatches: 2 }));
 * const rows = formatGrid(analysis).split("\n");
 * strictEqual(rows[1], "worker 0  F0F1····B0──··B1──  idle 3, peak 2");
 * strictEqual(rows[2], "worker 1  ··F0B0──F1B1──····  idle 3, peak 1");
 * ```
 */
export function formatGrid(analysis: Analysis, options: GridOptions = {}): string {
  const { columns = 120, color = false } = options;
  const must = `the columns must be at least ${COLUMNS_MIN}`;
  assertInput(columns >= COLUMNS_MIN, "draw a timeline", must, columns);
  const { schedule: { workers }, makespan } = analysis;
  const names = Array.from({ length: workers }, (_, w) => `worker ${w}`.padEnd(nameWidth(workers)));
  const scale = columnsPerTime(analysis);
  const total = Math.max(1, Math.round(makespan * scale));
  const sums = names.map((_, worker) => {
    const idle = shortNumber(analysis.idle[worker] ?? 0);
    return `  idle ${idle}, peak ${shortNumber(analysis.peakActivations[worker] ?? 0)}`;
  });
  const sumWidth = sums.reduce((most, sum) => Math.max(most, sum.length), 0);
  const perBlock = Math.max(10, columns - nameWidth(workers) - sumWidth);
  const rows = names.map((_, worker) => inBlocks(cellsOf(analysis, worker, scale), perBlock));
  const times = ticks(makespan, makespan * scale / 10);
  const lines: string[] = [];
  for (let from = 0; from < total; from += perBlock) {
    const to = Math.min(total, from + perBlock);
    const isLast = to === total;
    lines.push("time".padEnd(nameWidth(workers)) + ruler(times, scale, from, to));
    rows.forEach((blocks, worker) => {
      const row = drawRow(blocks.get(from / perBlock) ?? [], from, to, color);
      lines.push(names[worker] + row + (isLast ? sums[worker] : ""));
    });
    if (!isLast) lines.push("");
  }
  return lines.join("\n") + "\n";
}

/** An action on its row: from one column to another. */
interface Cell {
  readonly from: number;
  readonly to: number;
  readonly label: string;
  readonly background: number;
}

function nameWidth(workers: number): number {
  return `worker ${workers - 1}`.length + 2;
}

function labelOf(action: Action, withStage: boolean): string {
  const name = formatAction(action);
  return withStage ? name : name.replace(/^\d+/, "");
}

/** The least columns for a unit of time in which every label fits. */
function columnsPerTime(analysis: Analysis): number {
  const { schedule, makespan } = analysis;
  let scale = 0;
  schedule.placement.forEach((held, worker) => {
    for (const { action, start, end } of timedActions(analysis, worker)) {
      // A name that begins with a digit needs a space after the one before.
      const width = labelOf(action, held.length > 1).length + (held.length > 1 ? 1 : 0);
      if (end > start) scale = Math.max(scale, width / (end - start));
    }
  });
  // A single very short action must not widen all others.
  const actions = schedule.lists.reduce((most, list) => Math.max(most, list.length), 1);
  return Math.min(scale, SCALE_MAX * actions / makespan);
}

function cellsOf(analysis: Analysis, worker: number, scale: number): Cell[] {
  const withStage = analysis.schedule.placement[worker]!.length > 1;
  return timedActions(analysis, worker).map(({ action, start, end }) => ({
    from: Math.round(start * scale),
    to: Math.round(end * scale),
    label: labelOf(action, withStage),
    background: BACKGROUNDS[action.overlap === undefined ? action.kind : "overlap"],
  }));
}

/** Returns the cells of each block of columns; a cell may be in several. */
function inBlocks(cells: readonly Cell[], perBlock: number): Map<number, Cell[]> {
  const blocks = new Map<number, Cell[]>();
  for (const cell of cells) {
    for (let block = Math.floor(cell.from / perBlock); block * perBlock < cell.to; block++) {
      const known = blocks.get(block);
      if (known) known.push(cell);
      else blocks.set(block, [cell]);
    }
  }
  return blocks;
}

function drawRow(cells: readonly Cell[], from: number, to: number, color: boolean): string {
  let row = "";
  let column = from;
  for (const { from: start, to: end, label, background } of cells) {
    const [first, last] = [Math.max(from, start), Math.min(to, end)];
    const text = label.padEnd(end - start, "─").slice(first - start, last - start);
    row += (color ? " " : "·").repeat(first - column);
    row += color ? `\x1b[30;48;5;${background}m${text}\x1b[0m` : text;
    column = last;
  }
  return row + (color ? " " : "·").repeat(to - column);
}

/** Times, which are evenly spaced, above their columns, where they fit. */
function ruler(times: readonly number[], scale: number, from: number, to: number): string {
  const row = new Array<string>(to - from).fill(" "), step = times[1] ?? Infinity;
  for (let i = Math.max(0, Math.floor(from / scale / step) - 1); i < times.length; i++) {
    const column = Math.round(times[i]! * scale) - from, label = shortNumber(times[i]!);
    if (column >= row.length) break;
    if (column < 0 || column + label.length > row.length) continue;
    row.splice(column, label.length, ...label);
  }
  return row.join("").trimEnd();
}

/** Layout of a table. */
interface TableOptions {
  /** The columns aligned left, such as words; the others are aligned right. */
  readonly left?: readonly number[];
  /** A wider first cell is on its own line, above the rest of its row. */
  readonly firstWidthMax?: number;
}

/**
 * Formats a table: a line for each row, columns two spaces apart, each as wide as its widest cell.
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
  const isBroken = (cell: string, i: number) => i === 0 && cell.length > firstWidthMax;
  const widths: number[] = [];
  for (const row of rows) {
    for (const [i, cell] of row.entries()) {
      widths[i] = Math.max(widths[i] ?? 0, isBroken(row[0]!, i) ? 0 : cell.length);
    }
  }
  const pad = (cell: string, i: number) =>
    left.includes(i) ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!);
  return rows.flatMap((row) => {
    const isBeside = !isBroken(row[0] ?? "", 0), cells = isBeside ? row : ["", ...row.slice(1)];
    const line = cells.map(pad).join("  ").trimEnd();
    return isBeside ? [line] : [row[0]!, line];
  });
}
