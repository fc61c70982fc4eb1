/** SVG pictures: the timeline of a schedule with the memory below it, and trials of several. */

import { type Action, type ActionKind, formatAction, parts } from "../action.ts";
import { type Analysis, liveActivations, timedActions } from "../analysis/analyze.ts";
import { assertInput } from "../errors.ts";
import type { Trial } from "../simulator/trials.ts";
import { shortNumber, ticks, tickStep } from "./grid.ts";

/** A colour and the colour of text that is legible on it. */
interface Ink {
  /** The colour as `#rrggbb`. */
  readonly fill: string;
  /** Black or white. */
  readonly text: string;
}

/**
 * The lightness of each kind. Backwards are darker than forwards, and the parts of a split backward
 * are on both sides of the whole; a recomputation is a forward again, so next to it.
 */
const LIGHTNESS = { F: 0.9, R: 0.84, I: 0.77, B: 0.67, W: 0.54 } as const;

/** The lightness at which black and white text have the same contrast, 4.6 to 1. */
const EVEN_LIGHTNESS = 0.565;

/** The difference in lightness between the first and the last pipeline. */
const PIPELINE_SHADE = 0.09;

/**
 * The colours of the first and last stage in OKLab's (a, b): blue and orange, the axis that all common
 * kinds of colour blindness keep. The other stages are between them, through grey.
 */
const FIRST_STAGE = { a: -0.035, b: -0.105 };
const LAST_STAGE = { a: 0.045, b: 0.115 };

/** The colour of an action: hue by stage, from blue to orange, lightness by kind and pipeline. */
export function inkOf(
  kind: ActionKind,
  { stage, stages, pipeline, pipelines }: {
    stage: number;
    stages: number;
    pipeline: number;
    pipelines: number;
  },
): Ink {
  const position = stages === 1 ? 0 : stage / (stages - 1);
  const shade = pipelines === 1 ? 0 : PIPELINE_SHADE * pipeline / (pipelines - 1);
  const a = FIRST_STAGE.a + (LAST_STAGE.a - FIRST_STAGE.a) * position;
  const b = FIRST_STAGE.b + (LAST_STAGE.b - FIRST_STAGE.b) * position;
  return oklabInk(LIGHTNESS[kind] - shade, a, b);
}

function oklabInk(lightness: number, a: number, b: number): Ink {
  return {
    fill: oklabToHex(lightness, a, b),
    text: lightness > EVEN_LIGHTNESS ? "#000000" : "#ffffff",
  };
}

/** Converts OKLab (Ottosson 2020) to sRGB, clipped to its limits. */
function oklabToHex(lightness: number, a: number, b: number): string {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return "#" + linear.map((channel) => {
    const clipped = Math.min(1, Math.max(0, channel));
    const gamma = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
    return Math.round(gamma * 255).toString(16).padStart(2, "0");
  }).join("");
}

/** A line of an axis. */
function axisLine(x1: number, y1: number, x2: number, y2: number): string {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" ` +
    `class="axis" stroke="#444444" stroke-width="1"/>`;
}

/** Both axes, with ticks at some values on the left. */
function axes(
  width: number,
  height: number,
  values: readonly number[],
  y: (value: number) => number,
): string[] {
  const ticks = values.flatMap((value) => [
    axisLine(-4, y(value), 0, y(value)),
    text(-8, y(value), shortNumber(value), { anchor: "end" }),
  ]);
  return [axisLine(0, 0, 0, height), axisLine(0, height, width, height), ...ticks];
}

/** The name of a drawing or a part of it, for screen readers and tooltips. */
export const title = (content: string): string => `<title>${escapeXml(content)}</title>`;

/** A text, vertically centred at `y`, that starts at `x` unless it is anchored otherwise. */
export function text(
  x: number,
  y: number,
  content: string,
  style: { anchor?: string; size?: number; fill?: string; weight?: string },
): string {
  const { anchor, size, fill, weight } = style;
  const given = { "text-anchor": anchor, "font-size": size, fill, "font-weight": weight };
  const attributes = Object.entries(given)
    .map(([name, value]) => value === undefined ? "" : ` ${name}="${value}"`).join("");
  return `<text x="${round(x)}" y="${round(y)}" dy="0.35em"${attributes}>${
    escapeXml(content)
  }</text>`;
}

/** Escapes the text of an element. */
export function escapeXml(content: string): string {
  return content.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Rounds a coordinate to a hundredth of a pixel. */
export function round(value: number): number {
  return Math.round(value * 100) / 100;
}

/** The height of title and legend in pixels. */
const HEADING_HEIGHT = 62;

const FONT_SIZE = 11;
/** The width of a letter of a sans-serif font, in units of its size. */
const LETTER_WIDTH = 0.56;
const SWATCH = { width: 17, height: 13, top: 42 };
/** The most swatches of stages or pipelines. */
const SWATCHES_MAX = 8;

/** A summary of the measures, such as its time and bubbles. */
function factsOf({ schedule, makespan, bubbleRatio, peakActivations }: Analysis): string {
  const { workers, microBatches, slices = 1 } = schedule;
  const bubble = Number((100 * bubbleRatio).toFixed(1)), time = shortNumber(makespan);
  const peak = shortNumber(Math.max(...peakActivations));
  const cut = slices > 1 ? ` in ${slices} slices` : "";
  return `${workers} workers, ${microBatches} micro-batches${cut}, time ${time}, ` +
    `bubbles ${bubble} %, peak activations ${peak}`;
}

/** The width of the heading in pixels. */
function headingWidth(analysis: Analysis): number {
  const legend = groupsOf(analysis).reduce((sum, group) => sum + groupWidth(group), 0);
  return Math.max(legend, factsOf(analysis).length * FONT_SIZE * LETTER_WIDTH);
}

const groupWidth = ({ label, swatches }: ReturnType<typeof groupsOf>[number]) =>
  label.length * FONT_SIZE * LETTER_WIDTH + 6 + swatches.length * (SWATCH.width + 1) + 18;

/** Draws the name, the summary and the legend, starting at `left`. */
function drawHeading(analysis: Analysis, left: number): string {
  const pieces = [
    text(left, 12, analysis.schedule.name, { size: 14, weight: "bold" }),
    text(left, 29, factsOf(analysis), { size: FONT_SIZE }),
  ];
  let x = left;
  const middle = SWATCH.top + SWATCH.height / 2;
  for (const group of groupsOf(analysis)) {
    pieces.push(text(x, middle, group.label, {}));
    let at = x + group.label.length * FONT_SIZE * LETTER_WIDTH + 6;
    for (const { name, ink: { fill, text: color } } of group.swatches) {
      const { width, height, top } = SWATCH, style = { anchor: "middle", size: 9, fill: color };
      const box = `x="${round(at)}" y="${top}" width="${width}" height="${height}"`;
      pieces.push(`<rect ${box} fill="${fill}"/>` + text(at + width / 2, middle, name, style));
      at += width + 1;
    }
    x += groupWidth(group);
  }
  return pieces.join("\n");
}

/**
 * Groups of swatches: kinds of action in grey, which differ in lightness; stages in the colours of
 * backwards; pipelines in those of the first stage's forwards. No two swatches are equal.
 */
function groupsOf({ schedule }: Analysis) {
  const { stages, lists, pipelineOf } = schedule, pipelines = Math.max(...pipelineOf) + 1;
  const kinds = new Set(lists.flatMap((list) => [...list].flatMap(parts)).map(({ kind }) => kind));
  const order: readonly ActionKind[] = ["F", "I", "B", "W"], backward = kinds.has("B") ? "B" : "I";
  const ink = (kind: ActionKind, stage: number, pipeline: number) =>
    inkOf(kind, { stage, stages, pipeline, pipelines });
  const swatches = (count: number, inkOf: (i: number) => Ink) =>
    samples(count).map((i) => ({ name: String(i), ink: inkOf(i) }));
  return [
    {
      label: "action",
      swatches: order.filter((kind) => kinds.has(kind))
        .map((kind) => ({ name: kind as string, ink: oklabInk(LIGHTNESS[kind], 0, 0) })),
    },
    { label: "stage", swatches: swatches(stages, (stage) => ink(backward, stage, 0)) },
    ...pipelines > 1
      ? [{ label: "replica", swatches: swatches(pipelines, (pipeline) => ink("F", 0, pipeline)) }]
      : [],
  ];
}

/** The numbers below `count`, or evenly spaced ones if there are more than swatches. */
function samples(count: number): number[] {
  const shown = Math.min(count, SWATCHES_MAX), step = (count - 1) / Math.max(1, shown - 1);
  return Array.from({ length: shown }, (_, i) => Math.round(i * step));
}

/** The height of the curves in pixels. */
const MEMORY_HEIGHT = 120;

/** The live activations of every worker over time, the fullest one thick. */
function drawMemory(analysis: Analysis, scale: number): string {
  const { peakActivations, schedule } = analysis;
  const width = analysis.makespan * scale;
  const most = Math.max(...peakActivations);
  const fullest = peakActivations.indexOf(most);
  const y = (live: number) => MEMORY_HEIGHT * (1 - live / Math.max(most, 1e-9));
  const pieces = axes(width, MEMORY_HEIGHT, ticks(most, 5), y);
  const order = schedule.lists.map((_, worker) => worker).filter((worker) => worker !== fullest);
  for (const worker of [...order, fullest]) {
    const position = { stage: worker, stages: schedule.workers, pipeline: 0, pipelines: 1 };
    const stroke = inkOf("B", position).fill, peak = shortNumber(peakActivations[worker]!);
    let path = `M0 ${round(y(0))}`;
    for (const { time, live } of liveActivations(analysis, worker)) {
      path += `H${round(time * scale)}V${round(y(live))}`;
    }
    pieces.push(
      `<path d="${path}H${round(width)}" fill="none" stroke="${stroke}" ` +
        `stroke-width="${worker === fullest ? 2 : 0.8}">` +
        title(`worker ${worker}: at most ${peak} live activations`) + `</path>`,
    );
  }
  const caption = `live activations of each worker; thick: worker ${fullest}, ` +
    `the fullest, peak ${shortNumber(most)}`;
  pieces.push(text(0, MEMORY_HEIGHT + 18, caption, {}));
  return pieces.join("\n");
}

const ACTIONS_MAX = 200_000;
const ROW_HEIGHT = 22;
const SVG_FONT_SIZE = 9;
/** The width of a digit of a sans-serif font, in units of its size. */
const DIGIT_WIDTH = 0.58;
const MARGIN = { top: 10 + HEADING_HEIGHT + 8, right: 24, bottom: 36, left: 84 };
const TIMELINE_WIDTH_MIN = 560;
const TIMELINE_WIDTH_MAX = 12_000;
const MEMORY_GAP = 58;

/**
 * Colours for a dark screen: background, lines and text change, boxes keep their colours. Viewers
 * without style sheets use the colours of the attributes.
 */
const DARK = `<style>@media (prefers-color-scheme: dark) { .troupe-schedule { fill: #f0f3f6 } ` +
  `.troupe-schedule .paper { fill: #0d1117 } .troupe-schedule .edge { stroke: #0d1117 } ` +
  `.troupe-schedule .axis { stroke: #9da7b3 } .troupe-schedule .rule { stroke: #30363d } }</style>`;

/**
 * Draws an analysis as SVG. Stages run from blue to orange, later pipelines are darker, forwards are
 * light, backwards dark, `I` and `W` on both sides of `B`; idle time is white. A cell shows its
 * micro-batch if that fits, and its action, worker and time as a tooltip; the two actions of an overlap
 * share its height. The curves below are the live activations of each worker. Background and text are
 * dark on a dark screen.
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
  const must = `it must have at most ${ACTIONS_MAX} actions`;
  assertInput(actions <= ACTIONS_MAX, `draw the schedule ${schedule.name}`, must, actions);
  const canvas = layOut(analysis);
  const rows = schedule.lists.map((_, worker) => drawWorker(canvas, worker));
  const width = MARGIN.left + canvas.width + MARGIN.right;
  const memoryTop = canvas.height + MEMORY_GAP;
  const height = MARGIN.top + memoryTop + MEMORY_HEIGHT + MARGIN.bottom;
  const names = [
    title(`${schedule.name}: ${factsOf(analysis)}`),
    `<desc>A row for each worker with a box for each action, and below it the live activations of ` +
    `each worker over time.</desc>`,
  ];
  return pictureOf(width, height, names, [
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
  ]);
}

/** Returns a whole picture: its names for screen readers, and what it draws. */
function pictureOf(width: number, height: number, names: string[], pieces: string[]): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${round(width)} ${round(height)}" ` +
    `width="${round(width)}" height="${round(height)}" class="troupe-schedule" ` +
    `font-family="Helvetica, Arial, sans-serif" font-size="11" fill="#000000" ` +
    `role="graphics-document">`,
    ...names,
    DARK,
    `<rect class="paper" width="100%" height="100%" fill="#ffffff"/>`,
    ...pieces,
    `</svg>\n`,
  ].join("\n");
}

type Canvas = ReturnType<typeof layOut>;

/** Returns the scale and size of a drawing. */
function layOut(analysis: Analysis) {
  const { schedule, makespan } = analysis;
  let scale = 0;
  for (const worker of schedule.lists.keys()) {
    for (const { action, start, end } of timedActions(analysis, worker)) {
      const label = labelWidth(labelOf(action)) + (action.overlap ? 0 : 4);
      if (end > start) scale = Math.max(scale, label / (end - start));
    }
  }
  const span = makespan > 0 ? makespan : 1;
  const width = Math.min(
    TIMELINE_WIDTH_MAX,
    Math.max(TIMELINE_WIDTH_MIN, headingWidth(analysis), scale * span),
  );
  return {
    analysis,
    pipelines: Math.max(...schedule.pipelineOf) + 1,
    /** Pixels for a unit of time. */
    scale: width / span,
    /** The width of the timeline in pixels. */
    width,
    /** The height of the rows in pixels. */
    height: schedule.workers * ROW_HEIGHT,
  };
}

const labelWidth = (label: string) => label.length * SVG_FONT_SIZE * DIGIT_WIDTH;

/** The label of a cell: the micro-batch, as position and colour show stage and kind. */
function labelOf({ microBatch, second, part }: Action): string {
  if (second !== undefined) return `${microBatch}+${second}`;
  return part === undefined ? `${microBatch}` : `${microBatch}.${part.index}`;
}

function drawWorker(canvas: Canvas, worker: number): string {
  const { analysis, scale, width } = canvas, top = worker * ROW_HEIGHT, height = ROW_HEIGHT - 2;
  const pieces = [
    text(-8, top + ROW_HEIGHT / 2, `worker ${worker}`, { anchor: "end" }),
    `<line x1="0" y1="${top}" x2="${round(width)}" y2="${top}" class="rule" stroke="#dddddd" ` +
    `stroke-width="0.5"/>`,
  ];
  for (const { action, start, end } of timedActions(analysis, worker)) {
    const x = start * scale, box = { x, y: top + 1, width: end * scale - x, height };
    const when = `worker ${worker}, time ${shortNumber(start)} to ${shortNumber(end)}`;
    const { overlap, ...alone } = action, half = height / 2;
    if (overlap === undefined) pieces.push(drawCell(canvas, action, when, box));
    else {
      pieces.push(drawCell(canvas, alone, when, { ...box, height: half }));
      pieces.push(drawCell(canvas, overlap, when, { ...box, y: box.y + half, height: half }));
    }
  }
  return pieces.join("\n");
}

function drawCell(
  { analysis: { schedule }, pipelines }: Canvas,
  action: Action,
  when: string,
  box: { x: number; y: number; width: number; height: number },
): string {
  const { stages, pipelineOf } = schedule, { kind, stage, microBatch } = action;
  const pipeline = pipelineOf[microBatch] ?? 0;
  const { fill, text: ink } = inkOf(kind, { stage, stages, pipeline, pipelines });
  const label = labelOf(action);
  const rect = `<rect x="${round(box.x)}" y="${round(box.y)}" width="${round(box.width)}" ` +
    `height="${round(box.height)}" fill="${fill}" class="edge" stroke="#ffffff" ` +
    `stroke-width="0.6"/>`;
  const pipe = pipelines === 1 ? "" : `, replica ${pipeline}`;
  const symbol = (inside: string) =>
    `<g role="graphics-symbol">${title(`${formatAction(action)}: ${when}${pipe}`)}${inside}</g>`;
  if (labelWidth(label) + 1 > box.width) return symbol(rect);
  const size = Math.min(SVG_FONT_SIZE, box.height - 1);
  const style = { anchor: "middle", size, fill: ink };
  return symbol(rect + text(box.x + box.width / 2, box.y + box.height / 2, label, style));
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

/** The margins of a picture of trials, and its height without them. */
const AROUND = { top: 36, right: 150, bottom: 58, left: 52 }, HEIGHT = 320;
const COLUMN_WIDTH = 84;
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
  const levels: number[] = [];
  for (let level = from; level <= low + range + 1e-9; level += step) levels.push(level);
  const pieces = axes(width, HEIGHT, levels, y);
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
  const height = AROUND.top + Math.max(HEIGHT + AROUND.bottom, above + NAME_HEIGHT);
  const caption = "times as fast as 1F1B";
  return pictureOf(AROUND.left + width + AROUND.right, height, [title(caption)], [
    text(8, 16, caption, { size: 14, weight: "bold" }),
    `<g transform="translate(${AROUND.left} ${AROUND.top})">`,
    ...pieces,
    `</g>`,
  ]);
}
