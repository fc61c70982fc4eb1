/**
 * Draws losses of runs as SVG for light and dark pages, with a title and a description for screen
 * readers.
 *
 * @module
 */

import { tickStep } from "../../../schedules/pictures/grid.ts";
import { escapeXml, round, text, title } from "../../../schedules/pictures/svg.ts";
import { inOneLine } from "../../escape.ts";
import type { LossCurves, LossPoint } from "./loss_curves.ts";

/** Colours on a light and a dark page: Okabe and Ito's, which colour-blind readers can tell apart. */
const LINES = [
  ["#0072b2", "#56b4e9"],
  ["#d55e00", "#e69f00"],
  ["#007a5a", "#3ddbaa"],
  ["#a8478a", "#f0a6d0"],
  ["#5b5b5b", "#c8c8c8"],
  ["#8a6d00", "#f0e442"],
] as const;

const PAGE = ["#ffffff", "#16181d"] as const;
const INK = ["#22262e", "#e6e8ec"] as const;
const GRID = ["#d9dce1", "#3a3f48"] as const;

const PLOT = { left: 72, top: 62, width: 600, height: 300 };
const LINE_HEIGHT = 18, NAME_MAX = 80;

/** The kinds of losses. */
const KINDS = ["loss", "held-out loss"] as const;

/** Fewer points are drawn as dots, too. */
const FEW = 64;

/** Colours that a dark page changes: attributes give way to a style sheet. */
const DARK_STYLE = [PAGE, INK, GRID, ...LINES].map(([light, dark]) =>
  `[fill="${light}"]{fill:${dark}}[stroke="${light}"]{stroke:${dark}}`
).join("");

/** Draws the losses of one run, or of several beside each other. */
export function drawLosses(runs: readonly LossCurves[]): string {
  const names = runs.map(({ name }) => inOneLine(name));
  const heading = `Loss of ${names.join(", ")}`;
  const all = runs.flatMap(({ training, heldOut }) => [...training, ...heldOut]);
  const x = axisOf(all.map(({ step }) => step), PLOT.width, 8, 1);
  const y = axisOf(all.map(({ loss }) => loss), PLOT.height, 6);
  const at = ({ step, loss }: LossPoint) => `${x.at(step)} ${round(PLOT.height - y.at(loss))}`;
  const curves = runs.flatMap(({ training, heldOut }, run) =>
    [training, heldOut].flatMap((points, kind) => {
      if (points.length === 0) return [];
      const colour = colourOf(runs.length === 1 ? kind : run), places = points.map(at);
      const dots = places.map((place) => `M${place}h0`).join("");
      return [
        line(`M${places.join("L")}`, colour, 1.75, kind),
        ...all.length <= FEW ? [line(dots, colour, 5)] : [],
      ];
    })
  );
  const legend = legendOf(runs, names);
  const width = PLOT.left + PLOT.width + 32, below = PLOT.top + PLOT.height + 62;
  const height = below + legend.length * LINE_HEIGHT;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" ` +
    `height="${height}" font-family="system-ui, sans-serif" font-size="11" fill="${INK[0]}" ` +
    `role="img">${title(heading)}<desc>${escapeXml(describe(runs, names))}</desc>`,
    `<style>@media (prefers-color-scheme:dark){${DARK_STYLE}}</style>`,
    `<rect width="100%" height="100%" fill="${PAGE[0]}"/>`,
    text(PLOT.left, 22, cut(heading), { size: 13, weight: "bold" }),
    `<g transform="translate(${PLOT.left} ${PLOT.top})">`,
    ...x.ticks.map((step) => text(x.at(step), PLOT.height + 14, label(step), { anchor: "middle" })),
    ...y.ticks.flatMap((loss) => {
      const top = round(PLOT.height - y.at(loss));
      return [
        line(`M0 ${top}h${PLOT.width}`, GRID[0], 1),
        text(-8, top, label(loss), { anchor: "end" }),
      ];
    }),
    text(PLOT.width / 2, PLOT.height + 34, "optimizer step", { anchor: "middle" }),
    text(0, -16, "loss (nats a prediction)", {}),
    ...curves,
    `</g>`,
    ...legend.flatMap(({ name, colour, kind }, i) => [
      line(`M${PLOT.left} ${below + i * LINE_HEIGHT}h24`, colour, 1.75, kind),
      text(PLOT.left + 32, below + i * LINE_HEIGHT, cut(name), {}),
    ]),
    `</svg>\n`,
  ].join("\n");
}

/** An axis with round ends around some values. */
function axisOf(values: readonly number[], pixels: number, most: number, stepMin = 0) {
  const low = values.reduce((a, b) => Math.min(a, b)),
    high = values.reduce((a, b) => Math.max(a, b));
  const step = Math.max(stepMin, tickStep(high - low, most));
  const from = Math.floor(low / step), to = Math.max(from + 1, Math.ceil(high / step));
  return {
    ticks: Array.from({ length: to - from + 1 }, (_, i) => (from + i) * step),
    at: (value: number) => round((value / step - from) / (to - from) * pixels),
  };
}

/** Returns a curve of a run, held-out losses dashed, or any other line. */
const line = (path: string, colour: string, width: number, kind = 0) =>
  `<path d="${path}" fill="none" stroke="${colour}" stroke-width="${width}" ` +
  `stroke-linecap="round"${kind === 1 ? ` stroke-dasharray="6 4"` : ""}/>`;

const colourOf = (nth: number) => LINES[nth % LINES.length]![0];

/** The runs, and which lines are held-out losses; of one run its kinds of losses. */
function legendOf(runs: readonly LossCurves[], names: readonly string[]) {
  const has = [
    runs.some(({ training }) => training.length > 0),
    runs.some(({ heldOut }) => heldOut.length > 0),
  ];
  const kinds = KINDS.map((name, kind) => ({ name, kind, colour: colourOf(kind) }));
  if (runs.length === 1) return kinds.filter(({ kind }) => has[kind]);
  const all = names.map((name, run) => ({
    name: `${run + 1}: ${name}`,
    kind: 0,
    colour: colourOf(run),
  }));
  return has[1] ? [...all, { ...kinds[1]!, colour: INK[0] }] : all;
}

const label = (value: number) => String(Number(value.toPrecision(6)));

const cut = (words: string) => words.length > NAME_MAX ? `${words.slice(0, NAME_MAX - 1)}…` : words;

/** Describes the curves in words. */
function describe(runs: readonly LossCurves[], names: readonly string[]): string {
  return runs.flatMap(({ training, heldOut }, nth) =>
    [training, heldOut].flatMap((points, kind) => {
      const first = points[0], last = points.at(-1);
      if (!first || !last) return [];
      const from = `${first.loss.toFixed(3)} at step ${Math.round(first.step)}`;
      const to = `${last.loss.toFixed(3)} at step ${Math.round(last.step)}`;
      return `${names[nth]}: ${KINDS[kind]} from ${from} to ${to}`;
    })
  ).join("; ");
}
