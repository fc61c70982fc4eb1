/**
 * Orders, crashes and failing disks of simulated runs. If the supervisor crashes before or after any
 * step, training ends with weights or with that crash, never in a deadlock. PipeDream and PipeDream-2BW
 * end with the serial weights in any order, and under faults of any kind with a clear report.
 * Checkpoints survive full disks, torn writes and reordered writes.
 *
 * @module
 */

import {
  simulatedCheckpoints,
  type SimulatedCheckpointsOptions,
} from "../../actors/simulated_training/checkpoints.ts";
import type { SimulatedTrainingOptions } from "../../actors/simulated_training/simulated_training.ts";
import { simulatedTraining } from "../../actors/simulated_training/simulated_training.ts";
import {
  delay,
  type FaultKind,
  fifo,
  pct,
  portfolio,
  pos,
  random,
  type Run,
  simulate,
} from "../../testing.ts";
import { type Case, runCampaign } from "./cases_helper.ts";

const STRATEGIES = { random, pct: () => pct(3), pos, delay: () => delay(2), portfolio };

const SMALL = { workers: 2, microBatches: 2, replicas: 1 };

/** A case that must not fail, except with an injected crash if that is allowed. */
const simulated = (name: string, run: () => Promise<Run>, mayCrash = false): Case => ({
  name,
  async run() {
    const { failure } = await run();
    const isWell = !failure || mayCrash && failure.name === "InjectedCrash";
    return isWell ? undefined : JSON.stringify(failure);
  },
});

/** Steps of training before which the supervisor crashes. */
const CRASH_STEPS = 150;

const UNFLUSHED = ["pipedream", "pipedream-2bw"];
const SCHEDULES = ["1f1b", "chimera", "hanayo", "message-driven", "zb-h1", ...UNFLUSHED];

function* crashes(count: number, seed: number): Iterable<Case> {
  const strategies = [fifo, ...Object.values(STRATEGIES)], kinds = ["crash-before", "crash-after"];
  for (let nth = 0; nth < count; nth++) {
    const schedule = SCHEDULES[nth % SCHEDULES.length]!, make = strategies[nth % 6]!;
    const step = nth % CRASH_STEPS, kind = kinds[nth >> 1 & 1] as FaultKind;
    const configuration: SimulatedTrainingOptions = { ...SMALL, schedule, mayLose: true };
    const faults = [{ step, kind, target: "supervisor" }];
    const options = { seed: seed + nth, strategy: make(), configuration, faults };
    const name = `${schedule}, ${kind} ${step} of the supervisor, run ${nth}`;
    yield simulated(name, () => simulate(options, simulatedTraining), true);
  }
}

const FAULTS: readonly (FaultKind | undefined)[] = [
  ...[undefined, "crash-before", "crash-amid", "crash-after"] as const,
  ...["stall", "slow-edge", "site"] as const,
];

function* unflushed(count: number, seed: number): Iterable<Case> {
  for (let run = 0; run < count; run++) {
    const schedule = UNFLUSHED[run % 2]!, kind = FAULTS[run % FAULTS.length];
    const strategy = [random, () => pct(3), pos][run % 3]!();
    const mayLose = kind !== undefined, start = { run, expectedSteps: 500 };
    const configuration = { schedule, steps: 4, pauseEvery: 2, mayLose };
    const options = {
      ...{ seed: seed + run, strategy, configuration, start },
      ...kind && { faults: { kinds: [kind], rate: 0.003 } },
    };
    const name = `${schedule}, ${kind ?? "no fault"}, run ${run}`;
    yield simulated(name, () => simulate(options, simulatedTraining), true);
  }
}

const DISKS: readonly FaultKind[] = ["disk-full", "disk-torn", "disk-reordered"];

/** Plans of folders that grow, are cleaned up, and are written again. */
const PLANS: readonly SimulatedCheckpointsOptions[] = [
  { ...SMALL, schedule: "gpipe", steps: 3 },
  { ...SMALL, schedule: "1f1b", steps: 3, keep: 1 },
  { ...SMALL, schedule: "gpipe", steps: 2, keep: 1, times: 2 },
  { ...SMALL, schedule: "chimera", steps: 4, every: 2, keep: 2, times: 2 },
];

/** Fails every operation of every plan in each way, then up to five in a run. */
async function* disks(count: number, seed: number): AsyncIterable<Case> {
  for (const [nth, configuration] of PLANS.entries()) {
    let operations = 0;
    await simulate({ configuration }, async (world) => {
      await simulatedCheckpoints(world);
      operations = world.disk.operations;
    });
    for (let operation = 0; operation < operations; operation++) {
      const kind = DISKS[operation % 3]!, target = `disk#${operation}`;
      const options = { seed, configuration, faults: [{ step: 0, kind, target }] };
      const name = `${kind} at operation ${operation} of plan ${nth}`;
      yield simulated(name, () => simulate(options, simulatedCheckpoints));
    }
  }
  for (let run = 1; run <= count; run++) {
    const faults = { kinds: DISKS, max: 5, rate: 0.03 }, configuration = PLANS[run % 4]!;
    const options = { seed: seed + run, configuration, faults };
    yield simulated(`disks that fail, run ${run}`, () => simulate(options, simulatedCheckpoints));
  }
}

await runCampaign("interleavings", 10_000, async function* (count, seed) {
  yield* crashes(Math.ceil(count / 2), seed);
  yield* unflushed(Math.ceil(count / 4), seed);
  yield* disks(Math.ceil(count / 4), seed);
});
