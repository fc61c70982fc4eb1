import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  analyze,
  checkpointedOutputs,
  createSchedule,
  mixedPrecisionBytes,
  printedOutputs,
  recomputedStepFlops,
} from "../../../schedules/mod.ts";

const leastAt = (outputs: (every: number) => number, factors: readonly number[]) =>
  factors.reduce((best, every) => outputs(every) < outputs(best) ? every : best);

Deno.test("checkpoints take least at sqrt(N), and as printed at sqrt(N/G)", () => {
  const factors = [1, 2, 4, 8, 16, 32, 64];
  assert.equal(leastAt((every) => checkpointedOutputs(64, 4, every), factors), 8);
  assert.equal(leastAt((every) => printedOutputs(64, 4, every), factors), 4);
});

Deno.test("what is kept is what a message-driven pipe of that limit holds, checkpoint by checkpoint", () => {
  const depth = fc.integer({ min: 2, max: 6 }), perStage = fc.constantFrom(2, 4, 6, 12);
  fc.assert(fc.property(depth, perStage, fc.constantFrom(1, 2), (workers, layers, every) => {
    const options = { workers, microBatches: 4 * workers, pipelineLimit: workers };
    const { peakActivations } = analyze(createSchedule("message-driven", options));
    const inFlight = Math.max(...peakActivations);
    // Each micro-batch in flight keeps its input and a checkpoint for each `every` layers; one of
    // them is computed again, which brings back the outputs between two checkpoints.
    const held = inFlight * (layers / every + 1) + every;
    assert.equal(checkpointedOutputs(layers * workers, workers, every), held);
  }));
});

Deno.test("offload saves a factor of five, less one bucket", () => {
  assert.equal(mixedPrecisionBytes(12e9) / 6, 40e9);
  assert.equal(mixedPrecisionBytes(12e9, 0), mixedPrecisionBytes(12e9) / 5);
  assert.equal(mixedPrecisionBytes(5e8, 16e6) - mixedPrecisionBytes(5e8, 0), 256e6);
});

Deno.test("the step's operations are those of its matrix products, counted one by one", () => {
  const size = fc.integer({ min: 1, max: 512 });
  fc.assert(fc.property(size, size, size, size, size, (layers, hidden, sequence, vocabulary, b) => {
    const h = hidden, s = sequence;
    const product = (m: number, k: number, n: number) => 2 * m * k * n;
    const layer = product(s, h, 3 * h) + product(s, h, s) + product(s, s, h) + product(s, h, h) +
      product(s, h, 4 * h) + product(s, 4 * h, h);
    const expected = b * (4 * layers * layer + 3 * product(s, h, vocabulary));
    const flops = recomputedStepFlops({ layers, hidden, sequence, vocabulary }, b);
    assert.ok(Math.abs(flops / expected - 1) < 1e-12);
  }));
});

Deno.test("a record that says more than the sizes is taken as it is", () => {
  const sizes = { layers: 1, hidden: 6, sequence: 36, vocabulary: 96, name: "small" };
  assert.equal(recomputedStepFlops(sizes, 1), 96 * 36 * 36 * 3);
});

Deno.test("sizes that cannot be are refused", () => {
  assert.throws(() => checkpointedOutputs(48, 0, 1), {
    name: "RangeError",
    message:
      "Cannot use the model: the number of workers must be a whole number from 1, received 0",
  });
  assert.throws(() => mixedPrecisionBytes(-1), RangeError);
  assert.throws(
    () => recomputedStepFlops({ layers: 1, hidden: 0, sequence: 1, vocabulary: 1 }, 1),
    RangeError,
  );
});
