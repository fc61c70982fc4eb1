/**
 * The transport of Deno workers.
 *
 * @module
 */

import { isConfined } from "../confined/confined.ts";
import { startConfinedWorker } from "../confined/worker/confined_worker.ts";
import { Workshop } from "../confined/workshop.ts";
import type { Transport } from "../transport.ts";
import { isLimited, LIMITED } from "./limited_workers.ts";
import { openWorkers } from "./worker.ts";

/** Isolates in Deno workers. */
export const WORKER_TRANSPORT: Transport = {
  name: "worker",
  sharesMemory: true,
  canKill: false,
  limitsMemory: false,
  confines: true,
  open(options) {
    const workers = openWorkers(), limited = openWorkers(LIMITED), workshop = new Workshop();
    return {
      ...workers,
      start(request) {
        if (isConfined(request)) return startConfinedWorker(request, options, workshop);
        return (isLimited(request) ? limited : workers).start(request);
      },
      drain() {
        limited.drain!();
        return workers.drain!();
      },
    };
  },
};
