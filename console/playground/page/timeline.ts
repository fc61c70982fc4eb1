/**
 * The timeline of one side: its canvas, with zoom, pointing and keys.
 *
 * @module
 */

import { shortNumber, tickStep } from "../../../schedules/pictures/grid.ts";
import { inkOf } from "../../../schedules/pictures/svg.ts";
import { colorOf, fitCanvas, setText, stripesOf } from "../../dashboard/page/elements.js";
import {
  boxAt,
  boxBeside,
  listenToKeys,
  openView,
  type Range,
} from "../../dashboard/page/pointer.js";
import { KINDS } from "../../dashboard/page/timeline.js";
import { type Box, CAUSES, type Picture, type Spans, spansOf } from "./play.ts";

/** A selected action or bubble. */
type Chosen = ReturnType<typeof placeSpans>[number];

/** A picture and how it is drawn. */
interface Scene {
  readonly picture: Picture;
  readonly spans: readonly Spans[];
  readonly width: number;
  readonly range: Range;
  readonly colors: "kind" | "stage";
  readonly isCriticalShown: boolean;
  readonly chosen: Chosen | undefined;
}

const TOP = 4, AXIS = 22, MEMORY = 84, MEMORY_TITLE = 24, NARROW = 520;

const rowHeight = ({ workers }: Picture) =>
  workers <= 8 ? 26 : workers <= 16 ? 18 : workers <= 32 ? 11 : 7;

/** Positions in pixels. */
function layOut(picture: Picture, width: number) {
  const row = rowHeight(picture), memoryTop = TOP + picture.workers * row + AXIS + MEMORY_TITLE;
  const gutter = width < NARROW ? 30 : 62;
  return { row, gutter, memoryTop, height: memoryTop + MEMORY + 8 };
}

/** Returns the actions and bubbles of all workers with their places in pixels. */
function placeSpans(picture: Picture, spans: readonly Spans[]) {
  const row = rowHeight(picture);
  return spans.flatMap(({ boxes, gaps }, worker) => {
    const top = TOP + worker * row;
    return [
      ...boxes.map((box) => {
        const height = row / box.lanes;
        return { ...box, worker, top: top + box.lane * height, height };
      }),
      ...gaps.map((gap) => ({ ...gap, worker, top, height: row })),
    ];
  });
}

type Theme = ReturnType<typeof readTheme>;

/** Reads the colours of the current style. */
function readTheme() {
  const names = ["text", "muted", "grid", "surface", "focus", "bad", "edge"] as const;
  const kinds = ["F", "B", "I", "W", "R"] as const;
  const pick = <K extends string>(all: readonly K[], prefix = "--") =>
    Object.fromEntries(all.map((name) => [name, colorOf(prefix + name)])) as Record<K, string>;
  const plain = pick(names), causes = CAUSES.map(([name]) => colorOf(`--cause-${name}`));
  return {
    ...{ ...plain, causes, kinds: pick(kinds, "--kind-"), onKind: colorOf("--on-kind") },
    stripes: causes.map((color) => stripesOf(color, plain.surface)),
  };
}

/** Draws a scene. */
function draw(pen: CanvasRenderingContext2D, scene: Scene, theme: Theme): void {
  const { picture, width, range } = scene,
    layout = layOut(picture, width),
    { gutter, row } = layout;
  const scale = (width - gutter - 1) / (range.to - range.from);
  const xOf = (time: number) => gutter + (time - range.from) * scale;
  pen.fillStyle = theme.surface; // also of a saved PNG
  pen.fillRect(0, 0, width, layout.height);
  pen.textBaseline = "middle";
  const every = Math.ceil(10 / row);
  pen.font = `${Math.min(11, Math.max(9, row - 2))}px system-ui, sans-serif`;
  pen.fillStyle = theme.text;
  for (let worker = 0; worker < picture.workers; worker += every) {
    const name = gutter < 40 ? `w${worker}` : `worker ${worker}`;
    pen.fillText(name, 0, TOP + (worker + 0.5) * row);
  }
  pen.save();
  pen.beginPath();
  pen.rect(gutter, 0, width - gutter, layout.height);
  pen.clip();
  const drawing: Drawing = { ...scene, ...layout, pen, theme, xOf };
  drawAxis(drawing);
  drawRows(drawing);
  if (scene.isCriticalShown) drawCritical(drawing);
  drawChosen(drawing);
  drawMemory(drawing);
  pen.restore();
  drawMemoryScale(drawing);
}

/** Rounding errors of the ticks. */
const EPSILON = 1e-9;

/** A scene with its positions and colours, while it is drawn. */
interface Drawing extends Scene, ReturnType<typeof layOut> {
  readonly pen: CanvasRenderingContext2D;
  readonly theme: Theme;
  readonly xOf: (time: number) => number;
}

function drawAxis(
  { pen, theme, xOf, picture, width, range, row, gutter, memoryTop }: Drawing,
): void {
  const bottom = TOP + picture.workers * row;
  pen.strokeStyle = theme.grid;
  pen.lineWidth = 1;
  const step = tickStep(range.to - range.from, Math.max(2, (width - gutter) / 70));
  for (let i = Math.ceil(range.from / step - EPSILON); i * step <= range.to; i++) {
    const x = Math.round(xOf(i * step)) + 0.5, name = shortNumber(i * step);
    pen.beginPath();
    pen.moveTo(x, TOP);
    pen.lineTo(x, bottom + 4);
    pen.moveTo(x, memoryTop);
    pen.lineTo(x, memoryTop + MEMORY);
    pen.stroke();
    pen.fillStyle = theme.muted;
    const wide = pen.measureText(name).width;
    pen.fillText(name, Math.min(Math.max(gutter, x - wide / 2), width - wide), bottom + 12);
  }
}

/** Colours of boxes, by kind or as in SVG pictures. */
function inksOf({ picture: { stages, pipelines }, colors, theme }: Drawing) {
  const known = new Map<string, readonly [fill: string, text: string]>();
  return ({ kind, stage, pipeline }: Box) => {
    if (colors === "kind") return [theme.kinds[kind], theme.onKind] as const;
    const key = `${kind}${stage}.${pipeline}`, found = known.get(key);
    if (found) return found;
    const { fill, text } = inkOf(kind, { stage, stages, pipeline, pipelines });
    known.set(key, [fill, text]);
    return [fill, text] as const;
  };
}

function drawRows(drawing: Drawing): void {
  const { pen, theme, xOf, spans, range, row } = drawing;
  const inkOfBox = inksOf(drawing), high = row - (row > 10 ? 2 : 1);
  const isSeen = ({ from, to }: Range) => to >= range.from && from <= range.to;
  spans.forEach(({ boxes, gaps }, worker) => {
    const top = TOP + worker * row;
    for (const gap of gaps) {
      if (!isSeen(gap)) continue;
      const x = xOf(gap.from), wide = Math.max(0.5, xOf(gap.to) - x);
      // Stripes of narrow bubbles cost time and are not seen.
      pen.fillStyle = (wide < 5 ? theme.causes : theme.stripes)[gap.cause]!;
      pen.fillRect(x, top, wide, high);
    }
    for (const box of boxes) {
      if (!isSeen(box)) continue;
      const x = xOf(box.from), wide = xOf(box.to) - x, [fill, ink] = inkOfBox(box);
      const each = high / box.lanes, y = top + box.lane * each;
      pen.fillStyle = fill;
      pen.fillRect(x, y, wide > 3 ? wide - 1 : Math.max(0.5, wide), each - (box.lanes - 1) * 0.5);
      if (wide < 7 || each < 9) continue;
      pen.fillStyle = ink;
      const text = [box.name, box.label].find((one) => pen.measureText(one).width < wide - 3);
      if (text) {
        pen.fillText(text, x + (wide - 1 - pen.measureText(text).width) / 2, y + each / 2 + 1);
      }
    }
  });
}

function drawCritical({ pen, theme, xOf, picture, row }: Drawing): void {
  const middle = (worker: number) => TOP + (worker + 0.5) * row - 0.5;
  const wide = row > 10 ? 2 : 1.5;
  pen.beginPath();
  picture.critical.path.forEach(([worker, from, to], i) => {
    const y = middle(worker) + row / 2 - 2, before = picture.critical.path[i - 1];
    if (before && before[0] !== worker) {
      pen.moveTo(xOf(before[2]), middle(before[0]) + row / 2 - 2);
      pen.lineTo(xOf(from), y);
    }
    pen.moveTo(xOf(from), y);
    pen.lineTo(xOf(to), y);
  });
  // An edge sets the line off from boxes of any colour.
  for (const [color, width] of [[theme.surface, wide + 2], [theme.bad, wide]] as const) {
    pen.strokeStyle = color;
    pen.lineWidth = width;
    pen.stroke();
  }
}

function drawChosen({ pen, theme, xOf, chosen }: Drawing): void {
  if (!chosen) return;
  const { from, to, top, height } = chosen;
  pen.strokeStyle = theme.focus;
  pen.lineWidth = 2;
  pen.strokeRect(xOf(from), top, Math.max(2, xOf(to) - xOf(from) - 1), height - 2);
}

const mostOf = ({ rows }: Picture) => Math.max(1e-9, ...rows.map(({ peak }) => peak));

/** Draws the activations of each worker; the fullest one is thick. */
function drawMemory({ pen, theme, xOf, picture, width, range, memoryTop }: Drawing): void {
  const most = mostOf(picture), fullest = picture.rows.findIndex(({ peak }) => peak === most);
  const yOf = (live: number) => memoryTop + 2 + (MEMORY - 4) * (1 - live / most);
  const place = { stages: picture.workers, pipeline: 0, pipelines: 1 };
  const order = picture.rows.map((_, worker) => worker).filter((worker) => worker !== fullest);
  for (const worker of [...order, ...fullest < 0 ? [] : [fullest]]) {
    pen.beginPath();
    let y = yOf(0);
    pen.moveTo(xOf(0), y);
    const { times, live } = picture.rows[worker]!;
    times.forEach((time, i) => {
      pen.lineTo(xOf(time), y);
      pen.lineTo(xOf(time), y = yOf(live[i]!));
    });
    pen.lineTo(xOf(Math.min(range.to, picture.makespan)), y);
    pen.strokeStyle = inkOf("B", { ...place, stage: worker }).fill;
    pen.lineWidth = worker === fullest ? 2.5 : 1;
    pen.stroke();
  }
  pen.strokeStyle = theme.muted;
  pen.lineWidth = 1;
  pen.strokeRect(xOf(range.from), memoryTop + MEMORY - 0.5, width, 0);
}

function drawMemoryScale({ pen, theme, picture, width, memoryTop, gutter }: Drawing): void {
  const most = mostOf(picture);
  const fullest = picture.rows.findIndex(({ peak }) => peak === most);
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = theme.muted;
  const text = `activations of each worker; peak ${shortNumber(most)} on worker ${fullest} (thick)`;
  pen.fillText(
    width < NARROW ? `activations, peak ${shortNumber(most)}` : text,
    gutter,
    memoryTop - 9,
  );
  pen.fillText("0", gutter - 12, memoryTop + MEMORY - 4);
  pen.fillText(
    shortNumber(most),
    gutter - 8 - pen.measureText(shortNumber(most)).width,
    memoryTop + 5,
  );
}

/** Describes an action or a bubble. */
function describe(span: Chosen): string {
  const { worker, from, to } = span, when = `from ${shortNumber(from)} to ${shortNumber(to)}`;
  if ("cause" in span) {
    const [, meaning] = CAUSES[span.cause]!;
    return `worker ${worker}: bubble ${when}: ${meaning} (${span.text})`;
  }
  const critical = span.isCritical ? ", on the critical path" : "";
  return `worker ${worker}: ${span.name}, ${KINDS[span.kind]} of stage ${span.stage}, ` +
    `micro-batch ${span.label}, ${when}${critical}`;
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
  let spans: readonly Spans[] = [], placed: Chosen[] | undefined;
  const boxes = () => placed ??= picture ? placeSpans(picture, spans) : [];
  let theme = readTheme();
  let wanted: ((time: number) => void)[] | undefined;
  const paint = () => {
    const width = place.clientWidth, after = wanted ?? [];
    wanted = undefined;
    if (!picture || !look || width === 0) return;
    range.endAt(look.end);
    fitCanvas(pen, width, layOut(picture, width).height);
    draw(pen, { picture, spans, width, range: range.seen(), ...look, chosen }, theme);
    for (const done of after) done(performance.now());
  };
  const redraw = (done?: (time: number) => void) => {
    if (!wanted) requestAnimationFrame(paint);
    (wanted ??= []).push(...done ? [done] : []);
  };
  const gutter = () => picture ? layOut(picture, place.clientWidth).gutter : 0;
  const range = openView(place, {
    gutter,
    onChange: () => redraw(),
    point({ clientX, clientY }) {
      const { left, top } = place.getBoundingClientRect(), x = clientX - left;
      choose(x < gutter() ? undefined : boxAt(boxes(), clientY - top, range.timeAt(x), 0));
    },
    hide: () => {},
  });
  const choose = (one: Chosen | undefined) => {
    chosen = one;
    setText(words, one ? describe(one) : "");
    redraw();
  };
  const step = (along: number, across: number) => () => {
    choose(boxBeside(boxes(), chosen, along, across));
    if (chosen) range.bring(chosen);
  };
  listenToKeys(place, {
    ...{ ArrowLeft: step(-1, 0), ArrowRight: step(1, 0), ArrowUp: step(0, -1) },
    ...{ ArrowDown: step(0, 1), Escape: () => choose(undefined), ...range.keys },
  });
  return {
    ...{ canvas, spans: () => spans },
    ...{ zoomIn: range.zoomIn, zoomOut: range.zoomOut, zoomAll: range.all },
    /** Shows a picture; `done` receives the time at which it is drawn. */
    show(to: Picture | undefined, how: Look, done?: (time: number) => void) {
      if (to !== picture) {
        chosen = placed = undefined;
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
