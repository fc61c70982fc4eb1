/**
 * What `--memory` tells: planned before the run, and at its end what was used and what the system saw.
 *
 * @module
 */

import type { Plan } from "../../actors/run/plan.ts";
import type { StageMemory } from "../../kernels/mod.ts";
import { besideTable, memoryLines, memoryTable, residentLines } from "./memory_table.ts";
import { watchResident } from "./resident_memory.ts";

/** What was used, for each worker, where it was counted. */
type Used = readonly StageMemory[] | undefined;

/** Tells of memory; disposing of it ends its looking at processes. */
export interface MemoryReport extends Disposable {
  /** Lines for a person before the run. */
  begin(plan: Plan): string[];
  /** Lines for a person after it. */
  end(used: Used): string[];
  /** All of that as one line of JSON holds it. */
  json(used: Used): unknown;
}

/** Begins to look at what the system sees. */
export function openMemoryReport(): MemoryReport {
  const resident = watchResident();
  let plan: Plan;
  const linesOf = (used: Used) => memoryLines(plan.memory, used, plan.run);
  return {
    begin(made) {
      plan = made;
      const lines = linesOf(undefined);
      return [...memoryTable(lines), ...besideTable(lines, plan.run)];
    },
    end: (used) => [...memoryTable(linesOf(used)), ...residentLines(plan.run, resident.look())],
    json: (used) => ({
      memory: linesOf(used),
      supervisor: plan.run.supervisor,
      plannedBytes: plan.run.totalBytes,
      ...resident.look(),
    }),
    [Symbol.dispose]: () => resident[Symbol.dispose](),
  };
}
