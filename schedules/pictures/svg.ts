/** A drawing of a schedule for papers and READMEs: the timeline, and the memory below it. */

import { type Action, type ActionKind, formatAction, parts } from "../action.ts";
import { type Analysis, liveActivations } from "../analysis/analyze.ts";
import { shortNumber, ticks } from "./grid.ts";

/** A colour and the colour of text that is legible on it. */
interface Ink {
  /** The colour as `#rrggbb`. */
  readonly fill: string;
  /** Black or white. */
  readonly text: string;
}

/**
 * The lightness of each kind. Backwards are darker than forwards, and the parts of a split
 * backward lie on both sides of the whole; a recomputation is a forward again, so next to it.
 */
const LIGHTNESS: Readonly<Record<ActionKind, number>> = {
  F: 0.9,
  R: 0.84,
  I: 0.77,
  B: 0.67,
  W: 0.54,
};

const BLACK = "#000000";
const WHITE = "#ffffff";

/** Where black and white text have the same contrast, 4.6 to 1; lighter colours take black. */
const EVEN_LIGHTNESS = 0.565;

/** How much darker the last replica is than the first. */
const REPLICA_SHADE = 0.09;

/**
 * The ends of the stages' colours in OKLab's (a, b): blue and orange, the one axis that all common
 * kinds of colour blindness keep. Stages lie between them over grey.
 */
const FIRST_STAGE = { a: -0.035, b: -0.105 };
const LAST_STAGE = { a: 0.045, b: 0.115 };

/**
 * The colour of an action: hue by stage, from blue to orange, lightness by kind and replica.
 */
export function inkOf(
  kind: ActionKind,
  { stage, stages, replica, replicas }: {
    stage: number;
    stages: number;
    replica: number;
    replicas: number;
  },
): Ink {
  const position = stages === 1 ? 0 : stage / (stages - 1);
  const shade = replicas === 1 ? 0 : REPLICA_SHADE * replica / (replicas - 1);
  const lightness = LIGHTNESS[kind] - shade;
  const a = FIRST_STAGE.a + (LAST_STAGE.a - FIRST_STAGE.a) * position;
  const b = FIRST_STAGE.b + (LAST_STAGE.b - FIRST_STAGE.b) * position;
  return { fill: oklabToHex(lightness, a, b), text: lightness > EVEN_LIGHTNESS ? BLACK : WHITE };
}

/** The grey of a kind of action, whatever its stage. */
function neutralInk(kind: ActionKind): Ink {
  const lightness = LIGHTNESS[kind];
  return { fill: oklabToHex(lightness, 0, 0), text: lightness > EVEN_LIGHTNESS ? BLACK : WHITE };
}

/** OKLab (Ottosson 2020) to sRGB, cut off at its limits. */
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

/** Lines and texts of a drawing. */

const AXIS_COLOR = "#444444";

/** A line of an axis. */
export function axisLine(x1: number, y1: number, x2: number, y2: number): string {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" ` +
    `class="axis" stroke="${AXIS_COLOR}" stroke-width="1"/>`;
}

/** What the drawing, or a part of it, is called: by screen readers, and where a pointer rests. */
export const title = (content: string): string => `<title>${escapeXml(content)}</title>`;

/** A text, centred on the height `y`; from `x` on, unless it is anchored otherwise. */
export function text(
  x: number,
  y: number,
  content: string,
  style: { anchor?: string; size?: number; fill?: string; weight?: string },
): string {
  const attributes = [
    `x="${round(x)}" y="${round(y)}" dy="0.35em"`,
    style.anchor === undefined ? "" : ` text-anchor="${style.anchor}"`,
    style.size === undefined ? "" : ` font-size="${style.size}"`,
    style.fill === undefined ? "" : ` fill="${style.fill}"`,
    style.weight === undefined ? "" : ` font-weight="${style.weight}"`,
  ];
  return `<text ${attributes.join("")}>${escapeXml(content)}</text>`;
}

function escapeXml(content: string): string {
  return content.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** A coordinate, to a hundredth of a pixel. */
export function round(value: number): number {
  return Math.round(value * 100) / 100;
}

/** The height of title and legend in pixels. */
const HEADING_HEIGHT = 62;

const TITLE_SIZE = 14;
const FONT_SIZE = 11;
/** The width of a letter of a sans-serif font, in units of its size. */
const LETTER_WIDTH = 0.56;
const SWATCH = { width: 17, height: 13, top: 42 };
/** Stages, or replicas, that have a swatch. */
const SWATCHES_MAX = 8;

/** What the schedule comes to: 33 of time, 27.3 % of it bubbles. */
function factsOf({ schedule, makespan, bubbleRatio, peakActivations }: Analysis): string {
  const { workers, microBatches, slices = 1 } = schedule;
  const bubble = Number((100 * bubbleRatio).toFixed(1));
  const peak = shortNumber(Math.max(...peakActivations));
  const cut = slices > 1 ? ` in ${slices} slices` : "";
  return `${workers} workers, ${microBatches} micro-batches${cut}, time ${
    shortNumber(makespan)
  }, ` +
    `bubbles ${bubble} %, peak activations ${peak}`;
}

/** The width that the heading takes, in pixels. */
function headingWidth(analysis: Analysis): number {
  const legend = groupsOf(analysis).reduce(
    (sum, { label, swatches }) => sum + groupWidth(label, swatches.length),
    0,
  );
  return Math.max(legend, factsOf(analysis).length * FONT_SIZE * LETTER_WIDTH);
}

const groupWidth = (label: string, swatches: number) =>
  label.length * FONT_SIZE * LETTER_WIDTH + 6 + swatches * (SWATCH.width + 1) + 18;

/** The name, what the schedule comes to, and which colour is what; `left` is where they begin. */
function drawHeading(analysis: Analysis, left: number): string {
  const pieces = [
    text(left, 12, analysis.schedule.name, { size: TITLE_SIZE, weight: "bold" }),
    text(left, 29, factsOf(analysis), { size: FONT_SIZE }),
  ];
  let x = left;
  const middle = SWATCH.top + SWATCH.height / 2;
  for (const { label, swatches } of groupsOf(analysis)) {
    pieces.push(text(x, middle, label, {}));
    let at = x + label.length * FONT_SIZE * LETTER_WIDTH + 6;
    for (const { name, ink } of swatches) {
      const box = `x="${round(at)}" y="${SWATCH.top}" width="${SWATCH.width}" ` +
        `height="${SWATCH.height}"`;
      pieces.push(
        `<rect ${box} fill="${ink.fill}"/>` +
          text(at + SWATCH.width / 2, middle, name, { anchor: "middle", size: 9, fill: ink.text }),
      );
      at += SWATCH.width + 1;
    }
    x += groupWidth(label, swatches.length);
  }
  return pieces.join("\n");
}

/** Swatches that belong together. */
interface Group {
  readonly label: string;
  readonly swatches: readonly { readonly name: string; readonly ink: Ink }[];
}

/**
 * Kinds of action in grey, as lightness tells them; stages in the colours of backwards; replicas in
 * those of the first stage's forwards. So no swatch is another's.
 */
function groupsOf({ schedule }: Analysis): Group[] {
  const { stages, lists, replicaOf } = schedule, replicas = Math.max(...replicaOf) + 1;
  const kinds = new Set<ActionKind>();
  for (const list of lists) {
    for (const action of list) for (const { kind } of parts(action)) kinds.add(kind);
  }
  const order: readonly ActionKind[] = ["F", "I", "B", "W"], backward = kinds.has("B") ? "B" : "I";
  const ink = (kind: ActionKind, stage: number, replica: number) =>
    inkOf(kind, { stage, stages, replica, replicas });
  const swatches = (count: number, inkOf: (i: number) => Ink) =>
    samples(count).map((i) => ({ name: String(i), ink: inkOf(i) }));
  return [
    {
      label: "action",
      swatches: order.filter((kind) => kinds.has(kind))
        .map((kind) => ({ name: kind as string, ink: neutralInk(kind) })),
    },
    { label: "stage", swatches: swatches(stages, (stage) => ink(backward, stage, 0)) },
    ...replicas > 1
      ? [{ label: "replica", swatches: swatches(replicas, (replica) => ink("F", 0, replica)) }]
      : [],
  ];
}

/** The numbers below `count`, or as many of them as have a swatch. */
function samples(count: number): number[] {
  const shown = Math.min(count, SWATCHES_MAX);
  return Array.from(
    { length: shown },
    (_, i) => shown === 1 ? 0 : Math.round(i * (count - 1) / (shown - 1)),
  );
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
  const pieces = [
    axisLine(0, 0, 0, MEMORY_HEIGHT),
    axisLine(0, MEMORY_HEIGHT, width, MEMORY_HEIGHT),
  ];
  for (const live of ticks(most, 5)) {
    pieces.push(axisLine(-4, y(live), 0, y(live)));
    pieces.push(text(-8, y(live), shortNumber(live), { anchor: "end" }));
  }
  const order = schedule.lists.map((_, worker) => worker).filter((worker) => worker !== fullest);
  for (const worker of [...order, fullest]) {
    const position = { stage: worker, stages: schedule.workers, replica: 0, replicas: 1 };
    const stroke = inkOf("B", position).fill;
    const thickness = worker === fullest ? 2 : 0.8;
    pieces.push(
      `<path d="${memoryPath(analysis, worker, { scale, y })}" fill="none" stroke="${stroke}" ` +
        `stroke-width="${thickness}">` +
        title(
          `worker ${worker}: at most ${shortNumber(peakActivations[worker]!)} live activations`,
        ) +
        `</path>`,
    );
  }
  const caption = `live activations of each worker; thick: worker ${fullest}, ` +
    `the fullest, peak ${shortNumber(most)}`;
  pieces.push(text(0, MEMORY_HEIGHT + 18, caption, {}));
  return pieces.join("\n");
}

/** A step for each change. */
function memoryPath(
  analysis: Analysis,
  worker: number,
  { scale, y }: { scale: number; y: (live: number) => number },
): string {
  let path = `M0 ${round(y(0))}`;
  for (const { time, live } of liveActivations(analysis, worker)) {
    path += `H${round(time * scale)}V${round(y(live))}`;
  }
  return `${path}H${round(analysis.makespan * scale)}`;
}

const ACTIONS_MAX = 200_000;
const ROW_HEIGHT = 22;
const ROW_GAP = 2;
const SVG_FONT_SIZE = 9;
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
  return label.length * SVG_FONT_SIZE * DIGIT_WIDTH;
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
  const size = Math.min(SVG_FONT_SIZE, box.height - 1);
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
