import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { compileModel, cutIntoStages, gpt2, partition } from "../../../kernels/mod.ts";

/** The costs of the stages of every cut. */
function everyCut(costs: readonly number[], parts: number): number[][] {
  const sum = (some: readonly number[]) => some.reduce((total, cost) => total + cost, 0);
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
      const sums = starts.map((start, i) =>
        costs.slice(start, starts[i + 1]).reduce((a, b) => a + b, 0)
      );
      assert.ok(sums.every((sum) => sum > 0), "every stage has a layer");
      const squares = (cut: readonly number[]) => cut.reduce((sum, cost) => sum + cost ** 2, 0);
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

Deno.test("embedding and head count when layers are cut into stages", () => {
  // With a vocabulary this large the head costs more than the blocks: it stays alone.
  const config = { layers: 2, hidden: 16, heads: 2, seq: 8, vocab: 4096 };
  const stages = cutIntoStages(compileModel(gpt2(config, 2), "none"), 2);
  assert.deepEqual(stages.map(({ layers }) => layers.map(({ name }) => name)), [
    ["embedding", "block 0 attention", "block 0 mlp", "block 1 attention", "block 1 mlp"],
    ["head"],
  ]);
});
