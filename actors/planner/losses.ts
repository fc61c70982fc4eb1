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
 * Predicts a planned run without losses, and after each number of losses up to a limit. A run without
 * copies of its stages never moves, so it has no layouts with fewer workers.
 *
 * @param layers of the model.
 * @param batch samples of a step of all replicas together.
 * @throws {RangeError} when its copies cannot be hosted by other workers.
 */
export function afterLosses(
  planned: CandidateRun,
  forecast: Forecast,
  { layers, batch, losses }: { readonly layers: number; readonly batch: number; losses: number },
): RemainingRun[] {
  const { workers, replicas, microBatches, options } = planned, schedule = scheduleOf(planned);
  const refusal = hostingRefusal(schedule);
  if (refusal) throw new RangeError(refusal);
  const copies = replicas * pipelineCount(schedule);
  const scheduleOptions = { ...options, workers, microBatches };
  const moved = { ...candidateOf(planned), bucketSize: undefined, layout: undefined };
  const remaining = (lost: number, layout: HostLayout, run: CandidateRun, on: Schedule) => ({
    ...{ losses: lost, workers: workers * replicas - lost, layout, copies, run },
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
