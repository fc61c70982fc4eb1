/**
 * The page of a run: receives updates and shows them.
 *
 * @module
 */

import { openCharts } from "./charts.js";
import { openThemes } from "./elements.js";
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

/** @import { Updates, TraceView } from "../view.ts" */

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

openThemes(() => {
  charts.restyle();
  timeline.restyle();
});
listen();
