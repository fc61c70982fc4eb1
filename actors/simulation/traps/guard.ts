/**
 * Who may use what makes a run differ from the next: everybody but the actor at work.
 *
 * @module
 */

import type { Trapped } from "./trapped.ts";

/**
 * An actor has used what makes a run differ from the next.
 *
 * @example
 * ```ts
 * import { DeterminismError } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const error = new DeterminismError("stage-1", "Date.now", "use ctx.now()");
 * assert.equal(
 *   error.message,
 *   'Cannot call Date.now: actor "stage-1" must do the same in every run; use ctx.now()',
 * );
 * ```
 */
export class DeterminismError extends Error {
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "DeterminismError";
  /**
   * Names the actor, the token and the way out.
   *
   * @param actor id of the actor.
   * @param token what it used, as it is written: `Date.now`.
   * @param instead what it should do.
   */
  constructor(readonly actor: string, readonly token: string, instead: string) {
    super(`Cannot call ${token}: actor "${actor}" must do the same in every run; ${instead}`);
  }
}

/** Who is guarded, and from what. */
const guarded = {
  /** Id of the actor at work. */
  actor: undefined as string | undefined,
  /** Exempt calls under way. */
  exemptions: 0,
  /** URLs, or parts of them, of modules that may do everything. */
  trusted: [] as readonly string[],
  report: (_error: DeterminismError): void => {},
};

/**
 * A simulation begins: nobody is at work, and nobody exempt.
 *
 * @param trusted URLs, or parts of URLs, of modules that may do everything.
 * @param report told of every violation, as an actor may catch the error.
 */
export function beginGuard(
  trusted: readonly string[],
  report: (error: DeterminismError) => void,
): void {
  Object.assign(guarded, { trusted, report, exemptions: 0 });
}

/** Says who is at work, or that nobody is. */
export function setActorAtWork(id: string | undefined): void {
  guarded.actor = id;
}

/** Whether an actor is at work; if not, it is the scenario's own code. */
export function isActorAtWork(): boolean {
  return guarded.actor !== undefined;
}

/**
 * Lets a function do what actors must not: it is part of the machine, not of the actor. A device
 * may look at the clock. When it returns a promise, the exemption lasts until that settles.
 *
 * @param call what to do.
 * @returns what it returns.
 *
 * @example
 * ```ts
 * import { exempt } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * assert.equal(typeof exempt(() => performance.now()), "number");
 * ```
 */
export function exempt<T>(call: () => T): T {
  const end = () => void (guarded.exemptions = Math.max(0, guarded.exemptions - 1));
  guarded.exemptions++;
  let result: T | undefined;
  try {
    result = call();
    return result instanceof Promise ? result.finally(end) as T : result;
  } finally {
    if (!(result instanceof Promise)) end();
  }
}

/** Deepest stack that is searched for trusted modules. */
const MAX_FRAMES = 200;

/** Whether a module that is trusted is among those who called. */
function isTrusted(): boolean {
  const { trusted } = guarded;
  if (trusted.length === 0) return false;
  const before = Error.stackTraceLimit;
  Error.stackTraceLimit = MAX_FRAMES;
  const stack = new Error().stack ?? "";
  Error.stackTraceLimit = before;
  return trusted.some((url) => stack.includes(url));
}

/**
 * Somebody uses what is trapped.
 *
 * @throws {DeterminismError} when it is an actor, and nobody has exempted it.
 */
export function guard({ token, instead }: Trapped): void {
  const { actor, exemptions, report } = guarded;
  if (actor === undefined || exemptions > 0 || isTrusted()) return;
  const error = new DeterminismError(actor, token, instead);
  report(error);
  throw error;
}
