/** Changed bits are found by the verification that promises it, within its steps. */

import assert from "node:assert/strict";
import { hashWeights } from "../../../actors/checkpoints/format.ts";
import { gatherState } from "../../../actors/checkpoints/tensors.ts";
import { digestOf } from "../../../actors/gradients/commit.ts";
import { type EngineOptions, stateShapes } from "../../../actors/run/engine.ts";
import { MovingHosts } from "../../../actors/run/hosts.ts";
import { openPipeline } from "../../../actors/run/pipeline.ts";
import { openSnapshots, Recovery } from "../../../actors/run/recovery.ts";
import {
  prepareSimulation,
  trainSerially,
} from "../../../actors/simulated_training/simulated_training.ts";
import type { System } from "../../../actors/runtime/mod.ts";
import type { Fault } from "../../../actors/simulation/faults.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import { pos } from "../../../actors/simulation/strategies.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { current, type Flip } from "./flipped_stage.ts";

const MODULE = new URL("flipped_stage.ts", import.meta.url).href;

const PLAN = { schedule: "1f1b", workers: 2, microBatches: 4, replicas: 2, steps: 6 };

/** The result of a run: whether its weights are right, and the step of each reaction. */
interface Ended {
  readonly isRight: boolean;
  readonly reactions: readonly string[];
}

/** Trains while bits flip. */
async function trainWith(
  mode: "none" | "sums" | "actions",
  flip: Flip | undefined,
  { plan = PLAN, every = 1, freezes = false, given = undefined as System | undefined } = {},
): Promise<Ended> {
  Object.assign(current, { flip, stages: 0, workers: 0 });
  const { options, requests } = prepareSimulation(plan), reactions: string[] = [];
  // In a given system gradients travel in messages, otherwise in shared memory.
  await using own = flip?.where === "ReducePart" ? createSystem() : undefined;
  const system = given ?? own;
  let step = 0;
  const react = (what: string) => void reactions.push(`${what} in step ${step}`);
  const run: EngineOptions = {
    ...{ ...options, freezes: freezes || system !== undefined, onDoubt: () => react("retaken") },
    system,
    verification: mode === "none" ? undefined : { mode, every },
    kernels: { ...options.kernels!, module: MODULE, export: "openFlippedStage" },
    worker: { module: MODULE, export: "flippingWorker" },
  };
  const open = (run: EngineOptions) => (state: EngineOptions["state"]) =>
    openPipeline({ ...run, state }, "local");
  const onResize = () => react("moved");
  const hosts = new MovingHosts(run, open, { minWorkers: 1, onResize, available: undefined });
  const shapes = stateShapes(options.model.parameters, options);
  const engine = await Recovery.open((state) => hosts.start(state), {
    ...{ shapes, state: options.state, retries: 3, canKill: false, announce: () => {} },
    ...{ snapshots: openSnapshots("memory", undefined, shapes), ...freezes && { hosts } },
    onLost: () => react("restarted"),
  });
  try {
    for (const request of requests) {
      step = request.step;
      await engine.step(request);
    }
    const { weights } = await engine.read((state) => gatherState(state));
    const hasMoved = reactions.some((one) => one.startsWith("moved"));
    assert.equal(hosts.workers < plan.workers! * plan.replicas!, hasMoved);
    return { isRight: hashWeights(weights) === await trainSerially(plan), reactions };
  } finally {
    await engine.close();
  }
}

/** For each flip in step 3, the reactions to it with `sums` and with `actions`. */
const FLIPS: Readonly<Record<Flip["where"], readonly (readonly string[])[]>> = {
  sum: [["retaken in step 3"], ["retaken in step 3"]],
  weight: [["restarted in step 4"], ["restarted in step 4"]],
  moment: [["restarted in step 4"], ["restarted in step 4"]],
  forward: [[], ["retaken in step 3"]],
  Activation: [[], ["retaken in step 3"]],
  Gradient: [[], ["retaken in step 3"]],
  ReducePart: [[], ["retaken in step 3"]],
  gradient: [[], []],
};

for (const [where, [sums, actions]] of Object.entries(FLIPS)) {
  const worker = where === "Activation" ? 1 : 0; // stage 0 gets no activations
  const flip = () => ({ where: where as Flip["where"], worker, after: 2, left: 1 });
  const isHarmless = where === "moment"; // the fake optimizer does not read it
  Deno.test(`a bit that flips in a ${where}: without verification the weights differ`, async () => {
    assert.deepEqual(await trainWith("none", flip()), { isRight: isHarmless, reactions: [] });
  });
  for (const [mode, reactions] of [["sums", sums!], ["actions", actions!]] as const) {
    const what = reactions[0] ?? "not found";
    Deno.test(`a bit that flips in a ${where}, --verify ${mode}: ${what}`, async () => {
      const ended = await trainWith(mode, flip());
      assert.deepEqual(ended, { isRight: reactions.length > 0 || isHarmless, reactions });
    });
  }
}

Deno.test("verification changes no bit, and takes no step again", async () => {
  for (const mode of ["sums", "actions"] as const) {
    for (const schedule of ["1f1b", "chimera", "zb-h1", "message-driven"]) {
      const plan = { ...PLAN, schedule, ...schedule === "chimera" && { workers: 4, replicas: 1 } };
      const ended = await trainWith(mode, undefined, { plan, every: 3 });
      assert.deepEqual(ended, { isRight: true, reactions: [] }, `${schedule}, ${mode}`);
    }
  }
});

Deno.test("a forward that runs again once in 4 is found within some steps, and the others are not", async () => {
  const ended: Ended[] = [];
  for (let after = 1; after <= 4; after++) {
    const flip: Flip = { where: "forward", worker: 2, after, left: 1 };
    ended.push(await trainWith("actions", flip, { every: 4 }));
  }
  // The first forward of each of four steps: one of them is of the micro-batch that runs again.
  const right = ended.filter(({ isRight }) => isRight);
  assert.deepEqual(right.map(({ reactions }) => reactions.length), [1]);
  assert.equal(ended.filter(({ reactions }) => reactions.length === 0).length, 3);
});

Deno.test("weights that differ are never kept: they are compared before a snapshot", async () => {
  const flip: Flip = { where: "weight", worker: 0, after: 8, left: 1 };
  const ended = await trainWith("sums", flip, { plan: { ...PLAN, steps: 12 } });
  assert.deepEqual(ended, { isRight: true, reactions: ["restarted in step 10"] });
});

Deno.test("weights that differ are never moved: a loss after the commit is no reason to trust them", async () => {
  const flip: Flip = { where: "weight", worker: 0, after: 4, left: 1 };
  const handled: string[] = [];
  const trainLosing = (faults: readonly Fault[]) =>
    simulate({
      ...{ seed: 1, strategy: pos(), faults, configuration: undefined },
      onStep: ({ actor, type }) => void handled.push(`${actor} ${type}`),
    }, ({ system }) => trainWith("sums", { ...flip }, { freezes: true, given: system }));
  await trainLosing([]);
  const commits = [...handled.keys()].filter((step) => handled[step] === "worker-3 Commit");
  const lost: Fault = { step: commits[4]!, target: "worker-3", kind: "crash-after" };
  const { value } = await trainLosing([lost]);
  assert.deepEqual(value, { isRight: true, reactions: ["restarted in step 6"] });
});

Deno.test("a worker that is wrong in two steps is excluded: the run moves to the others", async () => {
  const flip: Flip = { where: "sum", worker: 3, after: 1, left: 2 };
  assert.deepEqual(await trainWith("sums", flip, { freezes: true }), {
    isRight: true,
    reactions: ["retaken in step 2", "retaken in step 3", "moved in step 4"],
  });
  await assert.rejects(trainWith("sums", { ...flip, left: 2 }), {
    message:
      "Cannot continue: the run must be able to move to other workers; worker-3 is excluded: its results were wrong 2 times",
  });
});

Deno.test("a worker that is always wrong is excluded by the two other copies", async () => {
  const flip: Flip = { where: "sum", worker: 3, after: 0, left: Infinity };
  const plan = { ...PLAN, replicas: 3 };
  const { isRight, reactions } = await trainWith("sums", flip, { plan, freezes: true });
  assert.ok(isRight && reactions.some((one) => one.startsWith("moved")), reactions.join());
});

Deno.test("one of two copies that is always wrong ends the run, since it may be either", async () => {
  const flip: Flip = { where: "sum", worker: 3, after: 0, left: Infinity };
  await assert.rejects(trainWith("sums", flip, { freezes: true }), {
    message: /^Cannot take step 2: the copies of stage 1 have unequal sums, in 3 tries$/,
  });
});

Deno.test("any bit of an array changes its digest", () => {
  for (const length of [1, 3, 4, 5, 37]) {
    const values = Float32Array.from({ length }, (_, i) => i + 0.5),
      bits = new Int32Array(values.buffer);
    const digest = digestOf(values);
    for (let i = 0; i < 32 * length; i++) {
      bits[i >> 5]! ^= 1 << (i & 31);
      assert.notEqual(digestOf(values), digest);
      bits[i >> 5]! ^= 1 << (i & 31);
    }
    assert.notEqual(digestOf(new Uint8Array(values.buffer, 1, 2)), digestOf(values.subarray(0, 1)));
  }
});
