/**
 * Lists that stay short, however much is put into them, and know what of them has not been told.
 *
 * @module
 */

import type { Tail } from "./view.ts";

/** A list that grows, and now and then loses entries that it had. */
export interface BoundedList<T> {
  /** Those that are there, in order; the newest is the last. */
  readonly entries: readonly T[];
  /** Adds an entry; returns the place from which on the list is another. */
  add(entry: T): number;
}

/**
 * Opens a list of at most `most` entries. When it would have more, one of each pair of neighbours
 * goes, and from then on an entry stands for twice as many of those that come.
 *
 * @param choose which of two neighbours stays.
 */
export function openThinnedList<T>(
  most: number,
  choose: (first: T, second: T) => T,
): BoundedList<T> {
  let entries: T[] = [];
  // Each entry stands for so many; the last for `standsFor` until it stands for as many.
  let stride = 1, standsFor = 1;
  return {
    get entries() {
      return entries;
    },
    add(entry) {
      if (standsFor < stride) {
        standsFor++;
        entries.push(choose(entries.pop()!, entry));
        return entries.length - 1;
      }
      standsFor = 1;
      if (entries.push(entry) <= most) return entries.length - 1;
      const last = entries.pop()!;
      entries = Array.from(
        { length: Math.floor(entries.length / 2) },
        (_, i) => choose(entries[2 * i]!, entries[2 * i + 1]!),
      );
      entries.push(last);
      stride *= 2;
      return 0;
    },
  };
}

/** Opens a list of at most `most` entries that loses the older half when it would have more. */
export function openRecentList<T>(most: number): BoundedList<T> {
  let entries: T[] = [];
  return {
    get entries() {
      return entries;
    },
    add(entry) {
      if (entries.push(entry) <= most) return entries.length - 1;
      entries = entries.slice(-Math.ceil(most / 2));
      return 0;
    },
  };
}

/** A list of which some is not told yet. */
export interface ToldList<T> {
  /** Adds an entry. */
  add(entry: T): void;
  /** The whole list. */
  all(): Tail<T>;
  /** What has changed since it was asked last. */
  news(): Tail<T> | undefined;
}

/** Keeps in mind what of a list has not been told. */
export function openToldList<T>(list: BoundedList<T>): ToldList<T> {
  let untold = Infinity;
  const tail = (from: number) => ({ from, entries: list.entries.slice(from) });
  return {
    add: (entry) => void (untold = Math.min(untold, list.add(entry))),
    all: () => tail(0),
    news() {
      const from = untold;
      untold = Infinity;
      return from === Infinity ? undefined : tail(from);
    },
  };
}
