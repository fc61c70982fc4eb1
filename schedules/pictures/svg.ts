/** A drawing of a schedule for papers and READMEs: the timeline, and the memory below it. */

import { type Action, formatAction } from "../actions/action.ts";
import type { Analysis } from "../execution/analyze.ts";
import { inkOf } from "./palette.ts";
import { drawHeading, factsOf, HEADING_HEIGHT, headingWidth } from "./svg_heading.ts";
import { drawMemory, MEMORY_HEIGHT } from "./svg_memory.ts";
import { axisLine, round, text, title } from "./svg_shapes.ts";
import { shortNumber, ticks } from "./ticks.ts";

const ACTIONS_MAX = 200_000;
const ROW_HEIGHT = 22;
const ROW_GAP = 2;
const FONT_SIZE = 9;
/** The width of a digit of a sans-serif font, in units of its size. */
const DIGIT_WIDTH = 0.58;
const MARGIN = { top: 10 + HEADING_HEIGHT + 8, right: 24, bottom: 36, left: 84 };
const TIMELINE_WIDTH_MIN = 560;
const TIMELINE_WIDTH_MAX = 12_000;
const MEMORY_GAP = 58;

/**
 * Where the reader's screen is dark, paper, lines and words are, too; boxes keep their colours, and
 * what has no style of its own looks as its attributes say.
 */
const DARK = `<style>@media (prefers-color-scheme: dark) { .troupe-schedule { fill: #f0f3f6 } ` +
  `.troupe-schedule .paper { fill: #0d1117 } .troupe-schedule .edge { stroke: #0d1117 } ` +
  `.troupe-schedule .axis { stroke: #9da7b3 } .troupe-schedule .rule { stroke: #30363d } }</style>`;

/** What a drawing is drawn from: the analysis, and pixels for time. */
interface Canvas {
  readonly analysis: Analysis;
  readonly replicas: number;
  /** Pixels for a unit of time. */
  readonly scale: number;
  /** The width of the timeline in pixels. */
  readonly width: number;
  /** The height of the rows in pixels. */
  readonly height: number;
}

/**
 * Draws an analysis as SVG. Stages run from blue to orange, later replicas are darker, forwards are
 * light, backwards dark, `I` and `W` on both sides of `B`; idle time is white. A cell bears its
 * micro-batch where that fits, and its action, worker and time as a title; the two actions of an
 * overlap share its height. The curves below are the live activations of each worker. Paper and
 * words are dark where the reader's screen is.
 *
 * @throws {RangeError} if there are more than 200,000 actions to draw.
 *
 * @example
 * ```ts
 * import { match } from "node:assert/strict";
 * import { analyze, createSchedule, formatSvg } from "@troupe/troupe/schedules";
 *
 * const svg = formatSvg(analyze(createSchedule("1f1b", { workers: 4, microBatches: 8 })));
 * match(svg, /^<svg [^>]*viewBox/);
 * ```
 */
export function formatSvg(analysis: Analysis): string {
  const { schedule } = analysis;
  const actions = schedule.lists.reduce((sum, list) => sum + list.length, 0);
  if (actions > ACTIONS_MAX) {
    throw new RangeError(
      `Cannot draw the schedule ${schedule.name}: it must have at most ${ACTIONS_MAX} actions, ` +
        `received ${actions}`,
    );
  }
  const canvas = layOut(analysis);
  const rows = schedule.lists.map((_, worker) => drawWorker(canvas, worker));
  const width = MARGIN.left + canvas.width + MARGIN.right;
  const memoryTop = canvas.height + MEMORY_GAP;
  const height = MARGIN.top + memoryTop + MEMORY_HEIGHT + MARGIN.bottom;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${round(width)} ${round(height)}" ` +
    `width="${round(width)}" height="${round(height)}" class="troupe-schedule" ` +
    `font-family="Helvetica, Arial, sans-serif" font-size="11" fill="#000000" ` +
    `role="graphics-document">`,
    title(`${schedule.name}: ${factsOf(analysis)}`),
    `<desc>A row for each worker with a box for each action, and below it the live activations of ` +
    `each worker over time.</desc>`,
    DARK,
    `<rect class="paper" width="100%" height="100%" fill="#ffffff"/>`,
    `<g transform="translate(0 10)">`,
    drawHeading(analysis, MARGIN.left),
    `</g>`,
    `<g transform="translate(${MARGIN.left} ${MARGIN.top})">`,
    ...rows,
    drawTimeAxis(canvas),
    `</g>`,
    `<g transform="translate(${MARGIN.left} ${MARGIN.top + memoryTop})">`,
    drawMemory(analysis, canvas.scale),
    `</g>`,
    `</svg>\n`,
  ].join("\n");
}

function layOut(analysis: Analysis): Canvas {
  const { schedule, execution, makespan } = analysis;
  const { starts, ends } = execution.timeline;
  let scale = 0;
  schedule.lists.forEach((list, worker) => {
    let index = 0;
    for (const action of list) {
      const duration = (ends[worker]?.[index] ?? 0) - (starts[worker]?.[index] ?? 0);
      if (duration > 0) scale = Math.max(scale, widestLabel(action) / duration);
      index++;
    }
  });
  const span = Math.max(makespan, Number.MIN_VALUE);
  const width = Math.min(
    TIMELINE_WIDTH_MAX,
    Math.max(TIMELINE_WIDTH_MIN, headingWidth(analysis), scale * span),
  );
  return {
    analysis,
    replicas: Math.max(...schedule.replicaOf) + 1,
    scale: width / span,
    width,
    height: schedule.workers * ROW_HEIGHT,
  };
}

function widestLabel(action: Action): number {
  return labelWidth(labelOf(action)) + (action.overlap ? 0 : 4);
}

function labelWidth(label: string): number {
  return label.length * FONT_SIZE * DIGIT_WIDTH;
}

/** What a cell says: the micro-batch; stage and kind are told by its place and colour. */
function labelOf({ microBatch, second, half, slice }: Action): string {
  if (slice !== undefined) return `${microBatch}s${slice}`;
  if (second !== undefined) return `${microBatch}+${second}`;
  return half === undefined ? `${microBatch}` : `${microBatch}.${half}`;
}

function drawWorker(canvas: Canvas, worker: number): string {
  const { analysis: { schedule, execution }, scale, width } = canvas;
  const top = worker * ROW_HEIGHT;
  const middle = top + ROW_HEIGHT / 2;
  const { starts, ends } = execution.timeline;
  const pieces = [
    text(-8, middle, `worker ${worker}`, { anchor: "end" }),
    `<line x1="0" y1="${top}" x2="${
      round(width)
    }" y2="${top}" class="rule" stroke="#dddddd" stroke-width="0.5"/>`,
  ];
  let index = 0;
  for (const action of schedule.lists[worker] ?? []) {
    const x = (starts[worker]?.[index] ?? 0) * scale;
    const cell = { x, width: (ends[worker]?.[index] ?? 0) * scale - x };
    const start = shortNumber(starts[worker]?.[index] ?? 0);
    const when = `worker ${worker}, time ${start} to ${shortNumber(ends[worker]?.[index] ?? 0)}`;
    const height = ROW_HEIGHT - ROW_GAP;
    const { overlap, ...alone } = action;
    if (overlap === undefined) {
      pieces.push(drawCell(canvas, action, when, { ...cell, y: top + 1, height }));
    } else {
      const half = height / 2;
      pieces.push(drawCell(canvas, alone, when, { ...cell, y: top + 1, height: half }));
      pieces.push(drawCell(canvas, overlap, when, { ...cell, y: top + 1 + half, height: half }));
    }
    index++;
  }
  return pieces.join("\n");
}

function drawCell(
  { analysis: { schedule }, replicas }: Canvas,
  action: Action,
  when: string,
  box: { x: number; y: number; width: number; height: number },
): string {
  const { stages, replicaOf } = schedule;
  const { kind, stage, microBatch } = action;
  const replica = replicaOf[microBatch] ?? 0;
  const { fill, text: ink } = inkOf(kind, { stage, stages, replica, replicas });
  const label = labelOf(action);
  const rect = `<rect x="${round(box.x)}" y="${round(box.y)}" width="${round(box.width)}" ` +
    `height="${
      round(box.height)
    }" fill="${fill}" class="edge" stroke="#ffffff" stroke-width="0.6"/>`;
  const pipe = replicas === 1 ? "" : `, replica ${replica}`;
  const symbol = (inside: string) =>
    `<g role="graphics-symbol">${title(`${formatAction(action)}: ${when}${pipe}`)}${inside}</g>`;
  if (labelWidth(label) + 1 > box.width) return symbol(rect);
  const size = Math.min(FONT_SIZE, box.height - 1);
  const middle = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  return symbol(rect + text(middle.x, middle.y, label, { anchor: "middle", size, fill: ink }));
}

function drawTimeAxis({ analysis: { makespan }, scale, width, height }: Canvas): string {
  const pieces = [axisLine(0, height, width, height)];
  for (const time of ticks(makespan, width / 70)) {
    const x = time * scale;
    pieces.push(axisLine(x, height, x, height + 5));
    pieces.push(text(x, height + 14, shortNumber(time), { anchor: "middle" }));
  }
  pieces.push(text(width / 2, height + 31, "time", { anchor: "middle" }));
  return pieces.join("\n");
}
