/** Steps as they happened: what traces have, and the gaps and flows that are read from them. */

import assert from "node:assert/strict";
import {
  readSpan,
  readStep,
  type TracedAction,
  type TrainOptions,
} from "../../../../actors/mod.ts";
import { createSchedule, formatAction } from "../../../../schedules/mod.ts";
import { batchesOf, eventsOf, outcome, SMALL } from "../../runs.ts";

/** An action: `1F0 5-9` in milliseconds, with `<4.5` when its input came and `>8` when it sent. */
function act(text: string, more: Partial<TracedAction> = {}): TracedAction {
  const [, name, start, end, rest] = /^(.*) (-?[\d.]+)-([\d.]+)(.*)$/.exec(text)!;
  const [, arrived] = /<(-?[\d.]+)/.exec(rest!) ?? [], [, sent] = />(-?[\d.]+)/.exec(rest!) ?? [];
  const times = { ...arrived && { arrived: +arrived }, ...sent && { sent: +sent } };
  return { name: name!, start: +start!, end: +end!, ...times, ...more };
}

const acts = (text: string) => text.split(", ").map((one) => act(one));

/** The gaps of each worker, as `start-end cause`. */
const gapsIn = (traces: readonly (readonly TracedAction[])[], replicas?: number) =>
  readStep(traces, replicas).workers.map(({ gaps }) =>
    gaps.map(({ start, end, cause }) => `${start}-${end} ${cause}`)
  );

const flowsIn = (...traces: readonly string[]) =>
  readStep(traces.map(acts)).flows.map(({ from, to }) => `${from.name}-${to.name}`).join(" ");

const FIRST = "0F0 0-4>3.5, 0F1 4-8>7.5, 0B0 17-21<16, optimizer 30-31, optimizer 32-33";
const SECOND = "1F0 5-9<4.5, 1B0 9-15>15, 1F1 15-19<9, 1B1 19-29";
const TWO = [acts(FIRST), acts(SECOND)];

Deno.test("a gap says which worker was waited for, or its message, or that there was nothing to do", () => {
  assert.deepEqual(gapsIn(TWO), [[
    "8-15 waits for worker 1: 1B0",
    "15-16 waits for the message of worker 1: 1B0",
    "16-17 between two actions",
    "21-30 optimizer: waits for worker 1: 1B1",
    "31-32 between two actions",
  ], [
    "0-3.5 waits for worker 0: 0F0",
    "3.5-4.5 waits for the message of worker 0: 0F0",
    "4.5-5 between two actions",
    "29-33 nothing to do",
  ]]);
});

Deno.test("what a worker did and its gaps fill the step, and are counted by why", () => {
  const { start, end, workers } = readStep(TWO);
  assert.deepEqual([start, end], [0, 33]);
  for (const { busyMs, reduceMs, optimizerMs, gapMs } of workers) {
    const gaps = Object.values(gapMs).reduce((sum, ms) => sum + ms, 0);
    assert.equal(busyMs + reduceMs + optimizerMs + gaps, end - start);
  }
  const [first, last] = workers;
  assert.deepEqual([first!.busyMs, first!.optimizerMs, last!.busyMs], [12, 2, 24]);
  assert.deepEqual([first!.gapMs.input, first!.gapMs.message, last!.gapMs.idle], [7, 1, 4]);
  assert.equal(flowsIn(FIRST, SECOND), "1B0-0B0 0F0-1F0 0F1-1F1");
  assert.deepEqual(readStep([]).workers, []);
  assert.deepEqual(readStep([[], []]).workers.map(({ gaps }) => gaps), [[], []]);
});

Deno.test("stage 0 waits for the next micro-batch, and the all-reduce for another copy", () => {
  const chunk = act("reduce 0 14-15", { stage: 0, chunk: 1 });
  const traces = [
    [...acts("0F0 0-2<-1, 0B0 2-4, 0F1 7-9<6, reduce 0 12-13"), chunk],
    [...acts("0F0 0-3<-1, 0B0 3-8, reduce 0 13-14"), chunk],
  ];
  assert.deepEqual(gapsIn(traces, 2), [[
    "4-6 waits for the next micro-batch: 0F1",
    "6-7 between two actions",
    "9-12 between two actions",
    "13-14 all-reduce of stage 0: waits for worker 1: reduce 0",
  ], [
    "8-13 all-reduce of stage 0: waits for worker 0: 0F1",
  ]]);
});

Deno.test("halves, doubled forwards and overlaps take what was sent to them, each replica its own", () => {
  assert.equal(
    flowsIn(
      "0F0+1 0-2, 0B0.0 9-10, 0B0.1 10-11, 0B1 12-13",
      "1F0 2-3, 1B0&1F1 3-6, 1B1.0 6-8, 1B1.1 8-9",
    ),
    "1B0&1F1-0B0.0 1B0&1F1-0B0.1 1B1.0-0B1 1B1.1-0B1 0F0+1-1F0 0F0+1-1B0&1F1",
  );
  const one = acts("0F0 0-2"), other = acts("1F0 3-4<3");
  const { flows } = readStep([one, other, one, other], 2);
  assert.deepEqual(flows.map(({ from, to }) => `${from.worker}-${to.worker}`), ["0-1", "2-3"]);
});

Deno.test("the clock of a host that is behind is put right by messages to and fro", () => {
  const behind = acts("1F0 0-4<-0.5, 1B0 4-10>10, 1F1 10-14<4, 1B1 14-24");
  // To and fro, the fastest messages take 1 ms each.
  assert.deepEqual(gapsIn([TWO[0]!, behind]), gapsIn(TWO));
  const ahead = TWO[0]!.map((one) => ({ ...one, start: one.start + 0.5, end: one.end + 0.5 }));
  assert.equal(readStep([ahead, TWO[1]!]).workers[1]!.spans[0]!.start, 5, "nothing seems wrong");
});

Deno.test("the name of an action says what it was", () => {
  const KINDS = {
    ...{ "2F0": ["F", 2], "0F4+5": ["F", 0], "0B4.0": ["B", 0], "3W1": ["W", 3] },
    ...{ "0F1&7B0": ["F&B", 0, 7], "reduce 0,1": ["reduce", 0, 1], "reduce 3": ["reduce", 3] },
    ...{ optimizer: ["optimizer"] },
  };
  for (const [name, [wanted, ...numbers]] of Object.entries(KINDS)) {
    const { kind, stages } = readSpan(act(`${name} 0-1`), 0);
    assert.deepEqual([kind, stages], [wanted, numbers], name);
  }
  assert.equal(readSpan(act("optimizer 0-1", { stage: 4 }), 0).stages[0], 4);
  assert.throws(() => readSpan(act("0F1x 0-1"), 0), SyntaxError);
});

const MICRO_BATCHES = 4;

/** What the workers did in each step. */
async function tracesOf(options: Partial<TrainOptions>) {
  const { events } = await outcome({ ...SMALL, hidden: 16, steps: 2 }, {
    ...{ microBatches: MICRO_BATCHES, workers: 2, runtime: "local", device: "native" },
    ...{ bucketSize: 1024, trace: true },
    evaluation: { every: 1, batches: batchesOf(SMALL, 1), atStart: true },
    ...options,
  });
  return eventsOf(events, "step").map(({ traces }) => traces);
}

const namesIn = (traces: readonly (readonly TracedAction[])[]) =>
  traces.map((trace) => trace.map(({ name }) => name).filter((name) => /^\d/.test(name)));

for (const schedule of ["1f1b", "zb-h1", "chimera"]) {
  Deno.test(`a trace of ${schedule} has every action once, in order, with when its input came`, async () => {
    const { lists } = createSchedule(schedule, { workers: 2, microBatches: MICRO_BATCHES });
    const planned = lists!.map((list) => [...list].map(formatAction));
    for (const traces of await tracesOf({ schedule, replicas: 2 })) {
      assert.deepEqual(namesIn(traces), [...planned, ...planned]);
      for (const { from, to } of readStep(traces, 2).flows) {
        assert.ok(from.sent! >= from.start && from.sent! <= from.end, `${from.name} is sent`);
        assert.ok(to.arrived! >= from.sent! && to.arrived! <= to.start, `${to.name} has come`);
      }
      for (const { name, start, sent = start, end, waiting } of traces.flat()) {
        assert.ok(start <= sent && sent <= end, `${name} sends while it runs`);
        assert.equal(waiting === undefined, !/^\d/.test(name), name);
      }
      const [first] = traces[0]!;
      assert.ok(first!.arrived! <= first!.start, "what the supervisor sent has come");
      // The gradient of the last stage comes from no worker.
      const last = traces[1]!.filter(({ name }) => /^1B/.test(name));
      for (const { arrived } of last) assert.equal(arrived, undefined);
    }
  });
}

Deno.test("an all-reduce says its stage and chunk, the optimizer its stage and bucket", async () => {
  const [traces] = await tracesOf({ schedule: "chimera", replicas: 2, coarsening: 2 });
  for (const trace of traces!) {
    const buckets = trace.filter(({ name }) => name === "optimizer");
    const said = new Set(buckets.map(({ stage, bucket }) => `${stage}/${bucket}`));
    assert.equal(said.size, buckets.length);
    assert.ok(buckets.length >= 8);
    for (const stage of [0, 1]) {
      const own = buckets.filter((one) => one.stage === stage).map(({ bucket }) => bucket!);
      assert.deepEqual(own.toSorted((a, b) => a - b), [...own.keys()]);
      const chunks = trace.filter((one) => one.name === `reduce ${stage}` && one.stage === stage)
        .flatMap(({ chunk }) => chunk === undefined ? [] : [chunk]);
      assert.deepEqual([...new Set(chunks)].sort(), [...Array(Math.ceil(own.length / 2)).keys()]);
    }
  }
});

Deno.test("without actors each micro-batch is traced by its global id, and so are stages without a flush", async () => {
  const [whole] = await tracesOf({ runtime: "serial", schedule: "1f1b", replicas: 2 });
  const ids = Array.from({ length: 2 * MICRO_BATCHES }, (_, id) => [`0F${id}`, `0B${id}`]).flat();
  assert.deepEqual(whole!.map((trace) => trace.map(({ name }) => name)), [[...ids, "optimizer"]]);
  const aged = await tracesOf({ runtime: "serial", schedule: "pipedream" });
  const piped = await tracesOf({ schedule: "pipedream" });
  assert.deepEqual(aged.flatMap(namesIn).flat().sort(), piped.flatMap(namesIn).flat().sort());
  for (const runtime of ["local", "serial"] as const) {
    const traces = await tracesOf({ runtime, schedule: "1f1b", trace: false });
    assert.deepEqual(traces.flat(2), [], "a run that is not traced");
  }
});
