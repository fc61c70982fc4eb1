/**
 * A run that would need more memory than it may is refused before it begins, with the cheapest
 * change that would fit.
 *
 * @module
 */

import { type DeviceName, mebibytes } from "../../../kernels/mod.ts";
import { advise, changesOfMemory, type LargeRun } from "./changes.ts";
import { limitedBytes, type WorkerMemory } from "./memory_plan.ts";

/** The worker that needs most. */
function largest(memory: readonly WorkerMemory[], name: DeviceName): [WorkerMemory, number] {
  const sized = memory.map((one): [WorkerMemory, number] => [one, limitedBytes(one, name)]);
  return sized.reduce((most, one) => one[1] > most[1] ? one : most);
}

/**
 * Refuses a run that needs more than `memoryLimitBytes` on a worker.
 *
 * @throws {RangeError} saying which worker needs how much, and what would fit.
 */
export function assertMemory(limit: number | undefined, run: LargeRun): void {
  if (limit === undefined) return;
  const { name } = run.devices[0];
  const [{ worker, isBound }, bytes] = largest(run.compiled.memory, name);
  if (bytes <= limit) return;
  const advice = advise(
    run,
    changesOfMemory(run),
    limit,
    ({ memory }) => largest(memory, name)[1],
    "take more workers or a smaller micro-batch",
  );
  throw new RangeError(
    `Cannot train within the memory limit: each worker must need at most ${
      mebibytes(limit)
    }, received ${isBound ? "up to " : ""}${mebibytes(bytes)} on worker ${worker}; ${advice}`,
  );
}
