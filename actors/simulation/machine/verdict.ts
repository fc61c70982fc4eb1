/**
 * What must hold in a run, and the first thing that did not.
 *
 * @module
 */

import { Duties, type EventuallyOptions, type Unmet } from "../checks/eventually.ts";
import { failureOf, type SimulationFailure } from "../failure.ts";
import type { Check, View } from "../view.ts";

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
  readonly #view: View;
  readonly #invariants: NamedCheck[] = [];
  readonly #endings: NamedCheck[] = [];
  readonly #duties = new Duties();
  readonly #over = Promise.withResolvers<void>();

  /** @param view what the checks see. */
  constructor(view: View) {
    this.#view = view;
  }

  /** Resolved when the run is over. */
  get over(): Promise<void> {
    return this.#over.promise;
  }

  /** Has something checked after each step. */
  always(name: string, check: Check): void {
    this.#invariants.push({ name, check });
  }

  /** Has something checked that must come true. */
  eventually(name: string, check: Check, options: EventuallyOptions): void {
    this.#duties.add(name, check, options, this.#view);
  }

  /** Has something checked at the end. */
  atEnd(name: string, check: Check): void {
    this.#endings.push({ name, check });
  }

  /** A step is over. */
  afterStep(): void {
    this.#check(this.#invariants);
    this.afterTime();
  }

  /** Time has passed. */
  afterTime(): void {
    this.#judge(this.#duties.look(this.#view));
  }

  /** The scenario is over, and nobody can do anything. */
  afterAll(): void {
    this.#check(this.#endings);
    this.#judge(this.#duties.end(this.#view));
  }

  /** The run has failed. */
  fail(kind: SimulationFailure["kind"], error: unknown, waits: readonly string[] = []): void {
    if (this.isOver) return;
    const failure = failureOf(kind, error, this.#view.steps, waits);
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
      try {
        const problem = check(this.#view);
        if (problem) this.fail("invariant", named(name, problem));
      } catch (error) {
        this.fail("invariant", named(name, error instanceof Error ? error.message : `${error}`));
      }
    }
  }

  /** Something that had to come true has not. */
  #judge(unmet: Unmet | undefined): void {
    if (unmet) this.fail("liveness", named(unmet.name, unmet.message));
  }

  #end(): void {
    this.isOver = true;
    this.#over.resolve();
  }
}

/** An error of such a name. */
export function named(name: string, message: string): Error {
  const error = new Error(message);
  error.name = name;
  return error;
}
