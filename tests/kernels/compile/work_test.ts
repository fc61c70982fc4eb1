/** The estimate by which models are cut, held to what `deno task bench balance` has measured. */

import assert from "node:assert/strict";
import { compileModel, gpt2, partition } from "../../../kernels/mod.ts";

const BENCH = { layers: 4, hidden: 256, heads: 4, seq: 128, vocab: 1024 };
const SMALL = { layers: 12, hidden: 768, heads: 12, seq: 256, vocab: 50_257 };

/** Percent of a micro-batch's forward and backward: embedding, attention and MLP of a block, head. */
const MEASURED = [
  { device: "native", config: BENCH, samples: 4, shares: [0.63, 9.51, 13.8, 6.03] },
  { device: "native", config: SMALL, samples: 2, shares: [0.07, 2.28, 3.51, 30.4] },
  { device: "wasm", config: BENCH, samples: 4, shares: [0.18, 9.22, 13.9, 7.17] },
  { device: "wasm", config: SMALL, samples: 2, shares: [0.01, 2.07, 3.79, 29.6] },
] as const;

const sum = (costs: readonly number[]) => costs.reduce((total, cost) => total + cost, 0);

for (const { device, config, samples, shares } of MEASURED) {
  const name = `GPT-2 with ${config.layers} layers on ${device}`;
  const [embedding, attention, mlp, head] = shares;
  const measured = [
    embedding,
    ...Array.from({ length: config.layers }, () => [attention, mlp]).flat(),
    head,
  ];

  Deno.test(`the estimated share of each layer is about the measured one: ${name}`, () => {
    const { costs } = compileModel(gpt2(config, samples), "none");
    assert.equal(costs.length, measured.length);
    for (const [i, share] of measured.entries()) {
      const estimated = 100 * costs[i]! / sum(costs);
      // An embedding is next to nothing, of which much is the call itself.
      const bound = Math.max(0.15 * share, 0.5);
      assert.ok(Math.abs(estimated - share) < bound, `layer ${i}: ${estimated} %, not ${share} %`);
    }
  });

  Deno.test(`no cut would be more than 3 % faster by measured times: ${name}`, () => {
    const { costs } = compileModel(gpt2(config, samples), "none");
    const slowest = (starts: readonly number[]) =>
      Math.max(...starts.map((start, i) => sum(measured.slice(start, starts[i + 1]))));
    for (let stages = 2; stages <= 8; stages++) {
      const ours = slowest(partition(costs, stages)), best = slowest(partition(measured, stages));
      assert.ok(ours <= 1.03 * best, `${stages} stages: ${ours} %, at best ${best} %`);
    }
  });
}
