/**
 * The pipeline as it runs: which step is shown, how much of it, and what is pointed at.
 *
 * @module
 */

import { byId, element, fill, say } from "./elements.js";
import { duration, whole } from "./numbers.js";
import { describe, describeStep, draw, layOut } from "./picture.js";

/** @import { State } from "./state.js" */
/** @import { TraceView } from "../view/view.ts" */
/** @import { Box, Layout, Range } from "./picture.js" */

/** While nobody looks closely the newest step is shown so often. */
const LIVE_EVERY_MS = 1000, CALM_EVERY_MS = 3000;
/** The least that can be seen of a step, in milliseconds. */
const RANGE_MIN = 0.01;
/** A list longer than this is cut. */
const WORDS_MAX = 500;

/**
 * Opens the picture.
 *
 * @param {(trace: TraceView | undefined) => void} onShown told which step is shown.
 * @returns {{ take(state: State): void, restyle(): void }}
 */
export function openPipeline(onShown) {
  const place = byId("picture"),
    canvas = /** @type {HTMLCanvasElement} */ (place.querySelector("canvas"));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const listing = /** @type {HTMLDetailsElement} */ (byId("listing"));
  /** @type {State | undefined} */
  let state;
  /** @type {TraceView | undefined} */
  let shown;
  /** @type {Layout | undefined} */
  let layout;
  /** @type {Range | undefined} */
  let range; // the whole step unless given
  /** @type {Box | undefined} */
  let chosen;
  let isLive = true, isWatched = false, shownAt = 0, isDrawing = false;

  const seen = () => range ?? { from: 0, to: layout?.end || 1 };
  const redraw = () => {
    if (isDrawing) return;
    isDrawing = true;
    requestAnimationFrame(() => {
      isDrawing = false;
      paint();
    });
  };
  const paint = () => {
    const width = place.clientWidth;
    if (!shown || !state?.run || width === 0) return;
    if (!layout || layout.trace !== shown || layout.width !== width) {
      layout = layOut(shown, width, state.run);
      chosen = undefined;
    }
    const sharp = devicePixelRatio || 1;
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(layout.height * sharp);
    canvas.style.height = `${layout.height}px`;
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    draw(pen, { layout, range: seen(), width, run: state.run, chosen });
    place.setAttribute("aria-label", describeStep(shown, seen()));
  };
  /** @param {TraceView | undefined} trace */
  const show = (trace) => {
    if (!trace || trace === shown) return tellPlace();
    shown = trace;
    chosen = undefined;
    shownAt = performance.now();
    place.classList.remove("empty");
    hideTip();
    redraw();
    tellPlace();
    if (listing.open) tellWords();
    onShown(trace);
  };
  const tellPlace = () => {
    say(
      byId("shown-step"),
      shown ? `step ${whole(shown.step)} · ${duration(shown.length)}` : "no step yet",
    );
    const { status } = state?.status ?? {}, live = byId("live");
    say(live, status === "starting" || status === "running" ? "Live" : "Last");
    live.setAttribute("aria-pressed", String(isLive));
    /** @type {HTMLButtonElement} */ (byId("previous")).disabled = !beside(-1);
    /** @type {HTMLButtonElement} */ (byId("next")).disabled = !beside(1);
  };
  /** The traced step before or after the one that is shown, which may be kept no more. @param {number} by */
  const beside = (by) => {
    const { traces = [] } = state ?? {}, { step: at = 0 } = shown ?? {};
    return by < 0 ? traces.findLast(({ step }) => step < at) : traces.find(({ step }) => step > at);
  };
  /** @param {number} by */
  const turn = (by) => {
    const to = beside(by);
    if (!to) return;
    isLive = false;
    show(to);
  };
  /** @param {boolean} toBe */
  const setLive = (toBe) => {
    isLive = toBe;
    if (isLive) show(state?.traces.at(-1));
    tellPlace();
  };
  const tellWords = () => fill(byId("words"), shown ? inWords(shown) : []);

  // What is seen
  /** @param {Range | undefined} to */
  const see = (to) => {
    const end = layout?.end ?? 1;
    if (!to || to.to - to.from >= end) range = undefined;
    else {
      const wide = Math.max(RANGE_MIN, to.to - to.from);
      const from = Math.min(Math.max(0, to.from), end - wide);
      range = { from, to: from + wide };
    }
    hideTip();
    redraw();
  };
  /** @param {number} factor @param {number} [at] a time that stays where it is. */
  const zoom = (factor, at) => {
    const { from, to } = seen(), fixed = at ?? (from + to) / 2;
    see({ from: fixed - (fixed - from) * factor, to: fixed + (to - fixed) * factor });
  };
  /** @param {number} part of what is seen. */
  const pan = (part) => {
    const { from, to } = seen(), by = (to - from) * part;
    see({ from: from + by, to: to + by });
  };
  /** @param {number} x in pixels of the picture. */
  const timeAt = (x) => {
    const { from, to } = seen(), gutter = layout?.gutter ?? 0;
    return from + (to - from) * (x - gutter) / (place.clientWidth - gutter);
  };

  // What is pointed at
  const tip = byId("tip");
  const hideTip = () => {
    tip.hidden = true;
  };
  /** @param {number} x @param {number} y */
  const boxAt = (x, y) => {
    if (!layout || x < layout.gutter) return undefined;
    const time = timeAt(x), near = (timeAt(1) - timeAt(0)) * 1.5;
    const here = layout.boxes.filter(({ top, height, from, to }) =>
      y >= top && y < top + height && time >= from - near && time <= to + near
    );
    return here.find(({ from, to }) => time >= from && time <= to) ?? here[0];
  };
  /** @param {PointerEvent} event */
  const point = (event) => {
    const { left, top } = place.getBoundingClientRect();
    const x = event.clientX - left, y = event.clientY - top, box = boxAt(x, y);
    if (box !== chosen) {
      chosen = box;
      redraw();
    }
    tip.hidden = !box;
    if (!box) return;
    say(tip, describe(box));
    const width = Math.min(320, place.clientWidth - 8);
    tip.style.maxWidth = `${width}px`;
    tip.style.left = `${Math.max(0, Math.min(x + 12, place.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 18}px`;
  };
  /** From box to box, and from row to row. @param {number} along @param {number} across */
  const choose = (along, across) => {
    const boxes = (layout?.boxes ?? []).toSorted((a, b) => a.top - b.top || a.from - b.from);
    if (boxes.length === 0) return;
    const at = chosen ? boxes.indexOf(chosen) : -1, now = boxes[at];
    let to = boxes[Math.min(boxes.length - 1, Math.max(0, at + along))];
    if (across !== 0 && now) {
      const tops = [...new Set(boxes.map(({ top }) => top))];
      const row = tops[tops.indexOf(now.top) + across];
      const there = boxes.filter(({ top }) => top === row);
      const away = (/** @type {Box} */ { from }) => Math.abs(from - now.from);
      to = there.toSorted((a, b) => away(a) - away(b))[0] ?? now;
    }
    chosen = to;
    if (!to) return;
    say(byId("told"), describe(to));
    const { from, to: end } = seen();
    if (to.from < from || to.to > end) {
      const wide = end - from;
      see({ from: (to.from + to.to - wide) / 2, to: (to.from + to.to + wide) / 2 });
    }
    redraw();
  };

  listenToPointers(place, { point, pan, zoom, timeAt, hide: hideTip });
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = event.shiftKey
      ? {
        ArrowLeft: () => choose(-1, 0),
        ArrowRight: () => choose(1, 0),
        ArrowUp: () => choose(0, -1),
        ArrowDown: () => choose(0, 1),
        "+": () => zoom(1 / 1.5),
      }
      : {
        ArrowLeft: () => pan(-0.2),
        ArrowRight: () => pan(0.2),
        ArrowUp: () => zoom(1 / 1.5),
        ArrowDown: () => zoom(1.5),
        "+": () => zoom(1 / 1.5),
        "=": () => zoom(1 / 1.5),
        "-": () => zoom(1.5),
        Home: () => see(undefined),
        0: () => see(undefined),
        PageUp: () => turn(-1),
        PageDown: () => turn(1),
        Escape: hideTip,
      };
    const act = /** @type {Record<string, (() => void) | undefined>} */ (keys)[event.key];
    if (!act) return;
    event.preventDefault();
    isWatched = true;
    act();
  });
  const watch = (/** @type {boolean} */ is) => () => {
    isWatched = is;
    if (is) return;
    chosen = undefined;
    hideTip();
    redraw();
  };
  place.addEventListener("pointerenter", watch(true));
  place.addEventListener("pointerleave", watch(false));
  place.addEventListener("blur", () => {
    say(byId("told"), "");
    watch(false)();
  });
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  byId("live").addEventListener("click", () => setLive(!isLive));
  byId("zoom-in").addEventListener("click", () => zoom(1 / 1.5));
  byId("zoom-out").addEventListener("click", () => zoom(1.5));
  byId("zoom-all").addEventListener("click", () => see(undefined));
  listing.addEventListener("toggle", () => listing.open && tellWords());
  new ResizeObserver(redraw).observe(place);
  place.classList.add("empty");

  return {
    take(told) {
      state = told;
      const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      const isDue = performance.now() - shownAt > (isCalm ? CALM_EVERY_MS : LIVE_EVERY_MS);
      const isOver = !["starting", "running"].includes(told.status.status);
      if (isLive && !isWatched && (isDue || isOver || !shown)) show(told.traces.at(-1));
      else tellPlace();
      tellLegend(told);
    },
    restyle: redraw,
  };
}

/**
 * Wheel with Ctrl, drag and pinch.
 *
 * @param {HTMLElement} place
 * @param {{ point(event: PointerEvent): void, pan(part: number): void, zoom(factor: number, at?: number): void, timeAt(x: number): number, hide(): void }} act
 */
function listenToPointers(place, { point, pan, zoom, timeAt, hide }) {
  /** @type {Map<number, number>} */
  const down = new Map();
  const xOf = (/** @type {MouseEvent} */ event) =>
    event.clientX - place.getBoundingClientRect().left;
  const spread = () => {
    const [a = 0, b = 0] = [...down.values()];
    return { apart: Math.max(10, Math.abs(a - b)), middle: (a + b) / 2 };
  };
  place.addEventListener("wheel", (event) => {
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey && !isSideways) return; // the page scrolls
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), timeAt(xOf(event)));
    else pan((isSideways ? event.deltaX : event.deltaY) / place.clientWidth);
  }, { passive: false });
  place.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, xOf(event));
    point(event);
  });
  place.addEventListener("pointermove", (event) => {
    const before = down.get(event.pointerId);
    if (before === undefined) return point(event);
    if (!place.hasPointerCapture(event.pointerId)) {
      if (Math.abs(xOf(event) - before) < 3) return;
      place.setPointerCapture(event.pointerId);
    }
    const { apart } = spread();
    down.set(event.pointerId, xOf(event));
    if (down.size > 1) {
      const now = spread();
      zoom(apart / now.apart, timeAt(now.middle));
    } else pan((before - xOf(event)) / place.clientWidth);
    hide();
  });
  const lift = (/** @type {PointerEvent} */ event) => void down.delete(event.pointerId);
  place.addEventListener("pointerup", lift);
  place.addEventListener("pointercancel", lift);
}

/**
 * A step as lists, a list for each worker.
 *
 * @param {TraceView} trace
 */
function inWords({ workers }) {
  return workers.map(({ spans, gaps }, worker) => {
    const told = [
      ...spans.map(([name, from, to]) => ({ name, from, to, kind: "done" })),
      ...gaps.map(([from, to, name]) => ({ name: name || "nothing to do", from, to, kind: "gap" })),
    ].sort((a, b) => a.from - b.from);
    return element(
      "section",
      {},
      element("h3", {}, `worker ${worker}`),
      element(
        "ol",
        { "data-worker": worker },
        ...told.slice(0, WORDS_MAX).map(({ name, from, to, kind }) =>
          element(
            "li",
            { class: kind },
            element("span", { class: "name" }, name),
            element("small", {}, ` ${duration(to - from)} from ${duration(from)}`),
          )
        ),
        ...told.length > WORDS_MAX
          ? [element("li", {}, `and ${whole(told.length - WORDS_MAX)} more`)]
          : [],
      ),
    );
  });
}

/** @param {State} state */
function tellLegend({ run }) {
  if (!run) return;
  const legend = byId("legend"), kinds = new Set(Object.keys(run.inks).map((key) => key[0] ?? ""));
  if (legend.childElementCount > 0) return;
  const swatch = (/** @type {string} */ text, /** @type {string} */ name, color = "") => {
    const box = element("i", { class: name, "aria-hidden": "true" });
    if (color) box.style.background = color;
    return element("span", {}, box, text);
  };
  /** @type {Readonly<Record<string, string>>} */
  const words = { F: "forward", B: "backward", I: "for the input", W: "for the weights" };
  legend.append(
    ...Object.entries(words).filter(([kind]) => kinds.has(kind)).map(([kind, word]) =>
      swatch(`${kind} ${word}`, "ink", run.inks[`${kind}0.0`]?.[0])
    ),
    swatch("waiting", "gap"),
    swatch("all-reduce", "reduce"),
    swatch("optimizer", "optimizer"),
    ...stageSwatches(run, swatch),
  );
}

/** The stages' own colours, where there are not too many to name. @param {import("../view/view.ts").RunFacts} run @param {(text: string, name: string, color?: string) => HTMLElement} swatch */
function stageSwatches({ inks }, swatch) {
  const stages = Object.keys(inks).filter((key) => /^B\d+\.0$/.test(key));
  if (stages.length < 2 || stages.length > 8) return [];
  return stages.map((key, stage) => swatch(`stage ${stage}`, "ink", inks[key]?.[0]));
}
