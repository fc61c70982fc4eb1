/**
 * What a value holds that somebody gets who gets it: addresses, and memory.
 *
 * @module
 */

import { isRef } from "../../messages.ts";
import type { ActorRef } from "../../types.ts";

/** Values that are looked at; plain arrays of more are refused, typed ones count as one. */
const VALUES_MAX = 1_000_000;

/** What a value holds. */
export interface Holdings {
  /** Records that are addresses, of whichever system. */
  readonly refs: readonly ActorRef[];
  /** About how much memory it takes. */
  readonly bytes: number;
  /** All of it was looked at. */
  readonly isWhole: boolean;
}

/**
 * Looks through all that structured clone takes along, each object once.
 *
 * @throws whatever a getter throws; what was received has none.
 */
export function holdingsOf(...values: readonly unknown[]): Holdings {
  const refs: ActorRef[] = [], seen = new Set<object>(), open = [...values];
  let bytes = 0, isWhole = true;
  for (let looked = 0; open.length > 0; looked++) {
    const value = open.pop();
    bytes += typeof value === "string" ? 2 * value.length : 8;
    if (typeof value !== "object" || value === null || seen.has(value)) continue;
    seen.add(value);
    if (isRef(value)) refs.push(value);
    if (sizeOf(value) > VALUES_MAX - looked - open.length) {
      isWhole = false;
      break;
    }
    bytes += bytesOf(value);
    for (const part of partsOf(value)) open.push(part);
  }
  return { refs, bytes, isWhole };
}

function bytesOf(value: object): number {
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return value.byteLength;
  return 0;
}

/** How many parts it has, at least, without a look at each. */
function sizeOf(value: object): number {
  if (Array.isArray(value)) return value.length;
  return value instanceof Map || value instanceof Set ? 2 * value.size : 1;
}

function partsOf(value: object): Iterable<unknown> {
  if (value instanceof Map) return [...value].flat(1);
  if (value instanceof Set || Array.isArray(value)) return value;
  if (ArrayBuffer.isView(value)) return [value.buffer];
  const parts = Object.values(value);
  // The one part of an error that is not listed.
  return value instanceof Error ? [...parts, value.message, value.cause] : parts;
}
