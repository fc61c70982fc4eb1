/**
 * The door of a package's actor: who does not fit the schema of a message stays outside.
 *
 * @module
 */

import { type Schema as JsonSchema, Validator } from "@cfworker/json-schema";
import { messageOf } from "../failure.ts";
import { DOOR, OTHERS } from "../handlers.ts";
import type { Message } from "../types.ts";
import type { AnyHandlers } from "../actor/actor.ts";
import type { ActorDefinition } from "./definition.ts";
import { plainSchema, viewOf } from "./schema_view.ts";

/** Characters of what is wrong with a message. */
const WHY_MAX = 300;

/**
 * Handlers of what a definition lists, and of nothing else, behind its schemas.
 *
 * @param cannot begins the sentence of a refusal.
 * @throws {TypeError} when a message has no handler, or its schema is none.
 */
export function behindDoor(
  cannot: string,
  { name, messages }: Pick<ActorDefinition<unknown, Message>, "name" | "messages">,
  made: AnyHandlers,
): AnyHandlers {
  const handlers: Record<string | symbol, unknown> = Object.create(null);
  const checks = new Map<string, (message: Message) => string | undefined>();
  for (const [type, schema] of Object.entries<Readonly<Record<string, unknown>>>(messages)) {
    const handler = Object.hasOwn(made, type) ? made[type] : made[OTHERS];
    if (!handler) throw new TypeError(`${cannot}: it must have a handler for "${type}"`);
    handlers[type] = handler;
    // What may be anything is not looked at.
    if (Object.keys(schema).length > 0) checks.set(type, checkOf(cannot, name, type, schema));
  }
  handlers[DOOR] = (message: Message) => checks.get(message.type)?.(message);
  return handlers as AnyHandlers;
}

function checkOf(cannot: string, name: string, type: string, schema: unknown) {
  const validator = new Validator(plainSchema(schema) as JsonSchema, "2020-12");
  try {
    validator.validate({}); // a reference to nowhere is found here, not with the first message
  } catch (error) {
    throw new TypeError(`${cannot}: the schema of "${type}" must be whole (${messageOf(error)})`);
  }
  return (message: Message): string | undefined => {
    try {
      const { valid, errors } = validator.validate(viewOf(message));
      if (valid) return undefined;
      const { instanceLocation = "#", error = "" } = errors.at(-1) ?? {};
      return `it must fit the schema of "${name}" (${instanceLocation}: ${error})`.slice(
        0,
        WHY_MAX,
      );
    } catch (error) {
      return messageOf(error).slice(0, WHY_MAX);
    }
  };
}
