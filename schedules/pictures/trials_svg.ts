/** SVG picture of trials: a line for each candidate over the scenarios. */

import type { Trial } from "../simulator/trials.ts";
import { shortNumber, tickStep } from "./grid.ts";
import { axisLine, DARK, inkOf, round, text, title } from "./svg.ts";

const MARGIN = { top: 36, right: 150, bottom: 58, left: 52 };
const COLUMN_WIDTH = 84, HEIGHT = 320;
/** The least distance between two names of lines. */
const NAME_HEIGHT = 14;

/**
 * Draws how many times as fast as 1F1B each candidate is in each scenario, with each time of messages:
 * one line for each candidate, its name at its end.
 */
export function formatTrialsSvg(trials: readonly Trial[]): string {
  const names = [...new Set(trials.map(({ name }) => name))];
  const columns = trials.filter(({ name }) => name === names[0]);
  const means = trials.map(({ speedup }) => speedup.mean);
  const low = Math.min(...means), high = Math.max(...means), range = Math.max(high - low, 0.1);
  const step = tickStep(range, 8), from = Math.floor(low / step) * step;
  const y = (speedup: number) => HEIGHT * (1 - (speedup - from) / (low + range - from));
  const x = (column: number) => (column + 0.5) * COLUMN_WIDTH;
  const width = columns.length * COLUMN_WIDTH;
  const pieces = [axisLine(0, 0, 0, HEIGHT), axisLine(0, HEIGHT, width, HEIGHT)];
  for (let level = from; level <= low + range + 1e-9; level += step) {
    pieces.push(axisLine(-4, y(level), 0, y(level)));
    pieces.push(text(-8, y(level), shortNumber(level), { anchor: "end" }));
  }
  columns.forEach(({ scenario, send }, column) => {
    pieces.push(text(x(column), HEIGHT + 16, scenario, { anchor: "middle", size: 10 }));
    pieces.push(text(x(column), HEIGHT + 30, `send ${send}`, { anchor: "middle", size: 10 }));
  });
  const lines = names.map((name, nth) => {
    const own = trials.filter((trial) => trial.name === name).map(({ speedup }) => speedup.mean);
    const position = { stage: nth, stages: names.length, pipeline: 0, pipelines: 1 };
    return { name, own, stroke: inkOf("B", position).fill };
  });
  for (const { name, own, stroke } of lines) {
    const points = own.map((speedup, column) => `${round(x(column))},${round(y(speedup))}`);
    pieces.push(
      `<polyline points="${points.join(" ")}" fill="none" stroke="${stroke}" stroke-width="2">` +
        title(`${name}: ${own.map((one) => one.toFixed(2)).join(", ")}`) + `</polyline>`,
    );
  }
  let above = -Infinity;
  for (const { name, own, stroke } of lines.toSorted((a, b) => b.own.at(-1)! - a.own.at(-1)!)) {
    above = Math.max(above + NAME_HEIGHT, y(own.at(-1)!));
    pieces.push(text(x(columns.length - 1) + 8, above, name, { fill: stroke }));
  }
  const caption = "times as fast as 1F1B", all = { width: MARGIN.left + width + MARGIN.right };
  const height = Math.max(MARGIN.top + HEIGHT + MARGIN.bottom, MARGIN.top + above + NAME_HEIGHT);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${all.width} ${round(height)}" ` +
    `width="${all.width}" height="${round(height)}" class="troupe-schedule" ` +
    `font-family="Helvetica, Arial, sans-serif" font-size="11" fill="#000000" ` +
    `role="graphics-document">`,
    title(caption),
    DARK,
    `<rect class="paper" width="100%" height="100%" fill="#ffffff"/>`,
    text(8, 16, caption, { size: 14, weight: "bold" }),
    `<g transform="translate(${MARGIN.left} ${MARGIN.top})">`,
    ...pieces,
    `</g>`,
    `</svg>\n`,
  ].join("\n");
}
