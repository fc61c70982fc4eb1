/**
 * Training that writes checkpoints to a disk which fails: at every operation there is, in each way,
 * and then several times in a run. What was said to be whole must be there, and training must end
 * with the bits of training in which nothing failed.
 *
 *     deno task campaign disk_faults [--cases N] [--seed N]
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { print } from "../../console/print.ts";
import { type CheckpointPlan, checkpointRehearsal } from "../../actors/mod.ts";
import { type Fault, type FaultKind, type FaultOptions, simulate } from "../../testing.ts";

const NAME = "disk_faults";
const DEFAULT_CASES = 12_000;
const KINDS: readonly FaultKind[] = ["disk-full", "disk-torn", "disk-reordered"];

const SMALL = { workers: 2, microBatches: 2, replicas: 1 };

/** Folders that grow, that are tidied, and that are written again. */
const PLANS: readonly CheckpointPlan[] = [
  { ...SMALL, schedule: "gpipe", steps: 3 },
  { ...SMALL, schedule: "1f1b", steps: 3, keep: 1 },
  { ...SMALL, schedule: "gpipe", steps: 2, keep: 1, times: 2 },
  { ...SMALL, schedule: "chimera", steps: 4, every: 2, keep: 2, times: 2 },
];

/** Operations of the disk in a run in which nothing fails. */
async function operationsOf(configuration: CheckpointPlan): Promise<number> {
  let operations = 0;
  await simulate({ configuration }, async (world) => {
    await checkpointRehearsal(world);
    operations = world.disk.operations;
  });
  return operations;
}

interface Case {
  readonly seed: number;
  readonly configuration: CheckpointPlan;
  readonly faults: FaultOptions | readonly Fault[];
}

/** Every operation of every plan in each way first, then up to five failures in a run. */
async function* casesFrom(seed: number): AsyncGenerator<Case, void> {
  for (const configuration of PLANS) {
    const operations = await operationsOf(configuration);
    for (let operation = 0; operation < operations; operation++) {
      for (const kind of KINDS) {
        yield { seed, configuration, faults: [{ step: 0, kind, target: `disk#${operation}` }] };
      }
    }
  }
  for (let next = seed + 1;; next++) {
    const configuration = PLANS[next % PLANS.length]!;
    yield { seed: next, configuration, faults: { kinds: KINDS, max: 5, rate: 0.03 } };
  }
}

if (import.meta.main) {
  const flags = parseArgs(Deno.args, { string: ["cases", "seed"] });
  const cases = Number(flags.cases ?? DEFAULT_CASES), seed = Number(flags.seed ?? 0);
  print(`disks that are full, tear and reorder, in ${cases} runs from seed ${seed}`);
  let done = 0, survived = 0, restarts = 0;
  for await (const one of casesFrom(seed)) {
    if (done === cases) break;
    const { failure, value, faults } = await simulate(one, checkpointRehearsal);
    done++;
    restarts += value ? value.starts.length - (one.configuration.times ?? 1) : 0;
    if (!failure) survived++;
    else print(JSON.stringify({ ...one, faults, failure }));
    if (done % 1000 === 0) print(`${done} runs, ${restarts} starts after a failure`);
  }
  print(`${NAME}: ${done} cases, ${survived} survived`);
  Deno.exit(survived === done ? 0 : 1);
}
