import assert from "node:assert/strict";
import { printedOutputs } from "../../bench/papers/formulas.ts";
import { analyze, createSchedule, criticalPath } from "../../schedules/mod.ts";
import { chimeraStep, hanayoBubbleRatio, hanayoPrintedRatio } from "../../bench/papers/formulas.ts";
import {
  checkpointedOutputs,
  mixedPrecisionBytes,
  rabenseifnerMs,
  recomputedStepFlops,
  unoverlappedReduce,
} from "../../bench/papers/formulas.ts";
import fc, { forAll } from "../fast_check.ts";
import { between, isNear } from "../schedules/cases.ts";

const leastAt = (outputs: (every: number) => number, factors: readonly number[]) =>
  factors.reduce((best, every) => outputs(every) < outputs(best) ? every : best);

Deno.test("checkpoints take the least memory at sqrt(N), and in the printed formula at sqrt(N/G)", () => {
  const factors = [1, 2, 4, 8, 16, 32, 64];
  assert.equal(leastAt((every) => checkpointedOutputs(64, 4, every), factors), 8);
  assert.equal(leastAt((every) => printedOutputs(64, 4, every), factors), 4);
});

Deno.test("kept checkpoints are those of a message-driven pipeline with that limit", () =>
  forAll(
    100,
    [fc.integer({ min: 2, max: 6 }), fc.constantFrom(2, 4, 6, 12), fc.constantFrom(1, 2)],
    (workers, layers, every) => {
      const options = { workers, microBatches: 4 * workers, pipelineLimit: workers };
      const { peakActivations } = analyze(createSchedule("message-driven", options));
      // Each micro-batch in flight keeps its input and a checkpoint for each `every` layers; one of
      // them is computed again, which brings back the outputs between two checkpoints.
      const held = Math.max(...peakActivations) * (layers / every + 1) + every;
      assert.equal(checkpointedOutputs(layers * workers, workers, every), held);
    },
  ));

Deno.test("offload saves a factor of five, minus one bucket", () => {
  assert.equal(mixedPrecisionBytes(12e9) / 6, 40e9);
  assert.equal(mixedPrecisionBytes(12e9, 0), mixedPrecisionBytes(12e9) / 5);
  assert.equal(mixedPrecisionBytes(5e8, 16e6) - mixedPrecisionBytes(5e8, 0), 256e6);
});

const size = fc.integer({ min: 1, max: 512 });

Deno.test("the step's operations are those of its matrix products, counted one by one", () =>
  forAll(100, [size, size, size, size, size], (layers, h, s, vocabulary, b) => {
    const product = (m: number, k: number, n: number) => 2 * m * k * n;
    const layer = product(s, h, 3 * h) + product(s, h, s) + product(s, s, h) + product(s, h, h) +
      product(s, h, 4 * h) + product(s, 4 * h, h);
    const expected = b * (4 * layers * layer + 3 * product(s, h, vocabulary));
    const sizes = { layers, hidden: h, sequence: s, vocabulary, name: "more than sizes" };
    assert.ok(Math.abs(recomputedStepFlops(sizes, b) / expected - 1) < 1e-12);
  }));

Deno.test("a critical path is of backwards that take a whole number of forwards", () => {
  const must = "a backward in forwards must be a whole number from 1 to 100, received 2.5";
  const message = `Cannot find the critical path: ${must}`;
  assert.throws(() => criticalPath(chimeraOf(4, 1), 2.5), { name: "RangeError", message });
});

const evenDepth = fc.integer({ min: 1, max: 6 }).map((half) => 2 * half);
const units = fc.integer({ min: 1, max: 4 });

const chimeraOf = (workers: number, K: number) =>
  createSchedule("chimera", { workers, microBatches: K * workers });

Deno.test("C_f and C_b of Chimera are N-(K-1)(D-2) and N+K(D-2), with recomputation too", () =>
  forAll(100, [evenDepth, units, fc.constantFrom(2, 3)], (D, K, backward) => {
    const expected = { forwards: K * D - (K - 1) * (D - 2), backwards: K * D + K * (D - 2) };
    assert.deepEqual(criticalPath(chimeraOf(D, K), backward), expected);
  }));

Deno.test("C_f and C_b of other schedules add up to their makespan", () =>
  forAll(100, [
    fc.constantFrom("gpipe", "1f1b", "gems", "hanayo", "message-driven"),
    evenDepth,
    units,
  ], (name, workers, K) => {
    const schedule = createSchedule(name, { workers, microBatches: K * workers });
    const { forwards, backwards } = criticalPath(schedule), { makespan } = analyze(schedule);
    assert.ok(Math.abs(forwards + 2 * backwards - makespan) < 1e-6);
    if (name === "gpipe") assert.equal(forwards, backwards);
  }));

Deno.test("halves and doubled forwards count as their micro-batches", () => {
  for (const scale of ["doubling", "halving"] as const) {
    const schedule = createSchedule("chimera", { workers: 8, microBatches: 16, scale });
    const { forwards, backwards } = criticalPath(schedule);
    assert.equal(forwards + 2 * backwards, analyze(schedule).makespan, scale);
  }
});

Deno.test("Eq. 1 bounds the executed step from above, and closely, while messages are short", () =>
  forAll(100, [evenDepth, units, between(0, 0.02)], (D, K, send) => {
    const schedule = chimeraOf(D, K), { makespan } = analyze(schedule, { send });
    const step = { schedule, forwardMs: 1, messageMs: send, allReduceMs: 0 };
    const { totalMs } = chimeraStep(step);
    assert.ok(makespan <= totalMs + 1e-9 && totalMs < 1.15 * makespan, `${makespan}, ${totalMs}`);
  }));

Deno.test("only idle time after the last backward of its stage hides an all-reduce", () => {
  const unit = analyze(createSchedule("chimera", { workers: 6, microBatches: 6 }));
  // Before the end of the step, a worker e steps from the edge idles D/2-1-e backwards between its
  // stages' ends, and e backwards after both.
  assert.deepEqual(unoverlappedReduce(unit, 4), [4, 4, 4, 4, 4, 4]);
  assert.deepEqual(unoverlappedReduce(unit, 1), [1, 0, 0, 0, 0, 1]);
  const dapple = analyze(createSchedule("1f1b", { workers: 4, microBatches: 4 }));
  assert.deepEqual(unoverlappedReduce(dapple, 5), [5, 3, 1, 0]);
});

Deno.test("Rabenseifner's cost is that of halving, then doubling, round by round", () =>
  forAll(100, [fc.integer({ min: 0, max: 10 }), fc.nat(1e9)], (rounds, bytes) => {
    let ms = 0;
    for (let round = 1; round <= rounds; round++) ms += 2 * (0.25 + bytes / 2 ** round / 1e6);
    const found = rabenseifnerMs(bytes, 2 ** rounds, { latencyMs: 0.25, bytesPerMs: 1e6 });
    assert.ok(Math.abs(found - ms) < 1e-9 * (1 + ms));
  }));

const counts = (max: number) => fc.integer({ min: 1, max });

function executed(workers: number, waves: number, rounds: number, backward: number, send = 0) {
  const schedule = createSchedule("hanayo", { workers, waves, microBatches: rounds * workers });
  return analyze(schedule, { forward: 1, backward, send }).bubbleRatio;
}

Deno.test("the ratio is that of the executed schedule, for every P, W, K and T_B from T_F on", () =>
  forAll(100, [counts(8), counts(4), counts(3), between(1, 4)], (P, W, K, backward) => {
    const step = { workers: P, waves: W, rounds: K, forward: 1, backward };
    const [form, ratio] = [hanayoBubbleRatio(step), executed(P, W, K, backward)];
    assert.ok(isNear(form, ratio), `${form} for ${ratio}`);
  }));

Deno.test("messages that are short add (4W(P-1) + 2(P-2))·T_C; longer ones no less", () =>
  forAll(100, [counts(8), counts(4), between(0, 0.01), between(0, 2)], (P, W, short, long) => {
    const form = (message: number) =>
      hanayoBubbleRatio({ workers: P, waves: W, forward: 1, backward: 2, message });
    assert.ok(isNear(form(short), executed(P, W, 1, 2, short)));
    assert.ok(form(long) <= executed(P, W, 1, 2, long) + 1e-9);
  }));

Deno.test("the printed ratio is (2P-2)/(3PW+P-1), which no schedule can have", () =>
  forAll(100, [fc.integer({ min: 2, max: 32 }), counts(8)], (P, W) => {
    const step = { workers: P, waves: W, forward: 1, backward: 2 };
    assert.ok(isNear(hanayoPrintedRatio(step), (2 * P - 2) / (3 * P * W + P - 1)));
    assert.ok(isNear(hanayoBubbleRatio(step), (2 * P - 2) / (3 * P * W + 2 * P - 2)));
  }));
