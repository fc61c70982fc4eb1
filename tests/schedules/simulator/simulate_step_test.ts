import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  ActionList,
  analyze,
  createSchedule,
  modelOfCosts,
  simulateStep,
  type StepModel,
  withPolicy,
} from "../../../schedules/mod.ts";
import { drawsOf } from "../../../schedules/simulator/jitter.ts";
import { allCases, inWords, isNear, made } from "../cases.ts";
import { observe } from "../executor.ts";

const SERVED = allCases().filter(({ options }) => options.workers * options.microBatches <= 512)
  .filter((one) => made(one) !== undefined);

/** Those whose actions are of one part each, which are drawn for one by one. */
const PLAIN = SERVED.filter((one) =>
  made(one)!.lists?.every(({ length, partCount }) => length === partCount) ?? true
);

const servedCase = fc.constantFrom(...SERVED);
const cost = fc.double({ min: 0.05, max: 4, noNaN: true });

Deno.test("where nothing but actions and messages takes time, a simulated step is what analyze says", () => {
  fc.assert(
    fc.property(servedCase, cost, cost, cost, cost, (one, forward, input, weight, send) => {
      const costs = { forward, input, weight, send }, schedule = made(one)!;
      const { makespan, idle, execution } = analyze(schedule, costs);
      const seen = simulateStep(modelOfCosts(schedule, costs));
      assert.equal(seen.makespanMs, makespan, inWords(one));
      assert.deepEqual(seen.timeline.starts, execution.timeline.starts, inWords(one));
      seen.workers.forEach(({ bubbleMs, communicationMs }, worker) => {
        const where = `${inWords(one)}: worker ${worker}`;
        assert.ok(isNear(bubbleMs + communicationMs, idle[worker]!), where);
      });
    }),
    { numRuns: 400 },
  );
});

Deno.test("a worker that is alone never waits, whatever sums leave", () => {
  for (let microBatches = 1; microBatches <= 40; microBatches++) {
    const schedule = createSchedule("1f1b", { workers: 1, microBatches });
    const stages = [{ forwardMs: 0.1, backwardMs: 0.7 }];
    const { workers: [alone] } = simulateStep({ schedule, stages, dispatchMs: 0.02 });
    const { bubbleMs } = alone!;
    assert.ok(bubbleMs >= 0 && bubbleMs < 1e-9, `${microBatches}: ${bubbleMs}`);
  }
});

Deno.test("measured factors are drawn from: between the least and the greatest, with their mean", () => {
  const schedule = createSchedule("1f1b", { workers: 1, microBatches: 500 });
  const stages = [{ forwardMs: 1, backwardMs: 1 }];
  const step = (amount: number, law: readonly number[] = [0.5, 1, 1.5]) =>
    simulateStep({ schedule, stages, jitter: { law, amount, seed: 3 } });
  const { makespanMs, timeline: { starts, ends } } = step(1);
  assert.ok(Math.abs(makespanMs / 1000 - 1) < 0.03, `${makespanMs}`);
  const durations = Array.from(starts[0]!, (start, i) => ends[0]![i]! - start);
  assert.ok(durations.every((ms) => ms > 0.499 && ms < 1.501));
  assert.ok(Math.min(...durations) < 0.51 && Math.max(...durations) > 1.49);
  assert.equal(step(0).makespanMs, 1000);
  assert.equal(step(1, [1]).makespanMs, 1000);
  assert.throws(() => step(1, []), /jitter\.law's factors must be/);
  assert.throws(() => step(1, [1, 0]), /jitter\.law\[1\] must be a number above 0/);
});

Deno.test("elastic lists and messages take the time that a second executor finds with the same policies", () => {
  fc.assert(
    fc.property(fc.constantFrom(...PLAIN), cost, cost, cost, cost, fc.nat(), (one, ...times) => {
      const plain = made(one)!, [forwardMs, inputMs, weightMs, sendMs, seed] = times;
      const schedule = plain.lists ? withPolicy(plain, "elastic") : plain;
      // Each has a time of its own: the two have other rules for what happens at the same moment.
      const jitter = { law: "above", amount: 1, latencyAmount: 1, seed } as const;
      const draws = drawsOf(jitter), { slices = 1 } = schedule;
      const whole = { F: forwardMs, I: inputMs, W: weightMs, B: inputMs + weightMs, R: 0 };
      const seen = observe(schedule, {
        duration: (part) =>
          whole[part.kind] / (part.half === undefined ? slices : 2) * draws.duration(part),
        send: (part) => sendMs / slices * draws.latency(part),
      });
      const stage = { forwardMs, inputMs, weightMs, sendMs, backwardMs: inputMs + weightMs };
      const stages = Array.from({ length: schedule.stages }, () => stage);
      const { makespanMs, schedule: { lists } } = simulateStep({ schedule, stages, jitter });
      assert.ok(isNear(makespanMs, seen.makespan), `${inWords(one)}: the time differs`);
      assert.deepEqual(lists.map(String), seen.ran.map((ran) => String(ActionList.from(ran))));
    }),
    { numRuns: 300 },
  );
});

Deno.test("the parts of each worker's time add up to the step, whatever takes time in it", () => {
  const bytes = fc.double({ min: 0, max: 50, noNaN: true });
  const some = fc.record({
    one: servedCase,
    times: fc.array(cost, { minLength: 8, maxLength: 8 }),
    bytes: fc.array(bytes, { minLength: 3, maxLength: 3 }),
    isClipped: fc.boolean(),
    isBlocking: fc.boolean(),
    protocol: fc.constantFrom("commit", "ranks"),
    algorithm: fc.constantFrom("direct", "ring", "rabenseifner"),
    coarsening: fc.integer({ min: 1, max: 3 }),
    replicas: fc.integer({ min: 1, max: 5 }),
    sharing: fc.constantFrom("pair", "worker", "node"),
  });
  fc.assert(
    fc.property(some, ({ one, times, bytes, replicas, isBlocking, sharing, ...closing }) => {
      const schedule = made(one)!, [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = times;
      const [outputBytes = 0, gradientBytes = 0, bucketBytes = 0] = bytes;
      const stage = { forwardMs: a, backwardMs: b, recomputeMs: c, checkMs: d / 8, optimizerMs: e };
      const model: StepModel = {
        schedule,
        replicas,
        stages: Array.from(
          { length: schedule.stages },
          () => ({ ...stage, outputBytes, gradientBytes }),
        ),
        dispatchMs: f / 8,
        controlMs: g / 8,
        network: { link: { latencyMs: h / 8, bytesPerMs: 20 }, nodeSize: 2, sharing, isBlocking },
        jitter: { law: "above", amount: 0.5, latencyAmount: 0.5, seed: 1 },
        closing: {
          ...closing,
          bucketBytes: 1 + bucketBytes,
          launchMs: h / 8,
          addBytesPerMs: 30,
          handleMs: g / 16,
          eagerStages: [schedule.stages - 1],
        },
      };
      const { makespanMs, computedMs, workers, timeline, closing: spans } = simulateStep(model);
      assert.ok(makespanMs >= computedMs);
      workers.forEach((worker, index) => {
        const parts = Object.values(worker), sum = parts.reduce((total, part) => total + part);
        const where = `${inWords(one)}: worker ${index}: ${JSON.stringify(worker)}`;
        assert.ok(isNear(sum, makespanMs), where);
        assert.ok(parts.every((part) => part > -1e-6), where);
        // Whoever is busy does one thing at a time.
        const { starts, ends } = timeline;
        const busy = [
          ...[...starts[index]!].map((start, i) => [start, ends[index]![i]!] as const),
          ...spans[index]!.filter(({ what }) => what !== "reduce")
            .map(({ startMs, endMs }) => [startMs, endMs] as const),
        ].sort(([first], [second]) => first - second);
        for (let i = 1; i < busy.length; i++) {
          assert.ok(busy[i]![0] >= busy[i - 1]![1] - 1e-9, where);
        }
      });
    }),
    { numRuns: 300 },
  );
});
