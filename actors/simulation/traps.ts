/**
 * Traps: while a simulation runs, what is not a function of an actor's state and messages throws.
 *
 * [Note: traps] They sit on the global objects and look whether an actor is at work: the code of
 * the test, the runtime and what is {@linkcode exempt} go through to the real thing. An actor that
 * took a copy of a function before (`const { now } = Date`) gets past them; the lint plugin sees
 * that.
 *
 * @module
 */

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
  /** Id of the actor. */
  readonly actor: string;
  /** What it used, as it is written: `Date.now`. */
  readonly token: string;

  /**
   * Names the actor, the token and the way out.
   *
   * @param actor id of the actor.
   * @param token what it used.
   * @param instead what it should do.
   */
  constructor(actor: string, token: string, instead: string) {
    super(`Cannot call ${token}: actor "${actor}" must do the same in every run; ${instead}`);
    this.actor = actor;
    this.token = token;
  }
}

/** A global that is trapped: where it is, and what to use instead. */
export interface Trapped {
  /** As it is written in a program: `Date.now`. */
  readonly token: string;
  /** What an actor should do. */
  readonly instead: string;
  /** `call`: a function. `new`: a class. `date`: a class that is harmless with arguments. */
  readonly kind: "call" | "new" | "date";
}

const CLOCK = "use ctx.now()";
const CHANCE = "use ctx.random(label)";
const TIMER = "use ctx.after()";
const OUTSIDE = "let what is outside send it messages";
const COLLECTOR = "nobody knows when garbage is collected";

function all(kind: Trapped["kind"], instead: string, tokens: string): Trapped[] {
  return tokens.split(" ").map((token) => ({ token, instead, kind }));
}

/** All that is trapped. The lint plugin reports the same. */
export const TRAPPED: readonly Trapped[] = [
  ...all("date", CLOCK, "Date"),
  ...all("call", CLOCK, "Date.now performance.now"),
  ...all("call", CLOCK, "Temporal.Now.instant Temporal.Now.plainDateISO Temporal.Now.timeZoneId"),
  ...all("call", CLOCK, "Temporal.Now.plainDateTimeISO Temporal.Now.plainTimeISO"),
  ...all("call", CLOCK, "Temporal.Now.zonedDateTimeISO"),
  ...all("call", CHANCE, "Math.random crypto.getRandomValues crypto.randomUUID"),
  ...all("call", TIMER, "setTimeout setInterval setImmediate AbortSignal.timeout"),
  ...all("call", "send a message to ctx.self", "queueMicrotask"),
  ...all("call", OUTSIDE, "fetch Atomics.waitAsync"),
  ...all("new", OUTSIDE, "Worker WebSocket BroadcastChannel"),
  ...all("new", COLLECTOR, "WeakRef FinalizationRegistry"),
];

/** Id of the actor at work. */
let atWork: string | undefined;

/** Exempt calls under way. */
let exemptions = 0;

/** URLs, or parts of them, of modules that may do everything. */
let trusted: readonly string[] = [];

let onViolation: (error: DeterminismError) => void = () => {};

/** Says who is at work, or that nobody is. */
export function setActorAtWork(id: string | undefined): void {
  atWork = id;
}

/** Whether an actor is at work; if not, it is the scenario's own code. */
export function isActorAtWork(): boolean {
  return atWork !== undefined;
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
  exemptions++;
  let result: T;
  try {
    result = call();
  } catch (error) {
    exemptions--;
    throw error;
  }
  if (!(result instanceof Promise)) {
    exemptions--;
    return result;
  }
  return result.finally(() => exemptions = Math.max(0, exemptions - 1)) as T;
}

/** Deepest stack that is searched for trusted modules. */
const MAX_FRAMES = 200;

/** Whether a module that is trusted is among those who called. */
function isTrusted(): boolean {
  if (trusted.length === 0) return false;
  const before = Error.stackTraceLimit;
  Error.stackTraceLimit = MAX_FRAMES;
  const stack = new Error().stack ?? "";
  Error.stackTraceLimit = before;
  return trusted.some((url) => stack.includes(url));
}

function guard({ token, instead }: Trapped): void {
  if (atWork === undefined || exemptions > 0 || isTrusted()) return;
  const error = new DeterminismError(atWork, token, instead);
  onViolation(error);
  throw error;
}

/** Finds the object that holds a token, and the name by which it does. */
function holderOf(token: string): { holder: Record<string, unknown>; name: string } | undefined {
  const path = token.split("."), name = path.pop()!;
  let holder: unknown = globalThis;
  for (const part of path) holder = (holder as Record<string, unknown> | undefined)?.[part];
  if (holder === undefined || !(name in (holder as object))) return undefined;
  return { holder: holder as Record<string, unknown>, name };
}

function trap(trapped: Trapped, real: unknown): unknown {
  if (trapped.kind === "call") {
    return function (this: unknown, ...args: unknown[]) {
      guard(trapped);
      return (real as (...args: unknown[]) => unknown).apply(this, args);
    };
  }
  return new Proxy(real as new (...args: unknown[]) => object, {
    construct(target, args, newTarget) {
      if (trapped.kind === "new" || args.length === 0) guard(trapped);
      return Reflect.construct(target, args, newTarget);
    },
    apply(target, self, args) {
      guard(trapped);
      return Reflect.apply(target as unknown as () => unknown, self, args);
    },
  });
}

/** Takes the traps away again. */
let remove: (() => void) | undefined;

/**
 * Sets the traps.
 *
 * @param modules URLs, or parts of URLs, of modules that may do everything.
 * @param report told of every violation, as an actor may catch the error.
 * @returns takes them away again.
 * @throws {TypeError} when they are set already.
 */
export function setTraps(
  modules: readonly string[],
  report: (error: DeterminismError) => void,
): () => void {
  if (remove) throw new TypeError("Cannot simulate: simulations must come one after the other");
  const restores: (() => void)[] = [];
  for (const trapped of TRAPPED) {
    const found = holderOf(trapped.token);
    if (!found) continue;
    const { holder, name } = found;
    const before = Object.getOwnPropertyDescriptor(holder, name);
    const value = trap(trapped, holder[name]);
    Object.defineProperty(holder, name, { value, configurable: true, writable: true });
    restores.push(() => {
      if (before) Object.defineProperty(holder, name, before);
      else delete holder[name];
    });
  }
  trusted = modules;
  onViolation = report;
  exemptions = 0;
  remove = () => {
    for (const restore of restores.reverse()) restore();
    atWork = undefined;
    remove = undefined;
  };
  return remove;
}
