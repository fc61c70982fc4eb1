import assert from "node:assert/strict";
import {
  createSchedule,
  type Network,
  parseCsv,
  scheduleFromLists,
  simulateStep,
  type StageModel,
} from "../../../schedules/mod.ts";

const STAGE: StageModel = { forwardMs: 1, backwardMs: 2, outputBytes: 10 };

function run(network: Network, name = "1f1b") {
  const schedule = createSchedule(name, { workers: 4, microBatches: 8 });
  const stages = Array.from({ length: schedule.stages }, () => STAGE);
  return simulateStep({ schedule, stages, network });
}

Deno.test("a message takes its bytes and then its latency, and the wait for it is told apart", () => {
  const schedule = createSchedule("gpipe", { workers: 2, microBatches: 1 });
  const { makespanMs, workers } = simulateStep({
    schedule,
    stages: [STAGE, STAGE],
    network: { link: { latencyMs: 0.5, bytesPerMs: 20 } },
  });
  assert.equal(makespanMs, 1 + 1 + 3 + 1 + 2);
  assert.deepEqual(workers.map(({ communicationMs }) => communicationMs), [1, 1]);
  assert.deepEqual(workers.map(({ bubbleMs }) => bubbleMs), [4, 4]);
});

Deno.test("messages take turns on what they share: a pair, a worker, a node", () => {
  const link = { latencyMs: 0, bytesPerMs: 4 };
  const time = (sharing: Network["sharing"]) =>
    run({ link, nodeSize: 2, local: { latencyMs: 0 }, sharing }, "interleaved").makespanMs;
  const [pair, worker, node] = [time("pair"), time("worker"), time("node")];
  assert.ok(pair <= worker && worker <= node && pair < node, `${pair}, ${worker}, ${node}`);
  const middle = (sharing: Network["sharing"]) => run({ link, sharing }).makespanMs;
  assert.ok(middle("pair") < middle("worker"));
});

Deno.test("links within a node are those of the node", () => {
  const slow = { latencyMs: 3 }, fast = { latencyMs: 0 };
  assert.equal(
    run({ link: slow, local: fast, nodeSize: 4 }).makespanMs,
    run({ link: fast }).makespanMs,
  );
  assert.ok(
    run({ link: slow, local: fast, nodeSize: 2 }).makespanMs < run({ link: slow }).makespanMs,
  );
});

Deno.test("a worker that waits until its messages are sent loses what the others overlap", () => {
  const link = { latencyMs: 0, bytesPerMs: 20 };
  const [beside, blocking] = [run({ link }), run({ link, isBlocking: true })];
  assert.ok(blocking.makespanMs > beside.makespanMs);
  const { starts, ends } = blocking.timeline;
  for (let i = 1; i < ends[0]!.length; i++) {
    const isSending = i < 5; // forwards
    if (isSending) assert.ok(starts[0]![i]! >= ends[0]![i - 1]! + 0.5);
  }
});

Deno.test("what a worker sends to two others goes over its one way out, what it gets from both does not", () => {
  const schedule = scheduleFromLists("two ways", parseCsv("0F0,0F1,0B0,0B1\n1F0,1B0\n1F1,1B1\n"));
  const start = (sharing: Network["sharing"]) => {
    const network = { link: { latencyMs: 0, bytesPerMs: 4 }, sharing } as const;
    const { timeline: { starts } } = simulateStep({ schedule, stages: [STAGE, STAGE], network });
    return starts.map((own) => [...own]);
  };
  assert.deepEqual(start("pair"), [[0, 1, 9, 11], [3.5, 4.5], [4.5, 5.5]]);
  assert.deepEqual(start("worker"), [[0, 1, 9, 11.5], [3.5, 4.5], [6, 7]]);
});
