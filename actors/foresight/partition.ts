/**
 * Where a model is best cut for a schedule, by what a profile says of its layers.
 *
 * @module
 */

import { formatLayout } from "../../kernels/mod.ts";
import {
  type LayerTimes,
  partitionForSchedule,
  type Schedule,
  type SchedulePartition,
} from "../../schedules/mod.ts";
import type { CompiledRun } from "../run/compile_run.ts";
import { layerSkips } from "./layer_skips.ts";
import { type FoundCost, openCosts } from "./profile/find_costs.ts";
import { slicedFacts } from "./profile/layer_facts.ts";
import type { LinkCost, Profile } from "./profile/profile.ts";

/** A cut that a profile recommends. */
export interface RecommendedLayout extends SchedulePartition {
  /** The cut as `--layout` and `train({ layout })` take it. */
  readonly layout: string;
}

/** What is cut. */
export interface CutRun {
  /** In which order it computes. */
  readonly schedule: Schedule;
  /** The model compiled, wherever it is cut now. */
  readonly compiled: Pick<CompiledRun, "model" | "stage" | "halves">;
  /** What computes, as the profile names it. */
  readonly device: string;
  /** The link that messages take; they take no time unless given. */
  readonly link?: LinkCost | undefined;
  /** Data-parallel replicas. Default 1. */
  readonly replicas?: number | undefined;
  /** Numbers that the search looks at, as {@linkcode partitionForSchedule} takes it. */
  readonly work?: number | undefined;
}

/**
 * The layout with which the actions of a step take least time, in milliseconds: embedding and head, as
 * all layers, with what was measured of them while all workers compute.
 *
 * @throws {RangeError} when the profile has no costs of a layer's kind, or the model has fewer layers
 * than the schedule has stages.
 */
export function recommendLayout(
  profile: Profile,
  { schedule, compiled, device, link, replicas = 1, work }: CutRun,
): RecommendedLayout {
  const { model, stage, halves } = compiled, costs = openCosts(profile, device);
  const facts = slicedFacts(model, stage), slices = facts.length;
  const layers = facts.map((slice) =>
    slice.map((one) => costs.layer(one, replicas * schedule.workers))
  );
  const msOf = (name: keyof FoundCost) =>
    model.layers.map((_, i) => halves * layers.reduce((ms, slice) => ms + slice[i]![name], 0));
  const input = msOf("inputMs"), weight = msOf("weightMs");
  const times: LayerTimes = {
    forward: msOf("forwardMs"),
    // Split backwards are measured apart; lists have one kind or the other.
    ...isSplit(schedule)
      ? { backward: input.map((ms, i) => ms + weight[i]!), input }
      : { backward: msOf("backwardMs") },
    recompute: msOf("recomputeMs"),
    send: facts[0]!.map(({ outputBytes }) => {
      const bytes = halves * slices * outputBytes;
      return link ? slices * link.latencyMs + bytes / (link.bytesPerMs ?? Infinity) : 0;
    }),
    skips: layerSkips(compiled, link),
  };
  const partition = partitionForSchedule(schedule, times, undefined, work);
  return { ...partition, layout: formatLayout(model.layers, partition.starts) };
}

/** Whether backwards run in two parts. */
const isSplit = ({ lists = [] }: Schedule): boolean =>
  lists.some((list) => [...list].some(({ kind }) => kind === "I"));
