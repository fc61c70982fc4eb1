/**
 * What an engine without actors does, when.
 *
 * @module
 */

import type { TracedAction } from "../../pipeline/step.ts";
import { realClock } from "../../runtime/world/clock.ts";

/** Writes down the actions of one step after the other. */
export interface SerialTrace {
  /** Runs an action and gives what it gives. */
  run<T>(name: string, action: () => T | Promise<T>): Promise<T>;
  /** What has run since it was asked last, as that of one worker; empty unless the run is traced. */
  take(): readonly (readonly TracedAction[])[];
}

/** Opens the trace of an engine. */
export function openSerialTrace(isTraced: boolean): SerialTrace {
  if (!isTraced) return { run: async (_, action) => await action(), take: () => [] };
  const { now } = realClock();
  let trace: TracedAction[] = [];
  return {
    async run(name, action) {
      const start = now(), result = await action();
      trace.push({ name, start, end: now() });
      return result;
    },
    take() {
      const taken = trace;
      trace = [];
      return [taken];
    },
  };
}
