/**
 * The definition of an actor that a package exports, and the JSON Schemas of its messages.
 *
 * @module
 */

import { type Schema as JsonSchema, Validator } from "@cfworker/json-schema";
import type { Context } from "../runtime/context.ts";
import { messageOf } from "../runtime/failure.ts";
import { type AnyHandlers, type Handlers, OTHERS } from "../runtime/actor.ts";
import { assertInput, kindOf, type Message } from "../runtime/types.ts";

/** Permissions by kind, as Deno names them. A kind that is left out is not granted. */
export interface Permissions {
  /** Files and folders to read; `true`: all. */
  readonly read?: boolean | readonly string[];
  /** Files and folders to write. */
  readonly write?: boolean | readonly string[];
  /** Hosts, with or without a port. */
  readonly net?: boolean | readonly string[];
  /** Environment variables. */
  readonly env?: boolean | readonly string[];
  /** Programs. They run outside the sandbox. */
  readonly run?: boolean | readonly string[];
  /** Dynamic libraries, by full path. */
  readonly ffi?: boolean | readonly string[];
  /** Facts about the operating system. */
  readonly sys?: boolean | readonly string[];
  /** Hosts to import from, besides the hosts of its modules. An actor that may import from any host
   * may import any npm package. */
  readonly import?: boolean | readonly string[];
}

/**
 * A JSON Schema (2020-12). One more keyword, also known to ajv, describes values that JSON does not
 * have: `{ instanceof: "Float32Array", maxItems: 1024 }` is a typed array of at most 1024 elements.
 * `ArrayBuffer`, `Map`, `Date` and `BigInt` are named likewise.
 */
export type Schema = Readonly<Record<string, unknown>>;

/** Schemas by message type; each describes the fields besides `type`. */
export type Schemas = Readonly<Record<string, Schema>>;

/**
 * The part of {@linkcode Context} that the actor of a package has. In the sandbox an address is a
 * number that is valid in the sandbox only, `timeoutMs` is the only option, and the clock is fixed during a
 * message.
 *
 * @typeParam M messages that the actor handles.
 */
export type PackageContext<M extends Message> = Pick<
  Context<M>,
  "self" | "send" | "ask" | "reply" | "deferReply" | "after" | "now" | "random"
>;

/**
 * An actor as a package exports it, by the name `actor` by default: its protocol, and its factory.
 *
 * @typeParam Init argument of the factory.
 * @typeParam M messages that the actor handles.
 * @typeParam C context; `Context<M>` in a package that wants to be trusted.
 */
export interface ActorDefinition<Init, M extends Message, C = PackageContext<M>> {
  /** Name in lists and reports. */
  readonly name: string;
  /** Version of the protocol. It increases with each incompatible change. */
  readonly protocol: number;
  /** Schema of each message type; describes the fields besides `type`. */
  readonly messages: { readonly [K in M["type"]]: Schema };
  /** Permissions that the actor needs. Default: none. */
  readonly permissions?: Permissions;
  /** Makes the state of the actor, and its handlers. */
  readonly create: (ctx: C, init: Init) => Handlers<M> | Promise<Handlers<M>>;
}

/**
 * Checks a definition and gives it its types. A package that does not import Troupe exports the plain
 * record.
 *
 * @throws {TypeError} when a field has a wrong type.
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

/**
 * Checks what a package exports.
 *
 * @param cannot first words of the error.
 * @param exports names that the module exports.
 * @throws {TypeError} when it is not a definition.
 */
export function checkDefinition(
  cannot: string,
  definition: unknown,
  exports: readonly string[] = [],
): asserts definition is ActorDefinition<unknown, Message> {
  const { name, protocol, messages, permissions = {}, create } = Object(definition) as Values;
  const isCount = Number.isSafeInteger(protocol) && protocol as number > 0;
  const fields: [isRight: boolean, what: string, wanted: string, received: unknown][] = [
    [isRecord(definition), "its definition", "a record", definition],
    [typeof name === "string" && name !== "", "its name", "a string", name],
    [isCount, "its protocol", "a positive integer", protocol],
    [isRecord(messages), "its messages", "a record of schemas", messages],
    [isRecord(permissions), "its permissions", "a record", permissions],
    [typeof create === "function", "create", "a function", create],
  ];
  for (const [type, schema] of Object.entries(Object(messages))) {
    const isSchema = isRecord(schema) && !Array.isArray(schema);
    fields.push([isSchema, `the schema of "${type}"`, "a record", schema]);
  }
  const wrong = fields.find(([isRight]) => !isRight);
  if (!wrong) return;
  const [, what, wanted, received] = wrong, isAll = received === definition && exports.length > 0;
  const others = isAll ? `; it exports ${exports.slice(0, 10).join(", ")}` : "";
  throw new TypeError(
    `${cannot}: ${what} must be ${wanted}, received ${kindOf(received)}${others}`,
  );
}

/**
 * Checks the protocol of a definition.
 *
 * @param wanted its version. Absent: any.
 * @throws {RangeError} when it has another one.
 */
export function checkProtocol(cannot: string, wanted: number | undefined, received: number): void {
  const isRight = wanted === undefined || received === wanted;
  assertInput(isRight, `${cannot}: its protocol must be version ${wanted}`, received);
}

type Values = Record<string, unknown>;

const isRecord = (value: unknown): value is Values => typeof value === "object" && value !== null;

/** Maximum number of characters of an error in a message. */
const WHY_MAX = 300;

/** Returns the error of a value; undefined if it is valid. */
export type Check<T> = (value: T) => string | undefined;

/**
 * Compiles the schemas of messages.
 *
 * @param cannot first words of the error.
 * @param owner name of the owner of the schemas.
 * @returns a check that also refuses types without a schema.
 * @throws {TypeError} when a schema refers to nothing.
 */
export function validateMessages(cannot: string, owner: string, schemas: Schemas): Check<Message> {
  const checks = new Map<string, Check<unknown>>();
  for (const [type, schema] of Object.entries(schemas)) {
    checks.set(type, validate(`${cannot}: the schema of "${type}"`, owner, schema));
  }
  return ({ type, ...fields }) => {
    const known = [...checks.keys()].join(", ") || "none";
    const unknown = () => `its type must be one that "${owner}" lists (${known})`.slice(0, WHY_MAX);
    return (checks.get(type) ?? unknown)(fields);
  };
}

/**
 * Combines handlers with the schemas of a definition.
 *
 * @param cannot first words of the error.
 * @throws {TypeError} when a message has no handler, or its schema refers to nothing.
 */
export function openHandlers(
  cannot: string,
  { name, messages }: ActorDefinition<unknown, Message>,
  made: AnyHandlers,
) {
  const handlers = new Map(
    Object.keys(messages).map((type) => {
      const handler = Object.hasOwn(made, type) ? made[type] : made[OTHERS];
      if (!handler) throw new TypeError(`${cannot}: it must have a handler for "${type}"`);
      return [type, handler];
    }),
  );
  return {
    check: validateMessages(cannot, name, messages),
    /** Handles a message that was checked. */
    handle: (message: Message) => handlers.get(message.type)!(message),
  };
}

/** Compiles one schema. */
export function validate(cannot: string, owner: string, schema: Schema): Check<unknown> {
  if (Object.keys(schema).length === 0) return () => undefined;
  const validator = new Validator(plainSchema(schema) as JsonSchema, "2020-12");
  try {
    validator.validate({}); // throws if a reference has no target
  } catch (error) {
    throw new TypeError(`${cannot} must be whole (${messageOf(error)})`);
  }
  return (value) => {
    try {
      const { valid, errors } = validator.validate(viewOf(value));
      if (valid) return undefined;
      const { instanceLocation = "#", error = "" } = errors.at(-1) ?? {};
      return `it must fit the schema of "${owner}" (${instanceLocation}: ${error})`
        .slice(0, WHY_MAX);
    } catch (error) {
      return messageOf(error).slice(0, WHY_MAX);
    }
  };
}

/** The key of a numbered address in the sandbox. */
export const REF = "~ref";

/** The key of a class name in what a schema sees. */
const CLASS = "~instanceof";

/** Maximum number of values in a message. */
const VALUES_MAX = 1_000_000;

/** Maximum number of levels of nested records. */
const DEPTH_MAX = 100;

/**
 * Returns a function that counts the values of a message: it is called with the depth of each, and
 * optionally with a number of values that follow.
 *
 * @throws {RangeError} (from the function) when there are too many, or one is too deep.
 */
export function valueCounter(): (depth: number, following?: number) => void {
  let left = VALUES_MAX;
  return (depth, following = 0) => {
    if (--left < following) throw new RangeError(`it must have at most ${VALUES_MAX} values`);
    if (depth > DEPTH_MAX) throw new RangeError(`it must be at most ${DEPTH_MAX} records deep`);
  };
}

/** Returns the name of the built-in class of a value: `Object` for a record. */
export const classOf = (value: unknown): string =>
  Object.prototype.toString.call(value).slice("[object ".length, -1);

/**
 * Returns a value as a schema sees it.
 *
 * [Note: instances] JSON has no typed arrays. A schema sees each value that JSON does not have as a
 * record of its class, under a key that no message may have, and its length. The keyword `instanceof`
 * is compiled into a schema of that record, which any validator checks, also within `anyOf` or an
 * array, without looking at the elements.
 *
 * @throws {RangeError} when it is too deep, or has too many values.
 * @throws {TypeError} when it has the key of a class name.
 */
function viewOf(value: unknown): unknown {
  const count = valueCounter();
  const look = (value: unknown, depth: number): unknown => {
    count(depth);
    if (value === null || ["boolean", "number", "string"].includes(typeof value)) return value;
    if (Array.isArray(value)) return value.map((one) => look(one, depth + 1));
    const name = classOf(value);
    if (name !== "Object") {
      const { length, size, byteLength } = (value ?? {}) as Values;
      return { [CLASS]: name, length: Number(length ?? size ?? byteLength ?? 0) };
    }
    if (Object.hasOwn(value as object, CLASS)) throw new TypeError(`it must have no "${CLASS}"`);
    // Without a prototype, because an inherited `toString` would count as a property.
    const seen: Values = Object.create(null);
    for (const [key, one] of Object.entries(value as object)) {
      if (one !== undefined) seen[key] = look(one, depth + 1);
    }
    return seen;
  };
  return look(value, 0);
}

/** Keywords whose values are data, not schemas. */
const DATA = ["const", "enum", "default", "examples"];

/** Keywords whose values are schemas by name. */
const MAPS = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];

/** Returns a copy of a schema with `instanceof` in keywords that every validator knows. */
function plainSchema(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(plainSchema);
  if (!isRecord(schema)) return schema;
  const { instanceof: name, ...others } = schema;
  const plain = mapped(typeof name === "string" ? others : schema, (value, key) => {
    if (DATA.includes(key)) return value;
    return MAPS.includes(key) && isRecord(value) ? mapped(value, plainSchema) : plainSchema(value);
  });
  if (typeof name !== "string") return plain;
  const { minItems: minimum = 0, maxItems: maximum = Number.MAX_SAFE_INTEGER } = others;
  const properties = { [CLASS]: { const: name }, length: { minimum, maximum } };
  return { allOf: [plain, { type: "object", required: [CLASS], properties }] };
}

const mapped = (record: Values, map: (value: unknown, key: string) => unknown): Values =>
  Object.fromEntries(Object.entries(record).map(([key, value]) => [key, map(value, key)]));
