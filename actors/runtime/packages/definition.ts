/**
 * What a package of an actor exports.
 *
 * @module
 */

import { kindOf } from "../messages.ts";
import type { ActorFactory } from "../handlers.ts";
import type { Message } from "../types.ts";
import type { Permissions } from "../transports/confinement.ts";

/**
 * A JSON Schema (2020-12). What JSON does not have is said with one keyword more, which is ajv's too:
 * `{ instanceof: "Float32Array", maxItems: 1024 }` is a typed array of at most 1024 elements; other
 * classes that a message can hold (`ArrayBuffer`, `Map`, `Date`, `BigInt`) are named likewise.
 */
export type Schema = Readonly<Record<string, unknown>>;

/**
 * An actor as a package exports it, by the name `actor` unless it says another: what tells others
 * how to talk to it before any of its code runs beside theirs, and its factory.
 *
 * @typeParam Init what the factory is given.
 * @typeParam M messages that the actor handles.
 */
export interface ActorDefinition<Init, M extends Message> {
  /** What it is called in lists and reports. */
  readonly name: string;
  /** Counts the changes of its messages that an older program could not follow. */
  readonly protocol: number;
  /** Its messages: for each type, the schema of what stands beside `type`. */
  readonly messages: { readonly [K in M["type"]]: Schema };
  /** What it must be granted. Default: nothing. */
  readonly permissions?: Permissions;
  /** Makes its state, and its handlers. */
  readonly create: ActorFactory<Init, M>;
}

/**
 * Gives a definition its types. A package that does not want to import Troupe exports the same
 * record as it is.
 *
 * @throws {TypeError} when something is of another kind than it must be.
 *
 * @example
 * ```ts
 * import { defineActor } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * export const actor = defineActor<number, { type: "Add"; by: number } | { type: "Read" }>({
 *   name: "counter",
 *   protocol: 1,
 *   messages: { Add: { properties: { by: { type: "number" } }, required: ["by"] }, Read: {} },
 *   create(ctx, count) {
 *     return { Add: ({ by }) => void (count += by), Read: () => ctx.reply(count) };
 *   },
 * });
 * assert.equal(actor.protocol, 1);
 * ```
 */
export function defineActor<Init, M extends Message>(
  definition: ActorDefinition<Init, M>,
): ActorDefinition<Init, M> {
  checkDefinition("Cannot define an actor", definition);
  return definition;
}

type Values = Readonly<Record<string, unknown>>;

/**
 * Checks what a package exports.
 *
 * @param cannot begins the sentence of a refusal.
 * @param exports what else its module exports.
 * @throws {TypeError} when it is no definition.
 */
export function checkDefinition(
  cannot: string,
  definition: unknown,
  exports: readonly string[] = [],
): asserts definition is ActorDefinition<unknown, Message> {
  const wrong = (what: string, wanted: string, received: unknown) =>
    new TypeError(`${cannot}: ${what} must be ${wanted}, received ${kindOf(received)}`);
  if (typeof definition !== "object" || definition === null) {
    const others = exports.length > 0 ? `; it exports ${exports.slice(0, 10).join(", ")}` : "";
    throw new TypeError(
      `${cannot}: its definition must be a record, received ${kindOf(definition)}${others}`,
    );
  }
  const { name, protocol, messages, permissions = {}, create } = definition as Values;
  if (typeof name !== "string" || name === "") throw wrong("its name", "a string", name);
  if (!Number.isSafeInteger(protocol) || protocol as number < 1) {
    throw wrong("its protocol", "a positive integer", protocol);
  }
  if (typeof messages !== "object" || messages === null) {
    throw wrong("its messages", "a record of schemas", messages);
  }
  for (const [type, schema] of Object.entries(messages)) {
    if (typeof schema === "object" && schema !== null && !Array.isArray(schema)) continue;
    throw wrong(`the schema of "${type}"`, "a record", schema);
  }
  if (typeof permissions !== "object" || permissions === null) {
    throw wrong("its permissions", "a record", permissions);
  }
  if (typeof create !== "function") throw wrong("create", "a function", create);
}
