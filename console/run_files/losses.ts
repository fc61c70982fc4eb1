/**
 * Draws losses of runs, as SVG or as text in the terminal.
 *
 * @module
 */

import { basename, resolve } from "node:path";
import { assertInput, refusal } from "../../kernels/internal.ts";
import { tickStep } from "../../schedules/pictures/grid.ts";
import { escapeXml, round, text, title } from "../../schedules/pictures/svg.ts";
import { inOneLine, print, printError, quoted, terminalColumns, writeOutput } from "../terminal.ts";
import { readMetrics, type RunRecord } from "../../actors/run_folder/metrics_file.ts";
import type { Metrics } from "../../actors/options/train_options.ts";
import type { RunFolder } from "../../actors/run_folder/read.ts";
import { ThinnedList } from "./bounded_lists.ts";

/** A point of a curve: the mean loss around a step. */
interface LossPoint {
  readonly step: number;
  readonly loss: number;
}

/** The curves of a run, or of one of its jobs. */
interface LossCurves {
  /** Name of the folder, with that of the job. */
  readonly name: string;
  /** The metric in place of the loss. */
  readonly metric?: string | undefined;
  /** Unit of the loss, if it is known. */
  readonly unit?: string | undefined;
  /** Losses of the steps. */
  readonly training: readonly LossPoint[];
  /** Losses of the held-out data. */
  readonly heldOut: readonly LossPoint[];
}

/** Number of points from which a curve is thinned out. */
const POINTS_MAX = 512;

/** Returns whether differences and sums of such losses are finite. */
const isDrawable = (loss: number | undefined): loss is number => Math.abs(loss ?? NaN) < 1e100;

/**
 * Reads the curves of a run, of each job if it has jobs. With many steps, each point is a mean.
 *
 * @param metric name of a metric of the model, in place of the loss.
 * @throws {RangeError} when the run has no losses, or no such metric.
 */
export function readCurves({ path, record }: RunFolder, metric?: string): LossCurves[] {
  const own = basename(resolve(path));
  const curves = new Map<string, Readonly<Record<"training" | "heldOut", Curve>>>();
  const of = (name: string) =>
    curves.getOrInsertComputed(name, () => ({ training: openCurve(), heldOut: openCurve() }));
  const valueOf = ({ type, loss, evalLoss, metrics }: Metrics) =>
    metric !== undefined ? metrics?.[metric] : type === "evaluation" ? evalLoss : loss;
  for (const { metrics } of readMetrics(path)) {
    const { type, step, job } = metrics, value = valueOf(metrics);
    if (!isDrawable(value) || type === "skip") continue;
    const { training, heldOut } = of(job === undefined ? own : `${own}/${job}`);
    (type === "evaluation" ? heldOut : training).add({ step, loss: value });
  }
  const what = metric === undefined ? "losses" : `the metric ${quoted(metric)}`;
  const must = `its metrics.jsonl must have ${what}`;
  assertInput(curves.size > 0, `draw the run ${quoted(path)}`, must, "none");
  const unit = record && lossUnit(record);
  return Array.from(curves, ([name, { training, heldOut }]) => {
    return { name, metric, unit, training: training.points(), heldOut: heldOut.points() };
  });
}

/** Built-in models whose loss is a cross-entropy. */
const IN_NATS: ReadonlySet<string> = new Set(["gpt", "llama", "mlp", "resnet", "t5"]);

/** Returns the unit of a run's loss; undefined if the loss may be of any kind, as in scripts. */
export function lossUnit({ model, flags: { loss } }: RunRecord): string | undefined {
  const isInNats = loss === undefined ? IN_NATS.has(model) : loss === "cross-entropy";
  return isInNats ? "nats a prediction" : undefined;
}

type Curve = ReturnType<typeof openCurve>;

/**
 * Opens a curve of bounded size: at twice `pointsMax` points, neighbours are merged.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const curve = openCurve(1);
 * for (let step = 1; step <= 3; step++) curve.add({ step, loss: step });
 * assert.deepEqual(curve.points(), [{ step: 1.5, loss: 1.5 }, { step: 3, loss: 3 }]);
 * ```
 */
export function openCurve(pointsMax: number = POINTS_MAX) {
  const sums = new ThinnedList<LossPoint & { readonly count: number }>(
    2 * pointsMax,
    (a, b) => ({ step: a.step + b.step, loss: a.loss + b.loss, count: a.count + b.count }),
  );
  return {
    /** Adds the loss of a step. */
    add: (point: LossPoint): void => void sums.add({ ...point, count: 1 }),
    /** Returns the points so far. */
    points: (): LossPoint[] =>
      sums.entries.map(({ step, loss, count }) => ({ step: step / count, loss: loss / count })),
  };
}

/** Colours of lines on light and dark pages, by Okabe and Ito, suitable for colour-blind readers. */
const LINES = [
  ["#0072b2", "#56b4e9"],
  ["#d55e00", "#e69f00"],
  ["#007a5a", "#3ddbaa"],
  ["#a8478a", "#f0a6d0"],
  ["#5b5b5b", "#c8c8c8"],
  ["#8a6d00", "#f0e442"],
  ["#b0202a", "#ff9a9a"],
  ["#4b3fa7", "#b9b3ff"],
] as const;

const PAGE = ["#ffffff", "#16181d"] as const;
const INK = ["#22262e", "#e6e8ec"] as const;
const GRID = ["#d9dce1", "#3a3f48"] as const;

const PLOT = { left: 72, top: 62, width: 600, height: 300 };
const LINE_HEIGHT = 18, NAME_MAX = 80;

/** Returns the curves with points, by run and kind. */
const curvesOf = (runs: readonly LossCurves[]) =>
  runs.flatMap(({ training, heldOut }, run) =>
    [training, heldOut].map((points, kind) => ({ points, run, kind }))
  ).filter(({ points }) => points.length > 0);

/** Returns the kinds of curves: of the steps, and of held-out data. */
const kindsOf = (runs: readonly LossCurves[]) => {
  const [what] = measuredIn(runs);
  return [what, `held-out ${what}`] as const;
};

/** Number of points up to which dots are drawn. */
const FEW = 64;

/** Colours of dark pages; a style sheet takes precedence over attributes. */
const DARK_STYLE = [PAGE, INK, GRID, ...LINES].map(([light, dark]) =>
  `[fill="${light}"]{fill:${dark}}[stroke="${light}"]{stroke:${dark}}`
).join("");

/** Draws the losses of runs as SVG. */
export function drawLosses(runs: readonly LossCurves[]): string {
  const names = runs.map(({ name }) => inOneLine(name));
  const [what, unit] = measuredIn(runs);
  const heading = `${what[0]!.toUpperCase()}${what.slice(1)} of ${names.join(", ")}`;
  const curves = curvesOf(runs), all = curves.flatMap(({ points }) => points);
  const x = axisOf(all.map(({ step }) => step), PLOT.width, 8, 1);
  const y = axisOf(all.map(({ loss }) => loss), PLOT.height, 6);
  const at = ({ step, loss }: LossPoint) => `${x.at(step)} ${round(PLOT.height - y.at(loss))}`;
  const lines = curves.flatMap(({ points, run, kind }) => {
    const colour = colourOf(runs.length === 1 ? kind : run), places = points.map(at);
    const dots = places.map((place) => `M${place}h0`).join("");
    return [
      line(`M${places.join("L")}`, colour, 1.75, kind),
      ...all.length <= FEW ? [line(dots, colour, 5)] : [],
    ];
  });
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
    text(0, -16, unit, {}),
    ...lines,
    `</g>`,
    ...legend.flatMap(({ name, colour, kind }, i) => [
      line(`M${PLOT.left} ${below + i * LINE_HEIGHT}h24`, colour, 1.75, kind),
      text(PLOT.left + 32, below + i * LINE_HEIGHT, cut(name), {}),
    ]),
    `</svg>\n`,
  ].join("\n");
}

/** Returns the name of what curves show, and the same with its unit. */
const measuredIn = (runs: readonly LossCurves[]): readonly [string, string] => {
  const [first] = runs;
  if (first?.metric !== undefined) return [inOneLine(first.metric), inOneLine(first.metric)];
  const isKnown = first?.unit !== undefined && runs.every(({ unit }) => unit === first.unit);
  return ["loss", isKnown ? `loss (${first.unit})` : "loss"];
};

/** Returns an axis with round ends around values. */
function axisOf(values: readonly number[], pixels: number, most: number, stepMin = 0) {
  const [low, high] = rangeOf(values);
  const step = Math.max(stepMin, tickStep(high - low, most));
  const from = Math.floor(low / step), to = Math.max(from + 1, Math.ceil(high / step));
  return {
    ticks: Array.from({ length: to - from + 1 }, (_, i) => (from + i) * step),
    at: (value: number) => round((value / step - from) / (to - from) * pixels),
  };
}

/** Draws a line; held-out losses are dashed. */
const line = (path: string, colour: string, width: number, kind = 0) =>
  `<path d="${path}" fill="none" stroke="${colour}" stroke-width="${width}" ` +
  `stroke-linecap="round"${kind === 1 ? ` stroke-dasharray="6 4"` : ""}/>`;

const colourOf = (nth: number) => LINES[nth % LINES.length]![0];

/** Returns the legend: kinds of losses for one run, otherwise the runs. */
function legendOf(runs: readonly LossCurves[], names: readonly string[]) {
  const drawn = new Set(curvesOf(runs).map(({ kind }) => kind));
  const kinds = kindsOf(runs).map((name, kind) => ({ name, kind, colour: colourOf(kind) }));
  if (runs.length === 1) return kinds.filter(({ kind }) => drawn.has(kind));
  const all = names.map((name, run) => ({
    name: `${run + 1}: ${name}`,
    kind: 0,
    colour: colourOf(run),
  }));
  return drawn.has(1) ? [...all, { ...kinds[1]!, colour: INK[0] }] : all;
}

const label = (value: number) => String(Number(value.toPrecision(6)));

const cut = (words: string) => words.length > NAME_MAX ? `${words.slice(0, NAME_MAX - 1)}…` : words;

/** Describes the curves. */
function describe(runs: readonly LossCurves[], names: readonly string[]): string {
  return curvesOf(runs).map(({ points, run, kind }) => {
    const [from, to] = [points[0]!, points.at(-1)!].map(({ step, loss }) =>
      `${loss.toFixed(3)} at step ${Math.round(step)}`
    );
    return `${names[run]}: ${kindsOf(runs)[kind]} from ${from} to ${to}`;
  }).join("; ");
}

/** Rows of a text chart. */
const ROWS = 12;

/** Maximum and minimum of columns. */
const COLUMNS_MAX = 100, COLUMNS_MIN = 16;

/** Marks for the loss and the held-out loss of each run. */
const MARKS = ["·o", "+x", "*#", "~=", ":%", "^@", "!?", "-&"] as const;

/**
 * Draws losses as text.
 *
 * @param columns of the terminal.
 */
export function textChart(runs: readonly LossCurves[], columns: number): string[] {
  const curves = curvesOf(runs), all = curves.flatMap(({ points }) => points);
  const [low, high] = rangeOf(all.map(({ loss }) => loss));
  const [first, last] = rangeOf(all.map(({ step }) => step));
  const labels = Array.from(
    { length: ROWS },
    (_, row) =>
      row % 3 === 0 || row === ROWS - 1
        ? (high - (high - low) * row / (ROWS - 1)).toPrecision(4)
        : "",
  );
  const margin = Math.max(...labels.map(({ length }) => length));
  const width = Math.max(COLUMNS_MIN, Math.min(COLUMNS_MAX, columns) - margin - 3);
  const grid = Array.from({ length: ROWS }, () => Array.from({ length: width }, () => " "));
  const place = (value: number, from: number, to: number, cells: number) =>
    to === from ? 0 : Math.round((cells - 1) * (value - from) / (to - from));
  for (const { points, run, kind } of curves) {
    for (const { step, loss } of points) {
      const row = grid[place(loss, high, low, ROWS)]!;
      row[place(step, first, last, width)] = MARKS[run % MARKS.length]![kind]!;
    }
  }
  const [from, to] = [first, last].map((step) => `${Math.round(step)}`) as [string, string];
  return [
    measuredIn(runs)[1],
    ...grid.map((cells, row) =>
      `${labels[row]!.padStart(margin)} ${labels[row] ? "┤" : "│"}${cells.join("")}`.trimEnd()
    ),
    `${" ".repeat(margin + 1)}└${"─".repeat(width)}`,
    `${" ".repeat(margin + 2)}${from}${to.padStart(Math.max(1, width - from.length))}`,
    `${" ".repeat(margin + 2)}optimizer step`,
    ...runs.map(({ name, heldOut }, nth) => {
      const [loss, held] = MARKS[nth % MARKS.length]!;
      return `  ${loss} ${inOneLine(name)}${heldOut.length > 0 ? `, ${held} held-out` : ""}`;
    }),
  ];
}

function rangeOf(values: readonly number[]): [low: number, high: number] {
  let low = Infinity, high = -Infinity;
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return [low, high];
}

/** Flags of commands with charts. */
export const CHART_FLAGS = {
  metric: {
    kind: "text",
    otherwise: "the loss",
    help: "draw a metric of the model, such as accuracy",
  },
  out: {
    kind: "path",
    value: "FILE.svg",
    otherwise: "a small chart here",
    help: "draw into a file, as SVG for light and dark pages",
  },
} as const;

/**
 * Refuses the names of other pictures, by which no program opens SVG.
 *
 * @throws {RangeError} when it is such a name.
 */
export function checkPicture(out: string | undefined): void {
  const isOther = /\.(png|jpe?g|gif|webp|pdf)$/i.test(out ?? "");
  assertInput(!isOther, "draw", "--out must name a file such as loss.svg", quoted(out));
}

/** Columns of a chart outside terminals. */
const COLUMNS = 80;

/**
 * Draws losses in the terminal, or as SVG into the file `out`, which is replaced.
 *
 * @throws {Error} when the file cannot be written.
 */
export function showLosses(runs: readonly LossCurves[], out: string | undefined): void {
  if (out === undefined) {
    const columns = Deno.stdout.isTerminal() ? terminalColumns() : COLUMNS;
    return textChart(runs, columns).forEach(print);
  }
  const svg = drawLosses(runs);
  try {
    writeOutput(out, svg);
  } catch (cause) {
    throw refusal(`write ${out}`, "it must be a writable file", cause, Error);
  }
  printError(`Wrote ${out}`);
}
