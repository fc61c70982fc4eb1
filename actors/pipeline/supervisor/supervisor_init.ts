/**
 * What the supervisor is made from.
 *
 * @module
 */

import type { WeightUpdates } from "../../../schedules/mod.ts";
import type { ActorSpec, PlaceName } from "../../runtime/mod.ts";
import type { InFlightOptions } from "../mailbox_bound.ts";
import type { WorkerMessage } from "../protocol.ts";
import type { WorkerInit } from "../worker/worker_init.ts";

/** What the supervisor is made from. */
export interface SupervisorInit extends InFlightOptions {
  /** What each of its workers is made from. */
  readonly workers: readonly WorkerInit[];
  /** What makes a worker, where that is not Troupe's own. It is trusted as the program is. */
  readonly worker?: ActorSpec<WorkerInit, WorkerMessage>;
  /** Where the workers run: beside the supervisor, or each in an isolate of its own. */
  readonly isolate: PlaceName;
  /** Limit of the JavaScript heap of each worker, in MiB, where there can be one; V8's unless given. */
  readonly heapLimitMb?: number | undefined;
  /** When weights step. */
  readonly updates: WeightUpdates;
  /** The most that the norm of all gradients may be; more is scaled down. */
  readonly clip?: number | undefined;
}
