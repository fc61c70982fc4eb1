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
  /** Programs. */
  readonly run?: boolean | readonly string[];
  /** Dynamic libraries, by their full paths. */
  readonly ffi?: boolean | readonly string[];
  /** What the operating system tells of itself. */
  readonly sys?: boolean | readonly string[];
  /** Hosts to import from, beyond what is cached. */
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

/** As its transport is told. */
export interface Confined extends Confinement {
  /** Id of the actor. */
  readonly actor: string;
  /** To be called with what it asked for and was not granted. */
  readonly denied: (permission: string, value: string) => void;
  /** To be called where it cannot be held as it was asked for, and is in another way. */
  readonly moved: (to: string, why: string) => void;
}
