/**
 * Handlers from what a factory returns: a record of functions, or an instance of a class.
 *
 * @module
 */

import { checkHandlers, isPlain } from "../checks.ts";
import { OTHERS } from "../handlers.ts";
import type { AnyHandlers } from "./actor.ts";

/**
 * The handlers of an actor. Of an instance these are the methods of its class and of those above,
 * bound to it so that its private fields are there; what every object has is no handler.
 *
 * @param id of the actor.
 * @param factory what made it.
 * @throws {TypeError} when it is neither, or a handler is no function.
 */
export function handlersOf(id: string, factory: string, made: unknown): AnyHandlers {
  checkHandlers(id, factory, made);
  if (isPlain(made)) return made as AnyHandlers;
  const others = (made as AnyHandlers)[OTHERS];
  const handlers: Record<string | symbol, unknown> = Object.create(null);
  if (others) handlers[OTHERS] = others.bind(made);
  for (let level: object = made; !isRoot(level); level = Object.getPrototypeOf(level)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(level))) {
      if (typeof value !== "function" || name in handlers || name in Object.prototype) continue;
      handlers[name] = value.bind(made);
    }
  }
  return handlers as AnyHandlers;
}

/** The root of all prototypes, whichever realm it is of. */
function isRoot(level: object | null): boolean {
  return level === null || Object.getPrototypeOf(level) === null;
}
