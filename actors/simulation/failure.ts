/**
 * How a simulated run fails, as data.
 *
 * @module
 */

import { ActorFailedError } from "../runtime/failure.ts";

/** What went wrong in a run. */
export interface SimulationFailure {
  /**
   * `actor`: an actor failed and nobody watched it. `invariant`: an invariant did not hold.
   * `determinism`: an actor used a clock or chance of its own. `diverged`: two runs of one schedule
   * differed. `liveness`: something did not come true in time. `deadlock`: nobody can do anything and somebody waits. `livelock`: no end after
   * {@linkcode SimulateOptions.maxSteps}. `scenario`: the scenario itself threw. `replay`: the run
   * is not the one that was recorded.
   */
  readonly kind:
    | "actor"
    | "invariant"
    | "determinism"
    | "diverged"
    | "liveness"
    | "deadlock"
    | "livelock"
    | "scenario"
    | "replay";
  /** Name of the error or of the invariant. */
  readonly name: string;
  /** What happened. */
  readonly message: string;
  /** Steps before. */
  readonly step: number;
  /** Who waits for whom, when somebody does. */
  readonly waits: readonly string[];
}

/**
 * The class of a failure: two of one class are the same bug, as far as a machine can tell. Invariants
 * are told apart by their names, deadlocks by who waits for whom, and what was thrown by its first
 * line, numbers in it aside.
 *
 * @example
 * ```ts
 * import { classOf } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const failure = { kind: "invariant", name: "stash", message: "", step: 3, waits: [] } as const;
 * assert.equal(classOf(failure), "invariant: stash");
 * ```
 */
export function classOf({ kind, name, message, waits }: SimulationFailure): string {
  const head = `${kind}: ${name}`;
  if (kind === "deadlock") return [head, ...waits.map(withoutQueue).sort()].join("\n  ");
  if (kind !== "actor" && kind !== "scenario") return head;
  return `${head}: ${withoutNumbers(message.split("\n", 1)[0]!)}`;
}

/**
 * The class of a failure whatever the size of what fails: in a smaller configuration the same bug
 * may show in fewer actors, and in others of their kind.
 */
export function looseClassOf(failure: SimulationFailure): string {
  return [...new Set(classOf(failure).split("\n  ").map(withoutNumbers))].join("\n  ");
}

/** Who waits for whom, however many messages wait there. */
function withoutQueue(wait: string): string {
  const end = wait.lastIndexOf("; ");
  return end < 0 ? wait : wait.slice(0, end);
}

/** Numbers and hashes differ from order to order. */
function withoutNumbers(text: string): string {
  return text.replace(/[0-9a-f]{8,}|\d+(\.\d+)?(e[+-]?\d+)?/g, "#");
}

/** The failure that stands for an error. */
export function failureOf(
  kind: SimulationFailure["kind"],
  thrown: unknown,
  step: number,
  waits: readonly string[] = [],
): SimulationFailure {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown));
  const { name } = error instanceof ActorFailedError ? error.failure.error : error;
  return { kind, name, message: error.message, step, waits };
}

/** An error of such a name. */
export function named(name: string, message: string): Error {
  const error = new Error(message);
  error.name = name;
  return error;
}

/**
 * A simulated run failed; thrown by {@linkcode simulationTest} and {@linkcode checkScenario}.
 *
 * @example
 * ```ts
 * import { checkScenario, SimulationError } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const error = await checkScenario("never", {}, ({ atEnd }) => {
 *   atEnd("something happened", ({ steps }) => steps === 0 ? "nothing did" : undefined);
 * }).catch((error) => error);
 * assert.ok(error instanceof SimulationError);
 * assert.equal(error.failure.name, "something happened");
 * ```
 */
export class SimulationError extends Error {
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "SimulationError";
  /**
   * Carries the failure.
   *
   * @param failure what went wrong.
   * @param message all that a reader needs to see it again.
   */
  constructor(readonly failure: SimulationFailure, message: string) {
    super(message);
  }
}
