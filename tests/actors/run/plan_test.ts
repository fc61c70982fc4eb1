import assert from "node:assert/strict";
import { describePlan } from "../../../actors/run/plan.ts";
import { NOTHING } from "../../../actors/run/memory/run_memory.ts";
import { compileRun } from "../../../actors/run/compile_run.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { createSchedule } from "../../../schedules/mod.ts";

Deno.test("the plan names a block that is whole on a stage, and the parts of one that is cut", () => {
  const model = gpt2({ layers: 3, hidden: 32, heads: 2, seq: 8, vocab: 64 }, 2);
  const layersOf = (workers: number) => {
    const schedule = createSchedule("1f1b", { workers, microBatches: 4 });
    const run = { workers: [], supervisor: NOTHING, totalBytes: 0 };
    const share = { threads: 1, workersHere: workers, cores: 4 };
    const where = { runtime: "local", device: "reference", share, replicas: 1, run };
    return describePlan(compileRun({ model }, schedule), schedule, where).stages.map(({ layers }) =>
      layers
    );
  };
  assert.deepEqual(layersOf(1), [["embedding", "block 0", "block 1", "block 2", "head"]]);
  assert.deepEqual(layersOf(2), [
    ["embedding", "block 0", "block 1 attention"],
    ["block 1 mlp", "block 2", "head"],
  ]);
  assert.deepEqual(layersOf(8).flat().slice(1, 4), [
    "block 0 attention",
    "block 0 mlp",
    "block 1 attention",
  ]);
});
