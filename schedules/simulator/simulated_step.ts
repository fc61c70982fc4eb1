/** What the simulation of a step gives. */

import type { Timeline } from "../execution/execute.ts";
import type { ListedSchedule } from "../schedule.ts";
import type { MemoryCurve } from "../memory/memory_levels.ts";

/** A step as it was simulated; of equal data-parallel replicas the first. */
export interface SimulatedStep {
  /** The schedule with the orders that its workers took. */
  readonly schedule: ListedSchedule;
  /** The end of the step. */
  readonly makespanMs: number;
  /** The end of the last action. */
  readonly computedMs: number;
  /** When every action of every worker ran. */
  readonly timeline: Timeline;
  /** Where the time of each worker went. */
  readonly workers: readonly WorkerTimes[];
  /** For each worker, what it did to close the step, in order of time. */
  readonly closing: readonly (readonly ClosingSpan[])[];
  /** For each worker, the most bytes at a time. */
  readonly peakBytes: readonly number[];
  /** The bytes of a worker over time. */
  memoryOf(worker: number): MemoryCurve;
}

/** Where the time of a worker went: the parts add up to the makespan. */
export interface WorkerTimes {
  /** It ran actions. */
  readonly busyMs: number;
  /** It chose actions and took their inputs. */
  readonly dispatchMs: number;
  /** It waited while what it waited for was on its way. */
  readonly communicationMs: number;
  /** It waited for what was not there yet, or had nothing to do until the last action's end. */
  readonly bubbleMs: number;
  /** It closed the step, or waited for that after the last action of all workers. */
  readonly closingMs: number;
}

/** A part of the closing of a step, for one copy of a stage. */
export interface ClosingSpan {
  /**
   * `check`, `launch`, `add` and `optimizer` keep the worker busy; `reduce` is a chunk on its way.
   */
  readonly what: "check" | "launch" | "add" | "optimizer" | "reduce";
  /** The stage. */
  readonly stage: number;
  /** The chunk or bucket. */
  readonly part: number;
  /** When it began. */
  readonly startMs: number;
  /** When it ended. */
  readonly endMs: number;
}
