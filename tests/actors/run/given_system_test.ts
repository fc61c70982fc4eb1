/** A run in a system that it was given leaves that as it found it. */

import assert from "node:assert/strict";
import { createSystem } from "../../../actors/mod.ts";
import { train } from "../../../actors/mod.ts";
import { batches, RINGS } from "./own_layers.ts";
import { outcome, SMALL } from "../runs.ts";

const OPTIONS = { device: "reference", workers: 2, microBatches: 2 } as const;
const SIZES = { ...SMALL, microBatches: 2 };

for (const [schedule, runtime] of [["1f1b", "workers"], ["pipedream", "local"]] as const) {
  Deno.test(`one system serves run after run with the same bits: ${schedule}, ${runtime}`, async () => {
    const alone = await outcome(SIZES, { ...OPTIONS, schedule, runtime });
    await using system = createSystem();
    for (let run = 0; run < 3; run++) {
      const { bits } = await outcome(SIZES, { ...OPTIONS, schedule, runtime, system });
      assert.deepEqual(bits, alone.bits);
    }
    assert.deepEqual(system.deadLetters, []);
  });
}

Deno.test("a run that is left early, or outlives a worker, leaves its system to the next", async () => {
  await using system = createSystem();
  const options = {
    model: RINGS,
    steps: 4,
    microBatches: 2,
    workers: 2,
    device: "reference",
  } as const;
  for await (const event of train({ ...options, data: batches(), runtime: "local", system })) {
    if (event.type === "step") break;
  }
  const faults = [{ worker: 1, afterActions: 9, kind: "throw" }] as const;
  const told: string[] = [];
  for await (
    const event of train({
      ...options,
      data: batches(),
      runtime: "workers",
      system,
      faults,
      announce: (line) => void told.push(line),
    })
  ) {
    if (event.type === "end") assert.equal(event.steps, 4);
  }
  assert.match(told.join("\n"), /going on from the last committed step/);
});
