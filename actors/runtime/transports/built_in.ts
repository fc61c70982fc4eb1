/**
 * The transports of a system.
 *
 * @module
 */

import type { Transport } from "./transport.ts";
import { PROCESS_TRANSPORT } from "./process/process.ts";
import { WORKER_TRANSPORT } from "./worker/worker_transport.ts";

/** Returns Deno workers and processes, which every system has, and the registered ones. */
export const transportsOf = (
  registered: Transport | readonly Transport[] = [],
): readonly Transport[] => [WORKER_TRANSPORT, PROCESS_TRANSPORT].concat(registered);
