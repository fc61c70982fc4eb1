/**
 * What holds for an actor wherever it lives: one suite, run for every kind of isolate.
 *
 * @module
 */

import { askContract } from "./contract/asks.ts";
import { endContract } from "./contract/ends.ts";
import { familyContract } from "./contract/families.ts";
import { messageContract } from "./contract/messages.ts";
import { carelessContract } from "./contract/careless.ts";
import { stopContract } from "./contract/stops.ts";
import { subscriptionContract } from "./contract/subscriptions.ts";
import { timeContract } from "./contract/time.ts";

/** Registers the suite for actors that live in `isolate`. */
export function runContract(isolate: "local" | "worker" | "process"): void {
  const parts = [
    messageContract,
    askContract,
    endContract,
    familyContract,
    stopContract,
    subscriptionContract,
    timeContract,
    carelessContract,
  ];
  for (const part of parts) part(isolate);
}
