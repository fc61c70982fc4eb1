/**
 * What an actor is made of: a factory that returns a handler for each message.
 *
 * @module
 */

import type { Context } from "./context_api.ts";
import type { Message } from "./types.ts";

/** Names the handler of all messages that have none of their own. */
export const OTHERS: unique symbol = Symbol("others");

/** One handler for each message of a protocol; see {@linkcode Message}. */
export type Handlers<M extends Message> = {
  [K in M["type"]]: (message: Extract<M, { readonly type: K }>) => void | Promise<void>;
};

/**
 * Makes the state of an actor, kept in its closure, and returns its handlers; see
 * {@linkcode ActorSpec}. It may return an instance of a class instead: the public methods of that
 * and of the classes above it are the handlers, but for names that every object has, such as
 * `toString`. What is no handler should be private (`#count`, `#add()`).
 *
 * @example An instance
 * ```ts
 * import { createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const code = `class Counter {
 *   #ctx;
 *   #count;
 *   constructor(ctx, start) { this.#ctx = ctx; this.#count = start; }
 *   Add({ by }) { this.#count += by; }
 *   Read() { this.#ctx.reply(this.#count); }
 * }
 * export const counter = (ctx, start) => new Counter(ctx, start);`;
 * const module = `data:text/javascript,${encodeURIComponent(code)}`;
 * type CounterMessage = { type: "Add"; by: number } | { type: "Read" };
 *
 * await using system = createSystem();
 * const counter = system.spawn<number, CounterMessage>(
 *   { module, export: "counter" },
 *   40,
 *   { id: "counter" },
 * );
 * system.send(counter, { type: "Add", by: 2 });
 * assert.equal(await system.ask(counter, { type: "Read" }), 42);
 * ```
 *
 * @typeParam Init what the factory is given.
 * @typeParam M messages that the actor handles.
 */
export type ActorFactory<Init, M extends Message> = (
  ctx: Context<M>,
  init: Init,
  argument?: unknown,
) => Handlers<M> | Promise<Handlers<M>>;
