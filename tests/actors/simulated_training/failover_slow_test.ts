/** Workers that crash before, within and after the messages of a run that moves to the others. */

import assert from "node:assert/strict";
import {
  simulatedTraining,
  type SimulatedTrainingOptions,
} from "../../../actors/simulated_training/simulated_training.ts";
import type { Fault } from "../../../actors/simulation/faults.ts";
import type { SimulateOptions } from "../../../actors/simulation/run.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import { pos } from "../../../actors/simulation/strategies.ts";
import { substream } from "../../../kernels/random.ts";
import { atDepth } from "../../depth.ts";

/** A run that moves, of two steps unless `more` says otherwise. */
const planOf = (
  schedule: string,
  workers: number,
  microBatches: number,
  replicas: number,
  more: Partial<SimulatedTrainingOptions> = {},
): SimulatedTrainingOptions => ({
  ...{ steps: 2, mayMove: true, schedule, workers, microBatches, replicas, ...more },
});

const PLANS: Readonly<Record<string, SimulatedTrainingOptions>> = {
  "1×2": planOf("1f1b", 2, 2, 1),
  "2×2": planOf("1f1b", 2, 2, 2),
  "2×2, message-driven": planOf("message-driven", 2, 4, 2),
  "2×2, joined": planOf("1f1b", 2, 2, 2, { steps: 3, joinBefore: 2 }),
  "2×2, verified": planOf("1f1b", 2, 2, 2, { steps: 4, verifies: true }),
  "1×4, buddy": planOf("1f1b", 4, 4, 1, { buddy: true }),
  "1×4, message-driven, buddy": planOf("message-driven", 4, 4, 1, { buddy: true }),
  "2×2, buddy": planOf("1f1b", 2, 2, 2, { buddy: true }),
  "Chimera 4": planOf("chimera", 4, 4, 1),
  "3×2, message-driven, with clipping": planOf("message-driven", 2, 4, 3, { clip: 1 }),
  "2×4": planOf("1f1b", 4, 8, 2),
  "2×4, message-driven": planOf("message-driven", 4, 8, 2),
};

/** Runs with faults, and returns its moves, restarts and commits. */
async function runWith(
  configuration: SimulatedTrainingOptions,
  seed: number,
  faults: readonly Fault[],
  onStep?: SimulateOptions<unknown>["onStep"],
) {
  const { value, failure } = await simulate(
    { seed, strategy: pos(), faults, configuration, ...onStep && { onStep } },
    simulatedTraining,
  );
  assert.equal(failure, undefined, JSON.stringify({ seed, faults, failure }));
  const { retaken, joins, restarts, commits } = value!;
  assert.ok(retaken!.every((count) => count <= 1), `${retaken}`);
  // Without a restart each step is committed once.
  assert.ok(restarts! > 0 || commits === configuration.steps, `${commits} commits, ${faults}`);
  return { moves: retaken!.length, joins: joins!, restarts: restarts! };
}

type Ended = Awaited<ReturnType<typeof runWith>>;

/** Adds up a result of runs. */
const sumOf = (all: readonly Ended[], name: keyof Ended) =>
  all.reduce((sum, one) => sum + one[name], 0);

/** Crashes before a message, after its first and second send, and after it. */
const CRASHES = [
  { kind: "crash-before" },
  { kind: "crash-amid", sends: 1 },
  { kind: "crash-amid", sends: 2 },
  { kind: "crash-after" },
] as const;

for (const [name, plan] of Object.entries(PLANS)) {
  const runs = atDepth(24, Infinity), seconds = atDepth(10, 450);
  const canMove = plan.buddy || plan.schedule === "chimera" || plan.replicas! > 1;

  Deno.test(`${name}: a worker that crashes at any message changes no bit, and one step is retaken at most`, async () => {
    const handled: { actor: string; type: string }[] = [], all: Ended[] = [];
    await runWith(plan, 1, [], (step) => void handled.push(step));
    const faultsAt = (isMeant: (type: string) => boolean) =>
      handled.flatMap(({ actor: target, type }, step) =>
        target.startsWith("worker-") && isMeant(type)
          ? CRASHES.map((crash): Fault => ({ step, target, ...crash }))
          : []
      );
    const faults = faultsAt(() => true), count = Math.min(runs, faults.length);
    // A worker may be lost after its answer was sent, and while a committed state is compared.
    const isRead = (type: string) => type === "Fetch" || type === "Digest";
    const reads = count < faults.length ? faultsAt(isRead) : [];
    for (const fault of reads) all.push(await runWith(plan, 1, [fault]));
    for (let i = 0; i < count; i++) {
      // Each kind in turn, also if some are left out.
      const fault =
        faults[(Math.floor(i * faults.length / count / 4) * 4 + i % 4) % faults.length]!;
      const run = await runWith(plan, 1, [fault]);
      assert.ok(run.moves + run.restarts <= 1, JSON.stringify(fault));
      all.push(run);
    }
    const moves = sumOf(all, "moves"), restarts = sumOf(all, "restarts");
    assert.ok(canMove ? moves > all.length / 2 : moves === 0 && restarts > 0);
    assert.equal(sumOf(all, "joins") > 0, plan.joinBefore !== undefined);
  });

  Deno.test(`${name}: ${seconds} second crashes during a move change no bit`, async () => {
    const generator = substream(7, name);
    const draw = (below: number) => (generator.next() >>> 0) % below;
    const crash = (step: number, worker: number): Fault => ({
      ...{ step, target: `worker-${worker}` },
      ...CRASHES[draw(CRASHES.length)]!,
    });
    const workers = plan.workers! * plan.replicas!;
    for (let seed = 0; seed < seconds; seed++) {
      const first = crash(draw(200), draw(workers));
      const second = crash(first.step + draw(60), draw(workers - 1));
      await runWith(plan, seed, [first, second]);
    }
  });
}
