import assert from "node:assert/strict";
import fc from "../../../fast_check.ts";
import { bestPlan } from "../../../../actors/foresight/papers/best_plan.ts";
import { PIZ_DAINT } from "../../../../actors/foresight/papers/machines/gloo_clusters.ts";
import { type PaperMachine } from "../../../../actors/foresight/papers/machines/paper_machine.ts";
import { type PaperPlan, simulatePlan } from "../../../../actors/foresight/papers/paper_step.ts";
import {
  CHIMERA,
  DAPPLE,
  GPIPE,
  PIPEDREAM,
  PIPEDREAM_2BW,
} from "../../../../actors/foresight/papers/systems.ts";
import { BERT_48, GPT2_64 } from "../../../../actors/foresight/papers/transformer.ts";

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

const deep = (more: Partial<PaperPlan>) =>
  plan({
    model: GPT2_64,
    width: 16,
    microBatch: 1,
    options: { workers: 32, microBatches: 32 },
    ...more,
  });

Deno.test("memory is as the paper's section 4.2.3 says: at D = 32 Chimera fits, DAPPLE does not", () => {
  assert.ok(simulatePlan(deep({ system: CHIMERA })));
  assert.equal(simulatePlan(deep({ system: DAPPLE })), undefined);
  assert.ok(simulatePlan(deep({ system: DAPPLE, recomputes: true })));
  assert.equal(simulatePlan(deep({ system: GPIPE })), undefined);
});

/** A machine whose messages take no time. */
function withoutMessages(machine: PaperMachine): PaperMachine {
  const { isBlocking, link } = machine;
  const quick = { ...link, value: { latencyMs: 0 } };
  return { ...machine, link: quick, isBlocking: { ...isBlocking, value: false } };
}

Deno.test("recomputation takes a third more; messages and all-reduces take time", () => {
  const bare = { ignoresMemory: true, withoutReduce: true };
  const free = plan({ machine: withoutMessages(PIZ_DAINT) });
  const once = simulatePlan(free, bare)!.stepMs;
  const again = simulatePlan({ ...free, recomputes: true }, bare)!.stepMs;
  assert.ok(Math.abs(again / once - 4 / 3) < 1e-9);
  assert.ok(simulatePlan(plan(), bare)!.stepMs > once);
  assert.ok(simulatePlan(plan())!.stepMs > simulatePlan(plan(), bare)!.stepMs);
});

Deno.test("a quicker link never makes a step longer", () => {
  const systems = fc.constantFrom(GPIPE, DAPPLE, PIPEDREAM, PIPEDREAM_2BW);
  fc.assert(
    fc.property(systems, fc.integer({ min: 1, max: 100 }), (system, tenths) => {
      const stepMs = (bytesPerMs: number) => {
        const value = { latencyMs: 0.05, bytesPerMs };
        const link = { value, by: "assumed", source: "a test" } as const;
        const machine = { ...PIZ_DAINT, link, reduceLink: link };
        return simulatePlan(plan({ machine, system }), { ignoresMemory: true })!.stepMs;
      };
      assert.ok(stepMs(2e5 * tenths) <= stepMs(1e5 * tenths) + 1e-6);
    }),
    { numRuns: 20 },
  );
});

Deno.test("without flushes there are no bubbles; 2BW needs a micro-batch for each stage", () => {
  const free = plan({ machine: withoutMessages(PIZ_DAINT), system: PIPEDREAM_2BW });
  const [one, two] = [16, 32].map((microBatches) =>
    simulatePlan({ ...free, options: { workers: 4, microBatches } }, { ignoresMemory: true })!
      .stepMs
  ) as [number, number];
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

Deno.test("the link of Piz Daint is the quickest with which DAPPLE is best with D = 4", () => {
  const depthWith = (bytesPerMs: number) => {
    const link = { ...PIZ_DAINT.link, value: { latencyMs: 0.05, bytesPerMs } };
    const task = { machine: { ...PIZ_DAINT, link }, model: BERT_48, workers: 32, batch: 512 };
    return bestPlan(DAPPLE, task)!.plan.options.workers;
  };
  assert.equal(depthWith(PIZ_DAINT.link.value.bytesPerMs!), 4);
  assert.equal(depthWith(PIZ_DAINT.link.value.bytesPerMs! + 0.05e6), 8);
});
