/**
 * Basic types of the actor system: messages, references to actors, and specs of actors.
 *
 * @module
 */

/** Decides about fault sites in the current simulation, if any. */
let decide: ((site: string) => boolean) | undefined;

/**
 * Returns true if a simulation with faults decides to fail here. Always false otherwise.
 *
 * @param site name of the place, the same in every run: `optimizer step`.
 *
 * @example
 * ```ts
 * import { shouldFail } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * function writeCheckpoint() {
 *   if (shouldFail("checkpoint write")) throw new Error("the disk is full");
 *   return "written";
 * }
 * assert.equal(writeCheckpoint(), "written");
 * ```
 */
export function shouldFail(site: string): boolean {
  return decide?.(site) ?? false;
}

/** Sets the function that decides for {@linkcode shouldFail}; undefined: never fail. */
export function setFaultSites(answer: ((site: string) => boolean) | undefined): void {
  decide = answer;
}

/**
 * A message between actors: a structured-cloneable record with a `type`. A protocol is a union of
 * such records, discriminated by `type`.
 *
 * @example
 * ```ts
 * import type { Handlers } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * type Lamp = { type: "Dim"; level: number } | { type: "Off" };
 * let level = 1;
 * // A handler left out, or misspelt, does not compile.
 * const handlers: Handlers<Lamp> = {
 *   Dim: (message) => void (level = message.level),
 *   Off: () => void (level = 0),
 * };
 * handlers.Dim({ type: "Dim", level: 0.5 });
 * assert.equal(level, 0.5);
 * ```
 */
export interface Message {
  /** Type of the message within its protocol. */
  readonly type: string;
}

/**
 * Declares the type of the answer to a message. Askers get that type, and an answer or annotation
 * of another type does not compile. If one message of a protocol declares its answer, all messages
 * with answers must do so.
 *
 * @example
 * ```ts
 * import { type ActorRef, type Ask, createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * type Counter = { type: "Add"; by: number } | { type: "Read" } & Ask<number>;
 *
 * const module = `data:text/javascript,export const counter = (ctx, start) => {
 *   let count = start;
 *   return { Add({ by }) { count += by; }, Read() { ctx.reply(count); } };
 * }`;
 * await using system = createSystem();
 * const counter: ActorRef<Counter> = system.spawn<number, Counter>(
 *   { module, export: "counter" },
 *   40,
 *   { id: "counter" },
 * );
 * system.send(counter, { type: "Add", by: 2 });
 * const count: number = await system.ask(counter, { type: "Read" });
 * assert.equal(count, 42);
 * // @ts-expect-error: the answer is a number
 * const text: string = await system.ask(counter, { type: "Read" });
 * assert.equal(text, 42);
 * ```
 *
 * @typeParam R type of the answer.
 */
export interface Ask<R> {
  /** For the type checker; never present. */
  readonly "~answer"?: () => R;
}

/** Messages of a protocol with a declared answer: see {@linkcode Ask}. */
export type Questions<M extends Message> = M extends unknown ? "~answer" extends keyof M ? M : never
  : never;

/** Messages of a protocol without a declared answer. */
export type Undeclared<M extends Message> = M extends unknown
  ? "~answer" extends keyof M ? never : M
  : never;

/** The declared answer to messages of a protocol with the type `K`. */
export type AnswerTo<M extends Message, K extends string> = M extends
  { readonly type: K; readonly "~answer"?: () => infer R } ? R : never;

/** All declared answers of a protocol; unknown if it declares none. */
export type Answers<M extends Message> = [Questions<M>] extends [never] ? unknown
  : AnswerTo<Questions<M>, string>;

/** The lanes of a mailbox, in the order in which waiting messages are handled: an idle message is
 * handled when no other waits. */
export type Lane = "control" | "data" | "idle";

/**
 * The address of an actor: plain data, so it can be put in messages.
 *
 * A bare `ActorRef` is any actor: every reference can be stored as one, but no message can be sent
 * to it. References are contravariant: an `ActorRef<A | B>` can be used as an `ActorRef<A>`.
 *
 * @example
 * ```ts
 * import { type ActorRef, createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * await using system = createSystem();
 * const module = "data:text/javascript,export const idle = () => ({})";
 * const ref: ActorRef = system.spawn({ module, export: "idle" }, undefined, { id: "a" });
 * const { id, isolate, serial } = structuredClone(ref);
 * assert.deepEqual({ id, isolate, serial }, { id: "a", isolate: 0, serial: 1 });
 * ```
 *
 * @typeParam M messages that the actor handles.
 */
export interface ActorRef<M extends Message = never> {
  /** The id given at spawn, which traces and failures show. */
  readonly id: string;
  /** Number of the isolate that hosts the actor; 0 is the isolate that created the system. */
  readonly isolate: number;
  /** Number of the actor within its isolate, in order of spawning. A restarted actor has a new
   * serial, so messages to its predecessor never reach it. */
  readonly serial: number;
  /** Random token of the system, so that an address never reaches an actor of another system.
   * Absent in simulations. */
  readonly system?: number;
  /** For the type checker; never present. */
  readonly "~accepts"?: (message: M) => void;
}

/**
 * A spec that creates an actor in any isolate: an ES module and the name of the `ActorFactory` it
 * exports.
 *
 * @example In the module of the actor
 * ```ts
 * import type { ActorFactory, ActorSpec } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * type Counter = { type: "Add"; by: number } | { type: "Read" };
 * const COUNTER: ActorSpec<number, Counter> = { module: import.meta.url, export: "counter" };
 * const counter: ActorFactory<number, Counter> = (ctx, start) => {
 *   let count = start;
 *   return {
 *     Add: ({ by }) => void (count += by),
 *     Read: () => ctx.reply(count),
 *   };
 * };
 * assert.equal(COUNTER.export, "counter");
 * assert.equal(typeof counter, "function");
 * ```
 *
 * @typeParam Init type of the factory's second argument.
 * @typeParam M messages that the actor handles.
 */
export interface ActorSpec<Init = never, M extends Message = never> {
  /** Absolute URL of the module; `import.meta.url` in the module itself. */
  readonly module: string;
  /** Name of the exported factory. */
  readonly export: string;
  /** Third argument of the factory; structured-cloneable. */
  readonly argument?: unknown;
  /** For the type checker; never present. */
  readonly "~makes"?: (init: Init, message: M) => void;
}

/** Returns the result of a function; `otherwise` if it throws, whatever it throws. This room does not
 * import the one of the kernels. */
export function resultOr<T, O>(run: () => T, otherwise: O): T | O {
  try {
    return run();
  } catch {
    return otherwise;
  }
}

/** Throws an error of input that is refused, "… must be Z, received V", unless a condition holds. */
export function assertInput(
  holds: boolean,
  must: string,
  received: unknown,
  Kind: ErrorConstructor = RangeError,
): asserts holds {
  if (!holds) throw new Kind(`${must}, received ${String(received)}`);
}

/** Returns true if a value is a reference to an actor. */
export const isRef = (value: unknown): value is ActorRef =>
  resultOr(() => {
    const { id, isolate, serial } = value as ActorRef;
    return typeof id === "string" && isCount(isolate) && isCount(serial);
  }, false);

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && value as number >= 0;
}

/** Returns true if a value is a record with a type. */
export const isMessage = (value: unknown): value is Message =>
  resultOr(() => typeof value === "object" && typeof (value as Message).type === "string", false);

/**
 * Returns a function that a module exports.
 *
 * @throws {TypeError} if it exports no function of that name.
 */
export function functionOf(
  cannot: string,
  { module, export: name }: Pick<ActorSpec, "module" | "export">,
  exports: Readonly<Record<string, unknown>>,
): unknown {
  const found = exports[name], must = `${cannot}: ${module} must export a function "${name}"`;
  assertInput(typeof found === "function", must, typeof found, TypeError);
  return found;
}

/** Returns the type of a value for an error message. */
export function kindOf(value: unknown): string {
  return value === null ? "null" : typeof value;
}

/**
 * Asserts that a value is a message.
 *
 * @throws {TypeError} if it is not.
 */
export function assertMessage(what: string, value: unknown): asserts value is Message {
  const must = `Cannot ${what}: its message must be a record with a type`;
  assertInput(isMessage(value), must, kindOf(value), TypeError);
}

/**
 * Asserts that a value is a reference to an actor.
 *
 * @throws {TypeError} if it is not.
 */
export function assertRef(what: string, value: unknown): asserts value is ActorRef {
  const must = `Cannot ${what}: it must be given the reference of an actor`;
  assertInput(isRef(value), must, kindOf(value), TypeError);
}

const UNSAFE = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;

/** Escapes a character as in JSON, so that a line of JSON keeps its value. */
const escapeOne = (character: string): string =>
  character === "\n" ? "\\n" : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/**
 * Escapes all control characters of a text except line ends and tabs.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(escapeControls("a\x1b[2J\n\tb"), "a\\u001b[2J\n\tb");
 * ```
 */
export function escapeControls(text: string): string {
  return text.replace(UNSAFE, (one) => one === "\n" || one === "\t" ? one : escapeOne(one));
}

/**
 * Escapes all control characters of a text, including line ends.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(inOneLine("a\nb\x9b"), "a\\nb\\u009b");
 * ```
 */
export function inOneLine(text: string): string {
  return text.replace(UNSAFE, escapeOne);
}
