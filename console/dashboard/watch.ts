/**
 * `--dashboard`: serves the page of a run beside it.
 *
 * @module
 */

import type { Metrics } from "../../actors/options/train_options.ts";
import type { TrainEvent } from "../../actors/run/events.ts";
import { recordOf } from "../run_files/write.ts";
import { printError } from "../terminal.ts";
import type { RunComponents } from "../train/parts.ts";
import type { RunPlace, TrainRequest } from "../train/request.ts";
import { runFacts } from "./facts.ts";
import { openLiveRun } from "./follow.ts";
import { serveDashboard } from "./serve.ts";
import { openRunView } from "./view.ts";

/** What is shown. */
export interface WatchedRun {
  readonly request: TrainRequest;
  readonly parts: RunComponents;
  /** Its folder, where it has one. */
  readonly place: RunPlace | undefined;
}

/** The dashboard of a run under way; disposing of it ends the page's news, and not the page. */
export interface RunDashboard extends AsyncDisposable {
  /** Takes in what was measured. */
  metrics(metrics: Metrics): void;
  /** The events of the run, each seen on its way. */
  watch(events: AsyncIterable<TrainEvent>): AsyncGenerator<TrainEvent, void>;
  /** Waits until whoever looks has had enough. */
  stay(signal: AbortSignal): Promise<void>;
}

/**
 * Serves the dashboard of a run, and says where once that begins.
 *
 * @throws {RangeError} when the port is taken.
 */
export function openDashboard(run: WatchedRun): RunDashboard {
  const { request: { flags, schedule, checkpoint }, place } = run, { replicas, steps } = flags;
  const view = openRunView(), live = openLiveRun(view, { schedule, replicas });
  const dashboard = serveDashboard(view, flags["dashboard-port"]);
  return {
    metrics: live.metrics,
    async *watch(events) {
      try {
        for await (const event of events) {
          if (event.type === "plan") {
            const facts = runFacts(
              recordOf(run, event.plan, undefined),
              schedule,
              place?.directory,
            );
            view.begin(facts, { status: "running", step: checkpoint?.step ?? 0, steps });
          }
          live.see(event);
          yield event;
          // By then nothing has refused the plan.
          if (event.type === "plan") printError(`Dashboard: ${dashboard.url}`);
        }
      } catch (error) {
        live.fail(error);
        throw error;
      }
    },
    async stay(signal) {
      printError(`The dashboard stays until Ctrl-C: ${dashboard.url}`);
      await dashboard.stay(signal);
    },
    [Symbol.asyncDispose]: () => dashboard[Symbol.asyncDispose](),
  };
}
