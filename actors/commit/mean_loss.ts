/**
 * The loss of a step.
 *
 * @module
 */

/**
 * The loss of a step or an evaluation: the samples' losses added in f64 in the order of the
 * micro-batches, divided by the number of predictions of all of them.
 */
export function meanLoss(losses: readonly Float32Array[], predictions: number): number {
  let sum = 0;
  for (const samples of losses) for (const loss of samples) sum += loss;
  return sum / predictions;
}
