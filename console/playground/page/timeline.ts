/**
 * The timeline of one side: its canvas, with zoom, pointing and keys.
 *
 * @module
 */

import { shortNumber } from "../../../schedules/pictures/grid.ts";
import { setText } from "../../dashboard/page/elements.js";
import { listenToPointers, openRange } from "../../dashboard/page/pointer.js";
import { KINDS } from "../../dashboard/page/timeline.js";
import { type Chosen, draw, layOut, readTheme, type Scene, spanAt } from "./draw.ts";
import { type Box, CAUSES, type Gap, type Picture, type Spans, spansOf } from "./play.ts";

/** Zoom factor of a key. */
const ZOOM = 1.5;

/** Describes an action or a bubble. */
export function describe({ worker, span }: Chosen): string {
  const when = `from ${shortNumber(span.from)} to ${shortNumber(span.to)}`;
  if ("cause" in span) {
    const [, meaning] = CAUSES[span.cause]!;
    return `worker ${worker}: bubble ${when}: ${meaning} (${span.text})`;
  }
  const critical = span.isCritical ? ", on the critical path" : "";
  return `worker ${worker}: ${span.name}, ${KINDS[span.kind]} of stage ${span.stage}, ` +
    `micro-batch ${span.label}, ${when}${critical}`;
}

const middleOf = ({ from, to }: Box | Gap) => (from + to) / 2;

/** Returns the action or bubble that a key selects. */
function besides(
  all: readonly Spans[],
  chosen: Chosen | undefined,
  along: number,
  across: number,
): Chosen {
  const worker = Math.min(all.length - 1, Math.max(0, (chosen?.worker ?? 0) + across));
  const { boxes, gaps } = all[worker]!;
  const spans = [...boxes, ...gaps].sort((a, b) => a.from - b.from);
  if (!chosen) return { worker, span: spans[0]! };
  const middle = middleOf(chosen.span), away = (one: Box | Gap) => Math.abs(middleOf(one) - middle);
  const at = across === 0 ? spans.indexOf(chosen.span) + along : -1;
  const nearest = () => spans.reduce((a, b) => away(b) < away(a) ? b : a);
  return {
    worker,
    span: across === 0 ? spans[Math.min(spans.length - 1, Math.max(0, at))]! : nearest(),
  };
}

/** Calls a function for each key without Ctrl, Meta and Alt. */
function listenToKeys(place: HTMLElement, keys: Readonly<Record<string, () => void>>): void {
  place.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
}

/** Sizes a canvas for the pixels of the screen. */
function fit(pen: CanvasRenderingContext2D, width: number, height: number): void {
  const { canvas } = pen, sharp = devicePixelRatio || 1;
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  canvas.style.height = `${height}px`;
  pen.setTransform(sharp, 0, 0, sharp, 0, 0);
}

/** Appearance of all timelines. */
export interface Look extends Pick<Scene, "colors" | "isCriticalShown"> {
  /** The end of the time axis. */
  readonly end: number;
}

/**
 * Opens a timeline.
 *
 * @param place contains the canvas.
 * @param words receives the description of the selection.
 */
export function openTimeline(place: HTMLElement, words: HTMLElement) {
  const canvas = place.querySelector("canvas")!, pen = canvas.getContext("2d")!;
  let picture: Picture | undefined, look: Look | undefined, chosen: Chosen | undefined;
  let spans: readonly Spans[] = [];
  let theme = readTheme();
  let wanted: ((time: number) => void)[] | undefined;
  const paint = () => {
    const width = place.clientWidth, after = wanted ?? [];
    wanted = undefined;
    if (!picture || !look || width === 0) return;
    range.endAt(look.end);
    fit(pen, width, layOut(picture, width).height);
    draw(pen, { picture, spans, width, range: range.seen(), ...look, chosen }, theme);
    for (const done of after) done(performance.now());
  };
  const redraw = (done?: (time: number) => void) => {
    if (!wanted) requestAnimationFrame(paint);
    (wanted ??= []).push(...done ? [done] : []);
  };
  const range = openRange(() => redraw());
  const timeAt = (x: number) => {
    const { from, to } = range.seen(), width = place.clientWidth;
    const gutter = picture ? layOut(picture, width).gutter : 0;
    return from + (to - from) * (x - gutter) / (width - gutter);
  };
  const choose = (one: Chosen | undefined) => {
    chosen = one;
    setText(words, one ? describe(one) : "");
    redraw();
  };
  listenToPointers(place, {
    point({ clientX, clientY }) {
      const { left, top } = place.getBoundingClientRect(), x = clientX - left;
      const scene = picture && { picture, spans, width: place.clientWidth };
      if (scene) choose(spanAt(scene, { x, y: clientY - top, time: timeAt(x) }));
    },
    ...{ pan: range.pan, zoom: range.zoom, timeAt, hide: () => {} },
  });
  const step = (along: number, across: number) => () => {
    if (spans.length === 0) return;
    choose(besides(spans, chosen, along, across));
    if (chosen) range.bring(chosen.span);
  };
  const zoomIn = () => range.zoom(1 / ZOOM), zoomOut = () => range.zoom(ZOOM);
  listenToKeys(place, {
    ...{ ArrowLeft: step(-1, 0), ArrowRight: step(1, 0), ArrowUp: step(0, -1) },
    ...{ ArrowDown: step(0, 1), Home: range.all, Escape: () => choose(undefined) },
    ...{ "+": zoomIn, "=": zoomIn, "-": zoomOut },
  });
  new ResizeObserver(() => redraw()).observe(place);
  return {
    ...{ canvas, spans: () => spans },
    ...{ zoomIn, zoomOut, zoomAll: range.all },
    /** Shows a picture; `done` receives the time at which it is drawn. */
    show(to: Picture | undefined, how: Look, done?: (time: number) => void) {
      if (to !== picture) {
        chosen = undefined;
        setText(words, "");
        spans = to ? spansOf(to) : [];
      }
      [picture, look] = [to, how];
      redraw(done);
    },
    restyle() {
      theme = readTheme();
      redraw();
    },
  };
}
