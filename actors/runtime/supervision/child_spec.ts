/**
 * What a supervisor is told: its children, and how they are begun again.
 *
 * @module
 */

import type { Placement } from "../context_api.ts";
import type { ActorRef, AnySpec, Message } from "../types.ts";
import type { RestartLimits } from "./restarts.ts";

/**
 * Who is begun again when a child ends. `one-for-one`: that child. `one-for-all`: all children.
 * `rest-for-one`: that child and those after it, which may depend on it. Others that have to are
 * stopped first, the last one first.
 */
export type RestartStrategy = "one-for-one" | "one-for-all" | "rest-for-one";

/** A child of a supervisor; see {@linkcode childSpec}. */
export interface ChildSpec extends Placement {
  /** Its id, the same after each restart. */
  readonly id: string;
  /** How it is made. */
  readonly spec: AnySpec;
  /** What it is made with. */
  readonly init: unknown;
  /**
   * Names that `init` gets besides, and the earlier children whose references they are: after each
   * restart the ones of that moment.
   */
  readonly needs?: Readonly<Record<string, string>>;
  /**
   * `permanent` (default): it is begun again whenever it ends. `transient`: only when it fails.
   * `temporary`: never, not even with others.
   */
  readonly restart?: "permanent" | "transient" | "temporary";
}

/** What a supervisor is made with. */
export interface Supervision extends Partial<RestartLimits> {
  /** Default `one-for-one`. */
  readonly strategy?: RestartStrategy;
  /** Most restarts within the period, all children together; one more, and the supervisor fails.
   * Default 1. */
  readonly intensity?: number;
  /** Milliseconds. Default 5,000. */
  readonly periodMs?: number;
  /** In the order in which they are begun. */
  readonly children: readonly ChildSpec[];
}

/**
 * A child of a supervisor, its `init` checked against what its factory is given.
 *
 * @typeParam I what the factory is given, but for what the child needs of others.
 */
export function childSpec<
  I,
  M extends Message,
  N extends Readonly<Record<string, string>> = Record<never, string>,
>(
  child:
    & Omit<ChildSpec, "spec" | "init" | "needs">
    & {
      readonly spec: AnySpec<I, M>;
      readonly init: [keyof N] extends [never] ? NoInfer<I> : Omit<NoInfer<I>, keyof N>;
      readonly needs?: N;
    },
): ChildSpec {
  return child as ChildSpec;
}

const STRATEGIES: readonly string[] = ["one-for-one", "one-for-all", "rest-for-one"];
const RESTARTS: readonly string[] = ["permanent", "transient", "temporary"];

/**
 * Checks what a supervisor is made with.
 *
 * @throws {RangeError} when something is out of its bounds.
 * @throws {TypeError} when something is of another kind than it must be.
 */
export function checkSupervision(supervision: Supervision): void {
  const { strategy = "one-for-one", intensity = 1, periodMs = 5000, backOff } = supervision;
  if (!STRATEGIES.includes(strategy)) throw outOf("strategy", STRATEGIES.join(", "), strategy);
  if (!Number.isSafeInteger(intensity) || intensity < 0) {
    throw outOf("intensity", "an integer of 0 or more", intensity);
  }
  const { firstMs = 0, maxMs = 0 } = backOff ?? {};
  for (const [name, value] of Object.entries({ periodMs, firstMs, maxMs })) {
    if (!(Number.isFinite(value) && value >= 0)) throw outOf(name, "a number of 0 or more", value);
  }
  if (!Array.isArray(supervision.children)) {
    throw new TypeError(
      `Cannot supervise: children must be an array, received ${typeof supervision.children}`,
    );
  }
  const ids: string[] = [];
  for (const child of supervision.children) {
    checkChild(child, ids);
    ids.push(child.id);
  }
}

/** Checks a child that comes after those with these ids. */
export function checkChild(
  { id, restart, needs = {} }: ChildSpec,
  before: readonly string[],
): void {
  if (before.includes(id)) throw outOf("the id of a child", "one that none has yet", id);
  if (restart !== undefined && !RESTARTS.includes(restart)) {
    throw outOf(`restart of "${id}"`, RESTARTS.join(", "), restart);
  }
  for (const [name, needed] of Object.entries(needs)) {
    if (before.includes(needed)) continue;
    throw outOf(`${name} in needs of "${id}"`, "the id of a child before it", needed);
  }
}

function outOf(what: string, wanted: string, received: unknown): RangeError {
  return new RangeError(`Cannot supervise: ${what} must be ${wanted}, received ${received}`);
}

/** How a child fares. */
export interface ChildState {
  /** See {@linkcode ChildSpec}. */
  readonly id: string;
  /**
   * `up`: it lives. `stopping`: it is being stopped. `waiting`: it is about to be begun again.
   * `ended`: it has ended for good.
   */
  readonly state: "up" | "stopping" | "waiting" | "ended";
  /** Its reference while it is up. */
  readonly ref?: ActorRef;
  /** How often it was begun again. */
  readonly restarts: number;
}
