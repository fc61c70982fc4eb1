/**
 * Which buffer holds which version of a stage's weights.
 *
 * [Note: weight stashing] PipeDream (Narayanan et al. 2019, section 3.3) runs the backward of a
 * micro-batch with the weights of its forward, which are no longer the newest by then. An update
 * reads the newest weights and writes the next ones to a buffer that nobody in flight uses, so
 * nothing is ever copied.
 *
 * @module
 */

/** The versions of a stage's weights. */
export interface WeightVersions {
  /** The buffer of the newest weights. */
  readonly newest: number;
  /**
   * The buffer of the weights as they were so many updates ago.
   *
   * @throws {RangeError} when they are not kept.
   */
  at(age: number): number;
  /**
   * Makes a buffer that is not in use that of the newest weights: the newest of before where it is
   * the only one.
   *
   * @throws {RangeError} when all are in use.
   */
  advance(inUse: ReadonlySet<number>): number;
}

/** Opens `count` versions, of which only the first has been written. */
export function openWeightVersions(count: number): WeightVersions {
  /** Written buffers, the newest first. */
  let written = [0];
  const buffers = Array.from({ length: count }, (_, i) => i);
  return {
    get newest() {
      return written[0]!;
    },
    at(age) {
      const buffer = written[age];
      if (buffer !== undefined) return buffer;
      throw new RangeError(
        `Cannot use old weights: they must be at most ${
          written.length - 1
        } updates old, received ${age}`,
      );
    },
    advance(inUse) {
      if (count === 1) return 0;
      // The newest stays, to be the version before the next; else the oldest goes first.
      const oldestFirst = [
        ...buffers.filter((one) => !written.includes(one)),
        ...written.toReversed(),
      ];
      const free = oldestFirst.find((one) => one !== written[0] && !inUse.has(one));
      if (free === undefined) {
        throw new RangeError(
          `Cannot update weights: one of ${count} versions must be free, received all in use`,
        );
      }
      written = [free, ...written.filter((one) => one !== free)];
      return free;
    },
  };
}
