/**
 * Limits restarts: a number of them within a period, with growing delays.
 *
 * [Note: the window] A long run meets many unrelated failures, so old ones are forgotten, but only
 * after some progress: work that takes an hour and always fails at its end must not be retried
 * forever.
 *
 * @module
 */

/** Limits of {@linkcode countRestarts}. */
interface RestartLimits {
  /** Most restarts within the period. */
  readonly intensity: number;
  /** The period in milliseconds. */
  readonly periodMs: number;
  /** Delay of the second restart, in milliseconds. The first has no delay; each further one has
   * twice the delay of the one before. */
  readonly firstMs: number;
  /** Longest delay, in milliseconds. */
  readonly maxMs: number;
}

/** A counter of failures. */
export interface Restarts {
  /**
   * Counts a failure.
   *
   * @param at the time in milliseconds.
   * @returns the delay of the restart, in milliseconds; undefined after too many failures.
   */
  failed(at: number): number | undefined;
  /** Notes progress: failures until now are forgotten after the period. */
  gotOn(): void;
}

/** Creates a counter of failures. */
export function countRestarts({ intensity, periodMs, firstMs, maxMs }: RestartLimits): Restarts {
  let failures: readonly { readonly at: number; readonly progress: number }[] = [], progress = 0;
  return {
    failed(at) {
      const recent = failures.filter((failure) =>
        at - failure.at < periodMs || failure.progress === progress
      );
      failures = [...recent, { at, progress }];
      if (recent.length >= intensity) return undefined;
      return recent.length === 0 ? 0 : Math.min(maxMs, firstMs * 2 ** (recent.length - 1));
    },
    gotOn: () => void progress++,
  };
}
