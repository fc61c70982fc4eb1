/**
 * What is spawned when the actor of a package is asked for: the bootstrap module, confined.
 *
 * @module
 */

import { type SpawnOptions, STEP_LIMIT_MS } from "../context_api.ts";
import type { Confinement } from "../transports/confinement.ts";
import type { ActorSpec, AnySpec } from "../types.ts";
import { INSPECTED, PACKAGED, type PackageInit } from "./bootstrap.ts";

/** Default of {@linkcode SpawnOptions.memoryLimitMb} for the actor of a package. */
const MEMORY_LIMIT_MB = 512;

/** What an actor is made of, and how it is held. */
export interface Unpacked {
  readonly spec: ActorSpec;
  readonly init: unknown;
  readonly options: SpawnOptions;
  /** Absent where it is the program's own code, or trusted as such. */
  readonly confinement?: Confinement;
}

/** How a spec is called in journals and reports. */
export const nameOf = (spec: AnySpec): string =>
  "from" in spec ? `${spec.from}#${spec.export ?? "actor"}` : spec.export;

/** The factory, its init, and where it goes; options as given where it is no package. */
export function unpack(spec: AnySpec, init: unknown, options: SpawnOptions): Unpacked {
  if (!("from" in spec)) return { spec, init, options };
  const { from, export: name = "actor", protocol, integrity, lock } = spec;
  const { permissions = {}, stepLimitMs = STEP_LIMIT_MS, memoryLimitMb = MEMORY_LIMIT_MB } =
    options;
  const isTrusted = permissions === "inherit";
  const packed: PackageInit = {
    ...{ from, export: name, protocol, init },
    // Whoever confines it looks before it starts.
    integrity: isTrusted ? integrity : undefined,
    lock: isTrusted ? lock : undefined,
  };
  const made = "inspects" in spec ? INSPECTED : PACKAGED;
  const unpacked = { spec: made, init: packed, options: { isolate: "process", ...options } };
  if (isTrusted) return unpacked;
  const confinement = { from, integrity, lock, permissions, stepLimitMs, memoryLimitMb };
  return { ...unpacked, confinement };
}
