/**
 * Where the workers of a run are: which transport reaches them, and what that can do.
 *
 * @module
 */

import type { PlaceName, System, Transport } from "../runtime/mod.ts";
import { transportsOf } from "../runtime/transports/built_in.ts";

/** What decides which transports a run knows. */
export interface PlaceOptions {
  readonly system?: System | undefined;
  readonly transport?: Transport | readonly Transport[] | undefined;
}

/** The transports that a run can name: those of its system, else those that one of its own gets. */
export function knownTransports({ system, transport }: PlaceOptions): readonly Transport[] {
  const own = system?.transports ?? [];
  // In a simulated system every place is local, whatever its name.
  return own.length > 0 ? own : transportsOf(transport);
}

/** What reaches workers in a place; undefined where they live beside their supervisor. */
export function transportTo(isolate: PlaceName, options: PlaceOptions): Transport | undefined {
  if (isolate === "local" || options.system?.transports.length === 0) return undefined;
  return knownTransports(options).find(({ name }) => name === isolate);
}
