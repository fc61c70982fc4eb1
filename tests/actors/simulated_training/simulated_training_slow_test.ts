/**
 * Training under simulation: any order ends with the serial weights, any fault with a clear report, and
 * on a failing disk every reported checkpoint is complete, and no torn checkpoint is loaded.
 */

import assert from "node:assert/strict";
import { atDepth } from "../../depth.ts";
import {
  explore,
  type FaultKind,
  pct,
  portfolio,
  pos,
  random,
  readJournal,
  replayInbox,
  replayJournal,
  shrink,
  simulate,
  simulationTest,
  writeJournal,
} from "../../../testing.ts";
import { hashWeights } from "../../../actors/checkpoints/weights.ts";
import {
  simulatedCheckpoints,
  type SimulatedCheckpointsOptions,
} from "../../../actors/simulated_training/checkpoints.ts";
import type { SimulatedTrainingOptions } from "../../../actors/simulated_training/simulated_training.ts";
import { type Engine } from "../../../actors/run/engine.ts";
import { openPipeline } from "../../../actors/run/pipeline.ts";
import { openSerial } from "../../../actors/run/serial.ts";
import plans from "./plans.json" with { type: "json" };
import {
  prepareSimulation,
  simulatedTraining,
  smallerPlans,
  trainSerially,
} from "../../../actors/simulated_training/simulated_training.ts";
import { SUPERVISOR } from "../../../actors/pipeline/supervisor.ts";
import { WORKER } from "../../../actors/pipeline/worker.ts";
import { type Batch } from "../../../kernels/mod.ts";
import { scheduleNames, type SkipEdge } from "../../../schedules/mod.ts";

/** A value that two later stages use, a value that skips one stage, and a mask. */
const EDGES: readonly SkipEdge[] = [
  { from: 0, to: [2, 3] },
  { from: 1, to: [3] },
  { from: 0, to: [1, 3], hasGradient: false },
];

/** Simulated training; 4 stages, 8 micro-batches and 2 replicas unless a plan says otherwise. */
const PLANS = plans.map(({ hasEdges, ...plan }) => ({
  ...{ ...plan, ...hasEdges && { edges: EDGES } } as SimulatedTrainingOptions,
}));

/** Orders of each plan, in turn by each strategy, and one plain. */
const RUNS = atDepth(5, 151);

for (const plan of PLANS) {
  simulationTest(
    `${RUNS} orders of ${JSON.stringify(plan)} end with the serial weights`,
    {
      ...{ strategy: portfolio([random(), pct(3), pos()]), runs: RUNS },
      ...{ configuration: plan, smaller: smallerPlans },
    },
    simulatedTraining,
  );
}

/** Two copies of each stage, so that there is an all-reduce. */
const CHIMERA = { schedule: "chimera", workers: 2, microBatches: 2, replicas: 1 };

Deno.test("schedules that add in another order have other weights, so a wrong order shows", async () => {
  const [one, other, third] = await Promise.all(
    ["1f1b", "chimera", "gpipe"].map((schedule) => trainSerially({ schedule })),
  );
  assert.notEqual(one, other);
  assert.equal(one, third);
});

Deno.test("every schedule ends with the serial weights, also after a pause", async () => {
  for (const schedule of scheduleNames()) {
    const options = { configuration: { schedule, steps: 2, pauseEvery: 1 }, isRepeated: false };
    const { failed } = await explore({ ...options, runs: atDepth(2, 10) }, simulatedTraining);
    assert.equal(failed, undefined, `${schedule}: ${JSON.stringify(failed?.failure)}`);
  }
});

Deno.test("the journal of simulated training replays, whole and actor by actor", async () => {
  const path = await Deno.makeTempFile(), configuration = { ...CHIMERA, steps: 2 };
  const { close, ...pen } = await writeJournal({ path, seed: 1 });
  await simulate({ seed: 1, strategy: pos(), configuration, ...pen }, simulatedTraining);
  close();
  const journal = await readJournal(path);
  await Deno.remove(path);
  const { value } = await replayJournal(journal, simulatedTraining, { configuration });
  assert.equal(value?.weightsHash, await trainSerially(configuration));
  for (const id of ["worker-0", "worker-1"]) {
    const { steps, states } = await replayInbox(WORKER, journal, { id });
    assert.equal(states, steps);
  }
  assert.ok((await replayInbox(SUPERVISOR, journal)).compared > 20);
});

/** Kinds of faults, and runs with them. */
const FAULTS: readonly (readonly [FaultKind[], number])[] = [
  [["crash-before", "crash-amid", "crash-after"], atDepth(40, 600)],
  [["stall"], atDepth(12, 200)],
  [["slow-edge"], atDepth(12, 200)],
  [["site"], atDepth(24, 200)],
];

/** One object for each plan, so that its preparation is reused by the next run. */
const FAULTY: readonly SimulatedTrainingOptions[] = [
  { schedule: "1f1b", steps: 2, edges: EDGES, mayLose: true },
  { schedule: "pipedream", steps: 3, pauseEvery: 2, mayLose: true },
];

/** Counts the runs that end with weights, in a crash of the supervisor, and with a report. */
async function endsOf(
  configuration: SimulatedTrainingOptions,
  kinds: readonly FaultKind[],
  runs: number,
) {
  const ends = { weights: 0, crashed: 0, lost: 0 };
  for (let seed = 0; seed < runs; seed++) {
    const options = { seed, strategy: random(), faults: { kinds, rate: 0.002 } };
    const run = await simulate({ ...options, configuration }, simulatedTraining);
    if (run.value?.weightsHash) ends.weights++;
    else if (run.value?.lost) {
      assert.match(run.value.lost, /^worker-\d( failed|.* stalled)/);
      ends.lost++;
    } else {
      // Only the creator of the system watches the supervisor and is notified of its end.
      assert.equal(run.failure?.name, "InjectedCrash", JSON.stringify(run));
      assert.deepEqual(run.faults.map(({ target }) => target), ["supervisor"]);
      ends.crashed++;
    }
  }
  return ends;
}

for (const plan of FAULTY) {
  for (const [kinds, runs] of FAULTS) {
    Deno.test(`a fault (${kinds}) of ${plan.schedule} ends with the serial weights or a clear report, never in a hang`, async () => {
      const ends = Object.values(await endsOf(plan, kinds, runs)), isCrash = kinds.length > 1;
      const expected = [true, isCrash, isCrash || kinds[0] === "site"];
      assert.deepEqual(ends.map((runs) => runs > 0), expected);
    });
  }
}

/** Added to the data and taken away again by the first stage: only its gradients are large. */
const FAR = 1000;

/** Under this scale the gradients of the first stage overflow, and those of the last do not. */
const TOO_HIGH = 4096;

/** Copies of a stage add their gradients while other stages still run backward. */
function farFromZero() {
  const plan = { schedule: "gpipe", workers: 2, microBatches: 2, sync: "eager" } as const;
  const { options, requests } = prepareSimulation(plan), { weights, moments } = options.state;
  const name = "layer.0.weight", far = weights.get(name)!.map((value) => value - FAR);
  const microBatches = requests[0]!.microBatches.map(({ rows }): Batch => ({
    rows: (rows as Float32Array).map((value) => value + FAR),
  }));
  const state = { weights: new Map(weights).set(name, far), moments };
  return { options: { ...options, state }, request: { ...requests[0]!, microBatches } };
}

const hashOf = async (engine: Engine) => hashWeights((await engine.save()).weights);

Deno.test("parts of an all-reduce that come after their step was aborted leave nothing to the next", async () => {
  const { options, request } = farFromZero(), serial = await openSerial(options);
  assert.ok((await serial.step(request)).isCommitted);
  const expected = await hashOf(serial);
  const strategy = portfolio([random(), pos()]);
  const { failed } = await explore({ runs: atDepth(20, 200), strategy }, async ({ system }) => {
    const engine = await openPipeline({ ...options, system }, "local");
    const aborted = await engine.step({ ...request, lossScale: TOO_HIGH });
    assert.equal(aborted.isCommitted, false);
    assert.ok((await engine.step(request)).isCommitted);
    assert.equal(await hashOf(engine), expected);
  });
  assert.equal(failed, undefined, JSON.stringify(failed?.failure));
});

/** Both runs use one folder, so that all checkpoints except the best are written, replaced and removed. */
const PLAN: SimulatedCheckpointsOptions = {
  ...{ schedule: "gpipe", workers: 2, microBatches: 2, replicas: 1 },
  ...{ steps: 2, times: 2, keep: 1, best: 1 },
};

/** Number of disk operations that replace a checkpoint with another. */
const REPLACING = 12;

const DISK_FAULTS: readonly FaultKind[] = ["disk-full", "disk-torn", "disk-reordered"];

const optionsOf = (kinds: readonly FaultKind[], max = 1) => ({
  ...{ configuration: PLAN, runs: atDepth(15, 50), faults: { kinds, max, rate: 0.03 } },
});

for (const kinds of [...DISK_FAULTS.map((kind) => [kind]), DISK_FAULTS]) {
  Deno.test(`training resumes from the remaining checkpoints after ${kinds.join(", ")}`, async () => {
    let restarts = 0;
    const counted: typeof simulatedCheckpoints = async (world) => {
      const ended = await simulatedCheckpoints(world);
      restarts += ended.starts.length - PLAN.times!;
      return ended;
    };
    const configuration = { ...PLAN, best: kinds.length > 1 ? 2 : 1 };
    const { failed } = await explore({ ...optionsOf(kinds, 3), configuration }, counted);
    assert.equal(failed, undefined, JSON.stringify(failed));
    assert.ok(restarts > 10, `${restarts} restarts`);
  });
}

/** The scenario on a disk on which some syncs do nothing, as if the writer forgot them. */
const forgetting =
  (isSkipped: (path: string) => boolean): typeof simulatedCheckpoints => (world) => {
    const { open } = world.disk;
    world.disk.open = async (path, options) => {
      const file = await open.call(world.disk, path, options);
      if (isSkipped(path)) file.sync = file.syncData = () => Promise.resolve();
      return file;
    };
    return simulatedCheckpoints(world);
  };

const FORGOTTEN: Readonly<Record<string, (path: string) => boolean>> = {
  "any file": (path) => /\.(safetensors|json)$/.test(path),
  "the manifest": (path) => path.endsWith("manifest.json"),
  "the folder of the step": (path) => path.includes("/.step-") && !path.includes(".json"),
  "the folder of all steps": (path) => path.endsWith("/mine"),
  "the folder above": (path) => path.endsWith("/runs"),
};

for (const [what, isSkipped] of Object.entries(FORGOTTEN)) {
  Deno.test(`a writer that forgets to sync ${what} is found, made small and replayed`, async () => {
    const scenario = forgetting(isSkipped);
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
  const configuration = { ...PLAN, steps: 1 };
  const { value: operations } = await simulate({ configuration }, async (world) => {
    await simulatedCheckpoints(world);
    return world.disk.operations;
  });
  for (let operation = operations! - REPLACING; operation < operations!; operation++) {
    const faults = [{ step: 0, kind: "disk-reordered", target: `disk#${operation}` }] as const;
    for (let seed = 0; seed < atDepth(4, 20); seed++) {
      const run = await simulate({ seed, configuration, faults }, simulatedCheckpoints);
      assert.equal(run.failure, undefined, JSON.stringify({ seed, faults, run }));
    }
  }
});

Deno.test("a lost checkpoint, and the loss of only the best one, are found", async () => {
  const scenario = forgetting(FORGOTTEN["the folder of all steps"]!);
  const { runs: _, ...options } = optionsOf(["disk-reordered"]);
  const missing = new Set(["checkpoint of step 1", "checkpoint of step 2", "best checkpoint"]);
  for (let seed = 0; seed < 120 && missing.size > 0; seed++) {
    const { failure } = await simulate({ ...options, seed }, scenario);
    const lost = /^Cannot continue: the (.*) must be there,/.exec(`${failure?.message}`);
    missing.delete(lost?.[1] ?? "");
  }
  assert.deepEqual([...missing], []);
});

Deno.test("a checkpoint with other weights than those of its step is not accepted", async () => {
  const scenario: typeof simulatedCheckpoints = async (world) => {
    await simulatedCheckpoints(world);
    return await simulatedCheckpoints({ ...world, configuration: { ...PLAN, microBatches: 4 } });
  };
  const { failure } = await simulate({ configuration: PLAN }, scenario);
  const refusal = /of step 2 must have the weights .*: a torn one was accepted$/;
  assert.match(failure!.message, refusal);
});

Deno.test("a checkpoint is written at each multiple of its interval, and after the last step", async () => {
  const configuration = { ...PLAN, steps: 3, every: 2, times: 1, keep: 9, best: 0 };
  const { value } = await simulate({ configuration }, async (world) => {
    await simulatedCheckpoints(world);
    return await Array.fromAsync(world.disk.readDir("/runs/mine"), ({ name }) => name);
  });
  const steps = value!.filter((name) => name.startsWith("step-"));
  assert.deepEqual(steps.map((name) => parseInt(name.slice(5))), [2, 3]);
});
