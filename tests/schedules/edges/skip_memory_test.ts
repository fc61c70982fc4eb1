/** What skip edges make workers hold, held against counts by hand and against any durations. */

import assert from "node:assert/strict";
import {
  analyze,
  createSchedule,
  hostTable,
  parseCsv,
  type Schedule,
  scheduleDefinitions,
  scheduleFromLists,
  scheduleMemory,
  simulateStep,
  type SkipEdge,
  skipTraffic,
  stageMemories,
  type StageModel,
  withEdges,
  withLists,
  withPolicy,
} from "../../../schedules/mod.ts";
import fc from "../../fast_check.ts";

const OPTIONS = { workers: 4, microBatches: 8 };
const SCHEDULES = scheduleDefinitions.filter(({ name }) => name !== "search")
  .map(({ name, reads = [] }) =>
    createSchedule(name, { ...OPTIONS, ...reads.includes("slices") && { slices: 2 } })
  );
const CHIMERAS = (["doubling", "halving"] as const).map((scale) =>
  createSchedule("chimera", { ...OPTIONS, scale })
);

Deno.test("a value is held from when it comes to the end of the backward that uses it, a gradient to that of its stage", () => {
  const chain = scheduleFromLists("mine", parseCsv("0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0\n"));
  const schedule = withEdges(withLists(chain), [{ from: 0, to: [2, 3], bytes: 8 }]);
  const stages = [0, 1, 2, 3].map(() => ({ forwardMs: 1, backwardMs: 2, outputBytes: 0 }));
  const network = { link: { latencyMs: 0.25, bytesPerMs: 16 } };
  const { peakBytes, memoryOf, makespanMs } = simulateStep({ schedule, stages, network });
  // Worker 2 has the value, and the gradient of stage 3 beside it until it has added its own.
  assert.deepEqual(peakBytes, [8, 0, 16, 8]);
  assert.deepEqual(memoryOf(2), {
    timesMs: [0, 2.5, 3.5, 7.5, 9.5],
    bytes: [0, 8, 8, 16, 0],
  });
  // Stage 3 ends at 6.75, its gradients are at stage 2 at 7 and 7.5; what comes to stage 0 at 10.25
  // waits for stage 1.
  assert.equal(makespanMs, 14);
  assert.deepEqual(analyze(schedule).peakSkips, [1, 0, 2, 1]);
});

Deno.test("values on one worker are held and not sent", () => {
  const schedule = withEdges(
    withLists(scheduleFromLists("mine", parseCsv("0F0,1F0,2F0,2B0,1B0,0B0\n"))),
    [{ from: 0, to: [2], bytes: 8 }],
  );
  const stages = [0, 1, 2].map(() => ({ forwardMs: 1, backwardMs: 2 }));
  const network = { link: { latencyMs: 9, bytesPerMs: 1 } };
  const { makespanMs, peakBytes } = simulateStep({ schedule, stages, network });
  // The value of stage 2, and while its backward runs the gradient that it makes of it.
  assert.deepEqual([makespanMs, peakBytes], [9, [16]]);
  assert.deepEqual(skipTraffic(schedule), [{ messages: 0, bytes: 16 }]);
});

Deno.test("values take turns with what else leaves over their link", () => {
  const chain = withLists(createSchedule("gpipe", { workers: 3, microBatches: 1 }));
  const stages: StageModel[] = [0, 1, 2].map(() => ({
    forwardMs: 1,
    backwardMs: 1,
    outputBytes: 2,
  }));
  const network = { link: { latencyMs: 0, bytesPerMs: 1 }, sharing: "worker" } as const;
  const timeOf = (schedule: Schedule) => simulateStep({ schedule, stages, network }).makespanMs;
  assert.equal(timeOf(chain), 14);
  // 4 ms behind the activation, which stage 1 has long by then; and the gradient behind the gradient.
  assert.equal(timeOf(withEdges(chain, [{ from: 0, to: [2], bytes: 4 }])), 16);
  assert.equal(timeOf(withEdges(chain, [{ from: 0, to: [2], bytes: 4, hasGradient: false }])), 15);
});

/** Schedules with skip edges, and a factor for everything that takes time. */
const anyStep = fc.constantFrom(...SCHEDULES, ...CHIMERAS).chain((chain) => {
  const edge = fc.integer({ min: 0, max: chain.stages - 2 }).chain((from) =>
    fc.record({
      from: fc.constant(from),
      to: fc.uniqueArray(fc.integer({ min: from + 1, max: chain.stages - 1 }), {
        minLength: 1,
        maxLength: 3,
      }).map((to) => to.sort((a, b) => a - b)),
      bytes: fc.integer({ min: 1, max: 9 }),
      hasGradient: fc.boolean(),
    })
  );
  return fc.record({
    chain: fc.constant(chain),
    edges: fc.array(edge, { minLength: 1, maxLength: 3 }),
    seed: fc.nat(),
    slow: fc.array(fc.constantFrom(1, 1, 1, 30), { minLength: 8, maxLength: 8 }),
    skipMs: fc.constantFrom(0, 5),
  });
});

/** The step with everything as long as the draws say. */
function simulated(schedule: Schedule, { edges, seed, slow, skipMs }: {
  edges: readonly SkipEdge[];
  seed: number;
  slow: readonly number[];
  skipMs: number;
}) {
  return simulateStep({
    schedule,
    stages: Array.from({ length: schedule.stages }, () => ({ forwardMs: 1, backwardMs: 2 })),
    jitter: { law: "above", amount: 2, latencyAmount: 1, seed },
    slowdowns: slow.slice(0, schedule.workers),
    skipMs: edges.map(() => skipMs),
  });
}

Deno.test("no durations make a worker hold more than is planned, in the order that its list has", () => {
  fc.assert(fc.property(anyStep, (step) => {
    const schedule = withEdges(withLists(step.chain), step.edges);
    const planned = scheduleMemory(schedule, stageMemories(schedule, {}));
    const traffic = skipTraffic(schedule);
    const { peakBytes, memoryOf } = simulated(schedule, step);
    peakBytes.forEach((bytes, worker) => {
      assert.ok(Math.abs(memoryOf(worker).bytes.at(-1)!) < 1e-9, "something was left over");
      const { peak, held } = planned[worker]!;
      const where = `${schedule.name} ${JSON.stringify(step.edges)}, worker ${worker}`;
      assert.ok(bytes <= peak + 1e-9, `${where}: ${bytes} of ${peak}`);
      assert.deepEqual([peak, held].map((one) => one.toFixed(6)), [
        traffic[worker]!.bytes.toFixed(6),
        traffic[worker]!.bytes.toFixed(6),
      ], where);
    });
  }));
});

Deno.test("what is planned for a worker is what it holds when all others are much faster", () => {
  fc.assert(
    fc.property(anyStep, (step) => {
      const schedule = withEdges(withLists(step.chain), step.edges);
      const traffic = skipTraffic(schedule);
      for (let worker = 0; worker < schedule.workers; worker++) {
        const slow = Array.from({ length: schedule.workers }, (_, w) => w === worker ? 1e6 : 1);
        const { peakBytes } = simulated(schedule, { ...step, slow, skipMs: 0 });
        const where = `${schedule.name} ${JSON.stringify(step.edges)}, worker ${worker}`;
        assert.ok(Math.abs(peakBytes[worker]! - traffic[worker]!.bytes) < 1e-6, where);
      }
    }),
  );
});

Deno.test("where workers take what is there, none holds more than micro-batches in flight bring", () => {
  fc.assert(fc.property(anyStep, (step) => {
    const schedule = withEdges(
      step.chain.lists ? withPolicy(step.chain, "elastic") : step.chain,
      step.edges,
    );
    const traffic = skipTraffic(schedule), { peakBytes } = simulated(schedule, step);
    peakBytes.forEach((bytes, worker) => assert.ok(bytes <= traffic[worker]!.bytes + 1e-9));
  }));
});

Deno.test("no more messages wait for a worker than its mailbox is told to have room for", () => {
  fc.assert(fc.property(anyStep, (step) => {
    const linked = withEdges(step.chain, step.edges);
    const { schedule, timeline } = simulated(linked, step), traffic = skipTraffic(linked);
    const most = mostWaiting(schedule, timeline);
    most.forEach((count, worker) => {
      const { messages } = traffic[worker]!;
      assert.ok(count <= messages, `${linked.name}, worker ${worker}: ${count} of ${messages}`);
    });
  }));
});

/** For each worker, the most messages over skip edges that had left for it and that it had not used. */
function mostWaiting(
  schedule: ReturnType<typeof withLists>,
  { starts, ends }: { starts: readonly Float64Array[]; ends: readonly Float64Array[] },
): number[] {
  const hosts = hostTable(schedule), { stages, replicaOf, edges = [] } = schedule;
  const runs = new Map<string, { worker: number; start: number; end: number }[]>();
  schedule.lists.forEach((list, worker) => {
    for (let index = 0; index < list.length; index++) {
      for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
        const kind = list.kindAt(part) === 0 ? "F" : list.kindAt(part) < 3 ? "B" : "other";
        const key = `${kind} ${list.stageAt(part)} ${list.microBatchAt(part)}`;
        const [start, end] = [starts[worker]![index]!, ends[worker]![index]!];
        runs.set(key, [...runs.get(key) ?? [], { worker, start, end }]);
      }
    }
  });
  const pairs = new Set(
    edges.flatMap(({ from, to, hasGradient = true }) =>
      to.flatMap((user, i) => [
        `F ${from} ${user}`,
        ...hasGradient ? [`B ${user} ${to[i - 1] ?? from}`] : [],
      ])
    ),
  );
  const events: { worker: number; time: number; by: number }[] = [];
  for (const pair of pairs) {
    const [kind, from, to] = pair.split(" ");
    if (Math.abs(Number(from) - Number(to)) === 1) continue;
    for (const [microBatch, replica] of replicaOf.entries()) {
      const host = (stage: string) => hosts[replica * stages + Number(stage)];
      const worker = host(to!)!;
      if (host(from!) === worker) continue;
      for (const { end } of runs.get(`${kind} ${from} ${microBatch}`)!) {
        events.push({ worker, time: end, by: 1 });
      }
      for (const { start } of runs.get(`${kind} ${to} ${microBatch}`)!) {
        events.push({ worker, time: start, by: -1 });
      }
    }
  }
  // What is taken at the moment at which it leaves does not wait: the message before it does.
  events.sort((a, b) => a.time - b.time || a.by - b.by);
  const now = schedule.lists.map(() => 0), most = schedule.lists.map(() => 0);
  for (const { worker, by } of events) {
    now[worker]! += by;
    most[worker] = Math.max(most[worker]!, now[worker]!);
  }
  return most;
}
