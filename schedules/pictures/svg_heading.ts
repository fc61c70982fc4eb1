/** The title of a drawing, and its legend. */

import { type ActionKind, parts } from "../actions/action.ts";
import type { Analysis } from "../execution/analyze.ts";
import { type Ink, inkOf, neutralInk } from "./palette.ts";
import { round, text } from "./svg_shapes.ts";
import { shortNumber } from "./ticks.ts";

/** The height of title and legend in pixels. */
export const HEADING_HEIGHT = 62;

const TITLE_SIZE = 14;
const FONT_SIZE = 11;
/** The width of a letter of a sans-serif font, in units of its size. */
const LETTER_WIDTH = 0.56;
const SWATCH = { width: 17, height: 13, top: 42 };
/** Stages, or replicas, that have a swatch. */
const SWATCHES_MAX = 8;

/** What the schedule comes to: 33 of time, 27.3 % of it bubbles. */
export function factsOf({ schedule, makespan, bubbleRatio, peakActivations }: Analysis): string {
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
export function headingWidth(analysis: Analysis): number {
  const legend = groupsOf(analysis).reduce(
    (sum, { label, swatches }) => sum + groupWidth(label, swatches.length),
    0,
  );
  return Math.max(legend, factsOf(analysis).length * FONT_SIZE * LETTER_WIDTH);
}

const groupWidth = (label: string, swatches: number) =>
  label.length * FONT_SIZE * LETTER_WIDTH + 6 + swatches * (SWATCH.width + 1) + 18;

/** The name, what the schedule comes to, and which colour is what; `left` is where they begin. */
export function drawHeading(analysis: Analysis, left: number): string {
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
