/**
 * The limit and the order of a message-driven schedule where the flags leave them to a simulation.
 *
 * @module
 */

import {
  ASSUMED,
  chooseMailbox,
  type Costs,
  type MailboxOrder,
  type ScheduleOptions,
  type Trial,
  tryMailboxes,
} from "../../schedules/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";

/** What flags say of it. */
export interface AskedFlags {
  readonly "pipeline-limit"?: number | "auto";
  readonly order?: MailboxOrder | "auto";
  readonly "activation-limit"?: number;
  readonly jitter?: number;
}

/**
 * Chooses what is `auto`; undefined where nothing is. It depends on the flags alone, so every rank
 * chooses the same.
 *
 * @throws {RangeError} if another schedule than message-driven is to be served.
 */
export function choiceOf(
  name: string,
  flags: AskedFlags,
  size: Pick<ScheduleOptions, "workers" | "microBatches">,
  costs: Costs,
) {
  const { "pipeline-limit": pipelineLimit = size.workers, order = "fifo" } = flags;
  const { jitter = ASSUMED.jitter } = flags;
  if (pipelineLimit !== "auto" && order !== "auto") return undefined;
  if (name !== "message-driven") {
    const flag = order === "auto" ? "--order" : "--pipeline-limit";
    throw new RangeError(
      `Cannot use ${flag} auto: the schedule must be message-driven, received ${name}`,
    );
  }
  const asked = { ...size, pipelineLimit, order, activationLimit: flags["activation-limit"] };
  const trials = tryMailboxes(asked, { costs, jitter }), chosen = chooseMailbox(trials);
  return {
    flags: { "pipeline-limit": chosen.pipelineLimit, order: chosen.order, jitter },
    told: inWords(trials, costs, jitter),
  };
}

/** What was chosen, why, and under which conditions. */
function inWords(trials: readonly Trial[], costs: Costs, jitter: number = ASSUMED.jitter): string {
  const { pipelineLimit, order, mean, count } = chooseMailbox(trials);
  const known = trials.find(({ order }) => order === undefined)!;
  const { send = ASSUMED.send } = costs, tried = trials.length - 1;
  return `--pipeline-limit ${pipelineLimit} --order ${order}: of ${tried} the fewest in flight whose ` +
    `simulated step is within 1 % of the shortest, ${mean.toFixed(1)} (1f1b: ` +
    `${known.mean.toFixed(1)}), the mean of ${count} with actions up to ${jitter} times longer ` +
    `and messages of ${send}`;
}

/** All that was tried, as a table, and what is recommended. */
export function formatTrials(trials: readonly Trial[], costs: Costs, jitter?: number): string {
  const rows = trials.map(({ schedule, pipelineLimit, order, mean, least, most }) => [
    schedule.name,
    pipelineLimit === undefined ? "" : String(pipelineLimit),
    order ?? "",
    ...[mean, least, most].map((time) => time.toFixed(1)),
  ]);
  const head = ["schedule", "limit", "order", "mean", "least", "most"];
  const lines = formatTable([head, ...rows], { left: [0, 2] });
  return [...lines, "", inWords(trials, costs, jitter), ""].join("\n");
}
