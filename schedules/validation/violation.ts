/** The violation: one thing that is wrong with a schedule. */

/** What can be wrong with a schedule. */
export type ViolationReason =
  | "unknown" // a stage or micro-batch that the schedule does not have
  | "misplaced" // an action on a worker that does not hold the stage
  | "repeated" // an action that has been done before
  | "missing" // an action that nobody does
  | "order" // a backward before its forward, or a W before its I, on one worker
  | "descending" // micro-batches out of order in the sum of a stage's gradients
  | "in-flight" // more activations on a worker than allowed
  | "deadlock"; // a circle of workers that wait for each other

/** One thing that is wrong with a schedule. */
export interface Violation {
  /** What kind of wrong it is. */
  readonly reason: ViolationReason;
  /** The worker on whose list it is. */
  readonly worker: number;
  /** What is wrong, for a person. */
  readonly message: string;
}
