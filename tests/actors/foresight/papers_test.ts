/** Steps of the systems of the papers, on the papers' machines and models. */

import assert from "node:assert/strict";
import { bestPlan } from "../../../actors/foresight/papers/best_plan.ts";
import { PIZ_DAINT } from "../../../actors/foresight/papers/machines/gloo_clusters.ts";
import type { PaperMachine } from "../../../actors/foresight/papers/machines/paper_machine.ts";
import { type PaperPlan, simulatePlan } from "../../../actors/foresight/papers/paper_step.ts";
import { DAPPLE, PIPEDREAM_2BW } from "../../../actors/foresight/papers/systems.ts";
import { BERT_48 } from "../../../actors/foresight/papers/transformer.ts";

const plan = (more: Partial<PaperPlan> = {}): PaperPlan => ({
  machine: PIZ_DAINT,
  model: BERT_48,
  system: DAPPLE,
  width: 8,
  microBatch: 4,
  options: { workers: 4, microBatches: 16 },
  recomputes: false,
  ...more,
});

/** A machine whose messages take no time. */
function withoutMessages(machine: PaperMachine): PaperMachine {
  const { isBlocking, link } = machine;
  const quick = { ...link, value: { latencyMs: 0 } };
  return { ...machine, link: quick, isBlocking: { ...isBlocking, value: false } };
}

Deno.test("without flushes there are no bubbles; 2BW needs a micro-batch for each stage", () => {
  const free = plan({ machine: withoutMessages(PIZ_DAINT), system: PIPEDREAM_2BW });
  const [one, two] = [16, 32].map((microBatches) =>
    simulatePlan({ ...free, options: { workers: 4, microBatches } }, { ignoresMemory: true })!
      .stepMs
  ) as [number, number];
  // An all-reduce that takes longer than the step is its end.
  const link = { ...PIZ_DAINT.link, value: { latencyMs: 1e6, bytesPerMs: 1 } };
  const reducing = { ...free, machine: { ...free.machine, reduceLink: link } };
  assert.ok(simulatePlan(reducing, { ignoresMemory: true })!.stepMs > 1e6);
  const dapple = { ...free, system: DAPPLE };
  const flushed = simulatePlan(dapple, { ignoresMemory: true, withoutReduce: true })!.stepMs;
  // Sixteen micro-batches more are sixteen nineteenths of a flushed step of as many.
  assert.ok(Math.abs((two - one) / flushed - 16 / 19) < 1e-9);
  const few = { workers: 4, microBatches: 2 };
  assert.equal(simulatePlan(plan({ system: PIPEDREAM_2BW, options: few })), undefined);
});

Deno.test("the best plan fits, serves the batch, and no other of those searched is faster", () => {
  // With all-reduces for nothing the bound that leaves plans out is close to what they reach.
  const free = withoutMessages(PIZ_DAINT), machine = { ...free, reduceLink: free.link };
  const task = { machine, model: BERT_48, workers: 16, batch: 256 };
  const best = bestPlan(DAPPLE, task)!;
  const { width, microBatch, options } = best.plan;
  assert.equal(width * microBatch * options.microBatches, 256);
  assert.equal(width * options.workers, 16);
  for (const depth of [2, 4, 8, 16]) {
    for (const size of [1, 2, 4, 8, 16]) {
      const microBatches = 256 * depth / (16 * size);
      if (!Number.isInteger(microBatches)) continue;
      for (const recomputes of [false, true]) {
        const other = simulatePlan(plan({
          machine,
          width: 16 / depth,
          microBatch: size,
          options: { workers: depth, microBatches },
          recomputes,
        }));
        assert.ok((other?.samplesPerSecond ?? 0) <= best.samplesPerSecond * (1 + 1e-9));
      }
    }
  }
});
