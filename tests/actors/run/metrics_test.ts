/** What a run measures: one record for each step and evaluation, before its event. */

import assert from "node:assert/strict";
import { type Metrics, train, type TrainEvent } from "../../../actors/mod.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { batchesOf, SMALL } from "../runs.ts";

const OPTIONS = {
  model: gpt2(SMALL, SMALL.microBatch),
  data: batchesOf(SMALL),
  steps: 2,
  microBatches: SMALL.microBatches,
  workers: 2,
  runtime: "local",
  device: "reference",
} as const;

/** Predictions of a step. */
const TOKENS = SMALL.seq * SMALL.microBatch * SMALL.microBatches;

Deno.test("metrics are told once for each step and evaluation, before its event", async () => {
  const told: (Metrics | Exclude<TrainEvent, { type: "plan" | "end" }>)[] = [];
  const evaluation = { every: 2, batches: batchesOf(SMALL, 1), atStart: true };
  const learningRate = { rate: 0.01, schedule: "constant", warmup: 2 } as const;
  const metrics = (one: Metrics) => void told.push(one);
  for await (const event of train({ ...OPTIONS, evaluation, learningRate, metrics })) {
    if (event.type !== "plan" && event.type !== "end") told.push(event);
  }
  const order = told.map((one) => `${"rss" in one ? "metrics of" : ""} ${one.type} ${one.step}`);
  const pairs = ["evaluation 0", "step 1", "step 2", "evaluation 2"];
  assert.deepEqual(order, pairs.flatMap((of) => [`metrics of ${of}`, ` ${of}`]));
  const measured = told.filter((one) => "rss" in one);
  assert.deepEqual(measured.map(({ tokens }) => tokens), [0, TOKENS, 2 * TOKENS, 2 * TOKENS]);
  assert.deepEqual(measured.map((one) => one.learningRate), [undefined, 0.005, 0.01, undefined]);
  for (const [i, { seconds, time, memory, perplexity, evalLoss }] of measured.entries()) {
    assert.ok(seconds > 0 && time > 1e12);
    assert.equal(memory?.length, measured[i]!.type === "step" ? 2 : undefined);
    if (evalLoss !== undefined) assert.equal(perplexity, Math.exp(evalLoss));
  }
});

Deno.test("a skipped step is measured too, and learns from no token", async () => {
  const measured: Metrics[] = [];
  const metrics = (one: Metrics) => void measured.push(one);
  const halves = { ...OPTIONS, device: "wasm", precision: "fp16", steps: 2 } as const;
  await assert.rejects(Array.fromAsync(train({ ...halves, lossScale: 2 ** 30, metrics })));
  assert.deepEqual(measured.map(({ type, tokens }) => ({ type, tokens })), [
    { type: "skip", tokens: 0 },
    { type: "skip", tokens: 0 },
  ]);
});

Deno.test("what a metrics callback throws ends the run", async () => {
  const metrics = () => {
    throw new RangeError("no room for metrics");
  };
  await assert.rejects(Array.fromAsync(train({ ...OPTIONS, metrics })), /no room for metrics/);
});

Deno.test("a worker that is lost is told as an event, with its reason", async () => {
  const events = await Array.fromAsync(train({
    ...OPTIONS,
    device: "wasm",
    runtime: "workers",
    faults: [{ worker: 1, afterActions: 3, kind: "throw" }],
  }));
  const failures = events.filter((event) => event.type === "failure");
  assert.equal(failures.length, 1);
  const { actor, reason, step } = failures[0]!;
  assert.match(actor, /worker/);
  assert.match(reason, /./);
  const next = events[events.indexOf(failures[0]!) + 1];
  assert.ok(next?.type === "step" && next.step === step);
});
