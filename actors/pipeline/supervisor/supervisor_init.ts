/**
 * What the supervisor is made from.
 *
 * @module
 */

import type { WeightUpdates } from "../../../schedules/mod.ts";
import type { InFlightOptions } from "../mailbox_bound.ts";
import type { WorkerInit } from "../worker/worker_init.ts";

/** Where workers run: beside the supervisor, each in a Deno worker, or each in a process. */
export type Isolation = "local" | "worker" | "process";

/** What the supervisor is made from. */
export interface SupervisorInit extends InFlightOptions {
  readonly workers: readonly WorkerInit[];
  /** Where the workers run: beside the supervisor, or each in a worker or process of its own. */
  readonly isolate: Isolation;
  /** Limit of the JavaScript heap of each worker that is a process, in MiB; V8's unless given. */
  readonly heapLimitMb?: number | undefined;
  /** When weights step. */
  readonly updates: WeightUpdates;
  /** The most that the norm of all gradients may be; more is scaled down. */
  readonly clip?: number | undefined;
}
