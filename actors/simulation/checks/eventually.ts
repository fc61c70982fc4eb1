/**
 * What must come true in the end, and not only stay true: checks of liveness.
 *
 * @module
 */

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

/** A duty that was not met. */
export interface Unmet {
  readonly name: string;
  readonly message: string;
}

/** What has to come true in a run. */
export class Duties {
  #duties: Duty[] = [];

  /** Adds a duty. */
  add(name: string, check: Check, options: EventuallyOptions, view: View): void {
    const since = options.when ? undefined : { ms: view.now, steps: view.steps };
    this.#duties.push({ ...options, name, check, since });
  }

  /** Looks what has come true, and returns what is overdue. To be called after each change. */
  look(view: View): Unmet | undefined {
    if (this.#duties.length === 0) return undefined;
    for (const duty of this.#duties) {
      const { name, when, withinMs = Infinity, withinSteps = Infinity } = duty;
      if (!duty.since && when?.(view)) duty.since = { ms: view.now, steps: view.steps };
      if (!duty.since) continue;
      const ms = view.now - duty.since.ms, steps = view.steps - duty.since.steps;
      const missing = missingOf(duty, view);
      if (missing === undefined) duty.since = undefined;
      // What comes true at a moment that is too late does not count.
      if (ms > withinMs || steps > withinSteps) {
        return unmet(name, missing ?? "it came true", ms, steps);
      }
    }
    this.#duties = this.#duties.filter(({ when, since }) => when || since);
    return undefined;
  }

  /** Returns what has not come true, now that nothing happens any more. */
  end(view: View): Unmet | undefined {
    const overdue = this.look(view);
    if (overdue) return overdue;
    for (const duty of this.#duties) {
      if (!duty.since) continue;
      const ms = view.now - duty.since.ms, steps = view.steps - duty.since.steps;
      return unmet(duty.name, missingOf(duty, view) ?? "", ms, steps);
    }
  }
}

function missingOf({ check }: Duty, view: View): string | undefined {
  try {
    return check(view) || undefined;
  } catch (error) {
    return error instanceof Error ? error.message : `${error}`;
  }
}

function unmet(name: string, missing: string, ms: number, steps: number): Unmet {
  return { name, message: `${missing} ${ms} ms and ${steps} steps after it became due` };
}
