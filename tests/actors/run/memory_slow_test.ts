/** Memory of a run: planned before it, counted during it, refused beyond a limit, not growing. */ import { atDepth } from "../../depth.ts";

import assert from "node:assert/strict";
import { GCProfiler, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createSystem } from "../../../actors/transports/system.ts";
import { limitedBytes } from "../../../actors/run/memory.ts";
import { train } from "../../../actors/run/train.ts";
import type { RunOptions } from "../../../actors/options/train_options.ts";
import { compileRun } from "../../../actors/run/compile.ts";
import { askOrFail } from "../../../actors/run/pipeline.ts";
import { assertDevicesHold } from "../../../actors/run/memory_limit.ts";
import {
  actorBytes,
  planRunMemory,
  planWorkers,
  type RunMemoryOptions,
  slotsOf,
  slotsTogether,
  totalMemory,
} from "../../../actors/run/memory.ts";
import { optionsOf } from "../../../actors/pipeline/stage_copies.ts";
import { KEPT_BYTES, overheadBytes } from "../../../actors/run/step_log.ts";
import {
  type Adapter,
  type DeviceChoice,
  deviceLimits,
  gpt2,
  type TokenBatch,
} from "../../../kernels/mod.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { mebibytes } from "../../../kernels/devices/tensor_memory.ts";
import { activationBytes, totalBytes } from "../../../kernels/stage/memory.ts";
import {
  ActionList,
  analyze,
  createSchedule,
  parseAction,
  type Schedule,
  withPolicy,
} from "../../../schedules/mod.ts";
import { atAnyPace } from "../../schedules/cases.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { batchesOf, eventsOf, outcome, type Sizes, SMALL } from "../runs.ts";

type Options = Partial<RunOptions>;

const DEEP: Sizes = { ...SMALL, layers: 6, hidden: 16, seq: 8, microBatches: 4 };

const run = (options: Options) => outcome(DEEP, { device: "native", runtime: "local", ...options });

/** Options and schedules of runs that hold different amounts of memory. */
const RUNS: readonly (Options & { schedule: string; workers: number })[] = [
  { schedule: "1f1b", workers: 4, layout: "E,1|.5|2.5|2,H" },
  { schedule: "chimera", workers: 4, precision: "fp16" },
  { schedule: "chimera", workers: 4, scheduleOptions: { scale: "halving" } },
  { schedule: "zb-h1", workers: 2, recompute: "cheap" },
  { schedule: "zb-v", workers: 2 },
  { schedule: "1f1b", workers: 4, buddy: true },
  { schedule: "hanayo", workers: 2, recomputeInterval: 2 },
  { schedule: "gpipe", workers: 2, offload: true, precision: "fp16", bucketSize: 1000 },
  { schedule: "seq1f1b", workers: 4, scheduleOptions: { slices: 2 }, recomputeInterval: 1 },
  { schedule: "pipedream", workers: 2 },
  { schedule: "message-driven", workers: 2, scheduleOptions: { order: "fifo", pipelineLimit: 4 } },
];

for (const { schedule, workers, ...options } of RUNS) {
  Deno.test(`workers of ${schedule} hold, byte by byte, what the plan says, and record their peaks: ${JSON.stringify(options)}`, async () => {
    const { plan: { memory }, end } = await run({ schedule, workers, ...options, steps: 1 });
    assert.deepEqual(end.memory, memory.map(({ device, host }) => ({ device, host })));
    assert.ok(memory.every(({ isBound }) => !isBound));
    const sizes = { ...options.scheduleOptions, workers, microBatches: DEEP.microBatches };
    const made = createSchedule(schedule, sizes), { peakActivations, weights } = analyze(made);
    assert.deepEqual(end.weightsHeld, [...weights]);
    if (made.lists) assert.deepEqual(end.peakActivations, [...peakActivations]);
    else assert.ok(end.peakActivations.every((peak) => peak >= 1));
  });
}

Deno.test("a message-driven worker holds at most what the plan says, whatever the delays", async () => {
  const link = { latencyUs: 0, gigabytesPerSecond: 1, jitterUs: 2000 };
  const { plan, end } = await run({ schedule: "message-driven", workers: 4, link });
  assert.deepEqual(plan.memory.map(({ isBound }) => isBound), [true, true, true, true]);
  for (const [worker, { device: { activations }, isBound }] of plan.memory.entries()) {
    const held = end.memory![worker]!.device.activations;
    assert.ok(isBound ? held <= activations : held === activations, `worker ${worker}`);
  }
});

/** Message-driven with two stages on each worker. */
const V = { chunks: 2, order: "bfw" } as const;

Deno.test("two stages of a message-driven worker hold, byte by byte, what the order of their actions needs", async () => {
  const link = { latencyUs: 0, gigabytesPerSecond: 1, jitterUs: 2000 };
  const sizes = { workers: 2, microBatches: DEEP.microBatches, ...V };
  const schedule = createSchedule("message-driven", sizes);
  const asked = { schedule: "message-driven", workers: 2, scheduleOptions: V, link, trace: true };
  const { plan, end, events } = await run({ ...asked, steps: 1 });
  const [{ traces }] = eventsOf(events, "step") as [ReturnType<typeof eventsOf<"step">>[number]];
  const lists = traces.map((trace) =>
    ActionList.from(trace.flatMap(({ name }) => /^\d+[FIW]/.test(name) ? [parseAction(name)] : []))
  );
  const compiled = compileRun({ model: gpt2(DEEP, DEEP.microBatch) }, schedule, "native");
  const ran = planWorkers(compiled, { ...schedule, lists }, "native");
  assert.deepEqual(end.memory, ran.map(({ device, host }) => ({ device, host })));
  for (const [worker, { device }] of plan.memory.entries()) {
    assert.ok(ran[worker]!.device.activations <= device.activations, `worker ${worker}`);
  }
});

/** The slots of each copy of a worker, and of all at a time. */
function slotsIn(schedule: Schedule, worker: number) {
  const own = schedule.placement[worker]!.map(({ stage, pipeline }) =>
    slotsOf(schedule, worker, stage, pipeline)
  );
  return [...own, slotsTogether(schedule, worker, own)];
}

Deno.test("planned slots suffice however long actions and messages take, and some are all used", () => {
  const four = { workers: 4, microBatches: 12 };
  const driven = (options: object) => createSchedule("message-driven", { ...four, ...options });
  const elastic = (name: string, limit?: number) =>
    withPolicy(createSchedule(name, four), "elastic", limit);
  const schedules = [
    driven({ ...V, activationLimit: 6, weightBacklog: "all" }),
    ...[driven(V), driven({ chunks: 2, order: "bf" })],
    ...[elastic("zb-v"), elastic("interleaved", 2), elastic("chimera", 9)],
  ];
  for (const schedule of schedules) {
    let most = 0;
    for (let seed = 0; seed < atDepth(10, 1000); seed++) {
      const { listPolicy: _, ...ran } = atAnyPace(schedule, seed).schedule;
      for (let worker = 0; worker < 4; worker++) {
        const planned = slotsIn(schedule, worker), used = slotsIn(ran, worker);
        for (const [i, { slices: [slots], backwards: [backwards] }] of used.entries()) {
          const where = `${schedule.name}, seed ${seed}, worker ${worker}, stage ${i}`;
          assert.ok(slots! <= planned[i]!.slices[0]!, where);
          assert.ok(backwards! <= planned[i]!.backwards[0]!, where);
        }
        most = Math.max(most, used.at(-1)!.slices[0]! / planned.at(-1)!.slices[0]!);
      }
    }
    assert.equal(most, 1, schedule.name);
  }
  // At most 12 in both stages together, and 4 between I and W: (12 + 4) / 2 in the later stage.
  const two = driven({ ...V, activationLimit: 6, weightBacklog: 4 });
  assert.deepEqual(slotsIn(two, 0).map(({ slices }) => slices), [[12], [8], [12]]);
});

Deno.test("BFW with M = D and K = 2 is planned at most 9.2 activations of a worker", () => {
  for (const seq of [64, 256]) {
    const model = gpt2({ layers: 8, hidden: 32, heads: 4, seq, vocab: 64 }, 1);
    const schedule = createSchedule("message-driven", { workers: 8, microBatches: 32 });
    const compiled = compileRun({ model, layout: "E,1|1|1|1|1|1|1|1,H" }, schedule, "native");
    const { perMicroBatch } = activationBytes(compiled.programs[1]!, optionsOf(compiled, 1));
    const planned = compiled.memory[1]!.device.activations / perMicroBatch;
    assert.ok(planned > 8.5 && planned <= 9.2, `${planned} at ${seq}`);
  }
});

Deno.test("offloading keeps the bits and 8φ bytes of FP32, or 4φ of FP16, and some buckets", async () => {
  for (const [precision, perElement, perBucket] of [["fp32", 8, 8], ["fp16", 4, 16]] as const) {
    const options = { precision, bucketSize: 1000, device: "reference", steps: 1 } as const;
    const [there, away] = [await run(options), await run({ ...options, offload: true })];
    assert.deepEqual(away.bits, there.bits);
    for (const [worker, { device }] of away.end.memory!.entries()) {
      const formula = perElement * there.plan.stages[worker]!.parameters + perBucket * 1000;
      const counted = totalBytes(device) - device.activations;
      assert.ok(Math.abs(counted / formula - 1) < 0.05, `${counted} bytes, formula ${formula}`);
    }
  }
});

Deno.test("a run beyond the memory limit is refused with the cheapest change that fits", async () => {
  const needs = async (options: Options) => {
    const { plan } = await run({ ...options, steps: 1 });
    return Math.max(...plan.memory.map((one) => limitedBytes(one, "native")));
  };
  const refuses = (options: Options, memoryLimitBytes: number, message: RegExp) =>
    assert.rejects(run({ ...options, memoryLimitBytes }), message);
  const gpipe = { schedule: "gpipe", workers: 2 }, most = await needs(gpipe);
  await run({ ...gpipe, steps: 1, memoryLimitBytes: most });
  const limit =
    /^RangeError: Cannot train within the memory limit: each worker must need at most .* MiB, received .* MiB on worker \d; --recompute cheap would need .* MiB$/;
  await refuses(gpipe, most - 1, limit);
  const driven = { schedule: "message-driven", workers: 2, scheduleOptions: { pipelineLimit: 4 } };
  const fewer = /received .* MiB on worker 0; --pipeline-limit 3 would need .* MiB$/;
  await refuses(driven, await needs(driven) - 1, fewer);
  const none = /even .* would need .* MiB: take more workers or a smaller micro-batch$/;
  await refuses(gpipe, 10_000, none);
});

Deno.test("with M micro-batches in flight and K between I and W, activations take M + c·K", () => {
  const planned = (weightBacklog: number) => {
    const options = { workers: 2, microBatches: 8, activationLimit: 4, weightBacklog } as const;
    const schedule = createSchedule("message-driven", { order: "bfw", ...options });
    const compiled = compileRun({ model: gpt2(DEEP, DEEP.microBatch) }, schedule, "native");
    const bytes = activationBytes(compiled.programs[0]!, optionsOf(compiled, 0));
    return { device: compiled.memory[0]!.device, ...bytes };
  };
  for (const weightBacklog of [1, 2, 3]) {
    const { device, perMicroBatch, perBackward, shared } = planned(weightBacklog);
    assert.equal(device.activations, 4 * perMicroBatch + weightBacklog * perBackward + shared);
    assert.ok(perBackward > 0.4 * perMicroBatch && perBackward < 0.7 * perMicroBatch);
  }
  // Whole backwards share the memory of one.
  assert.equal(planned(0).perBackward, 0);
});

const CONFIG = { layers: 4, hidden: 32, heads: 2, seq: 8, vocab: 64 };
const ROWS = 2 * CONFIG.seq, BOUNDARY_BYTES = 4 * ROWS * CONFIG.hidden, FIELD_BYTES = 2 * 4 * ROWS;

/** Plans a run of two workers in one thread of the reference device, which needs no memory itself. */
function planOf(changed: Partial<RunMemoryOptions> & { readonly name?: string } = {}) {
  const { name = "1f1b", replicas = 1, ...options } = changed;
  const schedule = createSchedule(name, { workers: 2, microBatches: 4 });
  const model = gpt2(CONFIG, 2), compiled = compileRun({ model, replicas }, schedule, "reference");
  const run = planRunMemory({
    ...{ schedule, compiled, replicas, devices: [{ name: "reference" }], coarsening: 4 },
    ...{ retries: 0, reduce: "deterministic", runtime: "workers", isolation: "worker" },
    ...{ steps: 100, returnWeights: false, ...options },
  });
  const gradients = sum(compiled.memory.map(({ device }) => device.gradients));
  return { ...run, compiled, gradients };
}

const sum = (numbers: readonly number[]) => numbers.reduce((all, one) => all + one, 0);

Deno.test("a run in all is its stages and what each actor holds beside them", () => {
  for (const replicas of [1, 3]) {
    const { workers, supervisor, compiled, totalBytes } = planOf({ replicas });
    const each = totalMemory(compiled.memory) + sum(workers.map(actorBytes));
    assert.equal(totalBytes, replicas * each + actorBytes(supervisor));
  }
  // A serial run has each stage once, whatever its workers would hold.
  const serial = planOf({ name: "chimera", runtime: "serial" });
  assert.deepEqual(serial.workers, []);
  const stages = serial.totalBytes - actorBytes(serial.supervisor);
  assert.ok(stages < 0.6 * totalMemory(serial.compiled.memory));
  // One copy's gradients on the host, and the sum of both.
  assert.equal(serial.supervisor.sums, serial.gradients);
  const processes = { replicas: 2, isolation: "process" }, alone = planOf(processes);
  const { totalBytes } = planOf({ ...processes, hasSpare: true });
  assert.equal(totalBytes - alone.totalBytes, alone.workers[0]!.runtime);
});

Deno.test("the activations in transit are those in flight; none leave the last stage", () => {
  const { workers, supervisor } = planOf();
  assert.deepEqual(workers.map(({ messages }) => messages), [2 * BOUNDARY_BYTES, 0]);
  assert.deepEqual(workers.map(({ fields }) => fields), [2 * FIELD_BYTES, FIELD_BYTES]);
  assert.equal(supervisor.fields, 2 * 4 * FIELD_BYTES);
});

Deno.test("gradients of copies are in rows that threads share, or in chunks on their way", () => {
  const sums = (options: Partial<RunMemoryOptions>) => {
    const { workers, supervisor } = planOf({ replicas: 2, ...options });
    return [supervisor.sums, ...workers.map((one) => one.sums)];
  };
  assert.deepEqual(sums({}), [2 * planOf().gradients, 0, 0]);
  const link = { latencyUs: 1, gigabytesPerSecond: 1 };
  for (const options of [{ isolation: "process" }, { link }] as const) {
    assert.deepEqual(sums(options).map((bytes) => bytes > 0), [false, true, true]);
  }
  assert.equal(planOf().supervisor.sums, 0);
});

Deno.test("a snapshot in memory is counted once there will be one, and the steps since", () => {
  const { supervisor: base, compiled: { model } } = planOf();
  const state = 3 * 4 * sum(model.parameters.map(({ shape }) => elementCount(shape)));
  const stepBytes = 4 * FIELD_BYTES + overheadBytes(4, 2);
  const CASES = [
    ["memory", 9, { state: 0, bytes: 9 * stepBytes }],
    ["memory", 10, { state, bytes: 10 * stepBytes }],
    ["memory", 99, { state, bytes: 99 * stepBytes }],
    ["memory", 10_000, { state, bytes: KEPT_BYTES }],
    ["disk", 1000, { state: 0, bytes: 100 * stepBytes }],
  ] as const;
  for (const [snapshots, steps, kept] of CASES) {
    const { supervisor } = planOf({ retries: 3, snapshots, steps });
    assert.equal(supervisor.state, base.state + kept.state);
    assert.equal(supervisor.fields, base.fields + kept.bytes);
  }
});

const on = (said: Partial<Adapter>): DeviceChoice => ({
  name: "webgpu",
  adapter: {
    ...{ index: 0, name: "Big GPU", kind: "discrete", memoryBytes: 2 ** 40, hasF16: false },
    ...{ maxBufferBytes: 2 ** 32 - 16, environment: {}, ...said },
  },
});

/** A run as it is checked: two replicas of two workers. */
function placed(devices: readonly [DeviceChoice, ...DeviceChoice[]], sizes = SMALL, replicas = 2) {
  const options = { model: gpt2(sizes, sizes.microBatch), replicas };
  const schedule = createSchedule("1f1b", { workers: 2, microBatches: 4 });
  const compiled = compileRun(options, schedule, devices[0].name);
  return { options, schedule, compiled, devices, runtime: "workers" as const, replicas };
}

Deno.test("a tensor beyond the largest buffer is refused by its name, with the micro-batch that fits", async () => {
  // The logits, and the other arrays of their size: 4 · 16 rows of 512 numbers.
  const sizes = { ...SMALL, hidden: 16, vocab: 512, microBatch: 4 }, bytes = 4 * 16 * 512 * 4;
  const holding = (maxBufferBytes: number, changed = {}) =>
    placed([on({ maxBufferBytes })], { ...sizes, ...changed });
  assertDevicesHold(holding(bytes));
  const devices = [on({}), on({ name: "Small GPU", maxBufferBytes: 1024 })] as const;
  await assertRefused("largest_buffers", [
    () => assertDevicesHold(holding(bytes - 16)),
    // No change of the run makes a parameter smaller.
    () => assertDevicesHold(holding(2 ** 14, { seq: 2 })),
    // One adapter of several is enough.
    () => assertDevicesHold(placed(devices)),
  ]);
});

Deno.test("workers that share an adapter must fit into its memory together", async () => {
  const held = placed([on({})]).compiled.memory.map(({ device }) => totalBytes(device));
  const [first, last] = held as [number, number], most = 2 * (first + last);
  assertDevicesHold(placed([on({ memoryBytes: most })]));
  // Workers take adapters in turn: each has the same worker of both replicas.
  const split = (memoryBytes: number) =>
    [on({ memoryBytes: 2 * first }), on({ name: "Small GPU", memoryBytes })] as const;
  assertDevicesHold(placed(split(2 * last)));
  await assertRefused("shared_adapters", [
    () => assertDevicesHold(placed([on({ memoryBytes: most - 1 })])),
    () => assertDevicesHold(placed(split(last / 4))),
  ], { ALL: mebibytes(most) });
});

Deno.test("a run must fit into the memory of this machine, except for its memory on a GPU", () => {
  const many = (device: DeviceChoice) => {
    const run = placed([device], SMALL, 1);
    const memory = run.compiled.memory.map(({ device, ...one }) => ({
      ...{ ...one, device: { ...device, weights: 2 ** 26 * device.weights } },
    }));
    return { ...run, compiled: { ...run.compiled, memory } };
  };
  assertDevicesHold(many(on({ memoryBytes: 0 }))); // an unknown size is enough
  const message =
    /^RangeError: Cannot train: it must fit into the .* GiB of this machine, received .* GiB$/;
  for (const device of [on({ kind: "software" }), { name: "native" } as const]) {
    assert.throws(() => assertDevicesHold(many(device)), message);
  }
  assert.equal(deviceLimits(on({ kind: "software", memoryBytes: 1 })).memoryBytes, Infinity);
});

setFlagsFromString("--expose-gc");
const collect: () => void = runInNewContext("gc");

/** Collects garbage until promise ticks and finalizers release nothing more. */
async function collectAll(): Promise<void> {
  for (let i = 0; i < 3; i++) {
    await new Promise((resolve) => setTimeout(resolve, 0));
    collect();
  }
}

Deno.test("no answer stays reachable while the system runs", async () => {
  await using system = createSystem();
  const reply = "({ Echo() { ctx.reply({ weights: new Float32Array(1000) }); } })";
  const module = `data:text/javascript,export const echo = (ctx) => ${reply}`;
  const spec = { module, export: "echo" }, answers: WeakRef<object>[] = [];
  const echo = system.spawn<undefined, { type: "Echo" }>(spec, undefined, { id: "echo" });
  const ask = () => askOrFail<{ type: "Echo" }, object>(system, echo, { type: "Echo" });
  for (let i = 0; i < 50; i++) answers.push(new WeakRef(await ask()));
  await collectAll();
  const kept = answers.filter((answer) => answer.deref()).length;
  assert.ok(kept <= 1, `${kept} of 50 answers are still there`);
});

Deno.test("a run that keeps a snapshot every ten steps holds one of them after 40 as after 20", async () => {
  const sizes = { ...SMALL, hidden: 128, seq: 4 }, [again] = batchesOf(sizes, 1);
  const data = Array<TokenBatch>(40).fill(again!);
  const sized = { model: gpt2(sizes, sizes.microBatch), data, steps: 40, microBatches: 1 };
  const held = new Map<number, number>();
  let stateBytes = 0;
  for await (const event of train({ ...sized, device: "native", runtime: "local" })) {
    if (event.type === "plan") stateBytes = 12 * event.plan.parameters;
    if (event.type !== "step" || event.step % 20 > 0) continue;
    await collectAll();
    held.set(event.step, Deno.memoryUsage().external);
  }
  const growth = held.get(40)! - held.get(20)!;
  assert.ok(growth < stateBytes / 2, `${growth} bytes more, of a state of ${stateBytes}`);
});

/** Returns the median fraction of the young heap that a collection moves to the old heap. */
function promotedPart(profiler: GCProfiler): number {
  const young = profiler.stop()!.statistics.filter(({ gcType }) => gcType === "Scavenge");
  const parts = young.map(({ beforeGC, afterGC }) => {
    const usedIn = (space: string, { heapSpaceStatistics }: typeof afterGC) =>
      heapSpaceStatistics.find(({ spaceName }) => spaceName === space)!.spaceUsedSize;
    const grown = usedIn("old_space", afterGC) - usedIn("old_space", beforeGC);
    return grown / usedIn("new_space", beforeGC);
  });
  return parts.sort((a, b) => a - b)[parts.length >> 1]!;
}

const LONG_RUNS = [
  ...atDepth([], [{ schedule: "1f1b" }, { schedule: "gpipe", policy: "elastic" as const }]),
  { schedule: "message-driven" },
  { schedule: "pipedream-2bw" },
] as const;
for (const options of LONG_RUNS) {
  Deno.test(`steps leave next to nothing to full collections: ${JSON.stringify(options)}`, async () => {
    const sizes = { ...SMALL, layers: 1, hidden: 8, seq: 4, microBatches: 2, steps: 250 };
    const { steps, microBatches, microBatch } = sizes, profiler = new GCProfiler(), from = 50;
    const sized = { model: gpt2(sizes, microBatch), data: batchesOf(sizes), steps, microBatches };
    const local = { ...sized, workers: 2, runtime: "local", retries: 0 } as const;
    for await (const event of train({ ...local, ...options })) {
      if (event.type === "step" && event.step === from) profiler.start();
    }
    const part = promotedPart(profiler);
    assert.ok(part < 0.002, `${part} is promoted`);
  });
}
