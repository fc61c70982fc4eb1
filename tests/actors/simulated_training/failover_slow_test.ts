/** Workers that crash before, within and after the messages of a run that moves to the others. */

import assert from "node:assert/strict";
import {
  simulatedTraining,
  type SimulatedTrainingOptions,
} from "../../../actors/simulated_training/simulated_training.ts";
import type { Fault } from "../../../actors/simulation/faults.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import { pos } from "../../../actors/simulation/strategies.ts";
import { substream } from "../../../kernels/random.ts";
import { atDepth } from "../../depth.ts";

const KINDS = ["crash-before", "crash-amid", "crash-after"] as const;

const moving = { steps: 2, mayMove: true };

const PLANS: Readonly<Record<string, SimulatedTrainingOptions>> = {
  "2×2": { ...moving, schedule: "1f1b", workers: 2, microBatches: 2, replicas: 2 },
  "2×2, message-driven": {
    ...{ ...moving, schedule: "message-driven", workers: 2, microBatches: 4, replicas: 2 },
  },
  "Chimera 4": { ...moving, schedule: "chimera", workers: 4, microBatches: 4, replicas: 1 },
  "3×2, message-driven, with clipping": {
    ...{ ...moving, schedule: "message-driven", workers: 2, microBatches: 4, replicas: 3, clip: 1 },
  },
  "2×4": { ...moving, schedule: "1f1b", workers: 4, microBatches: 8, replicas: 2 },
};

/** Runs with faults, and returns the steps that each move takes again. */
async function movesOf(configuration: SimulatedTrainingOptions, seed: number, faults: Fault[]) {
  const { value, failure } = await simulate(
    { seed, strategy: pos(), faults, configuration },
    simulatedTraining,
  );
  assert.equal(failure, undefined, JSON.stringify({ seed, faults, failure }));
  return value!.retaken!;
}

for (const [name, plan] of Object.entries(PLANS)) {
  const runs = atDepth(60, Infinity), seconds = atDepth(20, 1000);
  const workers = plan.workers! * plan.replicas!;
  const crash = (step: number, worker: number, n: number): Fault => {
    const kind = KINDS[n % 3]!;
    const target = `worker-${worker}`;
    return { step, kind, target, ...kind === "crash-amid" && { sends: 1 + n % 2 } };
  };

  Deno.test(`${name}: a worker that crashes at any message changes no bit, and one step is retaken at most`, async () => {
    const { steps } = await simulate(
      { seed: 1, strategy: pos(), configuration: plan },
      simulatedTraining,
    );
    const all = 3 * workers * steps, count = Math.min(runs, all);
    let moves = 0;
    for (let i = 0; i < count; i++) {
      const step = Math.floor(i * all / count / (3 * workers));
      const faults = [crash(step, i % workers, Math.floor(i / workers))];
      const retaken = await movesOf(plan, 1, faults);
      assert.ok(retaken.length <= 1 && retaken.every((count) => count <= 1), `${retaken}`);
      moves += retaken.length;
    }
    assert.ok(moves > 0);
  });

  Deno.test(`${name}: ${seconds} second crashes during a move change no bit`, async () => {
    const generator = substream(7, name);
    const draw = (below: number) => (generator.next() >>> 0) % below;
    for (let seed = 0; seed < seconds; seed++) {
      const first = crash(draw(200), draw(workers), draw(6));
      const second = crash(first.step + draw(60), draw(workers - 1), draw(6));
      const retaken = await movesOf(plan, seed, [first, second]);
      assert.ok(retaken.every((count) => count <= 1), `${retaken}`);
    }
  });
}
