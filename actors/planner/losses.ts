/**
 * A planned run after the loss of workers, in the layouts that failover chooses.
 *
 * @module
 */

import { chooseLayout, type HostLayout } from "../../schedules/internal.ts";
import type { Schedule } from "../../schedules/mod.ts";
import { copiesOf, pipelineCount } from "../pipeline/layout.ts";
import { hostingRefusal, hostShares } from "../pipeline/step.ts";
import { candidateOf, type CandidateRun, candidateRun, type Forecast } from "./forecast.ts";
import { scheduleOf } from "./plan.ts";

/** A planned run after some losses. */
export interface RemainingRun {
  /** Rank of the plan, from 1. */
  readonly rank: number;
  /** Workers that are lost. */
  readonly losses: number;
  /** Workers that remain. */
  readonly workers: number;
  readonly layout: HostLayout;
  /** Logical copies of the model, of which each pipeline hosts an equal part. */
  readonly copies: number;
  /** The prediction. */
  readonly run: CandidateRun;
  /** Its samples per second, as a share of those without losses. */
  readonly speed: number;
  /** True if each stage is on two workers, so that the run survives another loss without a restart. */
  readonly canMove: boolean;
}

/**
 * Predicts the best planned run that other workers can host: without losses, and after each number of
 * losses up to a limit. A run without copies of its stages never moves, so it has no layouts with fewer
 * workers.
 *
 * @param best planned runs, the best first.
 * @param layers of the model.
 * @param batch samples of a step of all replicas together.
 * @throws {RangeError} when other workers can host the copies of none.
 */
export function afterLosses(
  best: readonly CandidateRun[],
  forecast: Forecast,
  { layers, batch, losses }: { readonly layers: number; readonly batch: number; losses: number },
): RemainingRun[] {
  const refusals = best.map((run) => hostingRefusal(scheduleOf(run)));
  const rank = 1 + refusals.indexOf(undefined), planned = best[rank - 1];
  if (!planned) throw new RangeError(refusals[0]);
  const { workers, replicas, microBatches, options } = planned, schedule = scheduleOf(planned);
  const copies = replicas * pipelineCount(schedule);
  const scheduleOptions = { ...options, workers, microBatches };
  const moved = { ...candidateOf(planned), bucketSize: undefined, layout: undefined };
  const remaining = (lost: number, layout: HostLayout, run: CandidateRun, on: Schedule) => ({
    ...{ rank, losses: lost, workers: workers * replicas - lost, layout, copies, run },
    speed: run.samplesPerSecond / planned.samplesPerSecond,
    canMove: copiesOf(on, layout.pipelines)
      .every((held) => new Set(held.map(({ worker }) => worker)).size > 1),
  });
  const full = remaining(0, { pipelines: replicas, depth: workers }, planned, schedule);
  if (!full.canMove) return [full];
  const after = Array.from({ length: losses }, (_, i) => {
    const needs = { replicas, microBatches, layers, workers: full.workers - i - 1 };
    const layout = chooseLayout(needs), run = { schedule, scheduleOptions, replicas, layout };
    const [hosted] = hostShares(run, replicas * microBatches).schedules;
    const candidate = { ...moved, workers: layout.depth, replicas: layout.pipelines };
    const step = (forecast.varied ?? forecast.step)(candidate, hosted!);
    const bytes = forecast.bytes(candidate, hosted!);
    return remaining(i + 1, layout, candidateRun(candidate, step, bytes, batch), hosted!);
  });
  return [full, ...after];
}
