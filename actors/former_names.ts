/**
 * Names of before, for those who import them.
 *
 * @module
 */

import type { Message } from "./runtime/mod.ts";
import type { SupervisorMessage } from "./pipeline/protocol.ts";
import { type EmulatedLink, openEmulatedLink } from "./pipeline/links/emulated_link.ts";
import {
  type MicroBatchShare,
  shareMicroBatches,
  shareStep,
  type StepShares,
} from "./pipeline/step_plan.ts";

/** @deprecated Its name is {@linkcode MicroBatchShare}. */
export type Share = MicroBatchShare;

/** @deprecated Its name is {@linkcode StepShares}. */
export type Deal = StepShares;

/** @deprecated Its name is {@linkcode EmulatedLink}. */
export type Link<P extends Message> = EmulatedLink<P>;

/** @deprecated Its name is {@linkcode openEmulatedLink}. */
export const openLink: typeof openEmulatedLink = openEmulatedLink;

/** @deprecated Its name is {@linkcode shareStep}. */
export const dealOf: typeof shareStep = shareStep;

/** @deprecated Its name is {@linkcode shareMicroBatches}. */
export const dealMicroBatches: typeof shareMicroBatches = shareMicroBatches;

/** @deprecated It is a part of {@linkcode SupervisorMessage}. */
export type FromAnyWorker = Extract<SupervisorMessage, { readonly type: "Ready" | "Saved" }>;
