/**
 * The transports that every system has.
 *
 * @module
 */

import type { Transport } from "./transport.ts";
import { PROCESS_TRANSPORT } from "./process/process.ts";
import { WORKER_TRANSPORT } from "./worker/worker_transport.ts";

/** Deno workers and processes. */
export const BUILT_IN_TRANSPORTS: readonly Transport[] = [WORKER_TRANSPORT, PROCESS_TRANSPORT];

/** All that a system knows, those first that come with it. */
export function transportsOf(
  registered: Transport | readonly Transport[] = [],
): readonly Transport[] {
  return BUILT_IN_TRANSPORTS.concat(registered);
}
