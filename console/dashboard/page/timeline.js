/**
 * The timeline of one step: layout, drawing, pointing and controls.
 *
 * @module
 */

import {
  byId,
  colorOf,
  duration,
  fill,
  fitCanvas,
  listWorkers,
  setText,
  stripesOf,
  swatch,
  whole,
} from "./elements.js";
import { boxAt, boxBeside, listenToKeys, openView } from "./pointer.js";

/** @import { State } from "./state.js" */
/** @import { Range } from "./pointer.js" */
/** @import { RunFacts, Span, TraceView } from "../view.ts" */

/**
 * A box: an actual or expected action, or idle time.
 *
 * @typedef {object} Box
 * @property {"expected" | "action" | "update" | "gap"} kind
 * @property {number} worker
 * @property {string} name of the action, or cause of the idle time.
 * @property {number} from in milliseconds of the step.
 * @property {number} to
 * @property {number} top in pixels.
 * @property {number} height
 */

/**
 * Positions of all boxes of a step.
 *
 * @typedef {object} Layout
 * @property {TraceView} trace of the step.
 * @property {number} width
 * @property {readonly Box[]} boxes
 * @property {readonly { text: string, top: number, height: number, isTitle: boolean }[]} labels
 * @property {number} height of everything including the axis.
 * @property {number} end last time.
 * @property {number} gutter pixels left of time 0.
 */

const TITLE = 20, EXPECTED = 15, ACTION = 24, UPDATE = 8, BETWEEN = 5, AXIS = 24;
const NARROW = 520;

const ACTION_NAME = /^(\d+)([FBIWR])(\d+)(\+\d+|\.[01]|s\d+)?/;

/**
 * Names of the kinds of actions.
 *
 * @type {Readonly<Record<string, string>>}
 */
export const KINDS = {
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
function layOut(trace, width, { workers }) {
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
  if (trace.expected.length > 0) {
    const each = workers.some(({ replica }) => replica > 0) ? " of each replica" : "";
    title(isNarrow ? "Expected" : `Expected${each}, at the mean cost of each action in this step`);
    trace.expected.forEach((spans, worker) => {
      labels.push({ text: rowName(worker), top, height: EXPECTED, isTitle: false });
      for (const [name, from, to] of spans) {
        boxes.push({ kind: "expected", worker, name, from, to, top, height: EXPECTED });
      }
      top += EXPECTED + 1;
    });
    top += BETWEEN;
  }
  title("Actual");
  trace.workers.forEach(({ spans, gaps }, worker) => {
    labels.push({ text: rowName(worker), top, height: ACTION, isTitle: false });
    for (const [from, to, name] of gaps) {
      boxes.push({ kind: "gap", worker, name, from, to, top, height: ACTION });
    }
    for (const [name, from, to] of spans) {
      const place = ACTION_NAME.test(name)
        ? /** @type {const} */ ({ kind: "action", top, height: ACTION })
        : /** @type {const} */ ({ kind: "update", top: top + ACTION + 1, height: UPDATE });
      boxes.push({ ...place, worker, name, from, to });
    }
    top += ACTION + 1 + UPDATE + BETWEEN;
  });
  const end = trace.expected.flat().reduce((most, [, , to]) => Math.max(most, to), trace.length);
  return { trace, width, boxes, labels, height: top + AXIS, end, gutter: isNarrow ? 30 : 68 };
}

/**
 * Describes a box.
 *
 * @param {Box} box
 */
function describe({ kind, worker, name, from, to }) {
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
  const who = `worker ${worker}${kind === "expected" ? ", expected" : ""}`;
  return `${who} · ${parts.join(" with ")} · ${when}`;
}

const COLORS = /** @type {const} */ (
  ["text", "muted", "grid", "surface", "gap", "stripe", "reduce", "optimizer", "focus"]
);

/**
 * Returns the colours of the current style.
 *
 * @returns {Readonly<Record<typeof COLORS[number], string>>}
 */
const colors = () => /** @type {Record<typeof COLORS[number], string>} */ (
  Object.fromEntries(COLORS.map((name) => [name, colorOf(`--${name}`)]))
);

const FONT = "11px system-ui, sans-serif";

/**
 * Draws the visible part of a layout.
 *
 * @param {CanvasRenderingContext2D} pen
 * @param {{ layout: Layout, range: Range, width: number, run: RunFacts, chosen: Box | undefined }} scene
 */
function drawScene(pen, { layout, range, width, run, chosen }) {
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
  const stripes = stripesOf(ink.gap, ink.stripe);
  for (const box of boxes) {
    const left = xOf(box.from), right = left + (box.to - box.from) * scale;
    if (left > width || right < gutter) continue;
    // Names are centred in the visible part.
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
 * @param {Box} box
 * @param {{ x: number, wide: number, run: RunFacts, ink: ReturnType<typeof colors>, stripes: CanvasPattern | string }} how
 */
function drawBox(pen, box, { x, wide, run, ink, stripes }) {
  const { kind, name, top, height } = box;
  // A hairline between boxes that are wide enough.
  const inner = wide > 3 ? wide - 1 : Math.max(wide, 0.5);
  if (kind === "gap") {
    pen.fillStyle = stripes;
    pen.fillRect(x, top + 3, inner, height - 6);
    const middle = top + height / 2;
    label(pen, name, { x, wide: inner, middle, color: ink.muted, under: ink.gap });
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
 * Draws a text in the middle of a box if it fits.
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
 * Returns the colours of an action, as in drawn schedules.
 *
 * @param {string} name
 * @param {RunFacts} run
 * @returns {readonly [fill: string, text: string]}
 */
function inkOf(name, { inks, pipelineOf }) {
  const [, stage, kind, microBatch] = ACTION_NAME.exec(name) ?? [];
  const pipeline = pipelineOf[Number(microBatch) % Math.max(1, pipelineOf.length)] ?? 0;
  return inks[`${kind}${stage}.${pipeline}`] ?? ["#cccccc", "#000000"];
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

/** Returns 1, 2 or 5 times a power of ten, at least `least`. @param {number} least */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((factor) => factor * power >= least) ?? 10);
}

/**
 * Describes a step for screen readers.
 *
 * @param {TraceView} trace
 * @param {Range} range
 */
function describeStep({ step, length, workers }, { from, to }) {
  const seen = `shown from ${duration(from)} to ${duration(to)}`;
  return `Timeline of step ${whole(step)}: ${duration(length)}, ${workers.length} workers, ${seen}`;
}

/**
 * Lists the actions of each worker in a step.
 *
 * @param {TraceView} trace
 */
const inWords = ({ workers }) =>
  listWorkers(
    workers.map(({ spans, gaps }) => [
      ...spans.map(([name, from, to]) => ({ name, from, to })),
      ...gaps.map(([from, to, name]) => ({ name: name || "nothing to do", from, to, isGap: true })),
    ]),
    ({ from, to }) => `${duration(to - from)} from ${duration(from)}`,
  );

/** Shows the legend once. @param {State} state */
function showLegend({ run }) {
  if (!run) return;
  const legend = byId("legend"), kinds = new Set(Object.keys(run.inks).map((key) => key[0] ?? ""));
  if (legend.childElementCount > 0) return;
  legend.append(
    ...Object.entries(KINDS).filter(([kind]) => kinds.has(kind)).map(([kind, word]) =>
      swatch(`${kind} ${word}`, run.inks[`${kind}0.0`]?.[0] ?? "", "ink")
    ),
    swatch("waiting", "", "gap"),
    swatch("all-reduce", "", "reduce"),
    swatch("optimizer", "", "optimizer"),
    ...stageSwatches(run),
  );
}

/**
 * Returns the colours of up to eight stages.
 *
 * @param {RunFacts} run
 */
function stageSwatches({ inks }) {
  const kind = "B0.0" in inks ? "B" : "I";
  const stages = Object.keys(inks).filter((key) => key.startsWith(kind) && key.endsWith(".0"));
  if (stages.length < 2 || stages.length > 8) return [];
  return stages.map((key, stage) => swatch(`stage ${stage}`, inks[key]?.[0] ?? "", "ink"));
}

/** Tolerance in pixels, for thin boxes. */
const NEAR = 1.5;
const TIP_WIDTH = 320;

/**
 * Opens the selection of a box by pointer or keys.
 *
 * @param {HTMLElement} place of the timeline.
 * @param {() => Layout | undefined} layoutNow
 * @param {(x: number) => number} timeAt returns the time at a pixel.
 */
function openPointing(place, layoutNow, timeAt) {
  const tip = byId("tip");
  /** @type {Box | undefined} */
  let chosen;
  const hide = () => {
    tip.hidden = true;
  };
  /** @param {number} x @param {number} y */
  const below = (x, y) => {
    const layout = layoutNow(), near = (timeAt(1) - timeAt(0)) * NEAR;
    return layout && x >= layout.gutter ? boxAt(layout.boxes, y, timeAt(x), near) : undefined;
  };
  return {
    /** Returns the selected box. */
    chosen: () => chosen,
    /** Hides the tooltip. */
    hide,
    /** Clears the selection. */
    clear() {
      chosen = undefined;
      hide();
    },
    /** Selects and describes the box below the pointer. @param {PointerEvent} event */
    point({ clientX, clientY }) {
      const { left, top } = place.getBoundingClientRect(), x = clientX - left, y = clientY - top;
      chosen = below(x, y);
      tip.hidden = !chosen;
      if (!chosen) return;
      setText(tip, describe(chosen));
      tip.style.maxWidth = `${Math.min(TIP_WIDTH, place.clientWidth - 8)}px`;
      const right = place.clientWidth - tip.offsetWidth - 4;
      tip.style.left = `${Math.max(0, Math.min(x + 12, right))}px`;
      tip.style.top = `${y + 18}px`;
    },
    /**
     * Moves the selection along a row and across rows, and describes it.
     *
     * @param {number} along
     * @param {number} across
     * @returns {Box | undefined}
     */
    step(along, across) {
      chosen = boxBeside(layoutNow()?.boxes ?? [], chosen, along, across);
      if (chosen) setText(byId("description"), describe(chosen));
      return chosen;
    },
  };
}

/** Intervals at which the newest step is shown, also with reduced motion. */
const LIVE_EVERY_MS = 1000, CALM_EVERY_MS = 3000;

/** Pan of a key. */
const PAN = 0.2;

/**
 * Opens the timeline.
 *
 * @param {(trace: TraceView) => void} onShown receives the shown step.
 * @returns {{ take(state: State): void, restyle(): void }}
 */
export function openTimeline(onShown) {
  const place = byId("picture"), canvas = openCanvas(place, () => ({ state, shown }));
  const listing = /** @type {HTMLDetailsElement} */ (byId("listing"));
  /** @type {State | undefined} */
  let state;
  /** @type {TraceView | undefined} */
  let shown;
  let isLive = true, isWatched = false, shownAt = 0;
  const showWords = () => listing.open && fill(byId("words"), shown ? inWords(shown) : []);
  const showPlace = () => showSteps(state, shown, isLive);
  /** @param {TraceView | undefined} trace */
  const show = (trace) => {
    if (trace && trace !== shown) {
      shown = trace;
      shownAt = performance.now();
      canvas.pointing.clear();
      canvas.draw();
      showWords();
      onShown(trace);
    }
    showPlace();
  };
  /** @param {number} by */
  const turn = (by) => {
    const to = besideStep(state, shown, by);
    if (!to) return;
    isLive = false;
    show(to);
  };
  const watch = (/** @type {boolean} */ is) => {
    isWatched = is;
    if (is) return;
    canvas.pointing.clear();
    canvas.draw();
  };
  listenToKeys(place, ...keysOf(canvas, turn));
  place.addEventListener("keydown", ({ defaultPrevented }) => defaultPrevented && watch(true));
  place.addEventListener("pointerenter", () => watch(true));
  place.addEventListener("pointerleave", () => watch(false));
  place.addEventListener("blur", () => {
    setText(byId("description"), "");
    watch(false);
  });
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  byId("live").addEventListener("click", () => {
    isLive = !isLive;
    show(isLive ? state?.traces.at(-1) : undefined);
  });
  listing.addEventListener("toggle", showWords);
  return {
    take(updated) {
      state = updated;
      const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      const isDue = performance.now() - shownAt > (isCalm ? CALM_EVERY_MS : LIVE_EVERY_MS);
      const isOver = !["starting", "running"].includes(updated.status.status);
      const isNewest = isLive && !isWatched && (isDue || isOver || !shown);
      show(isNewest ? updated.traces.at(-1) : undefined);
      showLegend(updated);
    },
    restyle: canvas.draw,
  };
}

/**
 * Opens the canvas with its visible range and selection.
 *
 * @param {HTMLElement} place
 * @param {() => { state: State | undefined, shown: TraceView | undefined }} now
 */
function openCanvas(place, now) {
  const canvas = /** @type {HTMLCanvasElement} */ (place.querySelector("canvas"));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  /** @type {Layout | undefined} */
  let layout;
  let isDue = false;
  const hide = () => pointing.hide();
  const range = openView(place, {
    gutter: () => layout?.gutter ?? 0,
    onChange() {
      hide();
      draw();
    },
    point(event) {
      const before = pointing.chosen();
      pointing.point(event);
      if (pointing.chosen() !== before) draw();
    },
    hide,
  });
  const pointing = openPointing(place, () => layout, range.timeAt);
  const paint = () => {
    isDue = false;
    const { state, shown } = now(), width = place.clientWidth;
    if (!shown || !state?.run || width === 0) return;
    if (layout?.trace !== shown || layout.width !== width) {
      layout = layOut(shown, width, state.run);
      range.endAt(layout.end);
      pointing.clear();
    }
    fitCanvas(pen, width, layout.height);
    const scene = { layout, range: range.seen(), width, run: state.run };
    drawScene(pen, { ...scene, chosen: pointing.chosen() });
    place.classList.remove("empty");
    place.setAttribute("aria-label", describeStep(shown, range.seen()));
  };
  /** Draws the step in the next frame. */
  const draw = () => {
    if (!isDue) requestAnimationFrame(paint);
    isDue = true;
  };
  byId("zoom-in").addEventListener("click", range.zoomIn);
  byId("zoom-out").addEventListener("click", range.zoomOut);
  byId("zoom-all").addEventListener("click", range.all);
  place.classList.add("empty");
  return { range, pointing, draw };
}

/**
 * Returns the traced step before or after the shown one, which may have been dropped.
 *
 * @param {State | undefined} state
 * @param {TraceView | undefined} shown
 * @param {number} by
 */
function besideStep(state, shown, by) {
  const { traces = [] } = state ?? {}, { step: at = 0 } = shown ?? {};
  return by < 0 ? traces.findLast(({ step }) => step < at) : traces.find(({ step }) => step > at);
}

/**
 * Shows the number of the step, and whether there are earlier and later ones.
 *
 * @param {State | undefined} state
 * @param {TraceView | undefined} shown
 * @param {boolean} isLive
 */
function showSteps(state, shown, isLive) {
  setText(
    byId("shown-step"),
    shown ? `step ${whole(shown.step)} · ${duration(shown.length)}` : "no step yet",
  );
  const { status } = state?.status ?? {}, live = byId("live");
  setText(live, status === "starting" || status === "running" ? "Live" : "Last");
  live.setAttribute("aria-pressed", String(isLive));
  for (const [id, by] of /** @type {const} */ ([["previous", -1], ["next", 1]])) {
    const button = /** @type {HTMLButtonElement} */ (byId(id));
    button.disabled = !besideStep(state, shown, by);
  }
}

/**
 * Returns what keys of the timeline do, without and with Shift.
 *
 * @param {ReturnType<typeof openCanvas>} canvas
 * @param {(by: number) => void} turn shows another step.
 */
function keysOf(canvas, turn) {
  const { range, pointing } = canvas, { zoomIn, zoomOut } = range;
  const choose = (/** @type {number} */ along, /** @type {number} */ across) => {
    const box = pointing.step(along, across);
    if (box) range.bring(box);
    canvas.draw();
  };
  /** @type {Readonly<Record<string, () => void>>} */
  const plain = {
    ArrowLeft: () => range.pan(-PAN),
    ArrowRight: () => range.pan(PAN),
    ArrowUp: zoomIn,
    ArrowDown: zoomOut,
    ...range.keys,
    0: range.all,
    PageUp: () => turn(-1),
    PageDown: () => turn(1),
    Escape: pointing.hide,
  };
  /** @type {Readonly<Record<string, () => void>>} */
  const shifted = {
    ArrowLeft: () => choose(-1, 0),
    ArrowRight: () => choose(1, 0),
    ArrowUp: () => choose(0, -1),
    ArrowDown: () => choose(0, 1),
    "+": zoomIn,
  };
  return /** @type {const} */ ([plain, shifted]);
}
