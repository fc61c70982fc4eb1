/**
 * A drawing of a search: throughput over the memory of a worker, a dot for each run.
 *
 * @module
 */

import type { RunPlan } from "../../actors/foresight/planner/plan.ts";
import type { PlannedRun } from "../../actors/foresight/planner/planned_run.ts";
import { axisLine, inkOf, round, text, title } from "../../schedules/pictures/svg.ts";
import { shortNumber, tickStep } from "../../schedules/pictures/grid.ts";
import type { PlanFacts } from "./plan_record.ts";
import { scheduleWords } from "./plan_table.ts";

const WIDTH = 860, PLOT = { left: 76, top: 84, width: 760, height: 360 };
const LINE_HEIGHT = 18, FONT_SIZE = 11, RADIUS = 4;

/** Where the reader's screen is dark, paper, lines and words are, too. */
const DARK = `<style>@media (prefers-color-scheme: dark) { .troupe-plan { fill: #f0f3f6 } ` +
  `.troupe-plan .paper { fill: #0d1117 } .troupe-plan .axis { stroke: #9da7b3 } ` +
  `.troupe-plan .rule { stroke: #30363d } .troupe-plan .dot { stroke: #0d1117 } ` +
  `.troupe-plan .front { stroke: #9da7b3 } .troupe-plan .best { stroke: #f0f3f6 } }</style>`;

/** Numbers of an axis, and pixels for them. */
interface Axis {
  readonly from: number;
  readonly to: number;
  readonly ticks: readonly number[];
  /** The pixel of a value, from the axis' beginning. */
  at(value: number): number;
}

/** Draws a plan. */
export function planSvg(facts: PlanFacts, plan: RunPlan): string {
  const { simulated, best } = plan, { devices, batch, profile } = facts;
  const x = axisOf(simulated.map(megabytes), PLOT.width, 8);
  const y = axisOf(simulated.map(({ samplesPerSecond }) => samplesPerSecond), PLOT.height, 6);
  const depths = [...new Set(simulated.map(({ workers }) => workers))].sort((a, b) => a - b);
  const colour = (run: PlannedRun) => colourOf(depths, run.workers);
  const place = (run: PlannedRun) => ({
    x: x.at(megabytes(run)),
    y: PLOT.height - y.at(run.samplesPerSecond),
  });
  const listTop = PLOT.top + PLOT.height + 62, height = listTop + best.length * LINE_HEIGHT + 12;
  const heading = `${batch} samples a step on ${devices} devices of ${profile.machine}`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" ` +
    `height="${height}" class="troupe-plan" font-family="Helvetica, Arial, sans-serif" ` +
    `font-size="${FONT_SIZE}" fill="#000000" role="graphics-document">`,
    title(`Plans for ${heading}: ${nameOf(best[0]!)} is best`),
    `<desc>A dot for each run that was simulated: throughput over the memory of the fullest worker. ` +
    `The line joins the runs that none beats with as little memory; the best have their rank.</desc>`,
    DARK,
    `<rect class="paper" width="100%" height="100%" fill="#ffffff"/>`,
    text(PLOT.left, 18, heading, { size: 14, weight: "bold" }),
    text(
      PLOT.left,
      38,
      `${simulated.length} runs simulated; the line: none is faster with as little memory`,
      {},
    ),
    legend(depths),
    `<g transform="translate(${PLOT.left} ${PLOT.top})">`,
    ...axes(x, y),
    front(simulated.map((run) => ({ run, ...place(run) }))),
    ...simulated.toReversed().map((run) => dot(run, place(run), colour(run))),
    ...ranks(best.map((run) => place(run))),
    `</g>`,
    ...best.map((run, i) =>
      text(PLOT.left, listTop + i * LINE_HEIGHT, `${i + 1}  ${nameOf(run)}: ${figuresOf(run)}`, {})
    ),
    `</svg>\n`,
  ].join("\n");
}

const megabytes = ({ peakBytes }: PlannedRun) => peakBytes / 2 ** 20;

const colourOf = (depths: readonly number[], depth: number): string =>
  inkOf("B", {
    stage: depths.indexOf(depth),
    stages: depths.length,
    replica: 0,
    replicas: 1,
  }).fill;

function nameOf(run: PlannedRun): string {
  const { workers, replicas, microBatch, recompute } = run;
  const how = recompute === "none" ? "" : `, recompute ${recompute}`;
  return `${scheduleWords(run)}, D ${workers}, W ${replicas}, B ${microBatch}${how}`;
}

function figuresOf(run: PlannedRun): string {
  const { samplesPerSecond, bubble, peakBytes } = run;
  return `${shortNumber(Number(samplesPerSecond.toPrecision(4)))} samples/s, bubble ${
    (100 * bubble).toFixed(1)
  } %, ${shortNumber(Number((peakBytes / 2 ** 20).toPrecision(4)))} MiB`;
}

/** An axis around some values, with round ends. */
function axisOf(values: readonly number[], pixels: number, most: number): Axis {
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), 0);
  const step = tickStep(Math.max(high - low, 0.05 * high, Number.MIN_VALUE), most);
  const from = Math.floor(low / step) * step, to = Math.ceil(high / step + 1e-9) * step;
  const count = Math.round((to - from) / step);
  return {
    from,
    to,
    ticks: Array.from({ length: count + 1 }, (_, i) => from + i * step),
    at: (value) => (value - from) / (to - from) * pixels,
  };
}

function axes(x: Axis, y: Axis): string[] {
  const { width, height } = PLOT;
  const rule = (x1: number, y1: number, x2: number, y2: number) =>
    `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${
      round(y2)
    }" class="rule" stroke="#dddddd" stroke-width="0.5"/>`;
  return [
    ...x.ticks.flatMap((value) => [
      rule(x.at(value), 0, x.at(value), height),
      text(x.at(value), height + 14, shortNumber(value), { anchor: "middle" }),
    ]),
    ...y.ticks.flatMap((value) => [
      rule(0, height - y.at(value), width, height - y.at(value)),
      text(-8, height - y.at(value), shortNumber(value), { anchor: "end" }),
    ]),
    axisLine(0, height, width, height),
    axisLine(0, 0, 0, height),
    text(width / 2, height + 34, "memory of the fullest worker, MiB", { anchor: "middle" }),
    text(-8, -14, "samples/s", { anchor: "end" }),
  ];
}

function legend(depths: readonly number[]): string {
  const pieces = [text(PLOT.left, 60, "workers of a pipeline", {})];
  let x = PLOT.left + 128;
  for (const depth of depths) {
    pieces.push(`<circle cx="${x}" cy="60" r="${RADIUS}" fill="${colourOf(depths, depth)}"/>`);
    pieces.push(text(x + 8, 60, `${depth}`, {}));
    x += 28 + 7 * `${depth}`.length;
  }
  return pieces.join("\n");
}

function dot(run: PlannedRun, { x, y }: { x: number; y: number }, fill: string): string {
  return `<g role="graphics-symbol">${title(`${nameOf(run)}: ${figuresOf(run)}`)}` +
    `<circle cx="${round(x)}" cy="${round(y)}" r="${RADIUS}" fill="${fill}" class="dot" ` +
    `stroke="#ffffff" stroke-width="0.6"/></g>`;
}

/** The steps of the runs that none beats with as little memory. */
function front(dots: readonly { run: PlannedRun; x: number; y: number }[]): string {
  const sorted = dots.toSorted((a, b) => a.x - b.x || a.y - b.y);
  let path = "", best = Infinity;
  for (const { x, y } of sorted) {
    if (y >= best) continue;
    path += path === "" ? `M${round(x)} ${round(y)}` : `H${round(x)}V${round(y)}`;
    best = y;
  }
  return `<path d="${path}" class="front" fill="none" stroke="#666666" stroke-width="1" ` +
    `stroke-dasharray="4 3"/>`;
}

/** The ranks beside their dots, apart from one another. */
function ranks(places: readonly { readonly x: number; readonly y: number }[]): string[] {
  const taken: { x: number; y: number }[] = [];
  return places.map(({ x, y }, i) => {
    let at = { x: x + 10, y };
    const isTaken = () =>
      taken.some((one) => Math.abs(one.x - at.x) < 16 && Math.abs(one.y - at.y) < 12);
    while (isTaken()) at = { x: at.x, y: at.y + 12 };
    taken.push(at);
    return `<circle cx="${round(x)}" cy="${round(y)}" r="${RADIUS + 2}" fill="none" class="best" ` +
      `stroke="#000000"/>` + text(at.x, at.y, `${i + 1}`, { weight: "bold" });
  });
}
