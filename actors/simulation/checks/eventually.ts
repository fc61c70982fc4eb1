/**
 * What must come true in the end, and not only stay true: checks of liveness.
 *
 * @module
 */

import { named } from "../failure.ts";
import type { Check, View } from "../view.ts";

/** When something has to come true, and by when. */
export interface EventuallyOptions {
  /** It has to come true after each moment at which this holds, the same moment included. Default:
   * once, from now on. */
  readonly when?: (view: View) => boolean;
  /** Virtual milliseconds that it may take. Default: until the end of the run. */
  readonly withinMs?: number;
  /** Steps that it may take. Default: until the end of the run. */
  readonly withinSteps?: number;
}

interface Duty extends EventuallyOptions {
  readonly name: string;
  readonly check: Check;
  /** Since when it has to come true. */
  since?: { readonly ms: number; readonly steps: number } | undefined;
}

/** What has to come true in a run. */
export class Duties {
  #duties: Duty[] = [];

  /** Adds a duty. */
  add(name: string, check: Check, options: EventuallyOptions, view: View): void {
    const since = options.when ? undefined : { ms: view.now, steps: view.steps };
    this.#duties.push({ ...options, name, check, since });
  }

  /**
   * Looks what has come true, and returns what is overdue. To be called after each change.
   *
   * @param isEnd nothing happens any more, so that what has not come true is overdue.
   */
  look(view: View, isEnd = false): Error | undefined {
    if (this.#duties.length === 0) return undefined;
    for (const duty of this.#duties) {
      const { name, when, withinMs = Infinity, withinSteps = Infinity } = duty;
      if (!duty.since && when?.(view)) duty.since = { ms: view.now, steps: view.steps };
      if (!duty.since) continue;
      const ms = view.now - duty.since.ms, steps = view.steps - duty.since.steps;
      const missing = problemOf(duty.check, view);
      if (missing === undefined) duty.since = undefined;
      // What comes true at a moment that is too late does not count.
      const isLate = ms > withinMs || steps > withinSteps;
      if (!isLate && (!isEnd || missing === undefined)) continue;
      const what = missing ?? "it came true";
      return named(name, `${what} ${ms} ms and ${steps} steps after it became due`);
    }
    this.#duties = this.#duties.filter(({ when, since }) => when || since);
    return undefined;
  }
}

/** What a check says is wrong, as a text or by throwing. */
export function problemOf(check: Check, view: View): string | undefined {
  try {
    return check(view) || undefined;
  } catch (error) {
    return error instanceof Error ? error.message || error.name : `${error}`;
  }
}
