/** Steps of the systems of the papers, on the papers' machines and models. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { bestPlan } from "../../../actors/foresight/papers/best_plan.ts";
import { PIZ_DAINT } from "../../../actors/foresight/papers/machines/gloo_clusters.ts";
import {
  machineFacts,
  PAPER_MACHINES,
} from "../../../actors/foresight/papers/machines/machines.ts";
import type { PaperMachine } from "../../../actors/foresight/papers/machines/paper_machine.ts";
import { statedProfile } from "../../../actors/foresight/papers/paper_profile.ts";
import { type PaperPlan, simulatePlan } from "../../../actors/foresight/papers/paper_step.ts";
import {
  CHIMERA,
  DAPPLE,
  GPIPE,
  PIPEDREAM,
  PIPEDREAM_2BW,
} from "../../../actors/foresight/papers/systems.ts";
import {
  AXONN_MODELS,
  BERT_48,
  GPT2_64,
  headFlops,
  layerBytes,
  layerFlops,
  parametersOf,
} from "../../../actors/foresight/papers/transformer.ts";
import { parseProfile } from "../../../actors/foresight/profile/read_profile.ts";
import { recomputedStepFlops } from "../../../schedules/mod.ts";

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

Deno.test("at D = 32 Chimera fits into memory and DAPPLE does not, as section 4.2.3 of the paper says", () => {
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

Deno.test("the link of Piz Daint is the quickest with which DAPPLE is best with D = 4", () => {
  const depthWith = (bytesPerMs: number) => {
    const link = { ...PIZ_DAINT.link, value: { latencyMs: 0.05, bytesPerMs } };
    const task = { machine: { ...PIZ_DAINT, link }, model: BERT_48, workers: 32, batch: 512 };
    return bestPlan(DAPPLE, task)!.plan.options.workers;
  };
  assert.equal(depthWith(PIZ_DAINT.link.value.bytesPerMs!), 4);
  assert.equal(depthWith(PIZ_DAINT.link.value.bytesPerMs! + 0.05e6), 8);
});

Deno.test("profiles of the machines of the papers are read as any other, and say that they are stated", () => {
  for (const machine of PAPER_MACHINES) {
    const profile = statedProfile(machine, BERT_48, [1, 2, 4, 8]);
    assert.deepEqual(parseProfile(JSON.stringify(profile)), JSON.parse(JSON.stringify(profile)));
    assert.equal(profile.source, "stated");
    for (const source of Object.values(profile.sources!)) assert.ok(source.length > 10, source);
  }
});

Deno.test("each figure of a machine has a source that names a paper, a document or a reason", () => {
  const facts = machineFacts();
  assert.ok(facts.length > 60, `${facts.length} facts`);
  for (const { machine, field, by, source } of facts) {
    const where = `${machine}, ${field}`;
    assert.ok(source.length > 10, where);
    if (by === "stated" || by === "fitted") assert.match(source, /Chimera|Hanayo|AxoNN/, where);
    if (by === "fitted") assert.match(source, /section [\dIVX]/, where);
  }
});

Deno.test("a micro-batch of more samples takes longer, and less for each of them", () => {
  const { layers } = statedProfile(PIZ_DAINT, GPT2_64, [1, 2, 4, 8]);
  const blocks = layers.filter(({ kind }) => kind === "block");
  for (const [i, { microBatch, forwardMs, backwardMs }] of blocks.entries()) {
    assert.equal(backwardMs, 2 * forwardMs);
    if (i === 0) continue;
    assert.ok(forwardMs > blocks[i - 1]!.forwardMs);
    assert.ok(forwardMs / microBatch < blocks[i - 1]!.forwardMs / blocks[i - 1]!.microBatch);
  }
});

Deno.test("halves of a micro-batch are computed with the efficiency of halves", () => {
  const backward = (samples: number, halves: boolean) =>
    statedProfile(PIZ_DAINT, BERT_48, [samples], halves).layers[1]!.backwardMs;
  assert.ok(Math.abs(backward(8, true) - 2 * backward(4, false)) < 1e-9);
});

Deno.test("the models of Chimera have exactly the parameters of its Table 4", () => {
  assert.equal(parametersOf(BERT_48), 669_790_012);
  assert.equal(parametersOf(GPT2_64), 1_389_327_360);
});

Deno.test("the models of AxoNN have the parameters of its Table I within 3 %", () => {
  for (const [billions, model] of Object.entries(AXONN_MODELS)) {
    const ratio = parametersOf(model) / (1e9 * Number(billions));
    assert.ok(Math.abs(ratio - 1) < 0.03, `${billions} billion: ${ratio}`);
  }
});

Deno.test("two forwards and a backward of twice as much are the operations of a step of AxoNN", () => {
  for (const model of Object.values(AXONN_MODELS)) {
    const counted = 4 * model.layers * layerFlops(model, 3) + 3 * headFlops(model, 3);
    assert.ok(Math.abs(counted / recomputedStepFlops(model, 3) - 1) < 1e-12);
  }
});

Deno.test("layers keep the bytes that Korthikanti et al. count in 16 bits: sbh(34 + 5as/h)", () => {
  const model = AXONN_MODELS[12], { sequence: s, hidden: h, heads: a } = model;
  assert.ok(Math.abs(layerBytes(model, 2) / (2 * s * h * (34 + 5 * a * s / h)) - 1) < 1e-12);
});
