/**
 * The largest sizes of a run. Larger values are mistakes or come from an untrusted file, and are
 * refused before anything is allocated.
 *
 * @module
 */

/** True in the repository, false in a package from a registry. */
const IS_REPOSITORY = import.meta.url.startsWith("file:");

/**
 * The words that call the command: a task in the repository, otherwise the package.
 *
 * @param words the words after `troupe`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(commandLine("train", "--resume runs/a"), "deno task train --resume runs/a");
 * assert.equal(commandLine("journal"), "deno task troupe journal");
 * ```
 */
export function commandLine(...words: string[]): string {
  const isTask = words[0] === "train" || words[0] === "generate";
  const command = IS_REPOSITORY
    ? isTask ? "deno task" : "deno task troupe"
    : "deno run -A jsr:@troupe/troupe/cli";
  return [command, ...words].join(" ");
}

/** Workers of a run, those of all its replicas together. */
export const WORKERS_MAX = 256;

/** Threads of a worker within an operation. */
export const THREADS_MAX = 256;

/** Bytes of an empty isolate in a thread. */
export const ISOLATE_BYTES = 2 ** 25;

/** Bytes of a Deno process with the modules of a worker or a supervisor. */
export const PROCESS_BYTES = 85 * 2 ** 20;

/** Micro-batches of a step, those of all its replicas together. */
export const MICRO_BATCHES_MAX = 65_536;

/** Micro-batches of a step times workers of a pipeline: the lists of its actions. */
const COMPUTED_MAX = 2 ** 20;

/** Steps of a run, buckets of a chunk and the like: nothing is allocated for them. */
export const COUNT_MAX = 2 ** 31 - 1;

/** Numbers that determine the size of a run. */
interface RunSizes {
  /** Workers of a pipeline. */
  readonly workers: number;
  /** Micro-batches of a step and a replica. */
  readonly microBatches: number;
  /** Data-parallel replicas. */
  readonly replicas: number;
}

/**
 * Refuses sizes that are too large, each for itself or together.
 *
 * @throws {RangeError} naming them.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * checkSizes({ workers: 8, microBatches: 64, replicas: 4 });
 * assert.throws(() => checkSizes({ workers: 64, microBatches: 64, replicas: 64 }), {
 *   message: "Cannot train: workers times replicas must be at most 256, received 64 times 64",
 * });
 * ```
 */
export function checkSizes({ workers, microBatches, replicas }: RunSizes): void {
  const products = [
    ["workers times replicas", workers, replicas, WORKERS_MAX],
    ["microBatches times replicas", microBatches, replicas, MICRO_BATCHES_MAX],
    ["workers times microBatches", workers, microBatches, COMPUTED_MAX],
  ] as const;
  for (const [what, one, other, most] of products) {
    if (one * other <= most) continue;
    throw new RangeError(
      `Cannot train: ${what} must be at most ${most}, received ${one} times ${other}`,
    );
  }
}
