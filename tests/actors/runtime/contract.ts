/**
 * What holds for an actor wherever it lives: one suite, run for every kind of isolate.
 *
 * @module
 */

import { ADDRESSES } from "./contract/addresses.ts";
import { ASKS } from "./contract/asks.ts";
import { CARELESS } from "./contract/careless.ts";
import { CIRCLES } from "./contract/circles.ts";
import { ENDS } from "./contract/ends.ts";
import { FAMILIES } from "./contract/families.ts";
import { CROSSINGS, ISOLATE_ENDS } from "./contract/isolates.ts";
import { MESSAGES } from "./contract/messages.ts";
import { POOLS } from "./contract/pools.ts";
import { STOPS } from "./contract/stops.ts";
import { SUBSCRIPTIONS } from "./contract/subscriptions.ts";
import { type Place, register } from "./contract/suite.ts";
import { TIME } from "./contract/time.ts";

/** What holds in every place. */
const EVERYWHERE = [
  MESSAGES,
  ASKS,
  CIRCLES,
  ENDS,
  POOLS,
  STOPS,
  SUBSCRIPTIONS,
  FAMILIES,
  TIME,
  CARELESS,
  ADDRESSES,
];

/** What holds where each actor has an isolate of its own. */
const ELSEWHERE = [ISOLATE_ENDS, CROSSINGS];

/** Registers the suite for actors that live in a place. */
export function runContract(place: Place): void {
  for (const suite of EVERYWHERE) register(place, suite);
  if (place.isolate === "local") return;
  for (const suite of ELSEWHERE) register(place, suite);
}
