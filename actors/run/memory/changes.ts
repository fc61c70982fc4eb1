/**
 * Changes of a run that make it smaller, and which of them would do.
 *
 * @module
 */

import {
  bestRecomputeInterval,
  countBlocks,
  deviceLimits,
  hasOwnMemory,
  mebibytes,
} from "../../../kernels/mod.ts";
import { type Schedule, scheduleDefinitions } from "../../../schedules/mod.ts";
import { type CompiledRun, type CompileOptions, compileRun, planRun } from "../compile_run.ts";
import type { RunDevices } from "../options/run_devices.ts";

/** A change of a run, and how a user asks for it. */
export interface Change {
  readonly flags: string;
  readonly options: Partial<CompileOptions>;
  /** The schedule, where it is another; only good to plan with. */
  readonly schedule?: Schedule;
}

/** A run that is too large. */
export interface LargeRun {
  readonly options: CompileOptions;
  readonly schedule: Schedule;
  readonly compiled: CompiledRun;
  readonly devices: RunDevices;
}

const RECOMPUTE_CHEAP: Change = { flags: "--recompute cheap", options: { recompute: "cheap" } };
const FP16: Change = { flags: "--precision fp16", options: { precision: "fp16" } };

const joined = (changes: readonly Change[]): Change => ({
  flags: changes.map(({ flags }) => flags).join(" "),
  options: Object.assign({}, ...changes.map(({ options }) => options)),
});

const precisions = (devices: RunDevices): Change[] =>
  devices.every((one) => deviceLimits(one).hasF16) ? [FP16] : [];

/** Changes that leave the micro-batch alone, from the one that costs least time to the one that costs most. */
export function changesOfMemory({ compiled, schedule, devices }: LargeRun): Change[] {
  const recomputeInterval = bestRecomputeInterval(
    countBlocks(compiled.model.layers),
    schedule.workers,
  );
  const offload: Change[] = hasOwnMemory(devices[0].name)
    ? [{ flags: "--offload", options: { offload: true } }]
    : [];
  // A schedule with an R says itself what is computed again.
  const segments: Change[] = compiled.recomputed.size > 0 ? [] : [{
    flags: `--recompute-interval ${recomputeInterval}`,
    options: { recomputeInterval },
  }];
  const [full, idle] = fewerInFlight(schedule);
  const single = [RECOMPUTE_CHEAP, ...offload, ...precisions(devices), ...segments];
  const pairs = single.flatMap((first, i) =>
    single.slice(i + 1).map((one) => joined([first, one]))
  );
  return [...full, ...single, ...pairs, joined(single), ...idle];
}

/** Fewer micro-batches in flight, where messages decide: those that fill all workers, and the rest. */
function fewerInFlight(schedule: Schedule): readonly [Change[], Change[]] {
  const { name, peaks, injectionLimit, workers } = schedule;
  const { reads = [] } = scheduleDefinitions.find((one) => one.name === name) ?? {};
  if (!peaks || !reads.includes("pipelineLimit")) return [[], []];
  const limits = Array.from({ length: injectionLimit - 1 }, (_, i) => injectionLimit - 1 - i);
  const changeTo = (limit: number): Change => ({
    flags: `--pipeline-limit ${limit}`,
    options: {},
    schedule: {
      ...schedule,
      injectionLimit: limit,
      peaks: peaks.map(({ least, most }) => ({
        least: Math.min(least, limit),
        most: Math.min(most, limit),
      })),
    },
  });
  return [
    limits.filter((limit) => limit >= workers).map(changeTo),
    limits.filter((limit) => limit < workers).map(changeTo),
  ];
}

/** Changes that make the largest tensor smaller: a half of the micro-batch, a quarter, ... */
export function changesOfTensors({ options: { model }, compiled, devices }: LargeRun): Change[] {
  const { samples = 1, withSamples } = model, smaller: Change[] = [];
  for (let left = samples >> 1; withSamples && left >= compiled.halves; left >>= 1) {
    smaller.push({ flags: `--micro-batch-size ${left}`, options: { model: withSamples(left) } });
  }
  const single = [...smaller, ...precisions(devices)];
  return single.length > 1
    ? [...single, joined([smaller.at(-1)!, ...precisions(devices)])]
    : single;
}

/**
 * The first change that brings a run within a limit; how far the best goes, where none does.
 *
 * @param measure bytes of a run of which there may be so many.
 * @param otherwise what to do where none does.
 */
export function advise(
  { options, schedule, compiled, devices }: LargeRun,
  changes: readonly Change[],
  limit: number,
  measure: (compiled: CompiledRun) => number,
  otherwise: string,
): string {
  let flagsOfLeast: string | undefined, least = measure(compiled);
  for (const { flags, options: changed, schedule: other } of changes) {
    const [{ name }] = devices;
    const bytes = measure(
      other
        ? planRun(compiled, other, name)
        : compileRun({ ...options, ...changed }, schedule, name),
    );
    if (bytes <= limit) return `${flags} would need ${mebibytes(bytes)}`;
    if (bytes < least) [flagsOfLeast, least] = [flags, bytes];
  }
  if (flagsOfLeast === undefined) return otherwise;
  return `even ${flagsOfLeast} would need ${mebibytes(least)}: ${otherwise}`;
}
