/**
 * What code that is not the program's own may do.
 *
 * @module
 */

import type { Lock } from "../packages/module_graph.ts";

/** Permissions by their kinds, as Deno names them; what is left out is not granted. */
export interface Permissions {
  /** Files and folders to read; `true`: all. */
  readonly read?: boolean | readonly string[];
  /** Files and folders to write. */
  readonly write?: boolean | readonly string[];
  /** Hosts, with their ports or without. */
  readonly net?: boolean | readonly string[];
  /** Environment variables. */
  readonly env?: boolean | readonly string[];
  /** Programs; what these do is not confined. */
  readonly run?: boolean | readonly string[];
  /** Dynamic libraries, by their full paths. */
  readonly ffi?: boolean | readonly string[];
  /** What the operating system tells of itself. */
  readonly sys?: boolean | readonly string[];
  /** Hosts to import from, beyond its own modules; whoever may import from anywhere may import any
   * package of npm as well. */
  readonly import?: boolean | readonly string[];
}

/** How an isolate of somebody else's code is held. */
export interface Confinement {
  /** Specifier of the module whose code it is. */
  readonly from: string;
  /** The hash that its modules must have; undefined: any. */
  readonly integrity?: string | undefined;
  /** Versions that were chosen for what it imports; undefined: the newest ones. */
  readonly lock?: Lock | undefined;
  /** What it may do. */
  readonly permissions: Permissions;
  /** How long one message may take it, in milliseconds, before it is ended. */
  readonly stepLimitMs: number;
  /** Memory that it may hold, all kinds together, in MiB, before it is ended. */
  readonly memoryLimitMb: number;
}

/** How an isolate of the program's own code is held that may do less than the program. */
export interface Least {
  /** Id of the actor. */
  readonly actor: string;
  /** What it may do, besides what its transport does in it. */
  readonly permissions: Permissions;
  /** Modules that it imports by their names. */
  readonly modules: readonly string[];
}

/** As its transport is told. */
export interface Confined extends Confinement {
  /** Id of the actor. */
  readonly actor: string;
  /** To be called with what it asked for and was not granted. */
  readonly denied: (permission: string, value: string) => void;
  /** To be called where it cannot be held as it was asked for, and is in another way. */
  readonly moved: (to: string, why: string) => void;
}

/** What either of two grants. */
export function together(one: Permissions, other: Permissions): Permissions {
  const kinds = new Set([...Object.keys(one), ...Object.keys(other)]) as Set<keyof Permissions>;
  return Object.fromEntries(Array.from(kinds, (kind) => {
    const values = [one[kind] ?? [], other[kind] ?? []];
    const isAll = values.includes(true);
    return [kind, isAll || values.flatMap((value) => typeof value === "boolean" ? [] : value)];
  }));
}

/** Whether all that one grants is granted by the other by the same names. */
export function isWithin(one: Permissions, most: Permissions): boolean {
  return (Object.keys(one) as (keyof Permissions)[]).every((kind) => {
    const { [kind]: value = false } = one, { [kind]: limit = false } = most;
    if (limit === true || value === false) return true;
    return value !== true && value.every((item) => limit && limit.includes(item));
  });
}
