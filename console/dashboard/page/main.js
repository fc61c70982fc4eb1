/**
 * The page of a run: takes news in, and shows what has changed.
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
import { openPipeline } from "./pipeline.js";
import { emptyState, takeIn } from "./state.js";

/** @import { News, TraceView } from "../state.ts" */

const THEMES = /** @type {const} */ (["as the system", "light", "dark"]);

const state = emptyState();
let isConnected = false, isDue = false;
/** @type {TraceView | undefined} */
let shown;

const charts = openCharts();
const pipeline = openPipeline((trace) => {
  shown = trace;
  showWorkers(state, shown);
});

/** News come faster than anybody looks: what changed is shown once a frame. */
function show() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    showStatus(state, isConnected);
    showFigures(state);
    charts.draw(state);
    pipeline.take(state);
    showWorkers(state, shown);
    showActors(state);
    showEvents(state);
    showFacts(state);
  });
}

function listen() {
  const news = new EventSource("events");
  const isOver = () => ["finished", "interrupted", "failed"].includes(state.status.status);
  news.addEventListener("open", () => {
    isConnected = true;
    show();
  });
  news.addEventListener("message", ({ data }) => {
    takeIn(state, /** @type {News} */ (JSON.parse(data)));
    show();
  });
  news.addEventListener("error", () => {
    isConnected = false;
    // What has ended has nothing more to tell.
    if (isOver()) news.close();
    show();
  });
}

/** @param {number} which of the themes. */
function applyTheme(which) {
  const theme = THEMES[which] ?? THEMES[0];
  const { dataset } = document.documentElement;
  if (theme === THEMES[0]) delete dataset.theme;
  else dataset.theme = theme;
  byId("theme").setAttribute("aria-label", `Theme: ${theme}`);
  byId("theme").title = `Theme: ${theme}`;
  charts.restyle();
  pipeline.restyle();
}

let theme = 0;
byId("theme").addEventListener("click", () => applyTheme(theme = (theme + 1) % THEMES.length));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme(theme));
applyTheme(theme);
listen();
