/**
 * The flags that say which schedule there is: those of `troupe schedule` and of `troupe train`.
 *
 * @module
 */

import { WORKERS_MAX } from "../../actors/run/options/sizes.ts";
import {
  ASSUMED,
  type Costs,
  createSchedule,
  findSchedule,
  type Schedule,
  scheduleNames,
  type ScheduleOptions,
  withRecomputation,
} from "../../schedules/mod.ts";
import type { FlagValues } from "../flags/flag.ts";
import { readCost, readLimit } from "../flags/quantities.ts";

/** The parameters of a schedule. */
export const PARAMETER_FLAGS = {
  chunks: {
    kind: "integer",
    value: "V",
    otherwise: "2",
    help: "interleaved, interleaved-zb, looped-bfs, slimpipe, search: stages on a worker",
  },
  slices: {
    kind: "integer",
    value: "S",
    otherwise: "1",
    help: "seq1f1b, seq1f1b-zb, terapipe, slimpipe: slices of each micro-batch's sequence",
  },
  waves: { kind: "integer", value: "W", otherwise: "1", help: "hanayo, search: waves" },
  pipelines: {
    kind: "integer",
    value: "f",
    otherwise: "1",
    help: "chimera: f pipes down and f up",
  },
  scale: {
    kind: "choice",
    choices: ["direct", "doubling", "halving"],
    otherwise: "direct",
    help: "chimera: how to serve more than D micro-batches",
  },
  "pipeline-limit": {
    kind: "own",
    value: "L|auto",
    read: readLimit,
    must: "a whole number from 1, or auto",
    otherwise: "D",
    help:
      "message-driven, chimera-greedy: micro-batches in flight; auto: see troupe schedule jitter",
  },
  order: {
    kind: "choice",
    choices: ["fifo", "backward-first", "auto"],
    otherwise: "fifo",
    help: "message-driven: which message goes first; auto: see troupe schedule jitter",
  },
  "activation-limit": {
    kind: "number",
    value: "M",
    help: "message-driven, search, elastic: most activations of a worker, in 1/D of a model's",
  },
  "weight-limit": {
    kind: "number",
    value: "M",
    otherwise: "1",
    help: "search: most weights of a worker, in 1/D of the model",
  },
  "recompute-ahead": {
    kind: "switch",
    help: "lists: stages keep only their inputs, and recompute before the gradient comes (R)",
  },
} as const;

const COST = {
  kind: "own",
  value: "T",
  read: readCost,
  must: "a number from 0, or several with commas between them",
} as const;

/** What the actions of a schedule cost. */
export const COST_FLAGS = {
  forward: {
    ...COST,
    otherwise: "1",
    help: "time of a forward of 1/D of the model; T,T,... for parts of it",
  },
  backward: { ...COST, otherwise: "2", help: "time of a full backward" },
  input: { ...COST, otherwise: "half of it", help: "its part for the input" },
  weight: { ...COST, otherwise: "half of it", help: "its part for the weights" },
  recomputation: { ...COST, otherwise: "a forward", help: "time to recompute a forward (R)" },
  overlap: {
    kind: "number",
    value: "T",
    otherwise: "the sum",
    help: "a forward and a backward at once",
  },
  send: { ...COST, otherwise: "0", help: "time of a message" },
  jitter: {
    kind: "number",
    value: "J",
    otherwise: String(ASSUMED.jitter),
    help: "auto: an action takes up to J times longer; 0.5 is up to half as long again",
  },
} as const;

/** The schedule of a run, and its parameters. */
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
    otherwise: "list",
    help: "lists: to the letter, or later actions early",
  },
  layout: {
    kind: "text",
    value: "E,4|3,H",
    otherwise: "auto: stages of nearly equal work; schedule: of the shortest step",
    help: "layers of each stage: E embedding, H head, a number of blocks or layers",
  },
  ...PARAMETER_FLAGS,
} as const;

/** What flags say of a schedule beside its size; `troupe schedule` has its name from elsewhere. */
type Said = FlagValues<typeof PARAMETER_FLAGS> & FlagValues<typeof COST_FLAGS> & {
  readonly schedule?: string;
  readonly "schedule-file"?: string;
};

/** What the flags say that actions cost. */
export function costsOf(flags: FlagValues<typeof COST_FLAGS>): Costs {
  const { forward, backward, input, weight, recomputation, overlap, send } = flags;
  return { forward, backward, input, weight, recompute: recomputation, overlap, send };
}

/** The options of the schedule that the flags name, once nothing is left to be chosen. */
export function scheduleOptionsOf(flags: Said): Partial<ScheduleOptions> {
  const named = flags["schedule-file"] ? undefined : flags.schedule;
  const recomputes = flags["recompute-ahead"] && named !== undefined &&
    findSchedule(named).reads?.includes("recomputeAhead");
  return {
    pipelineLimit: decided(flags["pipeline-limit"]),
    order: decided(flags.order),
    chunks: flags.chunks,
    slices: flags.slices,
    waves: flags.waves,
    pipelines: flags.pipelines,
    scale: flags.scale,
    activationLimit: flags["activation-limit"],
    weightLimit: flags["weight-limit"],
    ...recomputes && { recomputeAhead: true },
    // With a jitter they were what a limit and an order were chosen for, and nothing else reads them.
    costs: named === "message-driven" && flags.jitter !== undefined ? undefined : costsOf(flags),
  };
}

/** The schedule of a run: that of its file, or the one that its flags name. */
export function scheduleOf(
  flags: Said & { schedule: string; workers: number; "micro-batches": number },
  fromFile?: Schedule,
): Schedule {
  const { workers, "micro-batches": microBatches } = flags;
  const options = { ...scheduleOptionsOf(flags), workers, microBatches };
  const made = fromFile ?? createSchedule(flags.schedule, options);
  return flags["recompute-ahead"] && !options.recomputeAhead ? withRecomputation(made) : made;
}

const decided = <T>(value: T | "auto"): T | undefined => value === "auto" ? undefined : value;
