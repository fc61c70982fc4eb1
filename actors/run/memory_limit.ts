/**
 * A run that would need more memory than it may is refused before it begins, with the cheapest
 * change that would fit.
 *
 * @module
 */

import {
  bestRecomputeInterval,
  type DeviceName,
  hasOwnMemory,
  mebibytes,
} from "../../kernels/mod.ts";
import type { Schedule } from "../../schedules/mod.ts";
import { type CompiledRun, type CompileOptions, compileRun } from "./compile_run.ts";
import { limitedBytes, type WorkerMemory } from "./memory_plan.ts";
import type { TrainOptions } from "./options/train_options.ts";

/** A change of a run, and how a user asks for it. */
interface Change {
  readonly flags: string;
  readonly options: Partial<CompileOptions>;
}

const RECOMPUTE_CHEAP: Change = { flags: "--recompute cheap", options: { recompute: "cheap" } };
const FP16: Change = { flags: "--precision fp16", options: { precision: "fp16" } };

/** Changes from the one that costs least time to the one that costs most. */
function changesFor(layers: number, workers: number, name: DeviceName): Change[] {
  const recomputeInterval = bestRecomputeInterval(layers, workers);
  const offload: Change[] = hasOwnMemory(name)
    ? [{ flags: "--offload", options: { offload: true } }]
    : [];
  const segments: Change = {
    flags: `--recompute-interval ${recomputeInterval}`,
    options: { recomputeInterval },
  };
  const single = [RECOMPUTE_CHEAP, ...offload, FP16, segments];
  const joined = (changes: readonly Change[]): Change => ({
    flags: changes.map(({ flags }) => flags).join(" "),
    options: Object.assign({}, ...changes.map(({ options }) => options)),
  });
  const pairs = single.flatMap((first, i) =>
    single.slice(i + 1).map((one) => joined([first, one]))
  );
  return [...single, ...pairs, joined(single)];
}

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
export function assertMemory(
  options: TrainOptions,
  schedule: Schedule,
  { memory, model }: CompiledRun,
  name: DeviceName,
): void {
  const { memoryLimitBytes: limit } = options;
  if (limit === undefined) return;
  const [{ worker }, bytes] = largest(memory, name);
  if (bytes <= limit) return;
  const fits = changesFor(model.layers.length, schedule.workers, name).map((change) => {
    const compiled = compileRun({ ...options, ...change.options }, schedule, name);
    return { ...change, bytes: largest(compiled.memory, name)[1] };
  });
  const change = fits.find((one) => one.bytes <= limit);
  const least = fits.reduce((least, one) => one.bytes < least.bytes ? one : least);
  const advice = change
    ? `${change.flags} would need ${mebibytes(change.bytes)}`
    : `even ${least.flags} would need ${
      mebibytes(least.bytes)
    }: take more workers or a smaller micro-batch`;
  throw new RangeError(
    `Cannot train within the memory limit: each worker must need at most ${
      mebibytes(limit)
    }, received ${mebibytes(bytes)} on worker ${worker}; ${advice}`,
  );
}
