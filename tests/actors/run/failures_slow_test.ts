/**
 * Failures of workers and transports end a run with an error that names the failed part and action, or are
 * recovered from; a system passed to the run is left unchanged.
 */

import assert from "node:assert/strict";
import { createSystem } from "../../../actors/transports/system.ts";
import { NonFiniteError, train } from "../../../actors/run/train.ts";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import type { Batch } from "../../../kernels/mod.ts";
import { eventsOf, outcome, SMALL } from "../runs.ts";
import { TCP_TRANSPORT } from "../runtime/tcp_transport.ts";
import { batch, batches, RINGS, trainRings } from "./own_layers.ts";

/** Trains until a failure; returns the error and the types of the events before it. */
async function failure(options: Partial<TrainOptions>): Promise<{ error: Error; types: string[] }> {
  const types: string[] = [], sizes = { model: RINGS, steps: 4, microBatches: 2, workers: 2 };
  const run = train({ ...sizes, data: batches(), device: "reference", ...options });
  const error = await Array.fromAsync(run, ({ type }) => types.push(type)).then(
    () => assert.fail("the run must fail"),
    (error) => error,
  );
  return { error, types };
}

Deno.test("a worker that dies at its start or in the middle ends a run without retries", async () => {
  for (const [schedule, afterActions] of [["1f1b", 0], ["message-driven", 12]] as const) {
    const faults = [{ worker: 1, afterActions, kind: "exit" }] as const;
    const options = { runtime: "workers", retries: 0, steps: 1000 } as const;
    const { error } = await failure({ ...options, schedule, faults });
    assert.match(error.message, /^worker-1 failed.*the worker of "worker-1" has ended/);
  }
});

Deno.test("data that throws ends the run with its error and its step, and data that ends says at which step", async () => {
  const thrown = new Error("the disk is gone");
  const three = [batch(0), batch(1), batch(2)], local = { runtime: "local" } as const;
  const failing = function* () {
    yield* three;
    throw thrown;
  };
  const first = await failure({ ...local, data: failing() });
  assert.equal(`${first.error}`, "Error: Cannot take micro-batch 1 of step 2: the disk is gone");
  assert.equal(first.error.cause, thrown);
  const inFirst = (async function* (): AsyncGenerator<Batch> {
    yield await Promise.reject("no shelf");
  })();
  const second = await failure({ ...local, data: inFirst });
  assert.equal(`${second.error}`, "Error: Cannot take micro-batch 0 of step 1: no shelf");
  // The second step is smaller; for the third nothing is left.
  const { error, types } = await failure({ ...local, data: three });
  assert.deepEqual(types, ["plan", "step", "step"]);
  assert.match(`${error}`, /^RangeError: Cannot run step 3: the data must have micro-batches for/);
});

/** Returns a micro-batch with an invalid point. */
const withPoint = (i: number, value: number, at: number) => {
  const wrong = batch(i);
  (wrong.points as Float32Array)[at] = value;
  return wrong;
};

/** Invalid numbers in the data, and the error messages without the position. */
const WRONG = [
  [NaN, 5, "NaN in row 2", ""],
  [-Infinity, 0, "-Infinity in row 0", ", or lower the learning rate.*"],
] as const;

Deno.test("a number of the data that is not finite is named before any weight has changed", async () => {
  for (const [value, at, what, more] of WRONG) {
    const place =
      `the data has ${what} of the field "points" of micro-batch 1: correct or leave out such rows`;
    const batches = Array.from({ length: 8 }, (_, i) => batch(i)).with(3, withPoint(3, value, at));
    const runtime = value === -Infinity ? "serial" : "workers";
    const { error, types } = await failure({ data: batches as Batch[], runtime });
    assert.ok(error instanceof NonFiniteError);
    const step = "Cannot take step 2: loss and gradients must be finite, received loss";
    assert.match(error.message, new RegExp(`^${step} \\S+; ${place}${more}$`));
    assert.deepEqual(types, ["plan", "step"]);

    const evaluation = { every: 2, batches: [batch(0), withPoint(1, value, at)] as Batch[] };
    const held = await failure({ evaluation, runtime: "local" });
    const after = "Cannot evaluate after step 2: the loss must be finite, received loss";
    assert.match(held.error.message, new RegExp(`^${after} \\S+; ${place}${more}$`));
    assert.deepEqual(held.types, ["plan", "step", "step"]);
  }
  // Unread fields and a learning rate that is too high are not errors in the data.
  const unread = Array.from({ length: 8 }, (_, i) => ({ ...batch(i), more: Float32Array.of(NaN) }));
  const data = unread as unknown as Batch[];
  const { error } = await failure({ data, learningRate: 1e30, runtime: "local" });
  const diverged = /received loss \S+; lower the learning rate, or resume from the last/;
  assert.match(error.message, diverged);
});

Deno.test("a run that ends, is left early, or outlives a worker leaves its system to the next, with the same bits", async () => {
  await using system = createSystem();
  const schedule = "pipedream", whole = await trainRings({ schedule, system });
  assert.deepEqual(whole.bits, (await trainRings({ schedule })).bits);
  assert.deepEqual(system.deadLetters, []);
  const options = { model: RINGS, schedule, steps: 50, microBatches: 2, workers: 3, system };
  // Steps after the first are under way.
  const early = train({ ...options, data: batches(), device: "reference", runtime: "local" });
  for await (const event of early) if (event.type === "step") break;
  const faults = [{ worker: 1, afterActions: 9, kind: "throw" }] as const, lines: string[] = [];
  const announce = (line: string) => void lines.push(line);
  const run = await trainRings({ runtime: "workers", system, faults, announce });
  assert.match(lines.join("\n"), /the run continues from the last committed step/);
  const { events } = run, lost = eventsOf(events, "failure");
  assert.deepEqual(lost.map(({ actor }) => actor), ["worker-1"]);
  assert.match(lost[0]!.reason, /a fault was asked for/);
  const next = events[events.indexOf(lost[0]!) + 1];
  assert.ok(next?.type === "step" && next.step === lost[0]!.step, "reported before its step");
  assert.deepEqual(run.bits, (await trainRings({ system })).bits);
});

Deno.test("workers behind a foreign transport have the serial bits, and a run outlives them", async () => {
  const sizes = { ...SMALL, microBatches: 4 };
  const options = { schedule: "chimera", workers: 2, device: "native" } as const;
  const tcp = { isolation: "tcp", transport: TCP_TRANSPORT, failover: "restart" } as const;
  const faults = [{ worker: 1, afterActions: 9, kind: "exit" }] as const;
  const run = await outcome(sizes, { ...options, ...tcp, faults });
  const [lost, ...others] = eventsOf(run.events, "failure");
  assert.match(lost!.reason, /the tcp of "worker-1" has ended: /);
  assert.deepEqual(others, []);
  assert.deepEqual(run.bits, (await outcome(sizes, { ...options, runtime: "serial" })).bits);
});
