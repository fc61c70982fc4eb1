/**
 * The flags that say which schedule a run has: those of `troupe schedule`, or a file.
 *
 * @module
 */

import { basename } from "node:path";
import {
  assertValid,
  type ListedSchedule,
  parseCsv,
  scheduleFromLists,
  scheduleNames,
  type ScheduleOptions,
} from "../../schedules/mod.ts";
import { inOneLine, quoted } from "../escape.ts";
import type { FlagValues, GivenFlags } from "../flags/flags.ts";
import { WORKERS_MAX } from "../../actors/run/options/sizes.ts";
import { readCost } from "../flags/quantities.ts";

const COST = { kind: "own", value: "T", read: readCost } as const;
const MUST_BE_COST = "a number from 0, or several with commas between them";

/** The schedule and its parameters. */
export const SCHEDULE_FLAGS = {
  workers: {
    kind: "integer",
    value: "D",
    maximum: WORKERS_MAX,
    default: 2,
    help: "workers of a pipeline",
  },
  schedule: {
    kind: "choice",
    value: "NAME",
    choices: scheduleNames(),
    default: "message-driven",
    help: "which action a worker runs next; see troupe schedule list",
  },
  "schedule-file": { kind: "path", value: "CSV", help: "action lists, a row for each worker" },
  policy: {
    kind: "choice",
    choices: ["list", "elastic"],
    help: "lists: to the letter, or later actions early (list)",
  },
  chunks: { kind: "integer", value: "V", help: "interleaved, looped-bfs: stages on a worker (2)" },
  waves: { kind: "integer", value: "W", help: "hanayo: waves (1)" },
  pipelines: { kind: "integer", value: "f", help: "chimera: f pipes down and f up (1)" },
  scale: {
    kind: "choice",
    choices: ["direct", "doubling", "halving"],
    help: "chimera: how to serve more than D micro-batches (direct)",
  },
  "pipeline-limit": {
    kind: "integer",
    value: "L",
    help: "message-driven, chimera-greedy: micro-batches in flight (D)",
  },
  order: {
    kind: "choice",
    choices: ["fifo", "backward-first"],
    help: "message-driven: which message goes first (fifo)",
  },
  "activation-limit": {
    kind: "number",
    value: "M",
    help: "search, elastic: most activations of a worker, in 1/D of a model's",
  },
  "weight-limit": {
    kind: "number",
    value: "M",
    help: "search: most weights of a worker, in 1/D of the model (1)",
  },
  forward: {
    ...COST,
    must: MUST_BE_COST,
    help: "search: time of a forward of 1/D of the model (1)",
  },
  backward: { ...COST, must: MUST_BE_COST, help: "search: time of a full backward (2)" },
  input: { ...COST, must: MUST_BE_COST, help: "search: its part for the input (half of it)" },
  weight: { ...COST, must: MUST_BE_COST, help: "search: its part for the weights (half of it)" },
  overlap: {
    kind: "number",
    value: "T",
    help: "search: a forward and a backward at once (the sum)",
  },
  send: { ...COST, must: MUST_BE_COST, help: "search: time of a message (0)" },
} as const;

/** The options of the schedule that the flags name. */
export function scheduleOptionsOf(
  flags: FlagValues<typeof SCHEDULE_FLAGS>,
): Partial<ScheduleOptions> {
  const { forward, backward, input, weight, overlap, send } = flags;
  const isMessageDriven = flags.schedule === "message-driven" && !flags["schedule-file"];
  return {
    pipelineLimit: flags["pipeline-limit"],
    // Journals have the order of a message-driven run, given or not.
    order: flags.order ?? (isMessageDriven ? "fifo" : undefined),
    chunks: flags.chunks,
    waves: flags.waves,
    pipelines: flags.pipelines,
    scale: flags.scale,
    activationLimit: flags["activation-limit"],
    weightLimit: flags["weight-limit"],
    costs: { forward, backward, input, weight, overlap, send },
  };
}

/** What was said beside the file. */
type Given = GivenFlags<typeof SCHEDULE_FLAGS> & { readonly "micro-batches"?: number };

/**
 * Makes the schedule of `--schedule-file`. Its workers and micro-batches are those of the file.
 *
 * @throws {SyntaxError} if a cell is no action.
 * @throws {RangeError} if the lists cannot run, or if a flag says something else than the file.
 * @throws {TypeError} if a schedule is named as well.
 */
export function readScheduleFile(path: string, text: string, given: Given): ListedSchedule {
  if (given.schedule !== undefined) {
    throw new TypeError(
      "Cannot train: the schedule must come from one place, received --schedule and --schedule-file",
    );
  }
  const name = inOneLine(basename(path).replace(/\.csv$/, ""));
  const schedule = scheduleFromLists(name, parseCsv(text));
  assertValid(schedule);
  const { workers, microBatches } = schedule;
  for (const [flag, held] of Object.entries({ workers, "micro-batches": microBatches })) {
    const value = given[flag as "workers" | "micro-batches"];
    if (value === undefined || value === held) continue;
    throw new RangeError(
      `Cannot use --schedule-file: --${flag} must be ${held}, as in ${
        quoted(path)
      }, or left out, received ${value}`,
    );
  }
  return schedule;
}
