/** What a planner asks of whoever predicts. */

import type { Schedule, SimulatedStep, StepModel } from "../../../schedules/mod.ts";
import type { Candidate } from "./candidate.ts";

/** A step that has not been run. */
export interface ForecastStep {
  /** Milliseconds from its request to its answer. */
  readonly stepMs: number;
  /** The step as it was simulated, and where the time of each worker goes. */
  readonly simulated: Pick<SimulatedStep, "workers" | "makespanMs">;
  /** By how much it is longer than the simulated one as durations vary; 0 unless given. */
  readonly variedMs?: number;
  /** What makes it less certain. */
  readonly notes?: readonly string[];
}

/**
 * Predicts candidates. Each function throws a RangeError where a candidate cannot be run: that says
 * why, and the planner goes on without it.
 */
export interface Forecast {
  /**
   * What a step is simulated from, with no cost higher than those of {@linkcode Forecast.step}. The
   * schedule may be of other micro-batches.
   */
  least(candidate: Candidate, schedule: Schedule): StepModel;
  /** Bytes of each worker that a limit counts. */
  bytes(candidate: Candidate, schedule: Schedule): readonly number[];
  /** The step, with the means of all durations. */
  step(candidate: Candidate, schedule: Schedule): ForecastStep;
  /** The step with durations that vary, where that is known; asked for the best alone. */
  varied?(candidate: Candidate, schedule: Schedule): ForecastStep;
  /**
   * The layout that suits the schedule, where there is another one than that of equal work and it is
   * found soon; asked for the best alone.
   */
  layout?(candidate: Candidate, schedule: Schedule): string | undefined;
}
