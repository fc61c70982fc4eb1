/**
 * Losses as lines of text: a small chart for a terminal.
 *
 * @module
 */

import { inOneLine } from "../../escape.ts";
import type { LossCurves, LossPoint } from "./loss_curves.ts";

/** Lines of the chart itself. */
const ROWS = 12;

/** The most columns that it takes, and the fewest. */
const COLUMNS_MAX = 100, COLUMNS_MIN = 16;

/** A mark for the loss of each run, and one for its held-out loss. */
const MARKS = ["·o", "+x", "*#", "~=", ":%", "^@"] as const;

/**
 * Draws losses.
 *
 * @param columns of the terminal.
 */
export function textChart(runs: readonly LossCurves[], columns: number): string[] {
  const curves = runs.flatMap(({ training, heldOut }, nth) => {
    const [loss, held] = MARKS[nth % MARKS.length]!;
    return [{ points: training, mark: loss! }, { points: heldOut, mark: held! }];
  });
  const all = curves.flatMap(({ points }) => points);
  const [low, high] = rangeOf(all, "loss"), [first, last] = rangeOf(all, "step");
  const labels = Array.from(
    { length: ROWS },
    (_, row) =>
      row % 3 === 0 || row === ROWS - 1
        ? (high - (high - low) * row / (ROWS - 1)).toPrecision(4)
        : "",
  );
  const margin = Math.max(...labels.map(({ length }) => length));
  const width = Math.max(COLUMNS_MIN, Math.min(COLUMNS_MAX, columns) - margin - 3);
  const grid = Array.from({ length: ROWS }, () => Array.from({ length: width }, () => " "));
  const place = (value: number, from: number, to: number, cells: number) =>
    to === from ? 0 : Math.round((cells - 1) * (value - from) / (to - from));
  for (const { points, mark } of curves) {
    for (const { step, loss } of points) {
      grid[place(loss, high, low, ROWS)]![place(step, first, last, width)] = mark;
    }
  }
  const [from, to] = [first, last].map((step) => `${Math.round(step)}`) as [string, string];
  return [
    "loss (nats a prediction)",
    ...grid.map((cells, row) =>
      `${labels[row]!.padStart(margin)} ${labels[row] ? "┤" : "│"}${cells.join("")}`.trimEnd()
    ),
    `${" ".repeat(margin + 1)}└${"─".repeat(width)}`,
    `${" ".repeat(margin + 2)}${from}${to.padStart(Math.max(1, width - from.length))}`,
    `${" ".repeat(margin + 2)}optimizer step`,
    ...runs.map(({ name, heldOut }, nth) => {
      const [loss, held] = MARKS[nth % MARKS.length]!;
      return `  ${loss} ${inOneLine(name)}${heldOut.length > 0 ? `, ${held} held-out` : ""}`;
    }),
  ];
}

function rangeOf(points: readonly LossPoint[], of: keyof LossPoint): [number, number] {
  let low = Infinity, high = -Infinity;
  for (const { [of]: value } of points) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return [low, high];
}
