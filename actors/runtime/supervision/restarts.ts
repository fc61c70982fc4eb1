/**
 * How often something that fails is begun again: so many times within a period, and later each
 * time.
 *
 * [Note: the window] What runs for long meets many failures that have nothing to do with each
 * other, so old ones are forgotten, but only once it has got on since: what takes an hour and
 * always fails at its end must not be tried for ever.
 *
 * @module
 */

/** How long to wait before something is begun again. */
export interface BackOff {
  /** The first restart comes at once, the second after so many milliseconds, each further one
   * after twice as many. */
  readonly firstMs: number;
  /** Milliseconds that are never exceeded. */
  readonly maxMs: number;
}

/** How often something may be begun again: OTP's words. */
export interface RestartLimits {
  /** Most restarts within the period. */
  readonly intensity: number;
  /** The period in milliseconds. */
  readonly periodMs: number;
  /** Default: every restart comes at once. */
  readonly backOff?: BackOff | undefined;
}

/** Counts failures. */
export interface Restarts {
  /**
   * Counts one.
   *
   * @param at the time in milliseconds.
   * @returns how long to wait before the restart, in milliseconds; undefined when there have been
   * enough.
   */
  failed(at: number): number | undefined;
  /** What fails has got on: failures until now are forgotten once they are older than the period. */
  gotOn(): void;
}

/** Opens a count. */
export function countRestarts({ intensity, periodMs, backOff }: RestartLimits): Restarts {
  let failures: readonly { readonly at: number; readonly progress: number }[] = [], progress = 0;
  return {
    failed(at) {
      const recent = failures.filter((failure) =>
        at - failure.at < periodMs || failure.progress === progress
      );
      failures = [...recent, { at, progress }];
      return recent.length < intensity ? waitAfter(recent.length, backOff) : undefined;
    },
    gotOn() {
      progress++;
    },
  };
}

function waitAfter(failures: number, backOff: BackOff | undefined): number {
  if (failures === 0 || !backOff) return 0;
  return Math.min(backOff.maxMs, backOff.firstMs * 2 ** (failures - 1));
}
