/**
 * The timeline of one step as boxes: where each lies, and how it is drawn.
 *
 * @module
 */

import { colorOf } from "./elements.js";
import { duration, whole } from "./numbers.js";

/** @import { Range } from "./range.js" */
/** @import { RunFacts, Span, TraceView } from "../state.ts" */

/**
 * A box: what somebody did, was to do, or did not do, from one time to another.
 *
 * @typedef {object} Box
 * @property {"planned" | "action" | "update" | "gap"} kind
 * @property {number} worker
 * @property {string} name of what was done, or why nothing was.
 * @property {number} from in milliseconds of the step.
 * @property {number} to
 * @property {number} top in pixels.
 * @property {number} height
 */

/**
 * Where all boxes of a step lie.
 *
 * @typedef {object} Layout
 * @property {TraceView} trace of the step.
 * @property {number} width
 * @property {readonly Box[]} boxes
 * @property {readonly { text: string, top: number, height: number, isTitle: boolean }[]} labels
 * @property {number} height of all, the axis included.
 * @property {number} end the last time.
 * @property {number} gutter pixels left of time 0.
 */

const TITLE = 20, PLANNED = 15, ACTION = 24, UPDATE = 8, BETWEEN = 5, AXIS = 24;
const NARROW = 520;

const ACTION_NAME = /^(\d+)([FBIWR])(\d+)(\+\d+|\.[01]|s\d+)?/;

/** @type {Readonly<Record<string, string>>} */
const KINDS = {
  F: "forward",
  B: "backward",
  I: "backward for the input",
  W: "backward for the weights",
  R: "recomputation",
};

/**
 * Lays out a step.
 *
 * @param {TraceView} trace
 * @param {number} width in pixels.
 * @param {RunFacts} run
 * @returns {Layout}
 */
export function layOut(trace, width, { workers }) {
  /** @type {Box[]} */
  const boxes = [];
  /** @type {Layout["labels"][number][]} */
  const labels = [];
  const isNarrow = width < NARROW;
  const rowName = (/** @type {number} */ i) => isNarrow ? `w${i}` : `worker ${i}`;
  let top = 0;
  const title = (/** @type {string} */ text) => {
    labels.push({ text, top, height: TITLE, isTitle: true });
    top += TITLE;
  };
  if (trace.planned.length > 0) {
    const each = workers.some(({ replica }) => replica > 0) ? " of each replica" : "";
    title(
      isNarrow ? "As planned" : `As planned${each}, at the mean cost of each action in this step`,
    );
    trace.planned.forEach((spans, worker) => {
      labels.push({ text: rowName(worker), top, height: PLANNED, isTitle: false });
      for (const [name, from, to] of spans) {
        boxes.push({ kind: "planned", worker, name, from, to, top, height: PLANNED });
      }
      top += PLANNED + 1;
    });
    top += BETWEEN;
  }
  title("As it happened");
  trace.workers.forEach(({ spans, gaps }, worker) => {
    labels.push({ text: rowName(worker), top, height: ACTION, isTitle: false });
    for (const [from, to, name] of gaps) {
      boxes.push({ kind: "gap", worker, name, from, to, top, height: ACTION });
    }
    for (const [name, from, to] of spans) {
      const isAction = ACTION_NAME.test(name);
      boxes.push({
        kind: isAction ? "action" : "update",
        worker,
        name,
        from,
        to,
        top: isAction ? top : top + ACTION + 1,
        height: isAction ? ACTION : UPDATE,
      });
    }
    top += ACTION + 1 + UPDATE + BETWEEN;
  });
  const end = trace.planned.flat().reduce((most, [, , to]) => Math.max(most, to), trace.length);
  return { trace, width, boxes, labels, height: top + AXIS, end, gutter: isNarrow ? 30 : 68 };
}

/**
 * A box in words.
 *
 * @param {Box} box
 */
export function describe({ kind, worker, name, from, to }) {
  const when = `${duration(to - from)}, from ${duration(from)} to ${duration(to)}`;
  if (kind === "gap") return `worker ${worker}: ${name || "nothing to do"} · ${when}`;
  const parts = name.split("&").map((part) => {
    const [, stage, letter = "", microBatch, more = ""] = ACTION_NAME.exec(part) ?? [];
    if (stage === undefined) return name;
    const half = more.startsWith(".")
      ? `, half ${Number(more[1]) + 1}`
      : more.replace("+", " and ").replace("s", ", slice ");
    return `${part}: ${KINDS[letter]} of stage ${stage}, micro-batch ${microBatch}${half}`;
  });
  const who = `worker ${worker}${kind === "planned" ? " was to do" : ""}`;
  return `${who} · ${parts.join(" with ")} · ${when}`;
}

/**
 * The colours of what is drawn, of the style in force.
 *
 * @returns {Readonly<Record<"text" | "muted" | "grid" | "surface" | "gap" | "stripe" | "reduce" | "optimizer" | "focus", string>>}
 */
function colors() {
  const of = (/** @type {string} */ name) => colorOf(`--${name}`);
  return {
    text: of("text"),
    muted: of("muted"),
    grid: of("grid"),
    surface: of("surface"),
    gap: of("gap"),
    stripe: of("stripe"),
    reduce: of("reduce"),
    optimizer: of("optimizer"),
    focus: of("focus"),
  };
}

const FONT = "11px system-ui, sans-serif";

/**
 * Draws what is seen of a layout.
 *
 * @param {CanvasRenderingContext2D} pen
 * @param {{ layout: Layout, range: Range, width: number, run: RunFacts, chosen: Box | undefined }} scene
 */
export function draw(pen, { layout, range, width, run, chosen }) {
  const ink = colors(), { gutter, height, boxes, labels } = layout;
  const scale = (width - gutter) / (range.to - range.from);
  const xOf = (/** @type {number} */ ms) => gutter + (ms - range.from) * scale;
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  for (const { text, top, height, isTitle } of labels) {
    pen.fillStyle = isTitle ? ink.muted : ink.text;
    pen.fillText(text, 0, top + height / 2);
  }
  pen.save();
  pen.beginPath();
  pen.rect(gutter, 0, width - gutter, height);
  pen.clip();
  drawAxis(pen, { range, xOf, height, labels, ink });
  const stripes = stripesOf(pen, ink);
  for (const box of boxes) {
    const left = xOf(box.from), right = left + (box.to - box.from) * scale;
    if (left > width || right < gutter) continue;
    // Its name is in the middle of what is seen of it.
    const x = Math.max(left, gutter - 1);
    drawBox(pen, box, { x, wide: Math.min(right, width + 1) - x, run, ink, stripes });
  }
  if (chosen) {
    pen.strokeStyle = ink.focus;
    pen.lineWidth = 2;
    const x = xOf(chosen.from), wide = Math.max(2, (chosen.to - chosen.from) * scale);
    pen.strokeRect(x, chosen.top + 1, wide, chosen.height - 2);
  }
  pen.restore();
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {ReturnType<typeof colors>} ink
 */
function stripesOf(pen, ink) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const own = tile.getContext("2d");
  if (!own) return ink.gap;
  own.fillStyle = ink.gap;
  own.fillRect(0, 0, 6, 6);
  own.strokeStyle = ink.stripe;
  own.beginPath();
  own.moveTo(-1, 7);
  own.lineTo(7, -1);
  own.stroke();
  return pen.createPattern(tile, "repeat") ?? ink.gap;
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Box} box
 * @param {{ x: number, wide: number, run: RunFacts, ink: ReturnType<typeof colors>, stripes: CanvasPattern | string }} how
 */
function drawBox(pen, box, { x, wide, run, ink, stripes }) {
  const { kind, name, top, height } = box;
  // A hairline between boxes, where they are wide enough to spare it.
  const inner = wide > 3 ? wide - 1 : Math.max(wide, 0.5);
  if (kind === "gap") {
    pen.fillStyle = stripes;
    pen.fillRect(x, top + 3, inner, height - 6);
    label(pen, name, {
      x,
      wide: inner,
      middle: top + height / 2,
      color: ink.muted,
      under: ink.gap,
    });
    return;
  }
  if (kind === "update") {
    pen.fillStyle = name.startsWith("reduce") ? ink.reduce : ink.optimizer;
    pen.fillRect(x, top, inner, height);
    return;
  }
  const parts = name.split("&"), each = height / parts.length;
  parts.forEach((part, i) => {
    const [back, front] = inkOf(part, run);
    pen.fillStyle = back;
    pen.fillRect(x, top + i * each, inner, each);
    const [, , , microBatch = "", more = ""] = ACTION_NAME.exec(part) ?? [];
    const middle = top + (i + 0.5) * each + 0.5, color = front;
    if (each >= 10 && !label(pen, part, { x, wide: inner, middle, color })) {
      label(pen, microBatch + more, { x, wide: inner, middle, color });
    }
  });
}

/**
 * A text in the middle of a box, if it fits.
 *
 * @param {CanvasRenderingContext2D} pen
 * @param {string} text
 * @param {{ x: number, wide: number, middle: number, color: string, under?: string }} where
 */
function label(pen, text, { x, wide, middle, color, under }) {
  if (!text || wide < 7) return false;
  const taken = pen.measureText(text).width;
  if (taken > wide - 4) return false;
  const from = x + (wide - taken) / 2;
  if (under) {
    pen.fillStyle = under;
    pen.fillRect(from - 3, middle - 8, taken + 6, 16);
  }
  pen.fillStyle = color;
  pen.fillText(text, from, middle);
  return true;
}

/**
 * The colours of an action: those of drawn schedules.
 *
 * @param {string} name
 * @param {RunFacts} run
 * @returns {readonly [fill: string, text: string]}
 */
function inkOf(name, { inks, pipeOf }) {
  const [, stage, kind, microBatch] = ACTION_NAME.exec(name) ?? [];
  const pipe = pipeOf[Number(microBatch) % Math.max(1, pipeOf.length)] ?? 0;
  return inks[`${kind}${stage}.${pipe}`] ?? ["#cccccc", "#000000"];
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {{ range: Range, xOf: (ms: number) => number, height: number, labels: Layout["labels"], ink: ReturnType<typeof colors> }} axis
 */
function drawAxis(pen, { range, xOf, height, ink }) {
  const most = Math.max(2, (xOf(range.to) - xOf(range.from)) / 90);
  const step = roundStep((range.to - range.from) / most);
  pen.strokeStyle = ink.grid;
  pen.fillStyle = ink.muted;
  pen.lineWidth = 1;
  const first = Math.ceil(range.from / step), last = Math.floor(range.to / step);
  for (let i = first; i <= last; i++) {
    const x = Math.round(xOf(i * step)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, TITLE);
    pen.lineTo(x, height - AXIS + 4);
    pen.stroke();
    const text = i === 0 ? "0" : duration(Number((i * step).toPrecision(6)));
    const wide = pen.measureText(text).width;
    const left = Math.min(Math.max(x - wide / 2, xOf(range.from)), xOf(range.to) - wide);
    pen.fillText(text, left, height - AXIS / 2 + 2);
  }
}

/** 1, 2 or 5 times a power of ten, at least so much. @param {number} least */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((factor) => factor * power >= least) ?? 10);
}

/**
 * What a step was, for those who do not see it.
 *
 * @param {TraceView} trace
 * @param {Range} range
 */
export function describeStep({ step, length, workers }, { from, to }) {
  const seen = `shown from ${duration(from)} to ${duration(to)}`;
  return `Timeline of step ${whole(step)}: ${duration(length)}, ${workers.length} workers, ${seen}`;
}
