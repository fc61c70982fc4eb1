/**
 * Which serial loop is the oracle of a schedule.
 *
 * @module
 */

import { UPDATE_POLICIES } from "../../pipeline/update_policy.ts";
import type { Engine, EngineOptions } from "./engine.ts";
import { openSerial } from "./serial.ts";
import { openSerialUnflushed } from "./serial_unflushed.ts";

/** Opens the serial engine of a schedule, with or without flushes. */
export function openSerialOf(options: EngineOptions): Promise<Engine> {
  const { isFlushed } = UPDATE_POLICIES[options.schedule.updates];
  return isFlushed ? openSerial(options) : openSerialUnflushed(options);
}
