/**
 * Curves over the steps of a run, drawn by uPlot.
 *
 * @module
 */

import { byId, colorOf, element, say } from "./elements.js";
import { NONE, short, whole } from "./numbers.js";

/** @import { State } from "./state.js" */
/** @import uPlotModule from "uplot" */

/**
 * A curve.
 *
 * @typedef {object} Curve
 * @property {string} label
 * @property {string} color a variable of the style.
 * @property {number} [width] in pixels.
 * @property {boolean} [hasPoints]
 */

/**
 * A chart: its place, its curves, and their columns; the first column has the steps.
 *
 * @typedef {object} Chart
 * @property {string} id
 * @property {string} what for those who do not see it.
 * @property {readonly Curve[]} curves
 * @property {(state: State) => (number | null | undefined)[][]} columns
 */

/** uPlot's script makes it global. */
const UPlot =
  /** @type {{ uPlot: typeof uPlotModule }} */ (/** @type {unknown} */ (globalThis)).uPlot;

/** A smoothed loss is the mean of about one part in so many of the steps. */
const SMOOTHED_PARTS = 50;

/** @type {(key: "tokensPerSecond" | "gradNorm" | "learningRate") => (state: State) => (number | undefined)[][]} */
const columnOf = (key) => ({ metrics }) => [
  metrics.map(({ step }) => step),
  metrics.map((row) => row[key]),
];

/** @type {readonly Chart[]} */
const CHARTS = [
  {
    id: "loss",
    what: "Loss",
    curves: [
      { label: "each step", color: "--curve-pale", width: 1 },
      { label: "smoothed", color: "--curve", width: 2 },
      { label: "held out", color: "--curve-other", width: 2, hasPoints: true },
    ],
    columns: lossColumns,
  },
  {
    id: "throughput",
    what: "Predictions a second",
    curves: [{ label: "", color: "--curve" }],
    columns: columnOf("tokensPerSecond"),
  },
  {
    id: "norm",
    what: "Norm of the gradients",
    curves: [{ label: "", color: "--curve" }],
    columns: columnOf("gradNorm"),
  },
  {
    id: "rate",
    what: "Learning rate",
    curves: [{ label: "", color: "--curve" }],
    columns: columnOf("learningRate"),
  },
];

/** @param {State} state */
function lossColumns({ metrics, evaluations }) {
  const steps = metrics.map(({ step }) => step), losses = metrics.map(({ loss }) => loss);
  const steady = losses.length / (losses.length + SMOOTHED_PARTS);
  let mean = 0, weight = 0;
  const smoothed = losses.map((loss) => {
    if (loss === undefined) return undefined;
    mean = steady * mean + (1 - steady) * loss;
    weight = steady * weight + (1 - steady);
    return mean / weight;
  });
  const held = [evaluations.map(({ step }) => step), evaluations.map((row) => row.evalLoss)];
  const joined = UPlot.join([
    /** @type {uPlotModule.AlignedData} */ ([steps, losses, smoothed]),
    /** @type {uPlotModule.AlignedData} */ (held),
  ]);
  return /** @type {(number | null | undefined)[][]} */ (/** @type {unknown} */ (joined));
}

const COMMAS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/**
 * Opens the charts.
 *
 * @returns {{ draw(state: State): void, restyle(): void }}
 */
export function openCharts() {
  const charts = CHARTS.map(openChart);
  return {
    draw(state) {
      const { unit } = state.run ?? {};
      if (unit) say(byId("throughput-unit"), `${unit} a second`);
      charts.forEach((chart) => chart.draw(state));
    },
    restyle: () => charts.forEach((chart) => chart.restyle()),
  };
}

/** @param {Chart} chart */
function openChart(chart) {
  const place = byId(chart.id), caption = captionOf(place, chart);
  /** @type {uPlotModule | undefined} */
  let plot;
  /** @type {(number | null | undefined)[][]} */
  let data = [[], ...chart.curves.map(() => [])], isZoomed = false;
  const tell = () => {
    const at = plot?.cursor.idx ?? undefined;
    say(caption, toldAt(chart, data, at));
    const [steps = []] = data;
    place.setAttribute(
      "aria-label",
      `${chart.what} by step, ${whole(steps.length)} points. ${caption.textContent}`,
    );
  };
  const make = () => {
    plot?.destroy();
    plot = undefined;
    if (data[0]?.length) {
      plot = new UPlot(
        optionsOf(chart, place, { tell, onZoom: () => isZoomed = true }),
        /** @type {uPlotModule.AlignedData} */ (/** @type {unknown} */ (data)),
        place,
      );
    }
    place.classList.toggle("empty", !plot);
    tell();
  };
  place.tabIndex = 0;
  place.setAttribute("role", "img");
  place.addEventListener("keydown", (event) => moveCursor(event, plot));
  place.addEventListener("dblclick", () => isZoomed = false);
  new ResizeObserver(() => plot?.setSize(sizeOf(place))).observe(place);
  make();
  return {
    /** @param {State} state */
    draw(state) {
      data = chart.columns(state);
      if (!plot) return make();
      // Who has zoomed in stays there.
      plot.setData(
        /** @type {uPlotModule.AlignedData} */ (/** @type {unknown} */ (data)),
        !isZoomed,
      );
      if (isZoomed) plot.redraw();
      tell();
    },
    restyle: make,
  };
}

/** What the curves are, and the value of each. @param {HTMLElement} place @param {Chart} chart */
function captionOf(place, { curves }) {
  const caption = document.createElement("span");
  caption.className = "value";
  const legend = curves.filter(({ label }) => label).map(({ label, color }) => {
    const line = element("i", { "aria-hidden": "true" });
    line.style.background = `var(${color})`;
    return element("span", { class: "curve" }, line, label);
  });
  place.parentElement?.querySelector("figcaption")?.append(...legend, caption);
  return caption;
}

/**
 * @param {Chart} chart
 * @param {(number | null | undefined)[][]} data
 * @param {number | undefined} at a column; the last with a value unless given.
 */
function toldAt({ curves }, [steps = [], ...columns], at) {
  if (steps.length === 0) return "";
  const told = columns.flatMap((column, i) => {
    const found = at ?? column.findLastIndex((value) => typeof value === "number");
    const value = column[found], { label = "" } = curves[i] ?? {};
    if (typeof value !== "number" || (at === undefined && label === "each step")) return [];
    const text = value >= 1e4 && value < 1e9 ? COMMAS.format(value) : short(value);
    return [label ? `${label} ${text}` : text];
  });
  const step = at === undefined ? "" : `step ${whole(steps[at] ?? undefined)}: `;
  return told.length > 0 ? step + told.join(" · ") : step + NONE;
}

/** @param {HTMLElement} place */
const sizeOf = (place) => ({ width: place.clientWidth, height: place.clientHeight });

/**
 * @param {Chart} chart
 * @param {HTMLElement} place
 * @param {{ tell: () => void, onZoom: () => void }} hear
 * @returns {uPlotModule.Options}
 */
function optionsOf({ curves }, place, { tell, onZoom }) {
  const axis = {
    stroke: colorOf("--muted"),
    grid: { stroke: colorOf("--grid"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return {
    ...sizeOf(place),
    legend: { show: false },
    cursor: { sync: { key: "steps" }, points: { size: 6 }, y: false },
    scales: { x: { time: false } },
    axes: [
      { ...axis, space: 60, size: 28, values: (_, splits) => splits.map(wholeOnly) },
      { ...axis, space: 32, size: 56, values: (_, splits) => splits.map(short) },
    ],
    series: [
      {},
      ...curves.map(({ label, color: name, width = 1.5, hasPoints = false }) => ({
        label,
        stroke: colorOf(name),
        width,
        spanGaps: true,
        points: { show: hasPoints || isAlone, size: 5, fill: colorOf(name) },
      })),
    ],
    hooks: { setCursor: [tell], setSelect: [({ select }) => select.width > 0 && onZoom()] },
  };
}

/** A line needs two points. @param {uPlotModule} plot */
const isAlone = (plot) => plot.data[0].length < 3;

/** @type {(value: number) => string} */
const wholeOnly = (value) => Number.isInteger(value) ? COMMAS.format(value) : "";

/**
 * Arrows move the cursor from point to point.
 *
 * @param {KeyboardEvent} event
 * @param {uPlotModule | undefined} plot
 */
function moveCursor(event, plot) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], last = (plot?.data[0].length ?? 0) - 1;
  if (!plot || by === undefined) return;
  event.preventDefault();
  const from = plot.cursor.idx ?? (by < 0 ? last + 1 : -1);
  const to = Math.min(last, Math.max(0, from + by * (event.shiftKey ? 10 : 1)));
  plot.setCursor({ left: plot.valToPos(plot.data[0][to] ?? 0, "x"), top: 0 });
}
