/**
 * The checks of a simulated run, and its first failure.
 *
 * @module
 */

import { named } from "./faults.ts";
import {
  type Check,
  type EventuallyOptions,
  failureOf,
  type SimulationFailure,
  type View,
} from "./run.ts";

interface NamedCheck {
  readonly name: string;
  readonly check: Check;
}

/** A condition that must become true. */
interface Liveness extends NamedCheck, EventuallyOptions {
  /** When it became due; undefined while it is not due. */
  since?: { readonly ms: number; readonly steps: number } | undefined;
}

/** The checks of a run, until it is over. */
export class RunChecks {
  /** The failure of the run. */
  failure: SimulationFailure | undefined;
  /** True after a failure or {@linkcode prune}: later results do not count. */
  isOver = false;
  /** True if the run was cut short because its rest is known. */
  isPruned = false;
  /** An error of a strategy, a check or the simulation itself. */
  broken: { readonly error: unknown } | undefined;
  /** The waiting actors when time last passed. */
  waits: readonly string[] = [];
  /** Checked after each step. */
  readonly invariants: NamedCheck[] = [];
  /** Checked at the end. */
  readonly endings: NamedCheck[] = [];
  /** Resolves when the run is over. */
  readonly over: Promise<void>;
  readonly #end: () => void;
  /** Checked until they become true. */
  #liveness: Liveness[] = [];

  /** @param view the view that checks receive. */
  constructor(private readonly view: View) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.over = promise;
    this.#end = () => {
      this.isOver = true;
      resolve();
    };
  }

  /** Adds a condition that must become true. */
  eventually(name: string, check: Check, options: EventuallyOptions): void {
    this.#liveness.push({ ...options, name, check, since: options.when ? undefined : this.#now() });
  }

  /** Checks the invariants, and the time limits of other conditions. */
  afterStep(): void {
    this.#checkAll(this.invariants);
    this.afterTime();
  }

  /** Checks the time limits of conditions that must become true. */
  afterTime(): void {
    this.#checkLiveness(false);
  }

  /** Runs the last checks, after the scenario has ended and no actor can continue. */
  afterAll(): void {
    this.#checkAll(this.endings);
    this.#checkLiveness(true);
  }

  /** Ends the run with a failure. */
  fail(kind: SimulationFailure["kind"], error: unknown, waits: readonly string[] = []): void {
    if (this.isOver) return;
    const failure = failureOf(kind, error, this.view.steps, waits);
    // For a timeout, the actors that were waiting before it are the useful ones.
    const isTimeout = failure.name === "AskTimeoutError";
    this.failure = isTimeout ? { ...failure, waits: this.waits } : failure;
    this.#end();
  }

  /** Ends the run because its rest is known. */
  prune(): void {
    this.isPruned = true;
    this.#end();
  }

  /** Ends the run by an error that is not a failure of the actors. */
  break(error: unknown): void {
    this.broken = { error };
    this.#end();
  }

  #now() {
    return { ms: this.view.now, steps: this.view.steps };
  }

  #checkAll(checks: readonly NamedCheck[]): void {
    for (const { name, check } of checks) {
      const problem = this.#problemOf(check);
      if (problem) this.fail("invariant", named(name, problem));
    }
  }

  /** @param isEnd true if nothing happens any more, so that every open condition is overdue. */
  #checkLiveness(isEnd: boolean): void {
    for (const one of this.#liveness) {
      const { name, when, withinMs = Infinity, withinSteps = Infinity } = one;
      if (!one.since && when?.(this.view)) one.since = this.#now();
      if (!one.since) continue;
      const ms = this.view.now - one.since.ms, steps = this.view.steps - one.since.steps;
      const missing = this.#problemOf(one.check);
      if (missing === undefined) one.since = undefined;
      // A condition that becomes true after its limit has failed.
      const isLate = ms > withinMs || steps > withinSteps;
      if (!isLate && (!isEnd || missing === undefined)) continue;
      const what = missing ?? "it came true";
      const message = `${what} ${ms} ms and ${steps} steps after it became due`;
      return this.fail("liveness", named(name, message));
    }
    this.#liveness = this.#liveness.filter(({ when, since }) => when || since);
  }

  /** Returns the problem that a check returns or throws. */
  #problemOf(check: Check): string | undefined {
    try {
      return check(this.view) || undefined;
    } catch (error) {
      return error instanceof Error ? error.message || error.name : `${error}`;
    }
  }
}
