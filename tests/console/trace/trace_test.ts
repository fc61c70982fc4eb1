import { Validator } from "@cfworker/json-schema";
import assert from "node:assert/strict";
import { type Metrics, readStep, train, type TrainOptions } from "../../../actors/mod.ts";
import { readStepRange } from "../../../console/flags/quantities.ts";
import { openTraceFile, type TraceFileOptions } from "../../../console/trace/chrome_file.ts";
import { openTrace } from "../../../console/trace/read_trace.ts";
import { summarizeTrace } from "../../../console/trace/trace_summary.ts";
import { readTrainFlags } from "../../../console/train/train_request.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { batchesOf, SMALL } from "../../actors/runs.ts";
import { inFolder } from "../../in_folder.ts";
import { TRACE_SCHEMA, type TraceEvent } from "./trace_schema.ts";

const STEPS = 3;

/** Traces a run to a file; what it told of each step. */
async function traced(
  path: string,
  options: Partial<TrainOptions>,
  file: Partial<TraceFileOptions> = {},
) {
  const traces = new Map<number, string[]>(), announced: string[] = [], { replicas = 1 } = options;
  using trace = openTraceFile({ path, announce: (line) => announced.push(line), ...file });
  for await (
    const event of train({
      model: gpt2(SMALL, SMALL.microBatch),
      data: batchesOf(SMALL, STEPS * 4 * replicas),
      steps: STEPS,
      microBatches: 4,
      workers: 2,
      runtime: "local",
      device: "native",
      trace: true,
      metrics: (metrics: Metrics) => trace.measured(metrics),
      evaluation: { every: 2, batches: batchesOf(SMALL, 1) },
      ...options,
    })
  ) {
    trace.see(event);
    if (event.type !== "step") continue;
    traces.set(
      event.step,
      event.traces.flatMap((list, worker) => list.map(({ name }) => `${worker} ${name}`)),
    );
  }
  return { traces, announced };
}

const read = async (path: string): Promise<TraceEvent[]> =>
  JSON.parse(await Deno.readTextFile(path));

const isWork = ({ ph, pid, cat }: TraceEvent) => ph === "X" && pid > 0 && cat !== "wait";

const RUNS: readonly Partial<TrainOptions>[] = [
  { schedule: "message-driven", runtime: "workers" },
  { schedule: "chimera", replicas: 2 },
  { schedule: "zb-h1" },
  { schedule: "pipedream" },
  { schedule: "1f1b", runtime: "serial", replicas: 2 },
];

for (const options of RUNS) {
  const { schedule, runtime = "local" } = options;
  Deno.test(`a trace of ${schedule} in ${runtime} follows the schema of Chrome's format, and has every action once`, () =>
    inFolder(async (folder) => {
      const path = `${folder}/trace.json`, { traces } = await traced(path, options);
      const events = await read(path),
        { valid, errors } = new Validator(TRACE_SCHEMA).validate(events);
      assert.deepEqual([valid, errors], [true, []]);
      for (const [step, names] of traces) {
        const work = events.filter((event) => isWork(event) && event.args.step === step);
        assert.deepEqual(work.map(({ tid, name }) => `${tid} ${name}`), names, `step ${step}`);
      }
      const starts = events.filter(({ ph }) => ph === "s"),
        ends = events.filter(({ ph }) => ph === "f");
      assert.deepEqual(starts.map(({ id }) => id), ends.map(({ id }) => id));
      assert.equal(new Set(starts.map(({ id }) => id)).size, starts.length);
      assert.equal(starts.length === 0, runtime === "serial");
      for (const flow of [...starts, ...ends]) {
        // A viewer binds it to what lies there.
        const at = events.filter((one) =>
          isWork(one) && one.tid === flow.tid && one.pid === flow.pid
        );
        assert.ok(at.some(({ ts, dur }) => ts <= flow.ts && flow.ts <= ts + dur + 1e-3));
      }
      const names = new Set(events.map(({ name }) => name));
      for (const name of ["loss", "tokens/s", "memory of worker 0", "evaluation", "end"]) {
        assert.ok(names.has(name) || name.startsWith("memory") && runtime === "serial", name);
      }
    }));
}

Deno.test("a trace that is read back gives what was traced", () =>
  inFolder(async (folder) => {
    const path = `${folder}/trace.json`, seen: unknown[] = [];
    using trace = openTraceFile({ path, announce: assert.fail });
    for await (
      const event of train({
        model: gpt2(SMALL, SMALL.microBatch),
        data: batchesOf(SMALL, 8),
        steps: 2,
        microBatches: 4,
        workers: 2,
        runtime: "local",
        schedule: "zb-h1",
        trace: true,
      })
    ) {
      trace.see(event);
      if (event.type === "step") seen.push(event.traces);
    }
    const round = (value: unknown) =>
      JSON.parse(
        JSON.stringify(value),
        (_, one) => typeof one === "number" ? Number(one.toFixed(2)) : one,
      );
    const back = [...openTrace(path).steps].map(({ traces }) => traces);
    // The optimizer's stage is read from its arguments, that of an action from its name.
    const bare = (traces: unknown) =>
      JSON.parse(JSON.stringify(traces), (key, one) => key === "stage" ? undefined : one);
    assert.deepEqual(bare(round(back)), bare(round(seen)));
  }));

Deno.test("a summary says what the steps come to, and for whom each worker waited", () =>
  inFolder(async (folder) => {
    const path = `${folder}/trace.json`;
    await traced(path, { schedule: "1f1b" });
    const { steps, seconds, workers } = summarizeTrace(openTrace(path), path);
    let total = 0, busy = 0, waited = 0;
    for (const { traces } of openTrace(path).steps) {
      const { start, end, workers: [first] } = readStep(traces);
      total += end - start;
      busy += first!.busyMs;
      for (const { by, start, end } of first!.gaps) if (by?.worker === 1) waited += end - start;
    }
    assert.equal(steps, STEPS);
    assert.ok(Math.abs(seconds - total / 1000) < 1e-9);
    const [first] = workers;
    assert.ok(Math.abs(first!.busy - busy / total) < 1e-9);
    assert.ok(first!.waitsFor.every(({ worker }) => worker === 1));
    const told = first!.waitsFor.reduce((sum, { share }) => sum + share, 0);
    assert.ok(Math.abs(told - waited / total) < 1e-9);
    for (const { busy, optimizer, communication, gaps, bubble, durations } of workers) {
      const reduce = communication - gaps.reduce - gaps.message;
      assert.ok(Math.abs(busy + optimizer + reduce + bubble - 1) < 1e-9);
      assert.deepEqual([durations.F!.count, durations.B!.count], [4 * STEPS, 4 * STEPS]);
      assert.ok(durations.F!.p50Ms <= durations.F!.p95Ms);
    }
  }));

Deno.test("a trace has the steps that are asked for, and stays within its bound, which it says", () =>
  inFolder(async (folder) => {
    const path = `${folder}/trace.json`;
    await traced(path, { schedule: "1f1b" }, { steps: { first: 2, last: 2 } });
    assert.deepEqual([...openTrace(path).steps].map(({ step }) => step), [2]);
    const bytesMax = 16_384;
    const { announced } = await traced(path, { schedule: "1f1b" }, { bytesMax });
    assert.match(announced.join(), /^the trace ends before step \d: it has at most 16384 bytes/);
    assert.ok((await Deno.stat(path)).size <= bytesMax);
    const events = await read(path);
    assert.equal(events.filter(({ cat }) => cat === "full").length, 1);
    assert.equal(events.at(-1)!.name, "end");
  }));

Deno.test("a trace that is cut is read up to there; a file of others is refused in one sentence", () =>
  inFolder(async (folder) => {
    const path = `${folder}/trace.json`;
    await traced(path, { schedule: "1f1b" });
    const text = await Deno.readTextFile(path);
    await Deno.writeTextFile(path, text.slice(0, text.indexOf('"step":3') + 20));
    assert.deepEqual([...openTrace(path).steps].map(({ step }) => step), [1, 2]);
    const refused = async (content: string, why: RegExp) => {
      await Deno.writeTextFile(path, content);
      assert.throws(() => summarizeTrace(openTrace(path), path), why);
    };
    await refused(
      "{}",
      /^SyntaxError: Cannot read .*must be a trace that troupe train --trace has/,
    );
    await refused("", /received an empty one$/);
    await refused('[\n{"name":"other","ph":"X"}\n]', /begins with "other"$/);
    await refused(text.replace('"version":1', '"version":9'), /version "9"$/);
    await refused(text.replace('"tid":1,"ts"', '"tid":77,"ts"'), /received an event/);
    await refused(text.replace(/"ts":\d+\.\d+,"dur"/, '"ts":"x","dur"'), /received an event/);
    await refused("[\n" + "x".repeat(3 * 2 ** 20), /a longer line$/);
    await refused(text.split("\n").slice(0, 9).join("\n"), /must have a step$/);
  }));

Deno.test("a disk that takes no more ends the trace, and not the run", async () => {
  const { traces, announced } = await traced("/dev/full", { schedule: "1f1b" });
  assert.equal(traces.size, STEPS);
  assert.match(announced.join(), /^Cannot write the trace to \/dev\/full: .*; the run goes on$/);
});

Deno.test("steps of no length have no shares, and no NaN", () => {
  const head = { model: "gpt", schedule: "1f1b", runtime: "local", replicas: 1, workers: 1 };
  const steps = [{ step: 1, traces: [[{ name: "0F0", start: 5, end: 5 }]] }];
  const { workers: [worker] } = summarizeTrace({ head, steps } as never, "t.json");
  assert.deepEqual([worker!.busy, worker!.bubble, worker!.optimizer], [0, 0, 0]);
});

Deno.test("a dashboard that nobody asked for has no port and does not stay", async () => {
  for (const flag of ["--dashboard-stay", "--dashboard-port=80"]) {
    await assert.rejects(readTrainFlags([flag]), /--dashboard must be given with --dashboard-/);
  }
});

Deno.test("the steps of a trace are one, a range, or all from one on, and want a trace", async () => {
  const ranges = ["7", "7-9", "7-", "0", "9-7", "-3", "a-b", "1-2-3"].map(readStepRange);
  const from7 = { first: 7, last: Infinity };
  assert.deepEqual(ranges.slice(0, 3), [{ first: 7, last: 7 }, { first: 7, last: 9 }, from7]);
  assert.deepEqual(ranges.slice(3), Array(5).fill(undefined));
  await assert.rejects(readTrainFlags(["--trace-steps", "7"]), /--trace must name the file/);
  await assert.rejects(
    readTrainFlags(["--trace", "t", "--trace-steps", "9-7"]),
    /a range of steps/,
  );
});
