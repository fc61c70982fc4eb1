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
  if (own) return combined({ [own]: [1, 2, 3, 4] });
  if (name === "slimpipe") {
    return [...combined({ slices: [1, 2, 4, 8], chunks: [2] }), { slices: 3, chunks: 3 }];
  }
  if (name === "chimera") {
    const scale = ["direct", "doubling", "halving"] as const;
    return combined({ pipelines: [1, 2, 3, 4, 5, 6, 8], scale });
  }
  if (name === "message-driven") {
    const limits = [1, 2, workers, 2 * workers - 1];
    const held = { activationLimit: [1, workers, 1.5 * workers], chunks: [1, 2] };
    return [
      ...combined({ pipelineLimit: limits, order: ["fifo", "backward-first"] }),
      ...combined({ ...held, order: ["bf"] }),
      ...combined({ ...held, weightBacklog: [0, 1, 2, "all"], order: ["bfw"] }),
    ];
  }
  return name === "chimera-greedy" ? combined({ pipelines: [1, 2, 4] }) : [{}];
}

type Choices = { readonly [K in keyof ScheduleOptions]?: readonly ScheduleOptions[K][] };

/** Every combination of values of some options. */
const combined = (choices: Choices): Partial<ScheduleOptions>[] =>
  Object.entries(choices).reduce<Partial<ScheduleOptions>[]>(
    (all, [option, values]) => all.flatMap((one) => values.map((v) => ({ ...one, [option]: v }))),
    [{}],
  );

/** Every schedule by rule, under every combination of options, valid or not. */
export function allCases(): Case[] {
  const names = scheduleDefinitions.map(({ name }) => name).filter((name) => name !== "search");
  const sizes = combined({ workers: WORKERS, microBatches: MICRO_BATCHES }) as ScheduleOptions[];
  return names.flatMap((name) =>
    sizes.flatMap((size) =>
      variants(name, size.workers).map((more) => ({ name, options: { ...size, ...more } }))
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

/** A schedule by name and size. */
export const sized = (name: string, workers: number, microBatches: number) =>
  createSchedule(name, { workers, microBatches });

/** Any costs between two bounds. */
export function anyCosts(min: number, max: number) {
  const cost = between(min, max);
  return fc.record({ forward: cost, input: cost, weight: cost, send: cost });
}

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
