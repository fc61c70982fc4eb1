/** The schedules and options of the tests. */

import assert from "node:assert/strict";
import {
  createSchedule,
  parseCsv,
  type Schedule,
  scheduleDefinitions,
  scheduleFromLists,
  type ScheduleOptions,
  type SimulatedStep,
  simulateStep,
} from "../../schedules/mod.ts";
import { IS_DEEP } from "../depth.ts";
import fc from "../fast_check.ts";

/** A schedule by name and options. */
export interface Case {
  readonly name: string;
  readonly options: ScheduleOptions;
}

const MICRO_BATCHES = [1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 20, 24, 27, 30, 31, 32, 48, 64];
const WORKERS = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16];

/** Options of some schedules, with values from one to four. */
const OWN_COUNTS: Readonly<Record<string, "chunks" | "slices" | "waves">> = {
  ...{ interleaved: "chunks", "interleaved-zb": "chunks", "looped-bfs": "chunks" },
  ...{ seq1f1b: "slices", "seq1f1b-zb": "slices", terapipe: "slices", hanayo: "waves" },
};

/** Variants of the options of a schedule, without workers and micro-batches. */
function variants(name: string, workers: number): Partial<ScheduleOptions>[] {
  const own = OWN_COUNTS[name];
  if (own) return [1, 2, 3, 4].map((count) => ({ [own]: count }));
  if (name === "slimpipe") {
    const two = [1, 2, 4, 8].map((slices) => ({ slices, chunks: 2 }));
    return [...two, { slices: 3, chunks: 3 }];
  }
  if (name === "chimera") {
    const pipelines = [1, 2, 3, 4, 5, 6, 8];
    const scales = ["direct", "doubling", "halving"] as const;
    return pipelines.flatMap((f) => scales.map((scale) => ({ pipelines: f, scale })));
  }
  if (name === "message-driven") {
    const limits = [1, 2, workers, 2 * workers - 1];
    const orders = ["fifo", "backward-first"] as const;
    const byMessage = limits.flatMap((pipelineLimit) =>
      orders.map((order) => ({ pipelineLimit, order }))
    );
    const byReadiness = [1, workers, 1.5 * workers].flatMap((activationLimit) =>
      [1, 2].flatMap((chunks) => [
        { activationLimit, chunks, order: "bf" as const },
        ...[0, 1, 2, "all" as const].map((weightBacklog) => (
          { activationLimit, chunks, weightBacklog, order: "bfw" as const }
        )),
      ])
    );
    return [...byMessage, ...byReadiness];
  }
  if (name === "chimera-greedy") return [1, 2, 4].map((pipelines) => ({ pipelines }));
  return [{}];
}

/** Every schedule by rule, under every combination of options, valid or not. */
export function allCases(): Case[] {
  const names = scheduleDefinitions.map(({ name }) => name).filter((name) => name !== "search");
  return names.flatMap((name) =>
    WORKERS.flatMap((workers) =>
      MICRO_BATCHES.flatMap((microBatches) =>
        variants(name, workers).map((more) => ({
          name,
          options: { workers, microBatches, ...more },
        }))
      )
    )
  );
}

/** The schedule of a case; undefined if it refuses the options. */
export function made({ name, options }: Case): Schedule | undefined {
  try {
    return createSchedule(name, options);
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** The valid cases of these sizes: a sample of them, or all in `test:deep`. */
export function servedCases(fits: (options: ScheduleOptions) => boolean): Case[] {
  const all = allCases().filter(({ options }) => fits(options));
  const share = IS_DEEP ? 1 : Math.ceil(all.length / 2000);
  return all.filter((one, i) => 31 * i % 97 % share === 0 && made(one) !== undefined);
}

/** Formats a case for the message of a failure. */
export const inWords = ({ name, options }: Case) => `${name} ${JSON.stringify(options)}`;

/** Returns true if two sums of the same durations are equal up to rounding. */
export function isNear(a: number, b: number): boolean {
  return Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(a), Math.abs(b));
}

/** Four workers and eight micro-batches. */
export const FOUR = { workers: 4, microBatches: 8 } as const;

/** A schedule of these lists, in CSV. */
export const listed = (csv: string) => scheduleFromLists("mine", parseCsv(csv));

/** Expects a RangeError with this message. */
export function refuses(
  call: () => unknown,
  message: RegExp | string = /^Cannot /,
  where?: string,
): void {
  assert.throws(call, { name: "RangeError", message }, where);
}

/** Registers a test of a property of any values. */
export function propertyTest<T extends unknown[]>(
  name: string,
  values: { [K in keyof T]: fc.Arbitrary<T[K]> },
  holds: (...values: T) => void,
  numRuns = 100,
): void {
  const all = fc.tuple(...values as fc.Arbitrary<unknown>[]) as fc.Arbitrary<T>;
  Deno.test(name, () => fc.assert(fc.property(all, (values) => holds(...values)), { numRuns }));
}

/** A time between two bounds. */
export const between = (min: number, max: number) => fc.double({ min, max, noNaN: true });

/** The models of the given number of equal stages. */
export const alike = <T>(stages: number, stage: T): T[] => Array<T>(stages).fill(stage);

/** A step with durations and messages from almost zero to three times their cost. */
export function atAnyPace(schedule: Schedule, seed: number): SimulatedStep {
  const stages = alike(schedule.stages, { forwardMs: 1, backwardMs: 2, sendMs: 1 });
  const jitter = { law: [0.001, 0.5, 1, 3], amount: 1, latencyAmount: 1, seed };
  return simulateStep({ schedule, stages, jitter });
}

/** The result of a call: its text, or the message of its error. */
export const sentenceOf = (call: () => string): Promise<string> => Promise.try(call).catch(String);

/** A file of golden data about schedules. */
export const golden = (file: string) =>
  Deno.readTextFileSync(new URL(`../golden/schedules/${file}`, import.meta.url));
