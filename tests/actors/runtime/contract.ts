/**
 * The contract of actors: one suite of tests, run for every kind of isolate.
 *
 * @module
 */

import { IS_DEEP } from "../../depth.ts";
import { ASKS } from "./contract/asks.ts";
import { CARELESS } from "./contract/careless.ts";
import { ENDS } from "./contract/ends.ts";
import { CROSSINGS, ISOLATE_ENDS } from "./contract/isolates.ts";
import { ADDRESSES, MESSAGES } from "./contract/messages.ts";
import { FAMILIES, STOPS } from "./contract/stops.ts";
import { type Place, register, type Suite } from "./contract/suite.ts";
import { SUBSCRIPTIONS, TIME } from "./contract/time.ts";

/** Tests for every place. */
const EVERYWHERE: Suite = {
  ...{ ...MESSAGES, ...ADDRESSES, ...ASKS, ...ENDS, ...FAMILIES },
  ...{ ...STOPS, ...SUBSCRIPTIONS, ...TIME, ...CARELESS },
};

/** Tests for places where each actor has a separate isolate. */
const ELSEWHERE: Suite = { ...ISOLATE_ENDS, ...CROSSINGS };

/** Registers the suite for actors in a place; `some` of it are enough outside of `test:deep`. */
export function runContract(place: Place, some: readonly Suite[] = []): void {
  if (some.length > 0 && !IS_DEEP) return some.forEach((suite) => register(place, suite));
  register(place, EVERYWHERE);
  if (place.isolate !== "local") register(place, ELSEWHERE);
}
