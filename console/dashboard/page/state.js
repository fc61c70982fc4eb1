/**
 * State of the page.
 *
 * @module
 */

/** @import { Updates, StepRow, TraceView, WorkerView, EventView, RunFacts, StatusView, Tail } from "../view.ts" */
/** @import { Metrics } from "../../../actors/options/train_options.ts" */

/**
 * Known state of the run.
 *
 * @typedef {object} State
 * @property {RunFacts | undefined} run
 * @property {StatusView} status
 * @property {StepRow[]} metrics steps, in order.
 * @property {Metrics[]} evaluations losses on held-out data, in order.
 * @property {EventView[]} events
 * @property {readonly WorkerView[]} workers
 * @property {readonly TraceView[]} traces in order of their steps.
 */

/** Returns the initial state. @returns {State} */
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
 * Applies updates to the state.
 *
 * @param {State} state
 * @param {Updates} updates
 */
export function update(state, updates) {
  const { run, status, metrics, evaluations, events, workers, traces } = updates;
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
 * Replaces the tail of a list.
 *
 * @template T
 * @param {T[]} list
 * @param {Tail<T> | undefined} tail
 */
function putTail(list, tail) {
  if (tail) list.splice(tail.from, Infinity, ...tail.entries);
}
