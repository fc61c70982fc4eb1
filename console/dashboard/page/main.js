/**
 * The page of a run: receives updates and shows them.
 *
 * @module
 */

import { openCharts } from "./charts.js";
import { byId } from "./elements.js";
import {
  showActors,
  showEvents,
  showFacts,
  showFigures,
  showStatus,
  showWorkers,
} from "./panels.js";
import { emptyState, update } from "./state.js";
import { openTimeline } from "./timeline.js";

/** @import { Updates, TraceView } from "../state.ts" */

const THEMES = /** @type {const} */ (["as the system", "light", "dark"]);

const state = emptyState();
let isConnected = false, isDue = false;
/** @type {TraceView | undefined} */
let shown;

const charts = openCharts();
const timeline = openTimeline((trace) => {
  shown = trace;
  showWorkers(state, shown);
});

/** Shows the state in the next frame, once for several updates. */
function show() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    showStatus(state, isConnected);
    showFigures(state);
    charts.draw(state);
    timeline.take(state);
    showWorkers(state, shown);
    showActors(state);
    showEvents(state);
    showFacts(state);
  });
}

function listen() {
  const source = new EventSource("events");
  const isOver = () => ["finished", "interrupted", "failed"].includes(state.status.status);
  source.addEventListener("open", () => {
    isConnected = true;
    show();
  });
  source.addEventListener("message", ({ data }) => {
    update(state, /** @type {Updates} */ (JSON.parse(data)));
    show();
  });
  source.addEventListener("error", () => {
    isConnected = false;
    // A finished run sends no more updates.
    if (isOver()) source.close();
    show();
  });
}

/** @param {number} index of the theme. */
function applyTheme(index) {
  const theme = THEMES[index] ?? THEMES[0];
  const { dataset } = document.documentElement;
  if (theme === THEMES[0]) delete dataset.theme;
  else dataset.theme = theme;
  byId("theme").setAttribute("aria-label", `Theme: ${theme}`);
  byId("theme").title = `Theme: ${theme}`;
  charts.restyle();
  timeline.restyle();
}

let theme = 0;
byId("theme").addEventListener("click", () => applyTheme(theme = (theme + 1) % THEMES.length));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme(theme));
applyTheme(theme);
listen();
