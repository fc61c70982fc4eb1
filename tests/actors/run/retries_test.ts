/** Recovery from failures, on an engine that fails at given calls and writes all of them down. */

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
    ...{ worker: "worker-1", kind: "exit", message: "worker-1 failed", isWedged: false },
    ...more,
  });

const STATE = { weights: new Map<string, Float32Array>(), moments: new Map() };
const OUTCOME = { losses: [], updates: [], isCommitted: true, peakActivations: [], weights: [] };
const CHECKPOINT = { weights: new Map([["w", Float32Array.of(7)]]), moments: new Map() };

type Call = "open" | "step" | "save" | "read" | "write" | "evaluate" | "drain";

/** How an engine runs. */
type How = Partial<RetryOptions> & {
  readonly ahead?: number;
  readonly writes?: boolean;
  /** Where the snapshots are of a state that is read piece by piece. */
  readonly snapshots?: SnapshotPlace;
  /** The error of a call that fails. */
  readonly error?: (n: number) => Error;
};

/** A recovering engine over ones that fail at some calls, counted from 1 for each kind of them. */
async function scripted(fails: Partial<Record<Call, number[]>>, options: How = {}) {
  const { ahead, writes, snapshots: place, error = () => lost(), ...retry } = options;
  const calls: string[] = [], lines: string[] = [], counts = new Map<Call, number>();
  const call = (name: Call, more = "") => {
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    calls.push(name === "step" ? more : name + more);
    return fails[name]?.includes(count) ? Promise.reject(error(count)) : Promise.resolve();
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
    await call("open", state === STATE ? "" : "+");
    return {
      ...place && { held },
      ...writes && { write: () => call("write").then(() => []) },
      ...ahead !== undefined && { ahead, drain: () => call("drain") },
      step: ({ step }) => call("step", `${step}`).then(() => ({ ...OUTCOME, traces: [] })),
      evaluate: () => call("evaluate").then(() => []),
      save: () => call("save").then(() => STATE),
      close: () => Promise.resolve(),
    };
  };
  const engine = await openRecovering(open, {
    ...{ retries: 1, canKill: true, state: STATE, announce: (line) => void lines.push(line) },
    ...{ shapes, snapshots: openSnapshots(place, undefined, shapes), ...retry },
  });
  /** What was called since it was last asked. */
  const called = () => calls.splice(0).join(" ");
  /** Takes steps one after the other: "3" or "3-7", with micro-batches of `length` numbers. */
  const take = async (steps: string, length = 1) => {
    const [from, to = from] = steps.split("-").map(Number) as [number, number?];
    for (let step = from; step <= to!; step++) await engine.step(request(step, length));
  };
  const checkpoint = () =>
    engine.checkpoint!(async ({ write }) => (await write!("/folder", 1), { ...STATE }));
  return { engine, called, lines, states, take, checkpoint };
}

const request = (step: number, length = 1): StepRequest => ({
  ...{ step, update: step, predictions: 1, learningRate: 1, lossScale: 1 },
  microBatches: [{ ids: new Int32Array(length) }],
});

/** The names of steps. */
const upTo = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i).join(" ");

type Scripted = Awaited<ReturnType<typeof scripted>>;

/** Plays a script, and compares what was called. */
const CASES: Record<
  string,
  [Parameters<typeof scripted>, (run: Scripted) => Promise<unknown>, string]
> = {
  "recovery begins with the first start": [
    [{ open: [1, 2] }, { error: (n) => lost({ worker: `worker-${n}` }) }],
    () => Promise.resolve(),
    "open open open",
  ],
  "what is thrown twice at the same action is not tried a third time": [
    [{ step: [1, 2] }, { retries: 9, error: () => lost({ kind: "throw" }) }],
    ({ take }) => assert.rejects(take("1"), { message: "worker-1 failed" }),
    "open 1 open 1",
  ],
  "what is thrown again after the run got on is another failure": [
    [{ save: [1, 3] }, { retries: 9, error: () => lost({ kind: "throw" }) }],
    async ({ engine, take }) => {
      for (const step of ["1", "2"]) await take(step), await engine.save();
    },
    "open 1 save open 1 save 2 save open 2 save",
  ],
  "a save and an evaluation are outlived, and the steps since the last save taken again": [
    [{ step: [4], evaluate: [1] }, { retries: 2 }],
    async ({ engine, take }) => {
      await take("1");
      await engine.save();
      await take("2-4");
      await engine.evaluate([]);
    },
    "open 1 save 2 3 4 open 2 3 4 evaluate open 2 3 4 evaluate",
  ],
  "steps under way without flushes are begun again in order, behind those since the last empty pipe":
    [
      [{ step: [3, 4, 5] }, { ahead: 2 }],
      async ({ engine, take }) => {
        await take("1");
        await engine.drain!();
        await take("2");
        await Promise.all([3, 4, 5].map((step) => engine.step(request(step))));
        await engine.drain!();
      },
      "open 1 drain drain save 2 3 4 5 open 2 3 4 5 drain drain save",
    ],
  "steps that are taken again let the pipe run empty where it was": [
    [{ step: [3] }, { ahead: 1, writes: true }],
    async ({ engine, take }) => {
      await take("1");
      await engine.drain!();
      await take("2-3");
    },
    "open 1 drain 2 3 open 1 drain 2 3",
  ],
  "where workers write checkpoints nothing is gathered, and the last one is gone on from": [
    [{ step: [22], write: [2] }, { retries: 2, writes: true }],
    async ({ take, checkpoint }) => {
      await take("1-20");
      await checkpoint();
      await take("21-22");
      await checkpoint();
    },
    `open ${upTo(1, 20)} write 21 22 open+ 21 22 write open+ 21 22 write`,
  ],
  "a checkpoint that is whole is started from, also when that is known later": [
    [{ step: [14] }, { snapshots: "memory" }],
    async ({ engine, take, states }) => {
      await take("1-12");
      const whole = await engine.read((_state, kept) => Promise.resolve(() => kept(CHECKPOINT)));
      await take("13");
      whole();
      await take("14");
      assert.equal(states.at(-1), CHECKPOINT);
    },
    `open ${upTo(1, 10)} read 11 12 13 14 open+ 13 14`,
  ],
  "a checkpoint that is known only when steps after it are not kept is not started from": [
    [{ read: [4] }, { snapshots: "memory" }],
    async ({ engine, take, states }) => {
      await take("1-12", 2 ** 20);
      const whole = await engine.read((_state, kept) => Promise.resolve(() => kept(CHECKPOINT)));
      await take("13-30", 2 ** 20);
      whole();
      await take("31-40");
      assert.notEqual(states.at(-1), CHECKPOINT);
    },
    `open ${upTo(1, 10)} read ${upTo(11, 20)} read ${upTo(21, 30)} read ${
      upTo(31, 40)
    } read open+ ${upTo(31, 40)} read`,
  ],
  "a snapshot that a worker leaves half overwritten is not started from": [
    [{ read: [2], step: [41] }, { retries: 2, snapshots: "memory" }],
    async ({ take, states }) => {
      await take("1-21");
      assert.deepEqual([...states.at(-1)!.weights], [["w", Float32Array.of(45)]]);
    },
    `open ${upTo(1, 10)} read ${upTo(11, 20)} read open ${upTo(1, 20)} read 21 open+ 21`,
  ],
  "where the steps before a snapshot are too many to be kept it stays until the next is whole": [
    [{ read: [2] }, { snapshots: "memory" }],
    ({ take }) => take("1-20", 2 ** 20),
    `open ${upTo(1, 10)} read ${upTo(11, 20)} read open+ ${upTo(11, 20)} read`,
  ],
};

for (const [title, [script, play, calls]] of Object.entries(CASES)) {
  Deno.test(title, async () => {
    const run = await scripted(...script);
    await play(run);
    assert.equal(run.called(), calls);
    await run.engine.close();
  });
}

Deno.test("a worker that fails as often as it may is outlived, and once more ends the run", async () => {
  const attempts = [1, 2, 3, 4];
  for (const retries of [1, 2, 3]) {
    const { engine, take } = await scripted({ step: attempts.slice(0, retries) }, { retries });
    await take("1");
    await engine.close();
    const other = await scripted({ step: attempts.slice(0, retries + 1) }, { retries });
    await assert.rejects(other.take("1"), {
      name: "WorkerLostError",
      message:
        `Cannot go on: worker-1 may fail ${retries} times in ten minutes, and failed again; worker-1 failed`,
    });
    await other.engine.close();
  }
  await assert.rejects(scripted({ open: [1] }, { retries: 0 }), { message: "worker-1 failed" });
});

Deno.test("micro-batches of an unknown number of steps are kept within a bound, and the run says so", async () => {
  const { engine, take, lines } = await scripted({ step: [3] }, { ahead: 1 });
  await take("1", 2 ** 21);
  assert.deepEqual(lines, []);
  await take("2", 2 ** 21 + 1);
  assert.match(lines.join(), /too many to be kept: up to the next one, a worker that dies ends/);
  await assert.rejects(take("3"), /^WorkerLostError: .*too many.*; worker-1 failed$/);
  await engine.close();
});

Deno.test("on disk the next snapshot is written beside the last, and none is left at the end", async () => {
  const fails = { read: [3], step: [21] }, bulky = 2 ** 19;
  const { engine, called, states, take } = await scripted(fails, { retries: 2, snapshots: "disk" });
  await take("1-20", bulky);
  called();
  await take("21-30", bulky);
  assert.equal(called(), `21 open+ ${upTo(21, 30)} read open+ ${upTo(21, 30)} read`);
  const placed = states.at(-1)!.weights.get("w") as { readonly path: string };
  const root = dirname(dirname(placed.path));
  assert.equal([...Deno.readDirSync(root)].length, 1, "those before are removed");
  await engine.close();
  await assert.rejects(Deno.stat(root), Deno.errors.NotFound);
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

Deno.test("each further try waits for longer, and what is ten minutes old is forgotten once the run gets on", () => {
  assert.deepEqual(waits([0, 1, 2], true), [0, 50, 100]);
  assert.deepEqual(waits([0, 1, 2, 600_000, 1_200_000], true), [0, 50, 100, 100, 0]);
  assert.throws(() => waits([0, 1, 2, 599_999], true), WorkerLostError);
  assert.throws(() => waits([0, 1e6, 2e6, 3e6], false), WorkerLostError);
});

Deno.test("the engine waits before each try, but not when it is closed", async () => {
  const before = performance.now();
  const { engine } = await scripted({ open: [1, 2, 3] }, { retries: 9 });
  assert.ok(performance.now() - before >= 149, "the second try after 50 ms, the third after 100");
  await engine.close();
  const all = Array.from({ length: 40 }, (_, i) => i + 1);
  const failing = await scripted({ step: all }, { retries: 40 });
  const step = assert.rejects(failing.take("1"), { name: "AbortError" });
  await failing.engine.close();
  await step;
  assert.ok(failing.called().split(" ").length < 10);
});

Deno.test("only a thread that does not answer says that the program must end", () => {
  const isWedged = (options: RetryOptions) => {
    try {
      openRetries(options).failed(lost({ isWedged: true }));
    } catch (error) {
      return (error as WorkerLostError).lost.isWedged;
    }
  };
  assert.equal(isWedged({ retries: 3, canKill: false }), true);
  assert.equal(isWedged({ retries: 0, canKill: true }), false);
  assert.equal(isWedged({ retries: 3, canKill: true }), undefined);
});
