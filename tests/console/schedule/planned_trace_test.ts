import { Validator } from "@cfworker/json-schema";
import assert from "node:assert/strict";
import { scheduleCommand } from "../../../console/mod.ts";
import { openTrace } from "../../../console/trace/read_trace.ts";
import { summarizeTrace } from "../../../console/trace/trace_summary.ts";
import {
  analyze,
  createSchedule,
  formatAction,
  scheduleDefinitions,
} from "../../../schedules/mod.ts";
import { inFolder } from "../../in_folder.ts";
import { isNear } from "../../schedules/cases.ts";
import { TRACE_SCHEMA, type TraceEvent } from "../trace/trace_schema.ts";

const SIZE = { workers: 4, microBatches: 8 };
const show = (name: string, flags = "") =>
  scheduleCommand(
    `${name} --workers 4 --micro-batches 8 --format trace ${flags}`.trim().split(" "),
  ).output;

for (const { name } of scheduleDefinitions) {
  Deno.test(`a trace of ${name} on paper follows the schema, and has its actions, bubbles, messages and activations`, () => {
    const events = JSON.parse(show(name)) as TraceEvent<number>[];
    const { valid, errors } = new Validator(TRACE_SCHEMA).validate(events);
    assert.deepEqual([valid, errors], [true, []]);
    const { schedule, makespan, idle, peakActivations } = analyze(createSchedule(name, SIZE));
    for (const [worker, list] of schedule.lists.entries()) {
      const own = events.filter(({ pid, tid }) => pid === 1 && tid === worker);
      const work = own.filter(({ ph, cat }) => ph === "X" && cat !== "wait");
      assert.deepEqual(work.map(({ name }) => name), Array.from(list, formatAction));
      const waits = own.filter(({ cat }) => cat === "wait");
      const waited = waits.reduce((sum, { dur }) => sum + dur, 0) / 1000;
      assert.ok(Math.abs(waited - idle[worker]!) < 1e-3, `worker ${worker} waits for ${waited}`);
      const ends = [...work, ...waits].map(({ ts, dur }) => ts + dur);
      assert.ok(Math.abs(Math.max(...ends) / 1000 - makespan) < 1e-3);
      const curve = own.filter(({ ph }) => ph === "C").map(({ args }) => args.activations!);
      assert.ok(isNear(Math.max(...curve), peakActivations[worker]!), `worker ${worker}`);
      assert.equal(curve.at(-1), 0);
    }
    const sent = events.filter(({ ph }) => ph === "s"),
      came = events.filter(({ ph }) => ph === "f");
    assert.equal(sent.length, came.length);
    for (const [i, { id, tid, ts }] of sent.entries()) {
      assert.equal(id, came[i]!.id);
      assert.ok(tid !== came[i]!.tid && ts <= came[i]!.ts + 1e-3);
    }
  });
}

Deno.test("what a worker waits for on paper is told, the message on its way apart", () => {
  const events = JSON.parse(show("1f1b", "--send 0.5")) as TraceEvent<number>[];
  const waits = events.filter(({ cat, tid }) => cat === "wait" && tid === 3);
  assert.deepEqual(waits.slice(0, 2).map(({ name, ts, dur }) => [name, ts, dur]), [
    ["waits for worker 2: 2F0", 0, 4000],
    ["waits for the message of worker 2: 2F0", 4000, 500],
  ]);
});

Deno.test("a trace of slices has their flows, slice by slice", () => {
  const events = JSON.parse(show("seq1f1b", "--slices 2")) as TraceEvent<number>[];
  // Each slice of each micro-batch crosses three edges, forwards and backwards.
  assert.equal(events.filter(({ ph }) => ph === "s").length, 2 * 8 * 3 * 2);
  const waits = events.filter(({ cat, tid }) => cat === "wait" && tid === 0);
  assert.equal(waits[0]!.name, "waits for worker 1: 1B0s1");
});

Deno.test("a trace on paper is summed up as one of a run", () =>
  inFolder(async (folder) => {
    const path = `${folder}/plan.json`;
    await Deno.writeTextFile(path, show("interleaved-zb", "--chunks 3"));
    const summary = summarizeTrace(openTrace(path), path);
    assert.deepEqual([summary.schedule, summary.steps], ["interleaved-zb", 1]);
    const { bubbleRatio } = analyze(createSchedule("interleaved-zb", { ...SIZE, chunks: 3 }));
    for (const { bubble } of summary.workers) assert.ok(Math.abs(bubble - bubbleRatio) < 1e-6);
  }));

Deno.test("a schedule of more actions than a viewer shows is no trace", () => {
  const large = "gpipe --workers 64 --micro-batches 2049 --format trace";
  assert.throws(() => scheduleCommand(large.split(" ")), {
    name: "RangeError",
    message: "Cannot write gpipe as a trace: it must have at most 262144 actions, received 262272",
  });
});
