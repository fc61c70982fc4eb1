/**
 * An assertion before every message: it must have a meaning in the state in which it comes.
 *
 * @module
 */

import type { Handlers, Message } from "../runtime/mod.ts";

/** For each state of an actor the messages that have a meaning in it. */
export type StateTable<S extends string, M extends Message> = Readonly<
  Record<S, readonly M["type"][]>
>;

/** How every refusal begins: a bug of whoever sent the message, or of the actor. */
export const REFUSAL = "Cannot handle";

/**
 * Handlers that refuse what has no meaning.
 *
 * @param who whose they are: `worker`.
 * @param table the messages of each state; what no state takes is refused in all.
 * @param state the state that the actor is in now.
 * @param types all messages of the protocol.
 * @returns handlers which throw, and so end the actor, when a message comes in another state.
 * @throws {TypeError} when a message that some state takes has no handler.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * let state: "shut" | "open" = "shut";
 * const table = { shut: ["Open"], open: ["Enter"] } as const;
 * const door = guarded<{ type: "Open" } | { type: "Enter" }, "shut" | "open">(
 *   "door",
 *   table,
 *   () => state,
 *   ["Open", "Enter"],
 *   { Open: () => void (state = "open"), Enter: () => {} },
 * );
 * assert.throws(() => door.Enter({ type: "Enter" }), {
 *   message: "Cannot handle Enter: the door must be open, received it while shut",
 * });
 * door.Open({ type: "Open" });
 * door.Enter({ type: "Enter" });
 * ```
 */
export function guarded<M extends Message, S extends string>(
  who: string,
  table: StateTable<S, M>,
  state: () => S,
  types: readonly M["type"][],
  handlers: Partial<Handlers<M>>,
): Handlers<M> {
  const states = Object.keys(table) as S[];
  const refuse = (type: M["type"]): never => {
    const right = states.filter((one) => table[one].includes(type)).join(" or ") || "another one";
    throw new Error(
      `${REFUSAL} ${type}: the ${who} must be ${right}, received it while ${state()}`,
    );
  };
  const entries = types.map((type) => {
    const meaningful = new Set(states.filter((one) => table[one].includes(type)));
    const handle = handlers[type] as ((message: Message) => void | Promise<void>) | undefined;
    if (!handle && meaningful.size > 0) {
      throw new TypeError(`Cannot make a ${who}: ${type} must have a handler, received none`);
    }
    return [type, (message: Message) => {
      return handle && meaningful.has(state()) ? handle(message) : refuse(type);
    }];
  });
  return Object.fromEntries(entries) as Handlers<M>;
}
