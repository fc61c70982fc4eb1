/** Recovery from failures, on an engine that fails at given calls and writes all of them down. */

import assert from "node:assert/strict";
import { dirname } from "node:path";
import type { WorkerLost } from "../../../actors/pipeline/protocol.ts";
import {
  gatherState,
  type HeldState,
  type TensorSource,
} from "../../../actors/checkpoints/tensors.ts";
import type { StateOf } from "../../../kernels/stage/state.ts";
import type { StepRequest } from "../../../actors/pipeline/step.ts";
import type { Engine } from "../../../actors/run/engine.ts";
import type { Hosts } from "../../../actors/run/hosts.ts";
import {
  openSnapshots,
  Recovery,
  Retries,
  type RetryOptions,
  WorkerLostError,
} from "../../../actors/run/recovery.ts";
import { tidyRendezvousFolders } from "../../../actors/transports/rendezvous.ts";
import recoveries from "./recoveries.json" with { type: "json" };
import type { SnapshotPlace } from "../../../actors/options/option.ts";

const LOST = { message: "worker-1 failed" };

const lost = (more: Partial<WorkerLost> = {}) =>
  new WorkerLostError({ worker: "worker-1", kind: "exit", ...LOST, isWedged: false, ...more });

const STATE = { weights: new Map<string, Float32Array>(), moments: new Map() };
const OUTCOME = { losses: [], updates: [], isCommitted: true, peakActivations: [], weights: [] };
const CHECKPOINT = { weights: new Map([["w", Float32Array.of(7)]]), moments: new Map() };

/** Two workers, of which one is always replaced. */
const HOSTS: Omit<Hosts, "open"> = {
  ...{ workers: 2, available: undefined },
  options: { minWorkers: 1, available: undefined, prepare: undefined, onResize: () => {} },
  layout: () => ({ pipelines: 2, depth: 1, copies: 2 }),
  isFasterOn: () => false,
};

type Call = "open" | "step" | "save" | "read" | "write" | "evaluate" | "drain";
type Fails = Partial<Record<Call, number[]>>;

/** Options of a scripted engine; its snapshots are of a state that is read in pieces. */
interface How extends Partial<RetryOptions> {
  readonly ahead?: number;
  readonly writes?: boolean;
  readonly snapshots?: SnapshotPlace;
  /** The start of the workers during which the checkpoint that was read becomes whole. */
  readonly wholeIn?: number;
  /** True if survivors of a loss take over its workers. */
  readonly moves?: boolean;
}

/** Opens a recovering engine over engines that fail at given calls, counted from 1 for each kind of call. */
async function scripted(fails: Fails, options: How = {}, error = () => lost()) {
  const { ahead = 0, writes: isSharded, snapshots: place, wholeIn, moves, ...retry } = options;
  const calls: string[] = [], lines: string[] = [], counts = new Map<Call, number>();
  const call = (name: Call, more = "") => {
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    calls.push(name === "step" ? more : name + more);
    return fails[name]?.includes(count) ? Promise.reject(error()) : Promise.resolve();
  };
  const held: HeldState = {
    shapes: { model: new Map([["w", [1]]]), optimizer: new Map() },
    holderOf: () => 0,
    read: () => call("read").then(() => Float32Array.of(calls.length)),
  };
  const shapes = place ? held.shapes : { model: new Map(), optimizer: new Map() };
  const states: StateOf<TensorSource>[] = [];
  let whole = () => {};
  const open = async (state: StateOf<TensorSource>): Promise<Engine> => {
    states.push(state);
    await call("open", state === STATE ? "" : "+");
    if (counts.get("open") === wholeIn) whole();
    return {
      ...place && { held },
      ...isSharded && { write: () => call("write").then(() => []) },
      ahead,
      drain: () => ahead > 0 ? call("drain") : Promise.resolve(),
      step: ({ step }) => call("step", `${step}`).then(() => ({ ...OUTCOME, traces: [] })),
      evaluate: () => call("evaluate").then(() => []),
      save: () => call("save").then(() => STATE),
      close: () => Promise.resolve(),
    };
  };
  const engine = await Recovery.open(open, {
    ...{ retries: 1, canKill: true, state: STATE, announce: (line) => void lines.push(line) },
    ...moves && { hosts: { ...HOSTS, open: (_, state) => open(state) } },
    ...{ isSharded, shapes, snapshots: openSnapshots(place, undefined, shapes), ...retry },
  });
  /** Returns the calls since the previous `called()`. */
  const called = () => calls.splice(0).join(" ");
  /** Runs steps one after the other: "3" or "3-7", with micro-batches of `length` numbers. */
  const take = async (steps: string, length = steps.endsWith("*") ? 2 ** 20 : 1) => {
    const [from, to = from] = steps.split("-").map(parseFloat) as [number, number?];
    for (let step = from; step <= to!; step++) await engine.step(request(step, length));
  };
  const DO: Record<string, () => Promise<unknown>> = {
    save: () => engine.read((state) => gatherState(state)),
    evaluate: () => engine.evaluate([]),
    drain: () => engine.drain(),
    checkpoint: () =>
      engine.checkpoint(async (opened) => (await opened.write!("/folder", 1), { ...STATE })),
    read: async () => {
      whole = await engine.read((_state, kept) => Promise.resolve(() => kept(CHECKPOINT)));
    },
    whole: () => Promise.resolve(whole()),
  };
  /** Runs a script: "3+4" at the same time, "3!" must fail, "3-5*" with much data. */
  const play = async (what: string) => {
    for (const one of what.split(" ").filter(Boolean)) {
      const steps = one.split("+");
      if (one.endsWith("!")) await assert.rejects(take(one.slice(0, -1)), LOST);
      else await Promise.all(steps.map((step) => DO[step]?.() ?? take(step)));
    }
  };
  return { engine, called, lines, states, take, play };
}

const request = (step: number, length = 1): StepRequest => ({
  ...{ step, update: step, predictions: 1, learningRate: 1, lossScale: 1 },
  microBatches: [{ ids: new Int32Array(length) }],
});

/** The names of steps. */
const upTo = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i).join(" ");

// Scripts, their calls, and the last state from which the run continued.
for (const { what, fails, options, kind = "exit", play, calls, from } of recoveries) {
  Deno.test(what, async () => {
    const error = () => lost({ kind: kind as WorkerLost["kind"] });
    const run = await scripted(fails, options as How, error);
    await run.play(play);
    const called = calls.replace(/(\d+)-(\d+)/g, (_, first, last) => upTo(+first, +last));
    assert.equal(run.called(), called);
    if (from) assert.deepEqual(run.states.at(-1)!.weights.get("w"), Float32Array.of(from));
    await run.engine.close();
  });
}

Deno.test("a worker that is lost while steps are repeated takes none of them away", async () => {
  const remains = { workers: 1, committed: { ...OUTCOME, memory: [], traces: [] } };
  const losses = [lost({ kind: "throw" }), lost({ remains }), lost({ remains: { workers: 1 } })];
  const options = { retries: 3, snapshots: "memory", moves: true } as const;
  const run = await scripted({ step: [3, 4, 8] }, options, () => losses.shift()!);
  await run.play("1-4");
  // The third loss is in step 4, up to which no step is missing: the run moves.
  assert.equal(run.called(), "open 1 2 3 open 1 open 1 2 3 4 read open+ 4");
  await run.engine.close();
});

Deno.test("a worker may fail up to the limit; one more failure ends the run", async () => {
  for (const step of [[1], [1, 2]]) {
    const { engine, take } = await scripted({ step }, { retries: step.length });
    await take("1");
    await engine.close();
  }
  const { engine, take } = await scripted({ step: [1, 2, 3] }, { retries: 2 });
  const message =
    "Cannot continue: worker-1 may fail at most 2 times in ten minutes, and failed again";
  await assert.rejects(take("1"), { message: `${message}; worker-1 failed` });
  await engine.close();
  await assert.rejects(scripted({ open: [1] }, { retries: 0 }), LOST);
});

Deno.test("micro-batches of an unknown number of steps are kept within a bound, and the run says so", async () => {
  const { engine, take, lines } = await scripted({ step: [3] }, { ahead: 1 });
  await take("1", 2 ** 21);
  assert.deepEqual(lines, []);
  await take("2", 2 ** 21 + 1);
  assert.match(lines.join(), /must take less memory: until the next one, a failed worker ends/);
  await assert.rejects(take("3"), /^WorkerLostError: .*take less memory; worker-1 failed$/);
  await engine.close();
});

Deno.test("tiny micro-batches count with their containers, and other fields by their size", async () => {
  const batches = [{ ids: new Int32Array(1) }, { ids: new Int32Array(1), mask: "all" }, {}];
  for (const [fields, bytes] of [[0, 580], [1, 1034], [2, 128]] as const) {
    const { engine, lines } = await scripted({}, { ahead: 1 }), count = 10_000;
    const many = { ...request(1), microBatches: Array(count).fill(batches[fields]) };
    const most = Math.floor((2 ** 24) / (count * bytes + 128));
    for (let step = 0; step < most; step++) await engine.step(many);
    assert.deepEqual(lines, []);
    await engine.step(many);
    assert.equal(lines.length, 1, `${fields}`);
    await engine.close();
  }
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
  const left = [...Deno.readDirSync(root)].map(({ name }) => name).sort();
  assert.deepEqual([left.length, left[1]], [2, "lock"], "those before are removed");
  tidyRendezvousFolders();
  assert.ok(Deno.statSync(root).isDirectory, "others remove it only when the program has died");
  await engine.close();
  await assert.rejects(Deno.stat(root), Deno.errors.NotFound);
});

/** Returns the waits after failures at these moments. */
function waits(moments: readonly number[], isGettingOn: boolean, most = 3): number[] {
  let now = 0;
  const retries = new Retries({ retries: most, canKill: true, now: () => now });
  return moments.map((moment) => {
    now = moment;
    const waitMs = retries.failed(lost());
    if (isGettingOn) retries.gotOn();
    return waitMs;
  });
}

Deno.test("each further try waits longer, and failures ten minutes old are forgotten once the run advances", () => {
  assert.deepEqual(waits([0, 1, 2], true), [0, 50, 100]);
  assert.deepEqual(waits([0, 1, 2, 600_000, 1_200_000], true), [0, 50, 100, 100, 0]);
  assert.deepEqual(waits(Array(10).fill(0), true, 10).slice(-2), [5000, 5000]);
  assert.throws(() => waits([0, 1, 2, 599_999], true), WorkerLostError);
  const each = new Retries({ retries: 1, canKill: true });
  for (const worker of ["worker-1", "worker-2"]) each.failed(lost({ worker }));
  assert.throws(() => waits([0, 1e6, 2e6, 3e6], false), WorkerLostError);
});

Deno.test("the engine waits before each further try, but not when it is closed", async () => {
  const all = Array.from({ length: 40 }, (_, i) => i + 1);
  const failing = await scripted({ step: all }, { retries: 40 });
  const step = assert.rejects(failing.take("1"), { name: "AbortError" });
  await failing.engine.close();
  await step;
  assert.ok(failing.called().split(" ").length < 10);
});

Deno.test("only a thread that does not answer says that the program must end", () => {
  const failed = (retries: number, canKill: boolean) =>
    new Retries({ retries, canKill }).failed(lost({ isWedged: true }));
  assert.throws(() => failed(3, false), ({ lost }: WorkerLostError) => lost.isWedged);
  assert.throws(() => failed(0, true), ({ lost }: WorkerLostError) => !lost.isWedged);
  failed(3, true);
});
