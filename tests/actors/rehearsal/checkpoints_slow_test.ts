/** Checkpoints on a disk that fails: what was said to be whole is there, and nothing torn is taken. */

import assert from "node:assert/strict";
import {
  type CheckpointPlan,
  checkpointRehearsal,
  type CheckpointsRehearsed,
} from "../../../actors/mod.ts";
import {
  explore,
  type ExploreOptions,
  type FaultKind,
  type Scenario,
  shrink,
  simulate,
  type SimulatedDisk,
  type SimulatedFile,
} from "../../../testing.ts";

/** Both times into one folder, so that checkpoints are written, replaced and removed, but the best. */
const PLAN: CheckpointPlan = {
  ...{ schedule: "gpipe", workers: 2, microBatches: 2, replicas: 1, steps: 2 },
  times: 2,
  keep: 1,
  best: 1,
};

/** One step, taken twice. */
const REPLACED: CheckpointPlan = { ...PLAN, steps: 1 };

/** Operations of the disk that it takes to put a whole checkpoint in the place of another. */
const REPLACING = 12;

const DISK_FAULTS: readonly FaultKind[] = ["disk-full", "disk-torn", "disk-reordered"];

const optionsOf = (
  kinds: readonly FaultKind[],
  max = 1,
): ExploreOptions<CheckpointPlan> => ({
  configuration: PLAN,
  faults: { kinds, max, rate: 0.03 },
  runs: 25,
});

for (const kinds of [...DISK_FAULTS.map((kind) => [kind]), DISK_FAULTS]) {
  Deno.test(`training goes on from what is left after ${kinds.join(", ")}`, async () => {
    let restarts = 0;
    const counted: Scenario<CheckpointsRehearsed, CheckpointPlan> = async (world) => {
      const ended = await checkpointRehearsal(world);
      restarts += ended.starts.length - PLAN.times!;
      return ended;
    };
    for (const best of [1, 2]) {
      const options = { ...optionsOf(kinds, 3), configuration: { ...PLAN, best } };
      const { failed } = await explore(options, counted);
      assert.equal(failed, undefined, JSON.stringify(failed));
    }
    assert.ok(restarts > 40, `${restarts} restarts in 50 runs, each made twice`);
  });
}

/** A disk on which some syncs do nothing: what a writer would be that forgot them. */
function withoutSync(disk: SimulatedDisk, isSkipped: (path: string) => boolean): SimulatedDisk {
  const open = async (path: string, options?: object): Promise<SimulatedFile> => {
    const file = await disk.open(path, options);
    if (isSkipped(path)) file.sync = file.syncData = () => Promise.resolve();
    return file;
  };
  return new Proxy(disk, {
    get: (target, name) => {
      const value = name === "open" ? open : Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

const FORGOTTEN: Readonly<Record<string, (path: string) => boolean>> = {
  "any file": (path) => /\.(safetensors|json)$/.test(path),
  "the manifest": (path) => path.endsWith("manifest.json"),
  "the folder of the step": (path) => path.includes("/.step-") && !path.includes(".json"),
  "the folder of all steps": (path) => path.endsWith("/mine"),
  "the folder above": (path) => path.endsWith("/runs"),
};

for (const [what, isSkipped] of Object.entries(FORGOTTEN)) {
  Deno.test(`a writer that forgets to sync ${what} is found, made small and replayed`, async () => {
    const scenario: Scenario<CheckpointsRehearsed, CheckpointPlan> = (world) =>
      checkpointRehearsal({ ...world, disk: withoutSync(world.disk, isSkipped) });
    const options = { ...optionsOf(["disk-reordered"]), runs: 1000, isRepeated: false };
    const { failed } = await explore(options, scenario);
    assert.match(failed?.failure.message ?? "none", /must be there|Cannot read/);
    const { run, isReplayed } = await shrink(options, scenario, failed!);
    assert.equal(run.faults.length, 1);
    assert.deepEqual(run.deviations, []);
    assert.ok(isReplayed);
  });
}

Deno.test("the power may fail at any operation while a checkpoint replaces another", async () => {
  let operations = 0;
  await simulate({ configuration: REPLACED }, async (world) => {
    await checkpointRehearsal(world);
    ({ operations } = world.disk);
  });
  for (let operation = operations - REPLACING; operation < operations; operation++) {
    const faults = [{ step: 0, kind: "disk-reordered", target: `disk#${operation}` }] as const;
    for (let seed = 0; seed < 10; seed++) {
      const run = await simulate({ seed, configuration: REPLACED, faults }, checkpointRehearsal);
      assert.equal(run.failure, undefined, JSON.stringify({ seed, faults, run }));
    }
  }
});
