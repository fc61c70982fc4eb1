/** Cuts of a model into stages: by estimated costs, or by a layout. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { compileModel, gpt2, type Gpt2Config, mlp } from "../../../kernels/mod.ts";
import { formatLayout, partition, readLayout } from "../../../kernels/compile/layout.ts";
import { assertRefused } from "../graph/refused.ts";

const sum = (costs: readonly number[]) => costs.reduce((total, cost) => total + cost, 0);

/** The costs of the stages of a cut. */
const costsOf = (costs: readonly number[], starts: readonly number[]) =>
  starts.map((start, i) => sum(costs.slice(start, starts[i + 1])));

/** The costs of the stages of every cut. */
function everyCut(costs: readonly number[], parts: number): number[][] {
  if (parts === 1) return [[sum(costs)]];
  const firsts = Array.from({ length: costs.length - parts + 1 }, (_, i) => i + 1);
  return firsts.flatMap((first) =>
    everyCut(costs.slice(first), parts - 1).map((rest) => [sum(costs.slice(0, first)), ...rest])
  );
}

Deno.test("no cut into stages has a cheaper most expensive stage, or as cheap a one and more even others", () => {
  fc.assert(fc.property(
    fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1, maxLength: 8 }),
    fc.integer({ min: 1, max: 8 }),
    (costs, wanted) => {
      const parts = Math.min(wanted, costs.length), starts = partition(costs, parts);
      assert.equal(starts.length, parts);
      const sums = costsOf(costs, starts);
      assert.ok(sums.every((cost) => cost > 0), "every stage has a layer");
      const squares = (cut: readonly number[]) => sum(cut.map((cost) => cost ** 2));
      const all = everyCut(costs, parts), least = Math.min(...all.map((cut) => Math.max(...cut)));
      assert.equal(Math.max(...sums), least);
      const best = all.filter((cut) => Math.max(...cut) === least);
      assert.equal(squares(sums), Math.min(...best.map(squares)));
    },
  ));
});

Deno.test("of cuts that are equally good it is the earliest, on every machine", () => {
  assert.deepEqual(partition([1, 1, 1], 2), [0, 1]);
  assert.deepEqual(partition([2, 1, 1, 2], 3), [0, 1, 3]);
  assert.deepEqual(partition([1, 1, 1, 1], 3), [0, 1, 2]);
  assert.deepEqual(partition([4, 1, 1, 1], 3), [0, 1, 2]);
});

Deno.test("more stages than layers are refused with both numbers", () => {
  assert.throws(() => partition([1, 2, 3], 4), {
    name: "RangeError",
    message:
      "Cannot cut the model into 4 stages: the number of stages must be between 1 and its 3 layers",
  });
});

const BENCH = { layers: 4, hidden: 256, heads: 4, seq: 128, vocab: 1024 };
const SMALL = { layers: 12, hidden: 768, heads: 12, seq: 256, vocab: 50_257 };

/**
 * Percent of a micro-batch's measured forward and backward, as `troupe profile` has them: embedding,
 * attention and MLP of a block, head.
 */
const MEASURED = [
  { device: "native", config: BENCH, samples: 4, shares: [0.63, 9.51, 13.8, 6.03] },
  { device: "native", config: SMALL, samples: 2, shares: [0.07, 2.28, 3.51, 30.4] },
  { device: "wasm", config: BENCH, samples: 4, shares: [0.18, 9.22, 13.9, 7.17] },
  { device: "wasm", config: SMALL, samples: 2, shares: [0.01, 2.07, 3.79, 29.6] },
] as const;

for (const { device, config, samples, shares } of MEASURED) {
  Deno.test(`estimated costs of GPT-2 with ${config.layers} layers are about those measured on ${device}, and cut as well`, () => {
    const [embedding, attention, mlp, head] = shares;
    const blocks = Array.from({ length: config.layers }, () => [attention, mlp]).flat();
    const measured = [embedding, ...blocks, head];
    const { costs } = compileModel(gpt2(config, samples), "none");
    assert.equal(costs.length, measured.length);
    for (const [i, share] of measured.entries()) {
      const estimated = 100 * costs[i]! / sum(costs);
      // An embedding is next to nothing, of which much is the call itself.
      const bound = Math.max(0.15 * share, 0.5);
      assert.ok(Math.abs(estimated - share) < bound, `layer ${i}: ${estimated} %, not ${share} %`);
    }
    const slowest = (starts: readonly number[]) => Math.max(...costsOf(measured, starts));
    for (let stages = 2; stages <= 8; stages++) {
      const ours = slowest(partition(costs, stages)), best = slowest(partition(measured, stages));
      assert.ok(ours <= 1.03 * best, `${stages} stages: ${ours} %, at best ${best} %`);
    }
  });
}

const layersOf = (config: Partial<Gpt2Config> = {}) =>
  compileModel(
    gpt2({ layers: 4, hidden: 8, heads: 2, seq: 4, vocab: 16, ...config }, 1),
    "none",
  ).layers;

/** A model whose blocks have three layers. */
const thirds = Array.from({ length: 9 }, (_, i) => {
  const block = `block ${Math.floor(i / 3)}`;
  return { name: `${block} part ${i % 3}`, block, prefix: "", program: 0 };
});

Deno.test("a layout of blocks, half blocks, embedding and head says where stages begin", () => {
  const ofMlp = mlp({ inputs: 4, hidden: 4, layers: 3, classes: 2 }, 1);
  const { layers: dense } = compileModel(ofMlp, "none"), plain = layersOf();
  const cases: readonly [string, typeof plain, number[]][] = [
    ["E,4,H", plain, [0]],
    ["E|4|H", plain, [0, 1, 9]],
    ["E,1|3,H", plain, [0, 3]],
    ["E,1.5|2.5,H", plain, [0, 4]],
    [" E , 1,1 | .5 | 1.5,H", plain, [0, 5, 6]],
    ["E,4,H|H,H", layersOf({ headSlices: 3 }), [0, 10]],
    ["1|3", dense, [0, 1]],
    ["1.333|1.667", thirds, [0, 4]],
  ];
  for (const [layout, layers, expected] of cases) {
    assert.deepEqual(readLayout(layout, layers, layout.split("|").length), expected, layout);
  }
  assert.equal(formatLayout(dense, [0, 1, 3]), "1|2|1");
});

Deno.test("every cut is read as it is written, blocks of three layers among them", () => {
  fc.assert(fc.property(
    fc.constantFrom(layersOf(), layersOf({ headSlices: 2 }), thirds),
    fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 12, maxLength: 12 }),
    fc.integer({ min: 1, max: 8 }),
    (layers, costs, stages) => {
      const starts = partition(costs.slice(0, layers.length), stages);
      assert.deepEqual(readLayout(formatLayout(layers, starts), layers, stages), starts);
    },
  ));
});

Deno.test("a layout that is none, or not of this model, is refused with what the model has", () => {
  const layouts = ["E,x|4,H", "E,4||H", "E,0|4,H", "E,-1|5,H", "E,1e0|3,H", "E,4,H", "E,1|2,H"];
  layouts.push("E,1|4,H", "4|E,H", "E,2|2", "E,2|2,H,H", "E,1.3|2.7,H");
  const layers = layersOf();
  const read = (layout: string) => readLayout(layout, layers, 2);
  return assertRefused("layouts", layouts.map((layout) => [layout, () => read(layout)]));
});
