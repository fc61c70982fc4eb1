/**
 * What a registry lists.
 *
 * @module
 */

import type { Lock } from "../sandbox/mod.ts";

/** The kinds of parts. */
export const PART_KINDS = ["actor", "model", "data", "optimizer", "supervisor"] as const;

/** What a part is for. */
export type PartKind = (typeof PART_KINDS)[number];

/** An actor, or a part of a training run, that has a name. */
export interface Part {
  /** What it is asked for by: its name, or the specifier itself where that was given. */
  readonly name: string;
  /** What it is for. */
  readonly kind: PartKind;
  /** Its module: `jsr:`, `npm:`, or an absolute URL. */
  readonly from: string;
  /** Name of what the module exports for it. Default: its kind. */
  readonly export?: string;
  /** Hash of its modules when it was added: see {@linkcode hashModule}. */
  readonly integrity?: string;
  /** Versions of what its modules import, chosen when it was added. */
  readonly lock?: Lock;
  /** Whether it comes with Troupe. */
  readonly isBuiltIn: boolean;
}
