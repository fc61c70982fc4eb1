/**
 * The transport of Deno workers.
 *
 * @module
 */

import type { Transport } from "../transport.ts";
import { openWorkers } from "./worker.ts";

/** Isolates in Deno workers. */
export const WORKER_TRANSPORT: Transport = {
  name: "worker",
  sharesMemory: true,
  canKill: false,
  limitsMemory: false,
  open: () => openWorkers(),
};
