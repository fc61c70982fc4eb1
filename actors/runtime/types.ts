/**
 * The words of the actor system: messages, references to actors, and the name of what makes one.
 *
 * @module
 */

/** Answers for the simulation that runs, if one does. */
let decide: ((site: string) => boolean) | undefined;

/**
 * Whether to fail here, now. Outside of simulations with faults the answer is always no.
 *
 * @param site names the place, the same in every run: `optimizer step`.
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

/** Sets who answers {@linkcode shouldFail}; undefined: nobody. */
export function setFaultSites(answer: ((site: string) => boolean) | undefined): void {
  decide = answer;
}

/**
 * Everything sent between actors: a structured-cloneable record with a `type`. A protocol is a
 * union of such records, told apart by `type`.
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
  /** Which message of its protocol it is. */
  readonly type: string;
}

/**
 * Makes a message a question: the type of its answer is declared with it. Whoever asks gets that
 * type, and an answer or an annotation of another does not compile. Once one message of a protocol
 * declares its answer, all that are answered must.
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
 * @typeParam R the answer.
 */
export interface Ask<R> {
  /** For the type checker; never present. */
  readonly "~answer"?: () => R;
}

/** The messages of a protocol whose answers are declared: see {@linkcode Ask}. */
export type Questions<M extends Message> = M extends unknown ? "~answer" extends keyof M ? M : never
  : never;

/** The messages of a protocol whose answers, if any, are not declared. */
export type Undeclared<M extends Message> = M extends unknown
  ? "~answer" extends keyof M ? never : M
  : never;

/** What is declared as the answer to the messages of a protocol that have the type `K`. */
export type AnswerTo<M extends Message, K extends string> = M extends
  { readonly type: K; readonly "~answer"?: () => infer R } ? R : never;

/** What the actor with this protocol answers: anything, where nothing is declared. */
export type Answers<M extends Message> = [Questions<M>] extends [never] ? unknown
  : AnswerTo<Questions<M>, string>;

/** The two lanes of a mailbox. Every waiting control message goes before every data message. */
export type Lane = "control" | "data";

/**
 * The address of an actor: plain data, so it can be put in messages.
 *
 * A bare `ActorRef` is "some actor": any reference can be stored as one, but nothing can be sent
 * to it. References are contravariant: one that accepts `A | B` serves where `A` is sent.
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
  /** The name given at spawn, as it stands in traces and failures. */
  readonly id: string;
  /** Number of the isolate that hosts the actor; 0 is the one that made the system. */
  readonly isolate: number;
  /** Which actor of that isolate, in order of spawning. A restarted actor has another serial, so a
   * message to the dead one never reaches its successor. */
  readonly serial: number;
  /** Drawn for each system, so that an address of one never reaches an actor of another. Absent in
   * simulations. */
  readonly system?: number;
  /** For the type checker; never present. */
  readonly "~accepts"?: (message: M) => void;
}

/**
 * How an actor is made in any isolate: an ES module and the name of the
 * `ActorFactory` that it exports.
 *
 * @example In the module of the actor itself
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
 * @typeParam Init what the factory is given.
 * @typeParam M messages that the actor handles.
 */
export interface ActorSpec<Init = never, M extends Message = never> {
  /** Absolute URL of the module; `import.meta.url` in the module itself. */
  readonly module: string;
  /** Name of the exported factory. */
  readonly export: string;
  /** What the factory gets besides its context and init; structured-cloneable. */
  readonly argument?: unknown;
  /** For the type checker; never present. */
  readonly "~makes"?: (init: Init, message: M) => void;
}

/** Whether a value is an address. */
export function isRef(value: unknown): value is ActorRef {
  try {
    const { id, isolate, serial } = value as ActorRef;
    return typeof id === "string" && isCount(isolate) && isCount(serial);
  } catch {
    return false;
  }
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && value as number >= 0;
}

/** Whether a value is a record with a type. */
export function isMessage(value: unknown): value is Message {
  try {
    return typeof value === "object" && typeof (value as Message).type === "string";
  } catch {
    return false;
  }
}

/** What a value is, for a report of what it should have been. */
export function kindOf(value: unknown): string {
  return value === null ? "null" : typeof value;
}

/** @throws {TypeError} when a value is no message. */
export function assertMessage(what: string, value: unknown): asserts value is Message {
  if (isMessage(value)) return;
  throw new TypeError(
    `Cannot ${what}: its message must be a record with a type, received ${kindOf(value)}`,
  );
}

/** @throws {TypeError} when a value is no address. */
export function assertRef(what: string, value: unknown): asserts value is ActorRef {
  if (isRef(value)) return;
  throw new TypeError(
    `Cannot ${what}: it must be given the reference of an actor, received ${kindOf(value)}`,
  );
}

const UNSAFE = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;

/** As JSON writes it, so that a line of JSON stays the same value. */
const escapeOne = (character: string): string =>
  character === "\n" ? "\\n" : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/**
 * Several lines with all control characters but line ends and tabs shown as numbers.
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
 * One line: line ends are shown too.
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
