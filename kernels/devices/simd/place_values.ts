/**
 * Places of values in one memory: those that are needed at the same time lie apart.
 *
 * @module
 */

import { ALIGNMENT } from "../onnx_runtime/settings.ts";

/** From which step to which a value is needed, both included. */
export interface Lifetime {
  readonly name: string;
  readonly byteLength: number;
  readonly from: number;
  to: number;
}

/** Where values lie, in bytes. */
export interface Places {
  readonly offsets: ReadonlyMap<string, number>;
  /** Bytes of the memory. */
  readonly sharedBytes: number;
}

/** Gives each value, in their order, the first place that is free for as long as it is needed. */
export function placeValues(lifetimes: readonly Lifetime[]): Places {
  const placed: (Lifetime & { readonly start: number; readonly end: number })[] = [];
  for (const value of lifetimes) {
    const size = Math.ceil(value.byteLength / ALIGNMENT) * ALIGNMENT;
    const others = placed.filter(({ from, to }) => from <= value.to && to >= value.from);
    let start = 0;
    for (const other of others.toSorted((a, b) => a.start - b.start)) {
      if (start + size <= other.start) break;
      start = Math.max(start, other.end);
    }
    placed.push({ ...value, start, end: start + size });
  }
  return {
    offsets: new Map(placed.map(({ name, start }) => [name, start])),
    sharedBytes: placed.reduce((most, { end }) => Math.max(most, end), 0),
  };
}
