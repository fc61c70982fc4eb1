/**
 * What all ranks of a job are refused alike.
 *
 * @module
 */

/** Every rank throws it, so one says it. */
export class JobRefusal extends RangeError {
  override readonly name = "JobRefusal";
}
