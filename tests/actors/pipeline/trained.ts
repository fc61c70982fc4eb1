/** Runs of a small GPT: all numbers of a run, to compare bit for bit with the serial loop. */

import type { TrainEvent } from "../../../actors/options/train_events.ts";
import assert from "node:assert/strict";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import {
  createSchedule,
  parseCsv,
  scheduleFromLists,
  type ScheduleOptions,
} from "../../../schedules/mod.ts";
import { assertRefused as assertCallsRefused } from "../../kernels/graph/refused.ts";
import { groupingOf, once, type Outcome, outcome, type Sizes, SMALL } from "../runs.ts";

export type Options = Partial<TrainOptions>;

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
export const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

/** Eight layers, enough for the stages of every schedule on four workers, with dropout. */
export const TINY: Sizes = {
  ...SMALL,
  ...{ layers: 3, hidden: 16, seq: 8, vocab: 32, microBatches: 4, dropout: 0.2 },
};

/** Cuts and start times of sums, one set for each schedule; they must not change the bits. */
export const CUTS = [
  { sync: "end", bucketSize: 400, coarsening: 1 },
  { sync: "eager", bucketSize: 130, coarsening: 3 },
  { sync: "eager-opt", bucketSize: 250, coarsening: 4 },
] as const;

/** Variants of schedules, in addition to their defaults. */
export const VARIANTS: Readonly<Record<string, readonly Partial<ScheduleOptions>[]>> = {
  chimera: [{}, { scale: "doubling" }, { scale: "halving" }],
  "message-driven": [{ order: "fifo" }, { order: "backward-first", pipelineLimit: 3 }],
};

/** A list that no rule makes: forwards out of order, and one backward in two parts on each worker. */
const HINT = "0F0,0F2,0F1,0B0,0I1,0F3,0W1,0B2,0B3\n1F0,1F2,1I0,1F1,1W0,1B1,1F3,1B2,1B3";

/** BF, BFW and lists as hints on two workers: M from D to 2D, K from 0 to all, two stages on a worker. */
export const READINESS: readonly Options[] = [
  { scheduleOptions: { order: "bf", activationLimit: 3 } },
  { scheduleOptions: { weightBacklog: 0, activationLimit: 4 } },
  { scheduleOptions: { weightBacklog: 1 } },
  { scheduleOptions: { weightBacklog: "all", activationLimit: 4 } },
  { scheduleOptions: { chunks: 2, activationLimit: 3 } },
  { scheduleOptions: { chunks: 2, activationLimit: 2, weightBacklog: "all" } },
  { schedule: "zb-v", policy: "elastic", scheduleOptions: { activationLimit: 3 } },
  { schedule: "gpipe", policy: "elastic", scheduleOptions: { weightBacklog: 1 } },
  {
    schedule: scheduleFromLists("mine", parseCsv(HINT)),
    policy: "elastic",
    scheduleOptions: { weightBacklog: "all" },
  },
];

/** Result of a run. */
export interface Trained extends Omit<Outcome, "bits"> {
  /** Losses and norms of steps, losses of evaluations, and the hash of the weights. */
  readonly bits: { readonly numbers: readonly (readonly number[])[]; readonly hash: string };
  readonly losses: readonly number[];
}

/** Trains to the end; passes on each event as it arrives. */
export async function trained(
  sizes: Sizes,
  options: Options,
  see?: (event: TrainEvent) => void,
): Promise<Trained> {
  const run = await outcome(sizes, { device: "native", ...options }, see);
  const numbers: number[][] = [];
  for (const event of run.events) {
    if (event.type === "evaluation") numbers.push([event.step, event.loss]);
    if (event.type === "step") numbers.push([event.step, event.loss, event.gradNorm]);
  }
  const { hash, losses } = run.bits;
  return { ...run, bits: { numbers, hash }, losses };
}

/**
 * Opens a comparison: a run of actors must have the bits of the serial run with its grouping, which runs
 * once.
 */
export function openOracle(sizes: Sizes) {
  const serialOf = once((_grouping: string, options: Options) =>
    trained(sizes, { ...options, runtime: "serial" })
  );
  return async (grouping: string, options: Options, how: Options = {}) => {
    const serial = await serialOf(grouping, options);
    const run = await trained(sizes, { runtime: "local", ...options, ...how });
    assert.deepEqual(run.bits, serial.bits, `${grouping}, ${JSON.stringify(how).slice(0, 200)}`);
    return run;
  };
}

/** Returns the schedule that a run creates by name, and its order of gradient additions. */
export function scheduleOf(
  { schedule, scheduleOptions, workers = 1, replicas = 1 }: Options,
  microBatches: number,
) {
  const made = createSchedule(schedule as string, { ...scheduleOptions, workers, microBatches });
  return { made, grouping: made.updates === "flush" ? groupingOf(made, replicas) : made.name };
}

/** Compares the errors of refused runs, by name, with `tests/golden/refusals/NAME.txt`. */
export const assertRefused = (
  name: string,
  sizes: Sizes,
  cases: Readonly<Record<string, Options>>,
): Promise<void> =>
  assertCallsRefused(
    name,
    Object.entries(cases).map(([about, options]) =>
      [about, () => trained(sizes, options)] as const
    ),
  );

/** Asserts that each number is near the expected number. */
export function assertNear(
  received: readonly number[],
  expected: readonly number[],
  bound: number,
  what: string,
): void {
  assert.equal(received.length, expected.length, what);
  for (const [i, value] of received.entries()) {
    const distance = Math.abs(value / expected[i]! - 1);
    assert.ok(distance <= bound, `${what}, number ${i + 1}: ${value}, not ${expected[i]}`);
  }
}
