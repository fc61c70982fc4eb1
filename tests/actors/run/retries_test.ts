/** What recovery does with failures, on an engine that fails as it is told and counts its starts. */

import assert from "node:assert/strict";
import { dirname } from "node:path";
import type { WorkerLost } from "../../../actors/pipeline/protocol.ts";
import type { HeldState } from "../../../actors/checkpoints/tensors/held_state.ts";
import type { TensorSource } from "../../../actors/checkpoints/tensors/tensor_source.ts";
import type { StateOf } from "../../../kernels/mod.ts";
import type { StepRequest } from "../../../actors/pipeline/step.ts";
import type { Engine } from "../../../actors/run/engines/engine.ts";
import { openRecovering } from "../../../actors/run/recovery/recovery.ts";
import { openSnapshots, type SnapshotPlace } from "../../../actors/run/recovery/snapshots.ts";
import {
  openRetries,
  type RetryOptions,
  WorkerLostError,
} from "../../../actors/run/recovery/retries.ts";

const lost = (more: Partial<WorkerLost> = {}) =>
  new WorkerLostError({
    worker: "worker-1",
    kind: "exit",
    message: "worker-1 failed",
    isWedged: false,
    ...more,
  });

const STATE = { weights: new Map<string, Float32Array>(), moments: new Map() };
const OUTCOME = { losses: [], updates: [], isCommitted: true, peakActivations: [], weights: [] };

/** What happens at a call: the error that it ends with, if any. */
type Script = Partial<
  Record<
    "open" | "step" | "save" | "read" | "write" | "evaluate" | "drain",
    (Error | undefined)[]
  >
>;

/** How an engine runs. */
type How = Partial<RetryOptions> & {
  readonly ahead?: number;
  readonly writes?: boolean;
  /** Where snapshots lie of a state that is read piece by piece. */
  readonly snapshots?: SnapshotPlace;
};

/** A recovering engine over ones that do nothing but fail, and what they were asked. */
async function scripted(script: Script, options: How = {}) {
  const { ahead, writes, snapshots: place, ...retry } = options,
    calls: string[] = [],
    told: string[] = [];
  const call = (name: keyof Script, more = "") => {
    calls.push(name + more);
    const error = script[name]?.shift();
    return error ? Promise.reject(error) : Promise.resolve();
  };
  const held: HeldState = {
    shapes: { model: new Map([["w", [1]]]), optimizer: new Map() },
    holderOf: () => 0,
    read: () => call("read").then(() => Float32Array.of(calls.length)),
  };
  const shapes = place ? held.shapes : { model: new Map(), optimizer: new Map() };
  const states: StateOf<TensorSource>[] = [];
  const open = async (state: StateOf<TensorSource>): Promise<Engine> => {
    states.push(state);
    await call("open", state === STATE ? "" : " from the checkpoint");
    return {
      ...place && { held },
      ...writes && { write: () => call("write").then(() => []) },
      ...ahead !== undefined && { ahead, drain: () => call("drain") },
      step: ({ step }) => call("step", ` ${step}`).then(() => ({ ...OUTCOME, traces: [] })),
      evaluate: () => call("evaluate").then(() => []),
      save: () => call("save").then(() => STATE),
      close: () => Promise.resolve(),
    };
  };
  const announce = (line: string) => void told.push(line);
  const engine = await openRecovering(open, {
    ...{ retries: 1, canKill: true, state: STATE, announce },
    ...{ shapes, snapshots: openSnapshots(place, undefined, shapes) },
    ...retry,
  });
  return { engine, calls, told, states };
}

const request = (step: number, length = 1): StepRequest => ({
  ...{ step, update: step, predictions: 1, learningRate: 1, lossScale: 1 },
  microBatches: [{ ids: new Int32Array(length) }],
});

Deno.test("a worker that fails as often as it may is outlived, and once more ends the run", async () => {
  for (const retries of [1, 2, 3]) {
    const failures = Array.from({ length: retries }, () => lost());
    const { engine } = await scripted({ step: [...failures] }, { retries });
    assert.equal((await engine.step(request(1))).isCommitted, true);
    await engine.close();
    const { engine: other } = await scripted({ step: [...failures, lost()] }, { retries });
    await assert.rejects(other.step(request(1)), {
      name: "WorkerLostError",
      message:
        `Cannot go on: worker-1 may fail ${retries} times in ten minutes, and failed again; worker-1 failed`,
    });
    await other.close();
  }
});

Deno.test("recovery begins with the first start, and a run without retries ends there", async () => {
  const { engine, calls } = await scripted({ open: [lost(), lost({ worker: "worker-0" })] });
  assert.deepEqual(calls, ["open", "open", "open"]);
  await engine.close();
  await assert.rejects(scripted({ open: [lost()] }, { retries: 0 }), {
    message: "worker-1 failed",
  });
});

Deno.test("what is thrown twice at the same action is not tried a third time", async () => {
  const thrown = () => lost({ kind: "throw" });
  const { engine, calls } = await scripted({ step: [thrown(), thrown()] }, { retries: 9 });
  await assert.rejects(engine.step(request(1)), { message: "worker-1 failed" });
  assert.deepEqual(calls, ["open", "step 1", "open", "step 1"]);
  await engine.close();
});

Deno.test("what is thrown again after the run got on is another failure", async () => {
  const thrown = () => lost({ kind: "throw" });
  const { engine } = await scripted({ save: [thrown(), undefined, thrown()] }, { retries: 9 });
  for (const step of [1, 2]) {
    await engine.step(request(step));
    await engine.save();
  }
  await engine.close();
});

Deno.test("a start, a save and an evaluation are outlived, and the steps since the last save taken again", async () => {
  const script = { step: [undefined, undefined, undefined, lost()], evaluate: [lost()] };
  const { engine, calls } = await scripted(script, { retries: 2 });
  await engine.step(request(1));
  await engine.save();
  await engine.step(request(2));
  await engine.step(request(3));
  await engine.step(request(4));
  await engine.evaluate([]);
  const since = ["step 2", "step 3", "step 4"];
  assert.deepEqual(calls, [
    ...["open", "step 1", "save", ...since, "open", ...since],
    ...["evaluate", "open", ...since, "evaluate"],
  ]);
  await engine.close();
});

Deno.test("steps under way without flushes are all begun again, in order, behind those since the last empty pipe", async () => {
  const script = { step: [undefined, undefined, lost(), lost(), lost()] };
  const { engine, calls } = await scripted(script, { ahead: 2 });
  await engine.step(request(1));
  await engine.drain!();
  await engine.step(request(2));
  await Promise.all([3, 4, 5].map((step) => engine.step(request(step))));
  await engine.drain!();
  assert.deepEqual(calls, [
    ...["open", "step 1", "drain", "drain", "save", "step 2", "step 3", "step 4", "step 5"],
    ...["open", "step 2", "step 3", "step 4", "step 5", "drain", "drain", "save"],
  ]);
  await engine.close();
});

Deno.test("micro-batches that nobody knows how long to keep are kept within a bound, and the run says so", async () => {
  const { engine, told } = await scripted({ step: [undefined, undefined, lost()] }, { ahead: 1 });
  await engine.step(request(1, 2 ** 21));
  assert.deepEqual(told, []);
  await engine.step(request(2, 2 ** 21 + 1));
  assert.match(told.join(), /too many to be kept: up to the next one, a worker that dies ends/);
  await assert.rejects(engine.step(request(3)), /^WorkerLostError: .*too many.*; worker-1 failed$/);
  await engine.close();
});

/** The waits of a row of failures, at these moments. */
function waits(moments: readonly number[], isGettingOn: boolean): number[] {
  let now = 0;
  const retries = openRetries({ retries: 3, canKill: true, now: () => now });
  return moments.map((moment) => {
    now = moment;
    const waitMs = retries.failed(lost());
    if (isGettingOn) retries.gotOn();
    return waitMs;
  });
}

Deno.test("each further try waits for longer, and what is ten minutes old is forgotten", () => {
  assert.deepEqual(waits([0, 1, 2], true), [0, 50, 100]);
  assert.deepEqual(waits([0, 1, 2, 600_000, 1_200_000], true), [0, 50, 100, 100, 0]);
  assert.throws(() => waits([0, 1, 2, 599_999], true), WorkerLostError);
});

Deno.test("the engine waits as it is told to, but not when it is closed", async () => {
  const before = performance.now();
  const { engine } = await scripted({ open: [lost(), lost(), lost()] }, { retries: 9 });
  assert.ok(performance.now() - before >= 149, "the second try after 50 ms, the third after 100");
  await engine.close();
  const failing = await scripted({ step: Array.from({ length: 40 }, () => lost()) }, {
    retries: 40,
  });
  const step = assert.rejects(failing.engine.step(request(1)), { name: "AbortError" });
  await failing.engine.close();
  await step;
  assert.ok(failing.calls.length < 10, `${failing.calls}`);
});

Deno.test("a failure is not forgotten while the run does not get on", () => {
  assert.throws(() => waits([0, 1e6, 2e6, 3e6], false), WorkerLostError);
});

Deno.test("only a thread that does not answer says that the program must end", () => {
  const wedged = lost({ isWedged: true });
  const isWedged = (options: RetryOptions) => {
    try {
      openRetries(options).failed(wedged);
    } catch (error) {
      return (error as WorkerLostError).lost.isWedged;
    }
  };
  assert.equal(isWedged({ retries: 3, canKill: false }), true);
  assert.equal(isWedged({ retries: 0, canKill: true }), false);
  assert.equal(isWedged({ retries: 3, canKill: true }), undefined);
});

Deno.test("where workers write checkpoints nothing is gathered, and the last one is gone on from", async () => {
  const script = { step: [...Array(21).fill(undefined), lost()], write: [undefined, lost()] };
  const { engine, calls } = await scripted(script, { retries: 2, writes: true });
  const checkpoint = () =>
    engine.checkpoint!(async ({ write }) => (await write!("/folder", 1), { ...STATE }));
  for (let step = 1; step <= 20; step++) await engine.step(request(step));
  assert.ok(!calls.includes("save"), "no copy of the weights however long it takes");
  await checkpoint();
  for (let step = 21; step <= 22; step++) await engine.step(request(step));
  const anew = "open from the checkpoint";
  assert.deepEqual(calls.slice(21), ["write", "step 21", "step 22", anew, "step 21", "step 22"]);
  calls.length = 0;
  await checkpoint();
  assert.deepEqual(calls, ["write", anew, "step 21", "step 22", "write"], "it is written again");
  await engine.close();
});

Deno.test("steps that are taken again let the pipe run empty where it was", async () => {
  const script = { step: [undefined, undefined, lost()] };
  const { engine, calls } = await scripted(script, { retries: 1, ahead: 1, writes: true });
  await engine.step(request(1));
  await engine.drain!();
  await engine.step(request(2));
  await engine.step(request(3));
  assert.deepEqual(calls, [
    ...["open", "step 1", "drain", "step 2", "step 3"],
    ...["open", "step 1", "drain", "step 2", "step 3"],
  ]);
  await engine.close();
});

/** Takes steps, with micro-batches of so many numbers. */
async function take(
  engine: Pick<Engine, "step">,
  from: number,
  to: number,
  length = 1,
): Promise<string[]> {
  const names = Array.from({ length: to - from + 1 }, (_, i) => `step ${from + i}`);
  for (let step = from; step <= to; step++) await engine.step(request(step, length));
  return names;
}

const ANEW = "open from the checkpoint";

Deno.test("a snapshot that a worker leaves half overwritten is nothing to start from: what was before it is", async () => {
  const script = { read: [undefined, lost()], step: [...Array(40).fill(undefined), lost()] };
  const { engine, calls, states } = await scripted(script, { retries: 2, snapshots: "memory" });
  const first = await take(engine, 1, 10), second = await take(engine, 11, 20);
  const both = [...first, ...second];
  assert.deepEqual(calls, ["open", ...first, "read", ...second, "read", "open", ...both, "read"]);
  calls.length = 0;
  await take(engine, 21, 21);
  assert.deepEqual(calls, ["step 21", ANEW, "step 21"]);
  assert.deepEqual([...states.at(-1)!.weights], [["w", Float32Array.of(45)]]);
  await engine.close();
});

Deno.test("where the steps before a snapshot are too many to be kept it stays until the next is whole", async () => {
  const { engine, calls } = await scripted({ read: [undefined, lost()] }, { snapshots: "memory" });
  const first = await take(engine, 1, 10, 2 ** 20), second = await take(engine, 11, 20, 2 ** 20);
  assert.deepEqual(calls, ["open", ...first, "read", ...second, "read", ANEW, ...second, "read"]);
  await engine.close();
});

Deno.test("on disk the next snapshot is written beside the last, and none is left at the end", async () => {
  const script = {
    read: [undefined, undefined, lost()],
    step: [...Array(20).fill(undefined), lost()],
  };
  const { engine, calls, states } = await scripted(script, { retries: 2, snapshots: "disk" });
  const bulky = 2 ** 19;
  const first = await take(engine, 1, 10, bulky), second = await take(engine, 11, 20, bulky);
  calls.length = 0;
  const third = await take(engine, 21, 30, bulky);
  assert.deepEqual(calls, ["step 21", ANEW, ...third, "read", ANEW, ...third, "read"]);
  assert.equal(first.length + second.length, 20);
  const placed = states.at(-1)!.weights.get("w") as { readonly path: string };
  const root = dirname(dirname(placed.path));
  assert.equal([...Deno.readDirSync(root)].length, 1, "those before are removed");
  await engine.close();
  await assert.rejects(Deno.stat(root), Deno.errors.NotFound);
});

Deno.test("a checkpoint that is whole is what all is started from, also when it is told of later", async () => {
  const script = { step: [...Array(13).fill(undefined), lost()] };
  const { engine, calls, states } = await scripted(script, { snapshots: "memory" });
  await take(engine, 1, 12);
  const checkpoint = { weights: new Map([["w", Float32Array.of(7)]]), moments: new Map() };
  const whole = await engine.read((_state, kept) => Promise.resolve(() => kept(checkpoint)));
  await take(engine, 13, 13);
  whole();
  calls.length = 0;
  await take(engine, 14, 14);
  assert.deepEqual(calls, ["step 14", ANEW, "step 13", "step 14"]);
  assert.equal(states.at(-1), checkpoint);
  await engine.close();
});
