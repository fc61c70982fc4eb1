/**
 * What a run measures, as one flat record a step: for files, charts and trackers.
 *
 * @module
 */

/** What was measured in a step that was taken or skipped, or in an evaluation after it. */
export interface Metrics {
  /** A step was taken; it was skipped, as gradients overflowed; held-out data was evaluated. */
  readonly type: "step" | "skip" | "evaluation";
  /** The step, from 1; 0 for an evaluation before the first. */
  readonly step: number;
  /** When, in milliseconds since the epoch. */
  readonly time: number;
  /** Seconds since this program began the run, or went on with it. */
  readonly seconds: number;
  /** Mean loss of the step's micro-batches, in nats a prediction. */
  readonly loss?: number;
  /** Norm of all gradients, before clipping. */
  readonly gradNorm?: number;
  /** The learning rate of the step. */
  readonly learningRate?: number;
  /** Factor of the loss in the step. */
  readonly lossScale?: number;
  /** Predictions (tokens, or samples) learnt from since step 1. */
  readonly tokens: number;
  /** Predictions of the step, a second. */
  readonly tokensPerSecond?: number;
  /** Mean loss of the held-out micro-batches. */
  readonly evalLoss?: number;
  /** e to the power of it. */
  readonly perplexity?: number;
  /** Bytes that each worker holds, on device and host, where they are counted. */
  readonly memory?: readonly number[];
  /** Resident memory of this program in bytes; processes that it has started are not in it. */
  readonly rss: number;
}
