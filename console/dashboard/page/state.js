/**
 * What the page has been told of the run.
 *
 * @module
 */

/** @import { News, TraceView, WorkerView, EventView, RunFacts, StatusView, Tail } from "../state.ts" */
/** @import { Metrics } from "../../../actors/options/train_options.ts" */

/**
 * All that is known.
 *
 * @typedef {object} State
 * @property {RunFacts | undefined} run
 * @property {StatusView} status
 * @property {Metrics[]} metrics steps, in order.
 * @property {Metrics[]} evaluations losses on held-out data, in order.
 * @property {EventView[]} events
 * @property {readonly WorkerView[]} workers
 * @property {readonly TraceView[]} traces in order of their steps.
 */

/** @returns {State} */
export function emptyState() {
  return {
    run: undefined,
    status: { status: "starting", step: 0, steps: 0 },
    metrics: [],
    evaluations: [],
    events: [],
    workers: [],
    traces: [],
  };
}

/**
 * Takes news in.
 *
 * @param {State} state
 * @param {News} news
 */
export function takeIn(state, news) {
  const { run, status, metrics, evaluations, events, workers, traces } = news;
  if (run) state.run = run;
  if (status) state.status = status;
  if (workers) state.workers = workers;
  putTail(state.metrics, metrics);
  putTail(state.evaluations, evaluations);
  putTail(state.events, events);
  if (!traces) return;
  const known = new Map([...state.traces, ...traces.added].map((trace) => [trace.step, trace]));
  state.traces = traces.kept.map((step) => known.get(step)).filter((trace) => trace !== undefined);
}

/**
 * @template T
 * @param {T[]} list
 * @param {Tail<T> | undefined} tail
 */
function putTail(list, tail) {
  if (tail) list.splice(tail.from, Infinity, ...tail.entries);
}
