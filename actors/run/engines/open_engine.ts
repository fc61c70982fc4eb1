/**
 * Which engine runs a prepared run: serial, a pipeline that outlives its workers, or one without
 * flushes.
 *
 * @module
 */

import type { StageState } from "../../../kernels/mod.ts";
import { openAsyncPipeline } from "./async_pipeline.ts";
import type { Engine } from "./engine.ts";
import { openPipeline } from "./pipeline.ts";
import { openRecovering } from "../recovery/recovery.ts";
import { openSerial } from "./serial.ts";
import { openSerialAsync } from "./serial_async.ts";
import type { PreparedRun } from "../options/prepare_run.ts";

/** Opens the engine of a run. */
export async function openEngine(prepared: PreparedRun): Promise<Engine> {
  const { runtime, schedule, isolation } = prepared;
  const isolate = runtime === "workers" ? isolation : "local";
  const flushes = schedule.updates === "flush";
  if (runtime === "serial") return await (flushes ? openSerial : openSerialAsync)(prepared);
  const openWorkers = flushes ? openPipeline : openAsyncPipeline;
  let opened = 0;
  const open = async (state: StageState) => {
    const nth = opened++, fault = prepared.faults[nth];
    return await openWorkers({ ...await journaled(prepared, nth), state }, isolate, fault);
  };
  return await openRecovering(open, { ...prepared, canKill: isolate === "process" });
}

/** A run with the journal of the `nth` time that its workers start. */
async function journaled(prepared: PreparedRun, nth: number): Promise<PreparedRun> {
  // Whoever made the system has a journal of it, or none.
  if (prepared.system) return prepared;
  return { ...prepared, observer: await prepared.journal?.begin(prepared, nth) };
}
