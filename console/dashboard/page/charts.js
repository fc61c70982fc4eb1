/**
 * Curves over the steps of a run, drawn by uPlot.
 *
 * @module
 */

import { byId, colorOf, element, NONE, setText, short, whole } from "./elements.js";

/** @import { State } from "./state.js" */
/** @import { CurveKey, EventView } from "../view.ts" */
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
 * A chart with its curves and columns; the first column has the steps.
 *
 * @typedef {object} Chart
 * @property {string} id
 * @property {string} what name for screen readers.
 * @property {string} axis label with the unit; empty for the unit on the page.
 * @property {CurveKey} key
 * @property {readonly Curve[]} curves
 * @property {(state: State) => (number | null | undefined)[][]} columns
 */

/** The global of uPlot's script. */
const UPlot =
  /** @type {{ uPlot: typeof uPlotModule }} */ (/** @type {unknown} */ (globalThis)).uPlot;

/** State of the controls. */
const SHOWN = { isLog: false, hasOutliers: false, smoothedPercent: 2 };

/** Number of colors of jobs. */
const JOB_COLORS = 8;

/** Minimum number of values with outliers. */
const VALUES_MIN = 20;

/**
 * A chart of one column.
 *
 * @type {(id: string, what: string, axis: string, key: CurveKey) => Chart}
 */
const chartOf = (id, what, axis, key) => ({
  ...{ id, what, axis, key, curves: [{ label: "", color: "--curve" }] },
  columns: ({ metrics }) => [metrics.map(({ step }) => step), metrics.map((row) => row[key])],
});

/** @type {readonly Chart[]} */
const CHARTS = [
  {
    id: "loss",
    what: "Loss",
    axis: "Loss",
    key: "loss",
    curves: [
      { label: "each step", color: "--curve-pale", width: 1 },
      { label: "smoothed", color: "--curve", width: 2 },
      { label: "held out", color: "--curve-other", width: 2, hasPoints: true },
    ],
    columns: lossColumns,
  },
  chartOf("throughput", "Predictions a second", "", "tokensPerSecond"),
  chartOf("norm", "Norm of the gradients", "L2 norm", "gradNorm"),
  chartOf("rate", "Learning rate", "Learning rate", "learningRate"),
];

/** A logarithmic axis has only positive values. @param {number | undefined} value */
const drawn = (value) => SHOWN.isLog && !(Number(value) > 0) ? undefined : value;

/**
 * Returns a chart with a curve of each job.
 *
 * @param {Chart} chart
 * @param {readonly string[]} jobs
 * @returns {Chart}
 */
const chartOfJobs = (chart, jobs) => ({
  ...chart,
  curves: jobs.map((label, i) => ({ label, color: `--job-${i % JOB_COLORS}` })),
  columns({ metrics }) {
    const take = chart.key === "loss" ? drawn : (/** @type {number | undefined} */ value) => value;
    const columns = jobs.map((job) => metrics.map((row) => take(row.jobs?.[job]?.[chart.key])));
    return [metrics.map(({ step }) => step), ...columns];
  },
});

/** @param {State} state */
function lossColumns({ metrics, evaluations }) {
  const steps = metrics.map(({ step }) => step), losses = metrics.map(({ loss }) => drawn(loss));
  const length = losses.length * SHOWN.smoothedPercent / 100, steady = length / (length + 1);
  let mean = 0, weight = 0;
  const smoothed = losses.map((loss) => {
    if (typeof loss !== "number") return undefined; // null: not finite
    mean = steady * mean + (1 - steady) * loss;
    weight = steady * weight + (1 - steady);
    return mean / weight;
  });
  const held = [evaluations.map(({ step }) => step), evaluations.map((row) => drawn(row.evalLoss))];
  const joined = UPlot.join([aligned([steps, losses, smoothed]), aligned(held)]);
  return /** @type {(number | null | undefined)[][]} */ (/** @type {unknown} */ (joined));
}

/** @param {(number | null | undefined)[][]} columns */
const aligned = (
  columns,
) => /** @type {uPlotModule.AlignedData} */ (/** @type {unknown} */ (columns));

/**
 * Opens the charts.
 *
 * @returns {{ draw(state: State): void, restyle(): void }}
 */
export function openCharts() {
  const charts = CHARTS.map(openChart);
  /** @type {State | undefined} */
  let last;
  const change = () => charts.forEach((chart) => chart.restyle(last));
  for (const [id, name] of /** @type {const} */ ([["log", "isLog"], ["outliers", "hasOutliers"]])) {
    byId(id).addEventListener("click", () => {
      byId(id).setAttribute("aria-pressed", String(SHOWN[name] = !SHOWN[name]));
      change();
    });
  }
  byId("smoothing").addEventListener("input", ({ target }) => {
    SHOWN.smoothedPercent = Number(/** @type {HTMLInputElement} */ (target).value);
    change();
  });
  return {
    draw(state) {
      last = state;
      const { unit, lossUnit = "" } = state.run ?? {};
      if (unit) setText(byId("throughput-unit"), `${unit} a second`);
      setText(byId("loss-unit"), lossUnit);
      charts.forEach((chart) => chart.draw(state));
    },
    restyle: change,
  };
}

/** @param {Chart} own */
function openChart(own) {
  const place = byId(own.id);
  let chart = own, caption = captionOf(place, chart), jobs = "";
  /** @type {uPlotModule | undefined} */
  let plot;
  /** @type {(number | null | undefined)[][]} */
  let data = [[], ...chart.curves.map(() => [])], isZoomed = false;
  /** @type {readonly EventView[]} */
  let failures = [];
  const take = (/** @type {State} */ state) => {
    const names = new Set(state.metrics.flatMap((row) => Object.keys(row.jobs ?? {})));
    const now = JSON.stringify([...names]);
    if (names.size > 0 && now !== jobs) {
      [jobs, chart] = [now, chartOfJobs(own, [...names])];
      caption = captionOf(place, chart);
      plot?.destroy();
      plot = undefined;
    }
    data = chart.columns(state);
    failures = state.events.filter(({ kind }) => kind === "failure");
  };
  const describe = () => {
    const at = plot?.cursor.idx ?? undefined;
    setText(caption, describeAt(chart, data, at));
    const [steps = []] = data;
    const name = `${chart.what} by step, ${whole(steps.length)} points.`;
    const lost = failures.map(({ step }) => ` Failure after step ${whole(step)}.`).join("");
    place.setAttribute("aria-label", `${name}${lost} ${caption.textContent}`);
  };
  const make = () => {
    plot?.destroy();
    plot = undefined;
    if (data[0]?.length) {
      const onDraw = (/** @type {uPlotModule} */ plot) => drawFailures(plot, failures);
      const handlers = { onCursor: describe, onZoom: () => isZoomed = true, onDraw };
      plot = new UPlot(optionsOf(chart, place, handlers), aligned(data), place);
    }
    place.classList.toggle("empty", !plot);
    describe();
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
      take(state);
      if (!plot) return make();
      // A zoomed chart keeps its range.
      plot.setData(aligned(data), !isZoomed);
      if (isZoomed) plot.redraw();
      describe();
    },
    /** @param {State} [state] */
    restyle(state) {
      if (state) take(state);
      make();
    },
  };
}

/** Creates the legend and the values of curves. @param {HTMLElement} place @param {Chart} chart */
function captionOf(place, { curves }) {
  const caption = document.createElement("span");
  caption.className = "value";
  const legend = curves.filter(({ label }) => label).map(({ label, color }) => {
    const line = element("i", { "aria-hidden": "true" });
    line.style.background = `var(${color})`;
    return element("span", { class: "curve" }, line, label);
  });
  const title = place.parentElement?.querySelector("figcaption");
  title?.querySelectorAll(".curve, .value").forEach((one) => one.remove());
  title?.append(...legend, caption);
  return caption;
}

/**
 * @param {Chart} chart
 * @param {(number | null | undefined)[][]} data
 * @param {number | undefined} at index of a point. Default: the last value.
 */
function describeAt({ curves }, [steps = [], ...columns], at) {
  if (steps.length === 0) return "";
  const values = columns.flatMap((column, i) => {
    const found = at ?? column.findLastIndex((value) => typeof value === "number");
    const value = column[found], { label = "" } = curves[i] ?? {};
    if (typeof value !== "number" || (at === undefined && label === "each step")) return [];
    const text = value >= 1e4 && value < 1e9 ? whole(value) : short(value);
    return [label ? `${label} ${text}` : text];
  });
  const step = at === undefined ? "" : `step ${whole(steps[at] ?? undefined)}: `;
  return values.length > 0 ? step + values.join(" · ") : step + NONE;
}

/** @param {HTMLElement} place */
const sizeOf = (place) => ({ width: place.clientWidth, height: place.clientHeight });

/**
 * @param {Chart} chart
 * @param {HTMLElement} place
 * @param {{ onCursor: () => void, onZoom: () => void, onDraw: (plot: uPlotModule) => void }} handlers
 * @returns {uPlotModule.Options}
 */
function optionsOf({ id, axis: title, curves }, place, { onCursor, onZoom, onDraw }) {
  const axis = {
    stroke: colorOf("--muted"),
    grid: { stroke: colorOf("--grid"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
    labelFont: "11px system-ui, sans-serif",
    labelSize: 18,
  };
  const isLog = id === "loss" && SHOWN.isLog;
  const label = title || (byId("throughput-unit").textContent ?? "");
  return {
    ...sizeOf(place),
    legend: { show: false },
    cursor: { sync: { key: "steps" }, points: { size: 6 }, y: false },
    scales: {
      x: { time: false },
      y: { distr: isLog ? 3 : 1, range: (plot) => rangeOf(plot, isLog) },
    },
    axes: [
      { ...axis, label: "Step", space: 60, size: 28, values: (_, splits) => splits.map(wholeOnly) },
      { ...axis, label, space: 32, size: 56, values: (_, splits) => splits.map(shortOrNone) },
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
    hooks: {
      setCursor: [onCursor],
      setSelect: [({ select }) => select.width > 0 && onZoom()],
      draw: [onDraw],
    },
  };
}

/**
 * Draws a dashed line at the step of each failure.
 *
 * @param {uPlotModule} plot
 * @param {readonly EventView[]} failures
 */
function drawFailures(plot, failures) {
  const { ctx, bbox: { left, top, width, height } } = plot;
  ctx.save();
  ctx.strokeStyle = colorOf("--bad");
  ctx.setLineDash([4, 4]);
  for (const { step } of failures) {
    const x = Math.round(plot.valToPos(step, "x", true));
    if (x < left || x > left + width) continue;
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
  }
  ctx.restore();
}

/**
 * Returns the range of the axis for the visible values. Outliers are cut off unless they are shown.
 *
 * @param {uPlotModule} plot
 * @param {boolean} isLog
 * @returns {uPlotModule.Range.MinMax}
 */
function rangeOf({ data: [, ...columns], series: [steps, ...curves] }, isLog) {
  const [from, to] = steps?.idxs ?? [0, Infinity];
  // The smoothed loss is skipped, as it stays high after an outlier.
  const isSmoothed = (/** @type {number} */ i) => curves[i]?.label === "smoothed";
  const values = columns.flatMap((column, i) =>
    isSmoothed(i) ? [] : [...column.slice(from, to + 1)]
  )
    .filter((value) => typeof value === "number")
    .map((value) => isLog ? Math.log10(value) : value).sort((a, b) => a - b);
  const at = (/** @type {number} */ part) => values[Math.floor(part * (values.length - 1))] ?? 0;
  const isCut = !SHOWN.hasOutliers && values.length >= VALUES_MIN, more = (at(0.98) - at(0.02)) / 2;
  const least = isCut ? Math.max(at(0), at(0.02) - more) : at(0);
  const most = isCut ? Math.min(at(1), at(0.98) + more) : at(1);
  return isLog
    ? UPlot.rangeLog(10 ** least, 10 ** most, 10, false)
    : UPlot.rangeNum(least, most, 0.1, true);
}

/** Whether there are too few points for a line. @param {uPlotModule} plot */
const isAlone = (plot) => plot.data[0].length < 3;

/** Logarithmic axes have marks without numbers. @type {(value: number | null) => string} */
const shortOrNone = (value) => value === null ? "" : short(value);

/** @type {(value: number) => string} */
const wholeOnly = (value) => Number.isInteger(value) ? whole(value) : "";

/**
 * Moves the cursor between points with the arrow keys.
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
