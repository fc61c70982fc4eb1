import assert from "node:assert/strict";
import { readStep, type TracedAction, train, type TrainOptions } from "../../../../actors/mod.ts";
import { gpt2 } from "../../../../kernels/mod.ts";
import { createSchedule, formatAction } from "../../../../schedules/mod.ts";
import { batchesOf, SMALL } from "../../runs.ts";

const MICRO_BATCHES = 4;

/** What the workers did in each step. */
async function tracesOf(options: Partial<TrainOptions>) {
  const steps = 3, { replicas = 1 } = options;
  const traces: (readonly (readonly TracedAction[])[])[] = [];
  for await (
    const event of train({
      model: gpt2(SMALL, SMALL.microBatch),
      data: batchesOf(SMALL, steps * MICRO_BATCHES * replicas),
      steps,
      microBatches: MICRO_BATCHES,
      workers: 2,
      runtime: "local",
      device: "native",
      bucketSize: 4096,
      trace: true,
      evaluation: { every: 1, batches: batchesOf(SMALL, 1), atStart: true },
      ...options,
    })
  ) {
    if (event.type === "step" || event.type === "skip") traces.push(event.traces);
  }
  return traces;
}

const computed = (trace: readonly TracedAction[]) =>
  trace.filter(({ name }) => /^\d/.test(name)).map(({ name }) => name);

for (const schedule of ["1f1b", "zb-h1", "chimera"]) {
  Deno.test(`a trace of ${schedule} has every action once, in order, with when its input came`, async () => {
    const { lists } = createSchedule(schedule, { workers: 2, microBatches: MICRO_BATCHES });
    const planned = lists!.map((list) => [...list].map(formatAction));
    for (const traces of await tracesOf({ schedule, replicas: 2 })) {
      assert.deepEqual(traces.map(computed), [...planned, ...planned]);
      for (const { from, to } of readStep(traces, 2).flows) {
        assert.ok(from.sent! >= from.start && from.sent! <= from.end, `${from.name} is sent`);
        assert.ok(to.arrived! >= from.sent! && to.arrived! <= to.start, `${to.name} has come`);
      }
      for (const { name, start, sent = start, end } of traces.flat()) {
        assert.ok(start <= sent && sent <= end, `${name} sends while it runs`);
      }
      const [first] = traces[0]!;
      assert.ok(first!.arrived! <= first!.start, "what the supervisor sent has come");
      for (const { name, waiting } of traces.flat()) {
        assert.equal(waiting === undefined, !/^\d/.test(name), name);
      }
      const last = traces[1]!.filter(({ name }) => /^1B/.test(name));
      // The gradient of the last stage comes from nobody.
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
  const all = (traces: typeof aged) =>
    traces.flat(2).map(({ name }) => name).filter((name) => /^\d/.test(name));
  assert.deepEqual(all(aged).sort(), all(piped).sort());
});

Deno.test("a run that is not traced tells nothing", async () => {
  for (const runtime of ["local", "serial"] as const) {
    const traces = await tracesOf({ runtime, schedule: "1f1b", trace: false });
    assert.deepEqual(traces.flat(2), []);
  }
});
