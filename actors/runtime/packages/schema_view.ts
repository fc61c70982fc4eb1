/**
 * Messages as a JSON Schema sees them, and schemas that say more than JSON has.
 *
 * [Note: instances] JSON has no typed arrays. A schema sees every value of a message that JSON does
 * not have as a record of two fields: the name of its class, under a key that no record of a message
 * may have, and its length. The keyword `instanceof` asks for that record. So any validator of JSON
 * Schema checks it, also within `anyOf` or an array, and looks at no element of it.
 *
 * @module
 */

/** The key that holds the class of an instance. */
const CLASS = "~instanceof";

/** Values of one message that are looked at. */
const VALUES_MAX = 1_000_000;

/** Records within records. */
const DEPTH_MAX = 100;

type Values = Record<string, unknown>;

/**
 * What a schema sees of a message: all that stands beside its type.
 *
 * @throws {RangeError} when it is deeper, or has more values, than anybody should send.
 * @throws {TypeError} when it holds what is kept for instances.
 */
export function viewOf(message: { readonly type: string }): unknown {
  let left = VALUES_MAX;
  const look = (value: unknown, depth: number): unknown => {
    if (--left < 0) throw new RangeError(`it must have at most ${VALUES_MAX} values`);
    if (depth > DEPTH_MAX) throw new RangeError(`it must be at most ${DEPTH_MAX} records deep`);
    if (value === null || ["boolean", "number", "string"].includes(typeof value)) return value;
    if (Array.isArray(value)) return value.map((one) => look(one, depth + 1));
    const name = Object.prototype.toString.call(value).slice("[object ".length, -1);
    if (name !== "Object") return { [CLASS]: name, length: lengthOf(value) };
    if (Object.hasOwn(value as object, CLASS)) throw new TypeError(`it must have no "${CLASS}"`);
    // Without a prototype, so that nobody "has" a toString.
    const seen: Values = Object.create(null);
    for (const [key, one] of Object.entries(value as object)) {
      if (one !== undefined) seen[key] = look(one, depth + 1);
    }
    return seen;
  };
  const { type: _, ...beside } = message;
  return look(beside, 0);
}

/** How many elements, or bytes, an instance has. */
function lengthOf(value: unknown): number {
  const { length, size, byteLength } = (value ?? {}) as Values;
  return Number(length ?? size ?? byteLength ?? 0);
}

/** Keywords whose values are data, not schemas. */
const DATA = ["const", "enum", "default", "examples"];

/** Keywords whose values are schemas by name. */
const MAPS = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];

const isValues = (value: unknown): value is Values => typeof value === "object" && value !== null;

/** A copy of a schema in which `instanceof` is said in words that every validator knows. */
export function plainSchema(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(plainSchema);
  if (!isValues(schema)) return schema;
  const { instanceof: name, ...others } = schema;
  const plain = mapped(typeof name === "string" ? others : schema, (value, key) => {
    if (DATA.includes(key)) return value;
    return MAPS.includes(key) && isValues(value) ? mapped(value, plainSchema) : plainSchema(value);
  });
  if (typeof name !== "string") return plain;
  const { minItems: minimum = 0, maxItems: maximum = Number.MAX_SAFE_INTEGER } = others;
  const instance = {
    type: "object",
    required: [CLASS],
    properties: { [CLASS]: { const: name }, length: { minimum, maximum } },
  };
  return { allOf: [plain, instance] };
}

const mapped = (record: Values, map: (value: unknown, key: string) => unknown): Values =>
  Object.fromEntries(Object.entries(record).map(([key, value]) => [key, map(value, key)]));
