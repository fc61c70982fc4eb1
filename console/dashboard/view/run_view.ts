/**
 * What the pages of a run show, in bounded memory, and what of it they have not been told yet.
 *
 * @module
 */

import type { Metrics } from "../../../actors/run/metrics/metrics.ts";
import { openRecentList, openThinnedList, openToldList } from "./bounded_lists.ts";
import { openKeptTraces } from "./kept_traces.ts";
import type { EventView, News, RunFacts, StatusView, TraceView, WorkerView } from "./view.ts";

/** Rows that a page gets: more than its curves have pixels. */
const ROWS_MAX = 4000;
const EVENTS_MAX = 200;

/** What pages show. */
export interface RunView {
  /** What the run is, and how it stands. */
  begin(run: RunFacts, status: StatusView): void;
  /** How it stands now. */
  stand(status: Partial<StatusView>): void;
  /** A step, or an evaluation. */
  addMetrics(row: Metrics): void;
  /** A traced step, which is made when somebody looks. */
  addTrace(step: number, make: () => TraceView): void;
  /** Something that happened beside the steps. */
  addEvent(event: EventView): void;
  /** All of it. */
  all(): News;
  /** What has changed since it was asked last; undefined if nothing has. */
  news(): News | undefined;
}

/** Opens a view with nothing in it. */
export function openRunView(): RunView {
  let run: RunFacts | undefined, status: StatusView = { status: "starting", step: 0, steps: 0 };
  let workers: readonly WorkerView[] = [], untold = new Set<keyof News>();
  const newer = (_: Metrics, second: Metrics) => second;
  const metrics = openToldList(openThinnedList(ROWS_MAX, newer));
  const evaluations = openToldList(openThinnedList(ROWS_MAX, newer));
  const events = openToldList(openRecentList<EventView>(EVENTS_MAX));
  const traces = openKeptTraces();
  const changeWorkers = (change: (worker: WorkerView, i: number) => WorkerView) => {
    workers = workers.map(change);
    untold.add("workers");
  };
  const stand = (stands: Partial<StatusView>) => {
    status = { ...status, ...stands };
    untold.add("status");
  };
  return {
    begin(facts, stands) {
      run = facts;
      workers = facts.workers.map((_, i) => workers[i] ?? { restarts: 0 });
      untold.add("run").add("workers");
      stand(stands);
    },
    stand,
    addMetrics(row) {
      if (row.type === "evaluation") return evaluations.add(row);
      metrics.add(row);
      stand({ step: row.step });
      const { memory } = row;
      if (memory) changeWorkers((worker, i) => ({ ...worker, memoryBytes: memory[i] ?? NaN }));
    },
    addTrace: traces.add,
    addEvent(event) {
      events.add(event);
      const lost = event.kind === "failure" ? event.worker : undefined;
      if (lost === undefined) return;
      changeWorkers((worker, i) =>
        i === lost ? { ...worker, restarts: worker.restarts + 1 } : worker
      );
    },
    all: () => ({
      ...run && { run },
      status,
      workers,
      metrics: metrics.all(),
      evaluations: evaluations.all(),
      events: events.all(),
      traces: traces.all(),
    }),
    news() {
      const facts = { run, status, workers };
      const parts = Object.entries({
        ...Object.fromEntries(Object.entries(facts).filter(([name]) => untold.has(name as "run"))),
        metrics: metrics.news(),
        evaluations: evaluations.news(),
        events: events.news(),
        traces: traces.news(),
      }).filter(([, part]) => part !== undefined);
      untold = new Set();
      return parts.length > 0 ? Object.fromEntries(parts) : undefined;
    },
  };
}
