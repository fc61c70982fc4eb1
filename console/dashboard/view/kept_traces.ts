/**
 * The traced steps that a page can be shown: the newest, and some of those before them.
 *
 * @module
 */

import { openThinnedList } from "./bounded_lists.ts";
import type { TracesNews, TraceView } from "./view.ts";

const NEWEST_MAX = 8;
const EARLIER_MAX = 16;

/** A traced step, made when it is first wanted. */
interface KeptTrace {
  readonly step: number;
  readonly make: () => TraceView;
}

/** Traced steps. */
export interface KeptTraces {
  /** Adds one, which is made when somebody looks. */
  add(step: number, make: () => TraceView): void;
  /** All of them. */
  all(): TracesNews;
  /** Those that have come since it was asked last. */
  news(): TracesNews | undefined;
}

/** Opens a list of none. */
export function openKeptTraces(): KeptTraces {
  const newest: KeptTrace[] = [];
  const earlier = openThinnedList<KeptTrace>(EARLIER_MAX, (first) => first);
  let untold: readonly KeptTrace[] = [];
  const kept = () => [...earlier.entries, ...newest];
  const tell = (added: readonly KeptTrace[]): TracesNews => ({
    kept: kept().map(({ step }) => step),
    added: added.map(({ make }) => make()),
  });
  return {
    add(step, make) {
      const trace = { step, make: once(make) };
      newest.push(trace);
      if (newest.length > NEWEST_MAX) earlier.add(newest.shift()!);
      untold = [...untold, trace].slice(-NEWEST_MAX);
    },
    all: () => tell(kept()),
    news() {
      const added = untold;
      untold = [];
      return added.length > 0 ? tell(added) : undefined;
    },
  };
}

function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => made ??= make();
}
