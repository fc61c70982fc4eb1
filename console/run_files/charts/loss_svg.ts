/**
 * Losses of runs as a picture: SVG for light and dark pages, with a title for who cannot see it.
 *
 * @module
 */

import type { Announce } from "../../../kernels/mod.ts";
import { inOneLine } from "../../escape.ts";
import type { LossCurves } from "./loss_curves.ts";
import { drawSvg } from "./vega.ts";

/** Colours on a light page, and what they become on a dark one: Okabe and Ito's for all eyes. */
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

const SIZE = { width: 640, height: 320 };

/** What the curves are called. */
const KINDS = ["loss", "held-out loss"] as const;

/** Curves of fewer points show them. */
const FEW = 64;

/**
 * Draws the losses of one run, or of several beside each other.
 *
 * @param announce told before something is fetched.
 */
export async function drawLosses(
  runs: readonly LossCurves[],
  announce?: Announce,
): Promise<string> {
  const names = runs.map(({ name }) => inOneLine(name));
  const title = `Loss of ${names.join(", ")}`;
  const svg = await drawSvg(specOf(runs, names, title), announce);
  return withPage(svg, title, describe(runs, names));
}

/** The chart as Vega-Lite takes it. */
function specOf(runs: readonly LossCurves[], names: readonly string[], title: string) {
  const isOne = runs.length === 1, colours = LINES.map(([light]) => light);
  const values = runs.flatMap(({ training, heldOut }, nth) =>
    [training, heldOut].flatMap((points, kind) =>
      points.map((point) => ({ ...point, run: nth, kind: KINDS[kind]! }))
    )
  );
  const kinds = KINDS.filter((kind) => values.some((value) => value.kind === kind));
  const labels = `${JSON.stringify(names.map((name, nth) => `${nth + 1}: ${name}`))}[datum.value]`;
  return {
    ...SIZE,
    background: PAGE[0],
    padding: 16,
    title: { text: title, anchor: "start", color: INK[0], limit: SIZE.width },
    config: {
      font: "system-ui, sans-serif",
      view: { stroke: null },
      axis: {
        labelColor: INK[0],
        titleColor: INK[0],
        gridColor: GRID[0],
        domainColor: GRID[0],
        tickColor: GRID[0],
      },
      legend: { labelColor: INK[0], labelLimit: 240, orient: "bottom", direction: "horizontal" },
    },
    data: { values },
    mark: {
      type: "line",

      strokeWidth: 1.75,
      point: values.length <= FEW && { size: 24 },
    },
    encoding: {
      x: {
        field: "step",
        type: "quantitative",
        title: "optimizer step",
        scale: { nice: false },
        axis: { grid: false, tickMinStep: 1, format: "d" },
      },
      y: {
        field: "loss",
        type: "quantitative",
        title: "loss (nats a prediction)",
        scale: { zero: false },
      },
      color: isOne
        ? { field: "kind", type: "nominal", title: null, scale: { domain: kinds, range: colours } }
        : {
          ...{ field: "run", type: "nominal", title: null },
          scale: { domain: runs.map((_, nth) => nth), range: colours },
          legend: { labelExpr: labels, columns: 2 },
        },
      strokeDash: {
        ...{ field: "kind", type: "nominal", title: null },
        scale: { domain: kinds, range: [[1, 0], [6, 3]].slice(2 - kinds.length) },
        ...kinds.length === 1 && { legend: null },
      },
    },
  };
}

/** What the curves show, in words. */
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

/** Colours that a dark page changes: attributes give way to a style sheet. */
const DARK_STYLE = [PAGE, INK, GRID, ...LINES].map(([light, dark]) =>
  `[fill="${light}"]{fill:${dark}}[stroke="${light}"]{stroke:${dark}}`
).join("");

function withPage(svg: string, title: string, description: string): string {
  const escape = (text: string) =>
    text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  // Vega writes white as a word.
  return svg.replaceAll('="white"', `="${PAGE[0]}"`).replace(
    /^<svg([^>]*)>/,
    (_, attributes) =>
      `<svg${attributes} role="img">` +
      `<title>${escape(title)}</title><desc>${escape(description)}</desc>` +
      `<style>@media (prefers-color-scheme:dark){${DARK_STYLE}}</style>`,
  ) + "\n";
}
