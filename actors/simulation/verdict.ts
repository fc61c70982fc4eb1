/**
 * What must hold in a run, and the first thing that did not.
 *
 * @module
 */

import {
  type Check,
  Duties,
  failureOf,
  problemOf,
  type SimulationFailure,
  type View,
} from "./run.ts";
import { named } from "./faults.ts";

interface NamedCheck {
  readonly name: string;
  readonly check: Check;
}

/** Judges a run, until it is over. */
export class Verdict {
  /** How the run failed. */
  failure: SimulationFailure | undefined;
  /** The run has failed or was cut short; what comes after that says nothing more. */
  isOver = false;
  /** The run was cut short, as its rest is known. */
  isPruned = false;
  /** An error of a strategy, a check or the machine itself: not of the run. */
  broken: { readonly error: unknown } | undefined;
  /** Who waited for whom before time last passed. */
  waits: readonly string[] = [];
  /** Checked after each step. */
  readonly invariants: NamedCheck[] = [];
  /** Checked at the end. */
  readonly endings: NamedCheck[] = [];
  /** Checked until they come true. */
  readonly duties = new Duties();
  /** Resolved when the run is over. */
  readonly over: Promise<void>;
  readonly #end: () => void;

  /** @param view what the checks see. */
  constructor(private readonly view: View) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.over = promise;
    this.#end = () => {
      this.isOver = true;
      resolve();
    };
  }

  /** A step is over. */
  afterStep(): void {
    this.#check(this.invariants);
    this.afterTime();
  }

  /** Time has passed. */
  afterTime(): void {
    this.#judge(this.duties.look(this.view));
  }

  /** The scenario is over, and nobody can do anything. */
  afterAll(): void {
    this.#check(this.endings);
    this.#judge(this.duties.look(this.view, true));
  }

  /** The run has failed. */
  fail(kind: SimulationFailure["kind"], error: unknown, waits: readonly string[] = []): void {
    if (this.isOver) return;
    const failure = failureOf(kind, error, this.view.steps, waits);
    // When a question times out, who waited for whom is what one wants to know.
    const isTimeout = failure.name === "AskTimeoutError";
    this.failure = isTimeout ? { ...failure, waits: this.waits } : failure;
    this.#end();
  }

  /** The run need not go on, as its rest is known. */
  prune(): void {
    this.isPruned = true;
    this.#end();
  }

  /** The run cannot go on, which says nothing of the actors. */
  break(error: unknown): void {
    this.broken = { error };
    this.#end();
  }

  #check(checks: readonly NamedCheck[]): void {
    for (const { name, check } of checks) {
      const problem = problemOf(check, this.view);
      if (problem) this.fail("invariant", named(name, problem));
    }
  }

  /** Something that had to come true has not. */
  #judge(unmet: Error | undefined): void {
    if (unmet) this.fail("liveness", unmet);
  }
}
