/**
 * Schedules without flushes: the pipeline has the bits of a serial model of its staleness, and the
 * staleness is that of the papers.
 */

import assert from "node:assert/strict";
import {
  NonFiniteError,
  readCheckpoint,
  train,
  type TrainEvent,
  type TrainOptions,
} from "../../../actors/mod.ts";
import { type Batch, type DeviceName, gpt2, type Layer, type Model } from "../../../kernels/mod.ts";
import { analyze, createSchedule, defineSchedule } from "../../../schedules/mod.ts";
import fc from "../../fast_check.ts";
import { batch, batches, RINGS } from "../run/own_layers.ts";
import { batchesOf, outcome, type Sizes, SMALL } from "../runs.ts";

const NAMES = ["pipedream", "pipedream-2bw"] as const;

/** Five steps; where they are evaluated every two, the pipe drains before that. */
const SIZES: Sizes = { ...SMALL, microBatches: 4, steps: 5 };

/** Messages between workers take longer than an action, each another time. */
const LINK = { latencyUs: 300, gigabytesPerSecond: 0.1, jitterUs: 2000 };

/** All numbers of a run, and its peaks. */
async function run(sizes: Sizes, options: Partial<TrainOptions>) {
  const numbers: unknown[] = [], held = batchesOf({ ...sizes, steps: 1 });
  let end: Extract<TrainEvent, { type: "end" }> | undefined;
  for await (
    const event of train({
      model: gpt2(sizes, sizes.microBatch),
      data: batchesOf(sizes),
      steps: sizes.steps,
      microBatches: sizes.microBatches,
      evaluation: { every: 2, batches: held },
      ...options,
    })
  ) {
    if (event.type === "step") numbers.push([event.step, event.loss, event.gradNorm]);
    if (event.type === "evaluation") numbers.push([event.step, event.loss]);
    if (event.type === "end") end = event;
  }
  const { weightsHash, peakActivations, weightsHeld } = end!;
  return { bits: { numbers, weightsHash }, peakActivations, weightsHeld };
}

for (const schedule of NAMES) {
  Deno.test(`${schedule} has the bits of the serial model, whatever the delays, and the peaks of its analysis`, async () => {
    for (const workers of [1, 2, 3, 4]) {
      for (const microBatches of schedule === "pipedream" ? [1, 3, 5] : [workers, 5]) {
        const sizes = { ...SIZES, microBatches, steps: Math.max(5, Math.ceil(16 / microBatches)) };
        const options = { device: "native", schedule, workers } as const;
        const serial = await run(sizes, { ...options, runtime: "serial" });
        const what = `${workers} workers, ${microBatches} micro-batches`;
        const plain = await run(sizes, { ...options, runtime: "local" });
        assert.deepEqual(plain.bits, serial.bits, what);
        const late = await run(sizes, { ...options, runtime: "local", link: LINK });
        assert.deepEqual(late.bits, serial.bits, what);
        if (microBatches < workers) continue; // a drain every two steps: the pipe is never full
        const { peakActivations, weights } = analyze(
          createSchedule(schedule, { workers, microBatches }),
        );
        assert.deepEqual(plain.peakActivations, [...peakActivations], what);
        assert.deepEqual(plain.weightsHeld, [...weights], what);
      }
    }
  });

  for (const device of ["native", "wasm"] satisfies DeviceName[]) {
    Deno.test(`${schedule} in workers has the bits of the serial model on ${device}`, async () => {
      for (const workers of [2, 4]) {
        const options = { device, schedule, workers };
        const serial = await run(SIZES, { ...options, runtime: "serial" });
        const parallel = await run(SIZES, { ...options, runtime: "workers" });
        assert.deepEqual(parallel.bits, serial.bits, `${workers} workers`);
      }
    });
  }

  Deno.test(`${schedule} does not flush: the next step has begun before this one has ended`, async () => {
    const ended: number[] = [], begun: number[] = [];
    const options = { device: "native", runtime: "local", workers: 3, trace: true } as const;
    const data = batchesOf(SIZES), model = gpt2(SIZES, SIZES.microBatch);
    for await (
      const event of train({ model, data, steps: 5, microBatches: 4, schedule, ...options })
    ) {
      if (event.type !== "step") continue;
      const [first] = event.traces as [typeof event.traces[number]];
      ended.push(first.findLast(({ name }) => name.startsWith("0B"))!.end);
      for (const { name, start } of first) if (name.startsWith("0F")) begun.push(start);
    }
    assert.equal(begun.length, 20);
    for (let step = 1; step < 5; step++) {
      assert.ok(begun[4 * step]! < ended[step - 1]!, `step ${step + 1} must begin early`);
    }
  });

  Deno.test(`${schedule} that goes on from a checkpoint has the bits of the run that wrote it`, async () => {
    const directory = await Deno.makeTempDir({ prefix: "troupe-" });
    try {
      const options = { device: "native", runtime: "local", workers: 3, schedule } as const;
      const checkpoint = { directory, every: 3, config: {} };
      const whole = await run(SIZES, { ...options, evaluation: undefined, checkpoint });
      const resume = await readCheckpoint(`${directory}/step-00000003`);
      const rest = await run(SIZES, { ...options, evaluation: undefined, resume });
      assert.deepEqual(rest.bits.numbers, whole.bits.numbers.slice(3));
      assert.equal(rest.bits.weightsHash, whole.bits.weightsHash);
    } finally {
      await Deno.remove(directory, { recursive: true });
    }
  });

  Deno.test(`${schedule} ends in full steps when its signal says so`, async () => {
    const controller = new AbortController(), losses: number[] = [];
    const options = { device: "reference", runtime: "local", workers: 3, schedule } as const;
    let steps = 0, isInterrupted = false;
    for await (
      const event of train({
        model: RINGS,
        data: batches(),
        steps: 50,
        microBatches: 3,
        signal: controller.signal,
        ...options,
      })
    ) {
      if (event.type === "step") losses.push(event.loss);
      if (event.type === "step" && event.step === 2) controller.abort();
      if (event.type === "end") ({ steps, isInterrupted } = event);
    }
    assert.ok(isInterrupted);
    assert.equal(steps, losses.length);
    assert.ok(steps < 8, `${steps} steps`);
  });

  Deno.test(`${schedule} ends with a NonFiniteError that says the weights are lost`, async () => {
    for (const runtime of ["local", "serial"] as const) {
      const go = async () => {
        const options = { device: "reference", runtime, workers: 2, schedule } as const;
        const bad = { ...batch(0), points: new Float32Array(8).fill(NaN) } as Batch;
        const data = Array.from({ length: 16 }, (_, i) => i === 5 ? bad : batch(i));
        await Array.fromAsync(train({ model: RINGS, data, steps: 8, microBatches: 2, ...options }));
      };
      await assert.rejects(go, (error: Error) => {
        assert.ok(error instanceof NonFiniteError, String(error));
        assert.match(error.message, /Cannot take step 3: .*the weights are lost: resume/);
        return true;
      });
    }
  });

  Deno.test(`${schedule} whose worker fails ends with an error that says who and where`, async () => {
    const data = Array.from({ length: 16 }, (_, i) => batch(i));
    const options = { device: "reference", runtime: "local", workers: 2, schedule } as const;
    const faults = [{ worker: 0, afterActions: 8, kind: "throw" }] as const;
    const fails = { ...options, faults, retries: 0 };
    await assert.rejects(
      () => Array.fromAsync(train({ model: RINGS, data, steps: 8, microBatches: 2, ...fails })),
      /worker-0 failed in step \d while handling (StepBucket \(optimizer\)|Dispatch \(0B2\)): a fault/,
    );
  });
}

Deno.test("any workers, steps, pauses and delays have the bits of the serial model", async () => {
  const runs = fc.record({
    schedule: fc.constantFrom(...NAMES),
    workers: fc.integer({ min: 1, max: 5 }),
    more: fc.integer({ min: 0, max: 3 }),
    steps: fc.integer({ min: 1, max: 9 }),
    every: fc.integer({ min: 1, max: 5 }),
    jitterUs: fc.constantFrom(0, 500, 3000),
  });
  await fc.assert(
    fc.asyncProperty(runs, async ({ schedule, workers, more, steps, every, jitterUs }) => {
      const microBatches = schedule === "pipedream" ? 1 + more : workers + more;
      const data = Array.from({ length: steps * microBatches }, (_, m) => batch(m) as Batch);
      const options = { schedule, workers, steps, microBatches, data, model: RINGS } as const;
      const pauses = {
        evaluation: { every, batches: data.slice(0, 3) },
        device: "reference",
      } as const;
      const [serial, local] = await Promise.all(
        (["serial", "local"] as const).map((runtime) =>
          run(SIZES, {
            ...options,
            ...pauses,
            runtime,
            link: { latencyUs: 0, gigabytesPerSecond: 1, jitterUs },
          })
        ),
      );
      assert.deepEqual(local!.bits, serial!.bits);
    }),
    { numRuns: 40 },
  );
});

Deno.test("leaving the loop early ends a run that has steps under way", async () => {
  let isClosed = false;
  async function* data() {
    try {
      yield* batches();
    } finally {
      isClosed = true;
    }
  }
  for (const runtime of ["local", "workers"] as const) {
    const options = { device: "reference", runtime, workers: 3, schedule: "pipedream" } as const;
    isClosed = false;
    for await (
      const event of train({ model: RINGS, data: data(), steps: 50, microBatches: 2, ...options })
    ) {
      if (event.type === "step" && event.step === 2) break;
    }
    assert.ok(isClosed);
  }
});

Deno.test("stages without trained weights take part", async () => {
  const frozen = (name: string) => !name.includes("ln_f") && !name.includes("lm_head");
  for (const schedule of NAMES) {
    const options = { device: "native", schedule, workers: 3, frozen } as const;
    const serial = await run(SIZES, { ...options, runtime: "serial" });
    const local = await run(SIZES, { ...options, runtime: "local" });
    assert.deepEqual(local.bits, serial.bits, schedule);
  }
});

/** A pipe of three scalars, x·a·b·c, and the square of its error. */
const B = 4;
const scalar = (name: string, isLast = false): Layer => ({
  name,
  build(g, x) {
    const input = x ?? g.batch("x", [B, 1]);
    const y = g.gemm(input, g.parameter("w", [1, 1]));
    if (!isLast) return y;
    const error = g.sub(y, g.batch("target", [B, 1]));
    return g.reshape(g.mul(error, error), [B]);
  },
});
const CHAIN: Model = {
  name: "chain",
  layers: [scalar("a"), scalar("b"), scalar("c", true)],
  predictions: B,
};
const FIRST = [0.7, 1.3, -0.4], RATE = 0.05;

/** x and its target of micro-batch m. */
const pointsOf = (m: number) => {
  const x = Array.from({ length: B }, (_, j) => Math.fround(Math.sin(3 * m + j)));
  return { x, target: x.map((value) => Math.fround(0.8 * value + 0.1)) };
};

/** Loss and gradients of the chain on some micro-batches, with weights a, b, c. */
function chain([a, b, c]: number[], microBatches: readonly number[]) {
  let loss = 0;
  const gradient = [0, 0, 0], count = microBatches.length * B;
  for (const m of microBatches) {
    const { x, target } = pointsOf(m);
    x.forEach((value, j) => {
      const error = value * a! * b! * c! - target[j]!, slope = 2 * error * value / count;
      loss += error * error / count;
      [b! * c!, a! * c!, a! * b!].forEach((rest, s) => gradient[s]! += slope * rest);
    });
  }
  return { loss, gradient };
}

const STEPS = 20, N = 3;

/** Losses of the steps of a schedule on the chain, in f32 and in the pipeline. */
async function chainLosses(schedule: string): Promise<number[]> {
  const weights = new Map(FIRST.map((w, i) => [`${"abc"[i]}.w`, Float32Array.of(w)]));
  const data = Array.from({ length: STEPS * N }, (_, m) => {
    const { x, target } = pointsOf(m);
    return { x: Float32Array.from(x), target: Float32Array.from(target) };
  });
  const optimizer = { kind: "sgd", momentum: 0, weightDecay: 0 } as const;
  const losses: number[] = [];
  for await (
    const event of train({
      model: CHAIN,
      data,
      steps: STEPS,
      microBatches: N,
      workers: 3,
      schedule,
      runtime: "local",
      device: "reference",
      learningRate: RATE,
      optimizer,
      weights,
    })
  ) {
    if (event.type === "step") losses.push(event.loss);
  }
  return losses;
}

function assertClose(received: number[], expected: number[]): void {
  assert.equal(received.length, expected.length);
  received.forEach((loss, i) => {
    assert.ok(Math.abs(loss - expected[i]!) < 1e-6, `${i}: ${loss}, ${expected[i]}`);
  });
}

Deno.test("pipedream follows w(t+1) = w(t) − η·∇f(w_0(t−2), w_1(t−1), w_2(t)) on three stages", async () => {
  const history = FIRST.map((w) => [w]), expected: number[] = [], fresh: number[] = [];
  for (let t = 0; t < STEPS * N; t++) {
    const seen = history.map((versions, s) => versions[Math.max(0, t - (2 - s))]!);
    const { loss, gradient } = chain(seen, [t]);
    fresh.push(chain(history.map((versions) => versions[t]!), [t]).loss);
    history.forEach((versions, s) => versions.push(versions[t]! - RATE * gradient[s]!));
    expected[Math.floor(t / N)] = (expected[Math.floor(t / N)] ?? 0) + loss / N;
  }
  assertClose(await chainLosses("pipedream"), expected);
  // Weights without staleness would show.
  const unlike = fresh.slice(0, N).reduce((sum, loss) => sum + loss / N, 0);
  assert.ok(Math.abs(unlike - expected[0]!) > 1e-3);
});

Deno.test("pipedream-2bw follows W(t+1) = W(t) − η·∇f(W(t−1))", async () => {
  const history = [FIRST], expected: number[] = [];
  for (let t = 0; t < STEPS; t++) {
    const micro = Array.from({ length: N }, (_, j) => t * N + j);
    const { loss, gradient } = chain(history[Math.max(0, t - 1)]!, micro);
    expected.push(loss);
    history.push(history[t]!.map((w, s) => w - RATE * gradient[s]!));
  }
  assertClose(await chainLosses("pipedream-2bw"), expected);
});

Deno.test("pipedream-2bw has the same bits on any number of workers", async () => {
  const options = { device: "native", runtime: "local", schedule: "pipedream-2bw" } as const;
  const [one, ...others] = await Promise.all(
    [1, 2, 4].map((workers) => outcome(SIZES, { ...options, workers })),
  );
  for (const other of others) assert.deepEqual(other.bits, one!.bits);
});

Deno.test("a last step with fewer micro-batches trains as in the serial model", async () => {
  for (const schedule of NAMES) {
    const options = { device: "native", schedule, workers: 3, steps: 3 } as const;
    const data = batchesOf(SIZES, 2 * SIZES.microBatches + 1), evaluation = undefined;
    const serial = await run(SIZES, { ...options, data, evaluation, runtime: "serial" });
    const local = await run(SIZES, { ...options, data, evaluation, runtime: "local" });
    assert.equal(local.bits.numbers.length, 3);
    assert.deepEqual(local.bits, serial.bits, schedule);
  }
});

Deno.test("a schedule of one's own without flushes trains where it is pipedream by another name", async () => {
  const options = { workers: 2, microBatches: 4 };
  const { lists } = createSchedule("pipedream", options);
  const rule = {
    name: "mine",
    summary: "mine",
    updates: "every-backward",
    place: () => ({ stages: 2, workerOf: (stage: number) => stage }),
    order: (worker: number) => [...lists![worker]!],
  } as const;
  const weightVersions = (worker: number) => 2 - worker;
  const mine = defineSchedule({ ...rule, weightVersions }).create(options);
  const own = { device: "native", runtime: "local", workers: 2 } as const;
  const expected = await outcome(SIZES, { ...own, schedule: "pipedream" });
  assert.deepEqual((await outcome(SIZES, { ...own, schedule: mine })).bits, expected.bits);
  await assert.rejects(outcome(SIZES, { ...own, schedule: defineSchedule(rule).create(options) }), {
    name: "RangeError",
    message: /weight versions must be those of pipedream/,
  });
});

Deno.test("what needs a commit of all workers is refused without flushes", async () => {
  const refused: [Partial<TrainOptions>, RegExp][] = [
    [{ replicas: 2 }, /replicas must be 1, received 2/],
    [{ clip: 1 }, /clip must be none, received 1/],
    [{ precision: "fp16" }, /precision must be fp32, received fp16/],
    [{ lossScale: 8 }, /lossScale must be 1, received 8/],
    [{ sync: "eager" }, /sync must be end, received eager/],
    [{ model: { ...RINGS, ties: [["b.weight", "c.weight"]] } }, /ties must be 0, received 1/],
    [{ policy: "elastic" }, /followed to the letter/],
  ];
  for (const schedule of NAMES) {
    for (const [options, message] of refused) {
      const go = () =>
        Array.fromAsync(train({
          model: RINGS,
          data: batches(),
          steps: 2,
          microBatches: 4,
          workers: 2,
          device: "reference",
          schedule,
          ...options,
        }));
      await assert.rejects(go, { name: "RangeError", message });
    }
  }
});
