/** Runs of any model, for tests that compare bits of schedules, runtimes and options. */

import assert from "node:assert/strict";
import type { TrainOptions } from "../../actors/mod.ts";
import {
  type Batch,
  compileModel,
  type DeviceName,
  type Model,
  partition,
  type SkipEdge,
  skipEdges,
} from "../../kernels/mod.ts";
import { createSchedule } from "../../schedules/mod.ts";
import { fewAtATime, groupingOf, once, trained } from "./runs.ts";

/** What is trained, on what. */
export interface Trainee {
  readonly model: Model;
  /** Micro-batches of its size, as many as are asked for. */
  batches(count: number): readonly Batch[];
}

/** Micro-batches of a replica and step: a multiple of what four workers need. */
const MICRO_BATCHES = 8;

/** Messages that take from 50 µs to 1 ms: no two runs have the same timing. */
const DELAYS = { latencyUs: 50, gigabytesPerSecond: 1, jitterUs: 1000 };

/** Losses, norms and the hash of the weights: equal for equal runs, bit for bit. */
export async function bitsOf({ model, batches }: Trainee, options: Partial<TrainOptions>) {
  const { microBatches = MICRO_BATCHES, replicas = 1, steps = 2 } = options;
  const data = batches(replicas * microBatches * steps);
  return (await trained({ model, data, steps, microBatches, ...options })).bits;
}

/** The skip edges of a model in so many stages of nearly equal cost. */
export function edgesOf({ model }: Pick<Trainee, "model">, stages: number): SkipEdge[] {
  const program = compileModel(model, "none");
  return skipEdges(program, partition(program.costs, stages));
}

/** A schedule of each kind, and replicas. */
const CASES: readonly Pick<TrainOptions, "schedule" | "scheduleOptions" | "replicas">[] = [
  { schedule: "1f1b" },
  { schedule: "1f1b", replicas: 2 },
  { schedule: "message-driven", scheduleOptions: { order: "backward-first" } },
  { schedule: "chimera" },
  { schedule: "hanayo" },
  { schedule: "zb-v" },
];

/**
 * Registers the tests that a model has the bits of the serial loop in four workers, under a schedule
 * of each kind and in two replicas, whatever the delays of messages.
 */
export function testSerialBits(what: string, trainee: Trainee): void {
  for (const device of ["native", "wasm"] satisfies DeviceName[]) {
    Deno.test(`${what} on four workers has the serial bits under a schedule of each kind on ${device}, whatever the delays`, async () => {
      const serialOf = once((_grouping, options: Partial<TrainOptions>) =>
        bitsOf(trainee, { ...options, runtime: "serial" })
      );
      await fewAtATime(CASES, async (how) => {
        const { schedule, scheduleOptions, replicas = 1 } = how, workers = 4;
        const cut = { ...scheduleOptions, workers, microBatches: MICRO_BATCHES };
        const grouping = groupingOf(createSchedule(schedule as string, cut), replicas);
        const options = { ...how, device, workers };
        const serial = await serialOf(grouping, options);
        const run = await bitsOf(trainee, { ...options, runtime: "local", link: DELAYS });
        assert.deepEqual(run, serial, `${schedule}, ${grouping}`);
      });
    });
  }
}
