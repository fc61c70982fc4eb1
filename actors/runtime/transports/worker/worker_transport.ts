/**
 * The transport of Deno workers.
 *
 * @module
 */

import { isConfined } from "../confined/confined.ts";
import { startConfinedWorker } from "../confined/worker/confined_worker.ts";
import { Workshop } from "../confined/workshop.ts";
import type { Transport } from "../transport.ts";
import { openWorkers } from "./worker.ts";

/** Isolates in Deno workers. */
export const WORKER_TRANSPORT: Transport = {
  name: "worker",
  sharesMemory: true,
  canKill: false,
  limitsMemory: false,
  confines: true,
  open(options) {
    const workers = openWorkers(), workshop = new Workshop();
    return {
      ...workers,
      start: (request) =>
        isConfined(request)
          ? startConfinedWorker(request, options, workshop)
          : workers.start(request),
    };
  },
};
