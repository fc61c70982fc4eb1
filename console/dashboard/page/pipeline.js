/**
 * The pipeline as it runs: which step is shown, and how.
 *
 * @module
 */

import { byId, fill, say } from "./elements.js";
import { duration, whole } from "./numbers.js";
import { describeStep, draw, layOut } from "./picture.js";
import { openPointing } from "./pointing.js";
import { listenToPointers } from "./pointers.js";
import { openRange } from "./range.js";
import { inWords, tellLegend } from "./words.js";

/** @import { State } from "./state.js" */
/** @import { TraceView } from "../state.ts" */
/** @import { Layout } from "./picture.js" */

/** While nobody looks closely the newest step is shown so often. */
const LIVE_EVERY_MS = 1000, CALM_EVERY_MS = 3000;

/** How much a key zooms and moves. */
const ZOOM = 1.5, PAN = 0.2;

/**
 * Opens the picture.
 *
 * @param {(trace: TraceView) => void} onShown told which step is shown.
 * @returns {{ take(state: State): void, restyle(): void }}
 */
export function openPipeline(onShown) {
  const place = byId("picture"), canvas = openCanvas(place);
  const listing = /** @type {HTMLDetailsElement} */ (byId("listing"));
  /** @type {State | undefined} */
  let state;
  /** @type {TraceView | undefined} */
  let shown;
  let isLive = true, isWatched = false, shownAt = 0;
  const redraw = () => canvas.draw(state, shown);
  const tellWords = () => listing.open && fill(byId("words"), shown ? inWords(shown) : []);
  const tellPlace = () => tellSteps(state, shown, isLive);
  /** @param {TraceView | undefined} trace */
  const show = (trace) => {
    if (trace && trace !== shown) {
      shown = trace;
      shownAt = performance.now();
      canvas.pointing.clear();
      redraw();
      tellWords();
      onShown(trace);
    }
    tellPlace();
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
    redraw();
  };
  canvas.onChange = redraw;
  listenToKeys(place, canvas, turn, () => watch(true));
  place.addEventListener("pointerenter", () => watch(true));
  place.addEventListener("pointerleave", () => watch(false));
  place.addEventListener("blur", () => {
    say(byId("told"), "");
    watch(false);
  });
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  byId("live").addEventListener("click", () => {
    isLive = !isLive;
    show(isLive ? state?.traces.at(-1) : undefined);
  });
  listing.addEventListener("toggle", tellWords);
  return {
    take(told) {
      state = told;
      const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      const isDue = performance.now() - shownAt > (isCalm ? CALM_EVERY_MS : LIVE_EVERY_MS);
      const isOver = !["starting", "running"].includes(told.status.status);
      const isNewest = isLive && !isWatched && (isDue || isOver || !shown);
      show(isNewest ? told.traces.at(-1) : undefined);
      tellLegend(told);
    },
    restyle: redraw,
  };
}

/**
 * The canvas: what is seen of a step, and what is pointed at.
 *
 * @param {HTMLElement} place
 */
function openCanvas(place) {
  const canvas = /** @type {HTMLCanvasElement} */ (place.querySelector("canvas"));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  /** @type {Layout | undefined} */
  let layout;
  /** @type {(() => void) | undefined} */
  let wanted;
  const opened = { onChange: () => {} };
  const change = () => {
    pointing.hide();
    opened.onChange();
  };
  const range = openRange(change);
  const timeAt = (/** @type {number} */ x) => {
    const { from, to } = range.seen(), gutter = layout?.gutter ?? 0;
    return from + (to - from) * (x - gutter) / (place.clientWidth - gutter);
  };
  const pointing = openPointing(place, () => layout, timeAt);
  /** @param {State | undefined} state @param {TraceView | undefined} shown */
  const paint = (state, shown) => {
    const width = place.clientWidth;
    if (!shown || !state?.run || width === 0) return;
    if (layout?.trace !== shown || layout.width !== width) {
      layout = layOut(shown, width, state.run);
      range.endAt(layout.end);
      pointing.clear();
    }
    const sharp = devicePixelRatio || 1;
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(layout.height * sharp);
    canvas.style.height = `${layout.height}px`;
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    draw(pen, { layout, range: range.seen(), width, run: state.run, chosen: pointing.chosen() });
    place.classList.remove("empty");
    place.setAttribute("aria-label", describeStep(shown, range.seen()));
  };
  listenToPointers(place, {
    point(event) {
      const before = pointing.chosen();
      pointing.point(event);
      if (pointing.chosen() !== before) opened.onChange();
    },
    pan: range.pan,
    zoom: range.zoom,
    timeAt,
    hide: pointing.hide,
  });
  byId("zoom-in").addEventListener("click", () => range.zoom(1 / ZOOM));
  byId("zoom-out").addEventListener("click", () => range.zoom(ZOOM));
  byId("zoom-all").addEventListener("click", range.all);
  new ResizeObserver(() => opened.onChange()).observe(place);
  place.classList.add("empty");
  return Object.assign(opened, {
    range,
    pointing,
    /** Draws a step with the next frame. @param {State | undefined} state @param {TraceView | undefined} shown */
    draw(state, shown) {
      if (!wanted) requestAnimationFrame(() => wanted?.());
      wanted = () => {
        wanted = undefined;
        paint(state, shown);
      };
    },
  });
}

/**
 * The traced step before or after the one that is shown, which may be kept no more.
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
 * Says which step is shown, and whether there are others.
 *
 * @param {State | undefined} state
 * @param {TraceView | undefined} shown
 * @param {boolean} isLive
 */
function tellSteps(state, shown, isLive) {
  say(
    byId("shown-step"),
    shown ? `step ${whole(shown.step)} · ${duration(shown.length)}` : "no step yet",
  );
  const { status } = state?.status ?? {}, live = byId("live");
  say(live, status === "starting" || status === "running" ? "Live" : "Last");
  live.setAttribute("aria-pressed", String(isLive));
  for (const [id, by] of /** @type {const} */ ([["previous", -1], ["next", 1]])) {
    const button = /** @type {HTMLButtonElement} */ (byId(id));
    button.disabled = !besideStep(state, shown, by);
  }
}

/**
 * Keys over the picture.
 *
 * @param {HTMLElement} place
 * @param {ReturnType<typeof openCanvas>} canvas
 * @param {(by: number) => void} turn to another step.
 * @param {() => void} onKey
 */
function listenToKeys(place, { range, pointing, onChange }, turn, onKey) {
  const choose = (/** @type {number} */ along, /** @type {number} */ across) => {
    const box = pointing.step(along, across);
    if (box) range.bring(box);
    redraw();
  };
  const redraw = () => onChange();
  const zoomIn = () => range.zoom(1 / ZOOM), zoomOut = () => range.zoom(ZOOM);
  /** @type {Readonly<Record<string, () => void>>} */
  const plain = {
    ArrowLeft: () => range.pan(-PAN),
    ArrowRight: () => range.pan(PAN),
    ArrowUp: zoomIn,
    ArrowDown: zoomOut,
    "+": zoomIn,
    "=": zoomIn,
    "-": zoomOut,
    Home: range.all,
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
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = (event.shiftKey ? shifted : plain)[event.key];
    if (!act) return;
    event.preventDefault();
    onKey();
    act();
  });
}
