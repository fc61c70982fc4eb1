import assert from "node:assert/strict";
import {
  analyze,
  checkpointedOutputs,
  chimeraStep,
  createSchedule,
  criticalPath,
  hanayoBubbleRatio,
  hanayoPrintedRatio,
  mixedPrecisionBytes,
  printedOutputs,
  rabenseifnerMs,
  recomputedStepFlops,
  unoverlappedReduce,
} from "../../schedules/mod.ts";
import fc from "../fast_check.ts";
import { isNear, refuses } from "./cases.ts";

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
  refuses(
    () => checkpointedOutputs(48, 0, 1),
    "Cannot use the model: the number of workers must be a whole number from 1, received 0",
  );
  refuses(() => mixedPrecisionBytes(-1));
  assert.throws(
    () => recomputedStepFlops({ layers: 1, hidden: 0, sequence: 1, vocabulary: 1 }, 1),
    RangeError,
  );
});

const evenDepth = fc.integer({ min: 1, max: 6 }).map((half) => 2 * half);
const units = fc.integer({ min: 1, max: 4 });

const chimeraOf = (workers: number, K: number) =>
  createSchedule("chimera", { workers, microBatches: K * workers });

Deno.test("C_f and C_b of Chimera are N-(K-1)(D-2) and N+K(D-2), with recomputation too", () => {
  fc.assert(fc.property(evenDepth, units, fc.constantFrom(2, 3), (D, K, backward) => {
    const expected = { forwards: K * D - (K - 1) * (D - 2), backwards: K * D + K * (D - 2) };
    assert.deepEqual(criticalPath(chimeraOf(D, K), backward), expected);
  }));
});

Deno.test("C_f and C_b of other schedules add up to their makespan", () => {
  const names = fc.constantFrom("gpipe", "1f1b", "gems", "hanayo", "message-driven");
  fc.assert(fc.property(names, evenDepth, units, (name, workers, K) => {
    const schedule = createSchedule(name, { workers, microBatches: K * workers });
    const { forwards, backwards } = criticalPath(schedule);
    const { makespan } = analyze(schedule, { forward: 1, backward: 2 });
    assert.ok(Math.abs(forwards + 2 * backwards - makespan) < 1e-6);
  }));
  const gpipe = createSchedule("gpipe", { workers: 4, microBatches: 8 });
  assert.deepEqual(criticalPath(gpipe), { forwards: 11, backwards: 11 });
});

Deno.test("halves and doubled forwards count as the micro-batches that they compute", () => {
  for (const scale of ["doubling", "halving"] as const) {
    const schedule = createSchedule("chimera", { workers: 8, microBatches: 16, scale });
    const { forwards, backwards } = criticalPath(schedule);
    const { makespan } = analyze(schedule, { forward: 1, backward: 2 });
    assert.equal(forwards + 2 * backwards, makespan, scale);
  }
});

Deno.test("Eq. 1 bounds the executed step from above while messages are short", () => {
  fc.assert(
    fc.property(evenDepth, units, fc.double({ min: 0, max: 0.02, noNaN: true }), (D, K, send) => {
      const schedule = chimeraOf(D, K);
      const { totalMs } = chimeraStep({
        schedule,
        forwardMs: 1,
        messageMs: send,
        allReduceMs: 0,
      });
      const { makespan } = analyze(schedule, { forward: 1, backward: 2, send });
      assert.ok(makespan <= totalMs + 1e-9, `${makespan} is longer than ${totalMs}`);
    }),
  );
});

Deno.test("an all-reduce is hidden by idle time after the last backward of its stage alone", () => {
  const unit = analyze(createSchedule("chimera", { workers: 6, microBatches: 6 }));
  // Before the end of the step, a worker e steps from the edge idles D/2-1-e backwards between its
  // stages' ends, and e backwards after both.
  const overOnce = unoverlappedReduce(unit, 4);
  assert.deepEqual(overOnce, [4, 4, 4, 4, 4, 4]);
  assert.deepEqual(unoverlappedReduce(unit, 1), [1, 0, 0, 0, 0, 1]);
  const dapple = analyze(createSchedule("1f1b", { workers: 4, microBatches: 4 }));
  assert.deepEqual(unoverlappedReduce(dapple, 5), [5, 3, 1, 0]);
});

Deno.test("what is not hidden is between nothing and everything, and grows with the all-reduce", () => {
  const schedules = fc.constantFrom("chimera", "gpipe", "1f1b", "gems");
  const ms = fc.double({ min: 0, max: 50, noNaN: true });
  fc.assert(fc.property(schedules, evenDepth, units, ms, ms, (name, workers, K, a, b) => {
    const analysis = analyze(createSchedule(name, { workers, microBatches: K * workers }));
    const [less, more] = [Math.min(a, b), Math.max(a, b)].map((reduce) =>
      unoverlappedReduce(analysis, reduce)
    );
    for (const [worker, left] of more!.entries()) {
      const copies = analysis.schedule.placement[worker]!.length;
      assert.ok(left <= copies * Math.max(a, b) + 1e-9 && left >= 0);
      assert.ok(left >= less![worker]!);
    }
  }));
});

Deno.test("Rabenseifner's cost is that of halving, then doubling, round by round", () => {
  const link = { latencyMs: 0.25, bytesPerMs: 1e6 };
  fc.assert(fc.property(fc.integer({ min: 0, max: 10 }), fc.nat(1e9), (rounds, bytes) => {
    let ms = 0;
    for (let round = 1; round <= rounds; round++) {
      ms += 2 * (link.latencyMs + bytes / 2 ** round / link.bytesPerMs);
    }
    assert.ok(Math.abs(rabenseifnerMs(bytes, 2 ** rounds, link) - ms) < 1e-9 * (1 + ms));
  }));
  assert.equal(rabenseifnerMs(1e9, 1, link), 0);
});

Deno.test("what Eq. 1 cannot take is refused", () => {
  const schedule = chimeraOf(4, 1);
  const step = { schedule, forwardMs: 1, messageMs: 0, allReduceMs: 0 };
  refuses(
    () => chimeraStep({ ...step, messageMs: -1 }),
    "Cannot use the model: messageMs must be at least 0, received -1",
  );
  refuses(() => criticalPath(schedule, 2.5));
  refuses(() => rabenseifnerMs(1, 0, { latencyMs: 0, bytesPerMs: 1 }));
});

const counts = (max: number) => fc.integer({ min: 1, max });
const slower = fc.double({ min: 1, max: 4, noNaN: true });

function executed(workers: number, waves: number, rounds: number, backward: number, send = 0) {
  const schedule = createSchedule("hanayo", { workers, waves, microBatches: rounds * workers });
  return analyze(schedule, { forward: 1, backward, send }).bubbleRatio;
}

Deno.test("the ratio is that of the executed schedule, for every P, W, K and T_B from T_F on", () => {
  fc.assert(fc.property(counts(8), counts(4), counts(3), slower, (P, W, K, backward) => {
    const step = { workers: P, waves: W, rounds: K, forward: 1, backward };
    const [form, ratio] = [hanayoBubbleRatio(step), executed(P, W, K, backward)];
    assert.ok(isNear(form, ratio), `${form} for ${ratio}`);
  }));
});

Deno.test("messages that are short add (4W(P-1) + 2(P-2))·T_C; longer ones no less", () => {
  const short = fc.double({ min: 0, max: 0.01, noNaN: true });
  fc.assert(fc.property(counts(8), counts(4), short, (P, W, message) => {
    const step = { workers: P, waves: W, forward: 1, backward: 2, message };
    assert.ok(isNear(hanayoBubbleRatio(step), executed(P, W, 1, 2, message)));
  }));
  const long = fc.double({ min: 0, max: 2, noNaN: true });
  fc.assert(fc.property(counts(8), counts(4), long, (P, W, message) => {
    const step = { workers: P, waves: W, forward: 1, backward: 2, message };
    assert.ok(hanayoBubbleRatio(step) <= executed(P, W, 1, 2, message) + 1e-9);
  }));
});

Deno.test("one wave idles as Chimera on twice the workers does", () => {
  for (const P of [1, 2, 3, 4, 8]) {
    const chimera = createSchedule("chimera", { workers: 2 * P, microBatches: 2 * P });
    const ratio = hanayoBubbleRatio({ workers: P, waves: 1, forward: 1, backward: 2 });
    assert.ok(isNear(ratio, analyze(chimera).bubbleRatio), `P = ${P}`);
  }
});

Deno.test("the printed ratio is (2P-2)/(3PW+P-1), which no schedule can have", () => {
  fc.assert(fc.property(fc.integer({ min: 2, max: 32 }), counts(8), (P, W) => {
    const step = { workers: P, waves: W, forward: 1, backward: 2 };
    assert.ok(isNear(hanayoPrintedRatio(step), (2 * P - 2) / (3 * P * W + P - 1)));
    assert.ok(isNear(hanayoBubbleRatio(step), (2 * P - 2) / (3 * P * W + 2 * P - 2)));
  }));
});

Deno.test("what the ratio does not hold for is refused", () => {
  const step = { workers: 4, waves: 1, forward: 1, backward: 2 };
  refuses(
    () => hanayoBubbleRatio({ ...step, backward: 0.5 }),
    "Cannot use the model: a backward must be at least a forward, received 0.5",
  );
  refuses(() => hanayoBubbleRatio({ ...step, rounds: 2, message: 1 }));
  refuses(() => hanayoPrintedRatio({ ...step, workers: 1 }));
});
