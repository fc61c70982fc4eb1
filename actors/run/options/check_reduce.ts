/**
 * What must hold for MPI to add the gradients.
 *
 * @module
 */

import type { TrainOptions } from "./train_options.ts";

/**
 * Refuses options that do not go with `reduce: "mpi"`.
 *
 * @throws {RangeError} naming the one that is in the way.
 */
export function checkReduce(
  { reduce, runtime, link, journal }: Pick<TrainOptions, "reduce" | "runtime" | "link" | "journal">,
): void {
  if (reduce !== "mpi") return;
  const refuse = (rule: string, received: string) => {
    throw new RangeError(`Cannot train with reduce mpi: ${rule}, received ${received}`);
  };
  if (runtime !== "mpi") refuse("the runtime must be mpi", `${runtime}`);
  if (link) refuse("no link must be emulated, as MPI has its own", "one");
  if (journal) refuse("no journal must be written, as none can play the sums of MPI again", "one");
}
