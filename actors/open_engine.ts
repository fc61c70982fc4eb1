/**
 * Which engine runs a prepared run: serial, a pipeline that outlives its workers, or one without
 * flushes.
 *
 * @module
 */

import type { StageState } from "../kernels/mod.ts";
import { openAsyncPipeline } from "./async_pipeline.ts";
import type { Engine } from "./engine.ts";
import { openPipeline } from "./pipeline.ts";
import { openRecovering } from "./recovery.ts";
import { openSerial } from "./serial.ts";
import { openSerialAsync } from "./serial_async.ts";
import type { PreparedRun } from "./train_options.ts";

/** Opens the engine of a run. */
export async function openEngine(prepared: PreparedRun): Promise<Engine> {
  const { runtime, schedule, isolation } = prepared;
  const isolate = runtime === "workers" ? isolation : "local";
  if (schedule.updates !== "flush") {
    if (runtime === "serial") return await openSerialAsync(prepared);
    // No step is ever committed by all workers, so there is none to go on from when one is lost.
    return await openAsyncPipeline(prepared, isolate);
  }
  if (runtime === "serial") return await openSerial(prepared);
  let opened = 0;
  const open = (state: StageState) =>
    openPipeline({ ...prepared, state }, isolate, prepared.faults[opened++]);
  return await openRecovering(open, { ...prepared, canKill: isolate === "process" });
}
