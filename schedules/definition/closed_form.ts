/** Closed forms: what theory says of a schedule, to hold its execution against. */

/** The durations that closed forms speak of: the same for every 1/P of the model, no messages. */
export interface UniformCosts {
  /** A forward, tF. */
  readonly forward: number;
  /** A full backward, tB = tI + tW. */
  readonly backward: number;
  /** The backward for the input, tI. */
  readonly input: number;
  /** The backward for the weights, tW. */
  readonly weight: number;
  /** A forward and a full backward that overlap, tF&B. */
  readonly overlap: number;
}

/**
 * What holds for the workers of a schedule, in the order of the workers or as one number for all.
 * A field is there only where its assumptions hold: the exact ones say what the execution gives,
 * the others bound it.
 */
export interface ClosedForm {
  /** Idle time, the flush included. */
  readonly idle?: number;
  /** Idle time between a worker's first and last action. */
  readonly idleLocal?: number;
  /** Peak activations, in micro-batches of 1/P of the model. */
  readonly peakActivations?: readonly number[];
  /** Weights, in 1/P of the model. */
  readonly weights: readonly number[];
  /** No worker is idle for less. */
  readonly idleAtLeast?: number;
  /** No worker is idle for more. */
  readonly idleAtMost?: number;
  /** No worker is idle for more between its first and last action. */
  readonly idleLocalAtMost?: number;
  /** No worker holds more activations. */
  readonly peakAtMost?: number;
}

/** One number for each of `count` workers. */
export function perWorker(count: number, value: (worker: number) => number): number[] {
  return Array.from({ length: count }, (_, worker) => value(worker));
}
