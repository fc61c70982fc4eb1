/** Traces in Chrome's format, of runs and of schedules on paper, and the timelines of runs. */

import type { TrainEvent } from "../../../actors/options/train_events.ts";
import { type Schema, Validator } from "@cfworker/json-schema";
import assert from "node:assert/strict";
import { join } from "node:path";
import type { Metrics, TrainOptions } from "../../../actors/options/train_options.ts";
import { readStep } from "../../../actors/run/timeline.ts";
import type { TracedAction } from "../../../actors/pipeline/step.ts";
import { train } from "../../../actors/run/train.ts";
import { scheduleCommand } from "../../../console/commands/schedule.ts";
import { TraceFile, type TraceFileOptions } from "../../../console/run_files/chrome_trace.ts";
import { openTrace, summarizeTrace } from "../../../console/commands/trace.ts";
import {
  openTimeline,
  readTimeline,
  type TimelineOptions,
} from "../../../console/run_files/timeline_file.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import {
  analyze,
  createSchedule,
  formatAction,
  scheduleDefinitions,
} from "../../../schedules/mod.ts";
import { batchesOf, SMALL } from "../../actors/runs.ts";
import { folderTest } from "../../in_folder.ts";
import { isNear } from "../../schedules/cases.ts";
import { printedHere, refusalHere, refusedHere, TINY, trainHere, words } from "../command.ts";
import { assertRefusals, assertSentences } from "../refusals.ts";
import TRACE_SCHEMA from "./trace_schema.json" with { type: "json" };

/** An event of a file of Chrome's. */
type TraceEvent<Argument = unknown> =
  & Readonly<Record<"ph" | "name" | "cat", string>>
  & Readonly<Record<"pid" | "tid" | "ts" | "dur" | "id", number>>
  & { readonly args: Readonly<Record<string, Argument>> };

const validator = new Validator(TRACE_SCHEMA as Schema);

/** The events of a text that follows the schema. */
function eventsOf<Argument>(text: string): TraceEvent<Argument>[] {
  const events = JSON.parse(text), { valid, errors } = validator.validate(events);
  assert.deepEqual([valid, errors], [true, []]);
  return events;
}

const STEPS = 3, SIZES = { ...SMALL, hidden: 8, heads: 2, seq: 4, vocab: 16 };

/** An event or metrics of a run. */
type Happening = { readonly metrics: Metrics } | { readonly event: TrainEvent };

/** Trains, and keeps what happens. */
async function happeningsOf(options: Partial<TrainOptions>): Promise<readonly Happening[]> {
  const happenings: Happening[] = [], { replicas = 1 } = options;
  const add = (one: Happening) => void happenings.push(one);
  const events = train({
    ...{ model: gpt2(SIZES, SIZES.microBatch), steps: STEPS, microBatches: 4, workers: 2 },
    ...{ data: batchesOf(SIZES, STEPS * 4 * replicas), runtime: "local", device: "reference" },
    trace: true,
    metrics: (metrics: Metrics) => add({ metrics }),
    evaluation: { every: 2, batches: batchesOf(SIZES, 1) },
    ...options,
  } as TrainOptions);
  for await (const event of events) add({ event: later(event) });
  return happenings;
}

/** The event with actions an hour later: after the file of a trace was begun. */
function later(event: TrainEvent): TrainEvent {
  if (event.type !== "step") return event;
  const move = (_: string, value: unknown) => Number(value) > 1e12 ? Number(value) + 36e5 : value;
  return { ...event, traces: JSON.parse(JSON.stringify(event.traces), move) };
}

/** Writes a trace of what happened; returns what its file announces. */
function traced(
  path: string,
  happenings: readonly Happening[],
  file: Partial<TraceFileOptions> = {},
): string {
  const announced: string[] = [];
  using trace = new TraceFile({ path, announce: (line) => announced.push(line), ...file });
  for (const one of happenings) {
    if ("event" in one) trace.see(one.event);
    else trace.measured(one.metrics);
  }
  return announced.join();
}

let plain: Promise<readonly Happening[]> | undefined;

/** Writes a trace of a run of 1F1B, which is made once. */
const write = async (path: string, file?: Partial<TraceFileOptions>) =>
  traced(path, await (plain ??= happeningsOf({ schedule: "1f1b" })), file);

/** The actions of each step, by worker. */
const tracesOf = (happenings: readonly Happening[]) =>
  happenings.flatMap((one) =>
    "event" in one && one.event.type === "step" ? [[one.event.step, one.event.traces] as const] : []
  );

/** Traces as a file has them: stages of actions are in their names, times in hundredths of ms. */
const bare = (traces: unknown) =>
  JSON.parse(
    JSON.stringify(traces),
    (key, one) =>
      key === "stage" ? undefined : typeof one === "number" ? Number(one.toFixed(2)) : one,
  );

/** Returns the ends of messages. */
const flowsIn = (events: readonly TraceEvent[]) =>
  ["s", "f"].map((phase) => events.filter(({ ph }) => ph === phase)) as [
    ...[TraceEvent[], TraceEvent[]],
  ];

const isWork = ({ ph, pid, cat }: TraceEvent) => ph === "X" && pid > 0 && cat !== "wait";

const RUNS: readonly Partial<TrainOptions>[] = [
  { schedule: "message-driven", runtime: "workers" },
  { schedule: "chimera", replicas: 2 },
  { schedule: "zb-h1" },
  { schedule: "search", scheduleOptions: { recomputeAhead: true } },
  { schedule: "pipedream" },
  { schedule: "1f1b", runtime: "serial", replicas: 2 },
];

for (const options of RUNS) {
  const { schedule, runtime = "local" } = options;
  folderTest(`a trace of ${schedule} in ${runtime} has actions and flows once`, async (folder) => {
    const path = join(folder, "trace.json");
    const happenings = await happeningsOf(options);
    assert.equal(traced(path, happenings), "");
    const events = eventsOf(await Deno.readTextFile(path));
    for (const [step, traces] of tracesOf(happenings)) {
      const work = events.filter((event) => isWork(event) && event.args.step === step);
      assert.deepEqual(
        work.map(({ tid, name }) => `${tid} ${name}`),
        traces.flatMap((list, worker) => list.map(({ name }) => `${worker} ${name}`)),
        `step ${step}`,
      );
    }
    const [starts, ends] = flowsIn(events);
    assert.deepEqual(starts.map(({ id }) => id), ends.map(({ id }) => id));
    assert.equal(new Set(starts.map(({ id }) => id)).size, starts.length);
    assert.equal(starts.length === 0, runtime === "serial");
    for (const { ts, tid, pid } of [...starts, ...ends]) {
      // A viewer binds a flow to the work at its time.
      const at = events.filter((one) => isWork(one) && one.tid === tid && one.pid === pid);
      assert.ok(at.some((one) => one.ts <= ts && ts <= one.ts + one.dur + 1e-3));
    }
    for (const [i, { ts, tid, name }] of starts.entries()) {
      assert.ok(ts <= ends[i]!.ts && tid !== ends[i]!.tid, `${name} arrives after it was sent`);
    }
    assert.deepEqual(
      Array.from(openTrace(path).steps, ({ step, traces }) => [step, bare(traces)]),
      tracesOf(happenings).map(([step, traces]) => [step, bare(traces)]),
      "what is read back",
    );
    const names = new Set(events.map(({ name }) => name));
    const memory = runtime === "serial" ? [] : ["memory of worker 0"];
    for (const name of ["loss", "tokens/s", "evaluation", "end", ...memory]) {
      assert.ok(names.has(name), name);
    }
    assert.doesNotMatch(await printedHere("trace", "summary", path), /\n\n\n|1 workers/);
  });
}

folderTest("a summary has the shares of each worker, and the causes of waits", async (folder) => {
  const path = join(folder, "trace.json");
  await write(path);
  const { steps, firstStep, lastStep, seconds, workers } = summarizeTrace(openTrace(path), path);
  let total = 0, busy = 0, waited = 0;
  for (const { traces } of openTrace(path).steps) {
    const { start, end, workers: [first] } = readStep(traces);
    total += end - start;
    busy += first!.busyMs;
    for (const { by, start, end } of first!.gaps) if (by?.worker === 1) waited += end - start;
  }
  assert.deepEqual([steps, firstStep, lastStep], [STEPS, 1, STEPS]);
  assert.ok(Math.abs(seconds - total / 1000) < 1e-9);
  const [first] = workers;
  assert.ok(Math.abs(first!.busy - busy / total) < 1e-9);
  assert.ok(first!.waitsFor.every(({ worker }) => worker === 1));
  const shares = first!.waitsFor.map(({ share }) => share);
  assert.deepEqual(shares, shares.toSorted((a, b) => b - a));
  assert.ok(Math.abs(shares.reduce((sum, share) => sum + share, 0) - waited / total) < 1e-9);
  for (const { busy, optimizer, communication, gaps, bubble, durations, actions } of workers) {
    const reduce = communication - gaps.reduce - gaps.message;
    assert.ok(Math.abs(busy + optimizer + reduce + bubble - 1) < 1e-9);
    assert.deepEqual([durations.F!.count, durations.B!.count], [4 * STEPS, 4 * STEPS]);
    assert.equal(actions, 8 * STEPS);
    assert.ok(durations.F!.p50Ms <= durations.F!.p95Ms);
  }
  const said = await printedHere("trace", "summary", path);
  assert.match(said, /\nTimes overlap: .* a row can exceed 100 %\.\n/);
  assert.match(said, /^gpt2?, 1f1b, 2 workers: 3 steps of 1 to 3, [\d.]+ s\n/);
  assert.match(said, /^worker 1 waited for .*worker 0: 0[BF] \([\d.]+ %\)/m);
  assert.equal(JSON.parse(await printedHere("trace", "summary", path, "--json")).steps, STEPS);
});

Deno.test("a summary has medians of durations, also for steps without length", () => {
  const head = { model: "gpt", schedule: "1f1b", runtime: "local", replicas: 1, workers: 1 };
  const summary = (lengths: readonly number[]) => {
    let at = 0;
    const trace = lengths.map((ms, i) => ({ name: `0F${i}`, start: at, end: at += ms }));
    return summarizeTrace({ head, steps: [{ step: 1, traces: [trace] }] } as never, "t")
      .workers[0]!;
  };
  const none = summary([0]);
  assert.deepEqual([none.busy, none.bubble, none.optimizer], [0, 0, 0]);
  const lengths = Array.from({ length: 99 }, (_, i) => 99 - i);
  assert.deepEqual(summary(lengths).durations, { F: { count: 99, p50Ms: 50, p95Ms: 95 } });
});

folderTest("a trace has the chosen steps and announces its bound", async (folder) => {
  const path = join(folder, "trace.json");
  await write(path, { steps: { first: 2, last: 2 } });
  assert.deepEqual(Array.from(openTrace(path).steps, ({ step }) => step), [2]);
  for (let bytesMax = 8000; bytesMax < 15_000; bytesMax += 250) {
    const announced = await write(path, { bytesMax });
    const bound = RegExp(`^the trace ends before step \\d: it has at most ${bytesMax} b`);
    assert.match(announced, bound);
    assert.ok((await Deno.stat(path)).size <= bytesMax);
    const events = eventsOf(await Deno.readTextFile(path));
    assert.equal(events.filter(({ cat }) => cat === "full").length, 1);
    assert.equal(events.at(-1)!.name, "end");
  }
});

folderTest("a truncated trace is read to its end, and other files are refused", async (folder) => {
  const path = join(folder, "trace.json");
  await write(path);
  const text = await Deno.readTextFile(path);
  await Deno.writeTextFile(path, text.slice(0, text.indexOf('"step":3') + 20));
  assert.deepEqual(Array.from(openTrace(path).steps, ({ step }) => step), [1, 2]);
  const contents: Readonly<Record<string, string>> = {
    "an object": "{}",
    "nothing": "",
    "another trace": '[\n{"name":"other","ph":"X"}\n]',
    "another version": text.replace('"version":1', '"version":9'),
    "more replicas": text.replace('"replicas":1', '"replicas":3'),
    "another worker": text.replace('"tid":1,"ts"', '"tid":77,"ts"'),
    "no time": text.replace(/"ts":\d+\.\d+,"dur"/, '"ts":"x","dur"'),
    "no line": text.replace('"cat":"F"', '"cat":"F'),
    "a long line": "[\n" + "x".repeat(3 * 2 ** 20),
    "no step": text.split("\n").slice(0, 9).join("\n"),
  };
  const found: [string, string][] = [];
  for (const [about, content] of Object.entries(contents)) {
    await Deno.writeTextFile(path, content);
    const sentence = await refusalHere(["trace", "summary", path]);
    found.push([about, sentence.replace(/(received an event).*/, "$1 …")]);
  }
  await assertSentences("strange_traces", found, { FOLDER: folder });
  await assertRefusals("trace", (words) => refusalHere(["trace", ...words]), { FOLDER: folder });
});

Deno.test("a full disk ends the trace, and the run continues", async () => {
  const announced = await write("/dev/full");
  assert.match(announced, /^Cannot write the trace to \/dev\/full: [^,]*; the run continues$/);
});

const SIZE = { workers: 4, microBatches: 8 };

/** Returns the trace of a simulated schedule. */
const show = (name: string, ...flags: string[]) =>
  scheduleCommand(words`${name} --workers 4 --micro-batches 8 --format trace ${flags}`).text;

Deno.test("a simulated trace has the actions, bubbles, messages and activations", () => {
  for (const { name: schedule } of scheduleDefinitions) {
    const events = eventsOf<number>(show(schedule));
    const analysis = analyze(createSchedule(schedule, SIZE));
    const { schedule: made, makespan, idle, peakActivations } = analysis;
    for (const [worker, list] of made.lists.entries()) {
      const which = `worker ${worker} of ${schedule}`;
      const own = events.filter(({ pid, tid }) => pid === 1 && tid === worker);
      const work = own.filter(({ ph, cat }) => ph === "X" && cat !== "wait");
      assert.deepEqual(work.map(({ name }) => name), Array.from(list, formatAction));
      const waits = own.filter(({ cat }) => cat === "wait");
      const waited = waits.reduce((sum, { dur }) => sum + dur, 0) / 1000;
      assert.ok(Math.abs(waited - idle[worker]!) < 1e-3, `${which} waits for ${waited}`);
      const ends = [...work, ...waits].map(({ ts, dur }) => ts + dur);
      assert.ok(Math.abs(Math.max(...ends) / 1000 - makespan) < 1e-3, which);
      const curve = own.filter(({ ph }) => ph === "C").map(({ args }) => args.activations!);
      assert.ok(isNear(Math.max(...curve), peakActivations[worker]!), which);
      assert.equal(curve.at(-1), 0, which);
    }
    const [sent, came] = flowsIn(events);
    assert.equal(sent.length, came.length, schedule);
    for (const [i, { id, tid, ts }] of sent.entries()) {
      assert.equal(id, came[i]!.id, schedule);
      assert.ok(tid !== came[i]!.tid && ts <= came[i]!.ts + 1e-3, schedule);
    }
  }
});

Deno.test("simulated waits have causes, apart from messages in transit, and slices have flows", () => {
  const waitsOf = (worker: number, events: readonly TraceEvent[]) =>
    events.filter(({ cat, tid }) => cat === "wait" && tid === worker);
  const waits = waitsOf(3, eventsOf(show("1f1b", "--send", "0.5")));
  assert.deepEqual(waits.slice(0, 2).map(({ name, ts, dur }) => [name, ts, dur]), [
    ["waits for worker 2: 2F0", 0, 4000],
    ["waits for the message of worker 2: 2F0", 4000, 500],
  ]);
  const events = eventsOf(show("seq1f1b", "--slices", "2"));
  // Each slice of each micro-batch crosses three edges, forwards and backwards.
  assert.equal(events.filter(({ ph }) => ph === "s").length, 2 * 8 * 3 * 2);
  assert.equal(waitsOf(0, events)[0]!.name, "waits for worker 1: 1B0.1");
});

folderTest("a simulated trace is summed up like that of a run", async (folder) => {
  const path = join(folder, "plan.json");
  await Deno.writeTextFile(path, show("interleaved-zb", "--chunks", "3"));
  const summary = summarizeTrace(openTrace(path), path);
  assert.deepEqual([summary.schedule, summary.steps], ["interleaved-zb", 1]);
  const { bubbleRatio } = analyze(createSchedule("interleaved-zb", { ...SIZE, chunks: 3 }));
  for (const { bubble } of summary.workers) assert.ok(Math.abs(bubble - bubbleRatio) < 1e-6);
  const large = "gpipe --workers 64 --micro-batches 2049 --format trace";
  assert.throws(() => scheduleCommand(large.split(" ")), {
    name: "RangeError",
    message: "Cannot write gpipe as a trace: it must have at most 262144 actions, received 262272",
  });
});

/** A step in which two workers did something. */
function stepOf(step: number, actions = 4): TrainEvent & { type: "step" } {
  const at = 1_700_000_000_000 + 100 * step;
  const act = (name: string, i: number): TracedAction => ({
    ...{ name, start: at + 10 * i, end: at + 10 * i + 7.25, arrived: at + 10 * i - 1.5 },
    waiting: i,
  });
  const list = (stage: number) =>
    Array.from({ length: actions }, (_, i) => act(`${stage}F${i}`, i));
  const common = { loss: 1, gradNorm: 1, tokensPerSecond: 1, learningRate: 1, lossScale: 1 };
  return { type: "step", step, ...common, predictions: 1, seconds: 1, traces: [list(0), list(1)] };
}

const FAILURE = { type: "failure", step: 3, actor: "worker-1", reason: "gone", time: 5 } as const;

/** The move of a run to three workers. */
const RESIZE = {
  ...{ type: "resize", cause: "lost", actor: "worker-1", step: 4, time: 6, from: 4 } as const,
  ...{ to: { pipelines: 1, depth: 3, copies: 2 }, movedBytes: 8, retaken: 1, seconds: 1 },
};

/** Registers a test of a timeline. */
const timelineTest = (
  name: string,
  fn: (
    path: string,
    open: (more?: Partial<TimelineOptions>) => ReturnType<typeof openTimeline>,
  ) => void,
) =>
  folderTest(name, (folder) => {
    const path = join(folder, "timeline.jsonl"), announce = assert.fail;
    fn(path, (more) => openTimeline({ path, steps: 10, announce, ...more }));
    return Promise.resolve();
  });

const stepsIn = (path: string) =>
  Array.from(readTimeline(path), ({ record: { type, step } }) => `${type} ${step}`);

timelineTest("a timeline has the steps and the events of a run", (path, open) => {
  assert.deepEqual([...readTimeline(path)], [], "there is none yet");
  using timeline = open();
  timeline.see(stepOf(1));
  const [first] = readTimeline(path);
  assert.deepEqual(first!.record, { type: "step", step: 1, traces: stepOf(1).traces });
  timeline.see(stepOf(2));
  timeline.see(FAILURE);
  timeline.see(RESIZE);
  const { actor: _, ...joined } = RESIZE;
  timeline.see(joined);
  const [second, third, fourth, fifth] = readTimeline(path, first!.end);
  assert.equal(second!.record.step, 2);
  assert.deepEqual(third!.record, FAILURE);
  const reason = "lost; the run continued on 3 workers";
  assert.deepEqual(fourth!.record, { ...FAILURE, step: 4, time: 6, reason });
  const how = { step: 4, time: 6, reason: "the run continued on 3 workers" };
  assert.deepEqual(fifth!.record, { type: "joined", ...how });
  Deno.writeTextFileSync(path, '{"type":"ste', { append: true });
  assert.equal([...readTimeline(path)].length, 5, "a line that is being written is not read yet");
});

timelineTest("a resumed run removes later steps from its timeline", (path, open) => {
  {
    using timeline = open();
    for (const step of [1, 2, 3]) timeline.see(stepOf(step));
  }
  using timeline = open({ goesOnAfter: 2 });
  timeline.see(stepOf(3));
  assert.deepEqual(stepsIn(path), ["step 1", "step 2", "resumed 2", "step 3"]);
});

timelineTest("the timeline of a long run has each nth step, within its bound", (path, open) => {
  using timeline = open({ steps: 5000, bytesMax: 200_000 });
  for (let step = 1; step <= 5000; step++) timeline.see(stepOf(step));
  timeline.see(FAILURE);
  const all = Array.from(readTimeline(path), ({ record }) => record);
  const steps = all.flatMap(({ type, step }) => type === "step" ? [step] : []);
  assert.ok(Deno.statSync(path).size <= 200_000);
  assert.ok(steps.length > 100, `${steps.length} steps`);
  assert.equal(steps.at(-1), 5000);
  const gaps = new Set(steps.slice(1, -1).map((step, i) => step - steps[i]!));
  assert.equal(gaps.size, 1, "steps are equally far apart");
  assert.deepEqual(all.at(-1), FAILURE);
});

timelineTest("a huge step is passed over, strange lines are refused", (path, open) => {
  {
    using timeline = open();
    timeline.see(stepOf(1, 10_000));
    timeline.see(stepOf(2));
  }
  assert.deepEqual(stepsIn(path), ["step 2"]);
  const [line] = Deno.readTextFileSync(path).split("\n") as [string];
  const wrong = [
    line.replace('"step":2', '"step":-1'),
    line.replace('"0F0"', '"0F0x"'),
    line.replace('"0F0"', '"99999999999999999999F0"'),
    line.replace('"start":0', '"start":"0"'),
    line.replace(/"traces":\[.*\]/, '"traces":{}'),
    '{"type":"other","step":1,"time":1}',
    '{"type":"failure","step":1,"time":1,"actor":"worker-0"}',
  ];
  const refused = /^SyntaxError: Cannot read .*timeline\.jsonl: each line/;
  for (const text of wrong) {
    assert.notEqual(text, line);
    Deno.writeTextFileSync(path, text + "\n");
    assert.throws(() => [...readTimeline(path)], refused);
  }
});

folderTest("a resumed run continues the timeline of its folder", async (folder) => {
  const out = join(folder, "run"), trace = ["--out", out, "--trace", join(folder, "trace.json")];
  await trainHere([...TINY, ...trace, "--steps", "2", "--workers", "2"]);
  await trainHere([...trace, "--resume", out, "--steps", "3"]);
  const kinds = ["step 1", "step 2", "checkpoint 2", "resumed 2", "step 3", "checkpoint 3"];
  assert.deepEqual(stepsIn(join(out, "timeline.jsonl")), kinds);
  const noFile = /^Cannot write the trace to .*: it must be a writable file/;
  await refusedHere(["train", ...TINY, "--trace", folder, "--out", join(folder, "other")], noFile);
});
