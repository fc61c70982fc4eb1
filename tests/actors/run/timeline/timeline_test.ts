/** Timelines of steps: traces, and the gaps and flows computed from them. */

import assert from "node:assert/strict";
import { readSpan, readStep } from "../../../../actors/run/timeline.ts";
import type { TracedAction } from "../../../../actors/pipeline/step.ts";
import type { TrainOptions } from "../../../../actors/options/train_options.ts";
import { createSchedule, formatAction } from "../../../../schedules/mod.ts";
import { batchesOf, eventsOf, outcome, SMALL } from "../../runs.ts";
import { act, acts } from "./acts.ts";
import steps from "./steps.json" with { type: "json" };

// Traced steps, the gaps of each worker as `start-end cause`, and the flows.
for (const { what, traces, replicas, gaps, flows } of steps) {
  Deno.test(what, () => {
    const step = readStep(traces.map(acts), replicas);
    const found = step.workers.map(({ gaps }) =>
      gaps.map(({ start, end, cause }) => `${start}-${end} ${cause}`)
    );
    if (gaps) assert.deepEqual(found, gaps);
    if (!flows) return;
    assert.equal(step.flows.map(({ from, to }) => `${from.name}-${to.name}`).join(" "), flows);
  });
}

const TWO = steps[0]!.traces.map(acts);

Deno.test("what a worker did and its gaps fill the step, and are counted by why", () => {
  const { start, end, workers } = readStep(TWO);
  assert.deepEqual([start, end], [0, 33]);
  for (const { busyMs, reduceMs, optimizerMs, gapMs } of workers) {
    const all = Object.values(gapMs).reduce((sum, ms) => sum + ms, busyMs + reduceMs + optimizerMs);
    assert.equal(all, end - start);
  }
  const [first, last] = workers;
  assert.deepEqual([first!.busyMs, first!.optimizerMs, last!.busyMs], [12, 2, 24]);
  assert.deepEqual([first!.gapMs.input, first!.gapMs.message, last!.gapMs.idle], [7, 1, 4]);
  assert.deepEqual(readStep([]).workers, []);
  assert.deepEqual(readStep([[], []]).workers.map(({ gaps }) => gaps), [[], []]);
});

Deno.test("each replica receives its own messages, and a clock that is ahead is kept", () => {
  const one = acts("0F0 0-2"), other = acts("1F0 3-4<3");
  const { flows } = readStep([one, other, one, other], 2);
  assert.deepEqual(flows.map(({ from, to }) => `${from.worker}-${to.worker}`), ["0-1", "2-3"]);
  const ahead = TWO[0]!.map((one) => ({ ...one, start: one.start + 0.5, end: one.end + 0.5 }));
  assert.equal(readStep([ahead, TWO[1]!]).workers[1]!.spans[0]!.start, 5);
});

Deno.test("the name of an action describes it", () => {
  const KINDS = {
    ...{ "2F0": ["F", 2], "0F4+5": ["F", 0], "0B4.0": ["B", 0], "3W1": ["W", 3] },
    ...{ "0F1&7B0": ["F&B", 0, 7], "reduce 0,1": ["reduce", 0, 1], optimizer: ["optimizer"] },
  };
  for (const [name, [wanted, ...numbers]] of Object.entries(KINDS)) {
    const { kind, stages } = readSpan(act(`${name} 0-1`), 0);
    assert.deepEqual([kind, stages], [wanted, numbers], name);
  }
  assert.equal(readSpan({ ...act("optimizer 0-1"), stage: 4 }, 0).stages[0], 4);
  assert.throws(() => readSpan(act("0F1x 0-1"), 0), SyntaxError);
});

const MICRO_BATCHES = 4;

/** Returns the traces of the workers for each step. */
async function tracesOf(options: Partial<TrainOptions>) {
  const { events } = await outcome({ ...SMALL, hidden: 16, microBatches: MICRO_BATCHES }, {
    ...{ workers: 2, runtime: "local", device: "native", bucketSize: 1024, trace: true },
    evaluation: { every: 1, batches: batchesOf(SMALL, 1), atStart: true },
    ...options,
  });
  return eventsOf(events, "step").map(({ traces }) => traces);
}

const namesIn = (traces: readonly (readonly TracedAction[])[]) =>
  traces.map((trace) => trace.map(({ name }) => name).filter((name) => /^\d/.test(name)));

Deno.test("a trace has every action once, in order, with when its input came", async () => {
  for (const schedule of ["1f1b", "zb-h1", "chimera"]) {
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
      const [first] = traces[0]!, last = traces[1]!.filter(({ name }) => /^1B/.test(name));
      assert.ok(first!.arrived! <= first!.start, "what the supervisor sent has come");
      for (const { arrived } of last) assert.equal(arrived, undefined, "it comes from no worker");
    }
  }
});

Deno.test("an all-reduce says its stage and chunk, the optimizer its stage and bucket", async () => {
  const [traces] = await tracesOf({ schedule: "chimera", replicas: 2, coarsening: 2 });
  for (const trace of traces!) {
    const buckets = trace.filter(({ name }) => name === "optimizer");
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
    assert.deepEqual((await tracesOf({ runtime, schedule: "1f1b", trace: false })).flat(2), []);
  }
});
