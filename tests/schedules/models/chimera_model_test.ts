import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  analyze,
  chimeraStep,
  createSchedule,
  criticalPath,
  rabenseifnerMs,
  unoverlappedReduce,
} from "../../../schedules/mod.ts";

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
  assert.throws(() => chimeraStep({ ...step, messageMs: -1 }), {
    name: "RangeError",
    message: "Cannot use the model: messageMs must be at least 0, received -1",
  });
  assert.throws(() => criticalPath(schedule, 2.5), RangeError);
  assert.throws(() => rabenseifnerMs(1, 0, { latencyMs: 0, bytesPerMs: 1 }), RangeError);
});
