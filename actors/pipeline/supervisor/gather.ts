/**
 * What several workers send once each, in the order of the workers.
 *
 * An actor that asked them would wait for all of their answers before it heard anything else, such
 * as that one of them does not move.
 *
 * @module
 */

/** Takes the part of a worker. */
export type Take<T> = (worker: number, part: T) => void;

/**
 * Gathers parts.
 *
 * @param workers who sends one.
 * @param done gets the parts when all are there.
 */
export function gather<T>(
  workers: readonly number[],
  done: (parts: T[]) => void,
): Take<T> {
  const parts = new Map<number, T>();
  return (worker, part) => {
    parts.set(worker, part);
    if (parts.size === workers.length) done(workers.map((one) => parts.get(one)!));
  };
}
