/** Offers: the actions whose inputs have arrived, and which of them an action uses. */

import { type Action, formatAction, parts } from "../actions/action.ts";

/**
 * Whether all that an action needs is among the offers.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, F, I, isOffered, overlap } from "@troupe/troupe/schedules";
 *
 * strictEqual(isOffered([F(0, 1), B(7, 0)], overlap(F(0, 1), I(7, 0))), true);
 * strictEqual(isOffered([F(0, 1)], F(0, 1, 2)), false);
 * ```
 */
export function isOffered(ready: readonly Action[], action: Action): boolean {
  for (const part of parts(action)) if (offersFor(ready, part).length === 0) return false;
  return true;
}

/**
 * Takes the offers that an action uses out of `ready`. The offer of a whole backward stays until
 * its second half runs.
 *
 * @throws {RangeError} if the action, or a part of it, is not offered.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 * import { B, F, I, overlap, takeOffers } from "@troupe/troupe/schedules";
 *
 * const ready = [F(0, 1), B(7, 0), B(7, 1)];
 * takeOffers(ready, overlap(F(0, 1), I(7, 0)));
 * deepStrictEqual(ready, [B(7, 1)]);
 * ```
 */
export function takeOffers(ready: Action[], action: Action): void {
  for (const part of parts(action)) {
    const offers = offersFor(ready, part);
    if (offers.length === 0) {
      throw new RangeError(
        `Cannot run ${formatAction(action)}: ${formatAction(part)} must be offered, received ` +
          `[${ready.map(formatAction).join(", ")}]`,
      );
    }
    for (const offer of offers) {
      const isFirstHalfOfWhole = part.half === 0 && offer.half === undefined;
      if (!isFirstHalfOfWhole) ready.splice(ready.indexOf(offer), 1);
    }
  }
}

/** The offers that serve a part: one of them, two halves for a whole backward, or none. */
function offersFor(ready: readonly Action[], wanted: Action): readonly Action[] {
  const halves: Action[] = [];
  for (const offer of ready) {
    if (!isOf(offer, wanted)) continue;
    if (offer.half === undefined || offer.half === wanted.half) return [offer];
    halves.push(offer);
  }
  return wanted.half === undefined && halves.length === 2 ? halves : NONE;
}

const NONE: readonly Action[] = [];

/** Whether an offer is of what is wanted, halves aside. */
function isOf({ kind, stage, microBatch, slice }: Action, wanted: Action): boolean {
  return microBatch === wanted.microBatch && stage === wanted.stage && slice === wanted.slice &&
    (kind === wanted.kind || (kind === "B" && wanted.kind === "I"));
}
