/**
 * The flags that say what stages hold, and what a worker may: those of `troupe schedule`.
 *
 * @module
 */

import { inMiB } from "../../schedules/analysis/memory.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import type { MemoryBudget, WorkerBytes } from "../../schedules/mod.ts";
import type { GivenFlags } from "../flags/flag.ts";
import { readSize, readSizes } from "../flags/quantities.ts";

const SIZES = {
  kind: "own",
  value: "SIZE",
  read: readSizes,
  must: "a size such as 512MiB, 1000000 or 0, or several with commas between them",
} as const;

/** What stages hold. */
export const MEMORY_FLAGS = {
  "weight-bytes": { ...SIZES, help: "weights of 1/D of the model; SIZE,SIZE,... for slices of it" },
  "gradient-bytes": { ...SIZES, otherwise: "as weights", help: "their gradients" },
  "optimizer-bytes": {
    ...SIZES,
    otherwise: "twice the weights",
    help: "their states of the optimizer",
  },
  "activation-bytes": {
    ...SIZES,
    help: "activations of a micro-batch for 1/D of the model",
  },
  "kept-bytes": {
    ...SIZES,
    otherwise: "0",
    help: "what F keeps of them where R brings back the rest",
  },
  "input-freed-bytes": { ...SIZES, otherwise: "0", help: "what I frees of them; W frees the rest" },
  "message-bytes": {
    kind: "own",
    value: "SIZE",
    read: readSize,
    must: "a size of at least one byte such as 2MiB or 1000000",
    otherwise: "0",
    help: "what a stage hands to the next one for a micro-batch",
  },
  "memory-limit": {
    kind: "own",
    value: "SIZE",
    read: readSize,
    must: "a size of at least one byte such as 512MiB, 2GiB or 1000000",
    help: "refuse what needs more on a worker; compare: leave it out",
  },
} as const;

/**
 * What the flags say of memory; undefined where they say nothing.
 *
 * @throws {TypeError} where there is a limit and nothing that it could limit.
 */
export function memoryBudgetOf(flags: GivenFlags<typeof MEMORY_FLAGS>): MemoryBudget | undefined {
  const { "memory-limit": limitBytes } = flags;
  const bytes = {
    weights: flags["weight-bytes"],
    gradients: flags["gradient-bytes"],
    optimizer: flags["optimizer-bytes"],
    activations: flags["activation-bytes"],
    kept: flags["kept-bytes"],
    freedByInput: flags["input-freed-bytes"],
    message: flags["message-bytes"],
  };
  if (Object.values(bytes).some((one) => one !== undefined)) return { bytes, limitBytes };
  if (limitBytes === undefined) return undefined;
  throw new TypeError(
    "Cannot limit memory: --weight-bytes or --activation-bytes must be given beside --memory-limit, received neither",
  );
}

/** What workers hold at their peaks, as a table. */
export function memoryLines(workers: readonly WorkerBytes[]): string[] {
  const head = ["worker", "weights", "gradients", "optimizer", "activations", "in all"];
  const rows = workers.map(({ weights, gradients, optimizer, activations, peak }, worker) => [
    String(worker),
    ...[weights, gradients, optimizer, activations, peak].map(inMiB),
  ]);
  return formatTable([head, ...rows], { left: [] });
}
