/**
 * What data says of itself, as checkpoints keep it.
 *
 * @module
 */

/** Where data stood after some micro-batches. */
export interface DataState {
  /** How many had been taken. */
  readonly microBatches: number;
  /** What the data said then. */
  readonly state: unknown;
}

/** Characters of JSON of a state. */
const STATE_MAX = 2 ** 16;

/**
 * A state as a checkpoint will give it back, so that it is no surprise when a run goes on.
 *
 * @throws {TypeError} when JSON cannot say it, or takes too many characters.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.deepEqual(encodeState({ shard: 3, left: undefined }), { shard: 3 });
 * assert.throws(() => encodeState(() => 1), /must be something that JSON can say/);
 * ```
 */
export function encodeState(state: unknown): unknown {
  const cannot = "Cannot keep the state of the data: it must be something that JSON can say";
  let text: string | undefined;
  try {
    text = JSON.stringify(state);
  } catch (cause) {
    throw new TypeError(`${cannot}, received what it cannot (${firstLine(cause)})`, { cause });
  }
  if (text === undefined) throw new TypeError(`${cannot}, received ${typeof state}`);
  if (text.length <= STATE_MAX) return JSON.parse(text);
  throw new TypeError(`${cannot} in ${STATE_MAX} characters, received ${text.length}`);
}

const firstLine = (error: unknown) => String((error as Error)?.message ?? error).split("\n")[0];

/** Whether a checkpoint may say so of data. */
export function isDataState(value: unknown): value is DataState {
  const { microBatches } = Object(value) as Partial<DataState>;
  return Number.isSafeInteger(microBatches) && microBatches! >= 0 && "state" in Object(value);
}
