/**
 * `--format trace`: a schedule on paper as a trace for Perfetto, in the form of one that a run has
 * written, so that what was planned and what happened look alike and are summed up alike.
 *
 * @module
 */

import type { TracedAction } from "../../actors/mod.ts";
import { readStep } from "../../actors/run/timeline/mod.ts";
import { type Analysis, formatAction, liveActivations } from "../../schedules/mod.ts";
import type { ChromeEvent, TraceFacts } from "../trace/chrome_event.ts";
import {
  headEvents,
  momentOf,
  stepEvents,
  supervised,
  workerCounter,
} from "../trace/chrome_events.ts";

/** The most actions of a trace: viewers in a browser read all of it into memory. */
const ACTIONS_MAX = 2 ** 18;

/** The only step that there is. */
const STEP = 1;

/**
 * The planned timeline as JSON: workers are tracks, actions what lies on them, with the bubbles
 * between them and why, flows from who computes an input to who needs it, and the activations of each
 * worker as a curve. A unit of time is a millisecond.
 *
 * @throws {RangeError} if it has more actions than a viewer could show.
 */
export function formatTrace(analysis: Analysis): string {
  const { schedule, makespan, bubbleRatio } = analysis;
  const actions = schedule.lists.reduce((sum, { length }) => sum + length, 0);
  if (actions > ACTIONS_MAX) {
    throw new RangeError(
      `Cannot write ${schedule.name} as a trace: it must have at most ${ACTIONS_MAX} actions, ` +
        `received ${actions}`,
    );
  }
  const facts: TraceFacts = {
    model: "on paper",
    schedule: schedule.name,
    runtime: "plan",
    replicas: 1,
    stagesOf: schedule.placement.map((held) => held.map(({ stage }) => stage)),
    began: 0,
  };
  const end = momentOf(facts, makespan);
  const events = [
    ...headEvents(facts),
    supervised(`step ${STEP}`, "step", 0, end, { step: STEP, bubbleRatio }),
    ...stepEvents(facts, STEP, readStep(tracesOf(analysis)), 0),
    ...curvesOf(facts, analysis),
  ];
  return `[\n${events.map((event) => JSON.stringify(event)).join(",\n")}\n]\n`;
}

/** For each worker what it does, as its trace would have it. */
function tracesOf({ schedule, execution }: Analysis): TracedAction[][] {
  const { timeline: { starts, ends }, lastInput } = execution;
  return schedule.lists.map((list, worker) =>
    Array.from(list, (action, index): TracedAction => {
      const input = lastInput(worker, index);
      return {
        name: formatAction(action),
        start: tidy(starts[worker]![index]!),
        end: tidy(ends[worker]![index]!),
        ...input && { arrived: tidy(input.time) },
      };
    })
  );
}

/** Sums of thirds differ in their last bits, which would be bubbles of no length. */
const tidy = (time: number) => Math.round(time * 1e6) / 1e6;

function curvesOf(facts: TraceFacts, analysis: Analysis): ChromeEvent[] {
  return analysis.schedule.lists.flatMap((_, worker) =>
    Array.from(liveActivations(analysis, worker), ({ time, live }) => {
      const activations = Number(live.toPrecision(12));
      return workerCounter(facts, worker, momentOf(facts, time), "activations", { activations });
    })
  );
}
