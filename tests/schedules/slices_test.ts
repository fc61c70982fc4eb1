import assert from "node:assert/strict";
import {
  analyze,
  createSchedule,
  findDeadlock,
  formatCsv,
  parseCsv,
  scheduleFromLists,
  validate,
  withLists,
} from "../../schedules/mod.ts";

/** What is wrong with lists. */
const reasons = (csv: string) =>
  validate(scheduleFromLists("mine", parseCsv(csv))).map(({ message }) => message);

Deno.test("slices of a micro-batch run forwards in order and backwards in reverse", () => {
  assert.deepEqual(reasons("0F0s0,0F0s1,0B0s1,0B0s0\n"), []);
  assert.deepEqual(reasons("0F0s1,0F0s0,0B0s1,0B0s0\n"), ["worker 0 runs 0F0s1 before 0F0s0"]);
  assert.deepEqual(reasons("0F0s0,0F0s1,0B0s0,0B0s1\n"), [
    "worker 0 runs 0B0s0 before 0B0s1",
    "worker 0 runs 0B0s1 after a later micro-batch",
  ]);
  assert.deepEqual(reasons("0F0s0,0F0s1,0I0s1,0I0s0,0W0s1,0W0s0\n"), []);
  assert.deepEqual(reasons("0F0s0,0F0s1,0B0s1\n"), ["worker 0 never runs 0B0s0"]);
});

Deno.test("a slice that waits for a later one of its own worker is a deadlock that is told", () => {
  const lists = parseCsv("0F0s0,0F0s1,0B0s1,0B0s0\n1F0s0,1F0s1,1B0s0,1B0s1\n");
  const [stuck] = findDeadlock(scheduleFromLists("mine", lists));
  assert.equal(
    stuck?.message,
    "worker 1 waits at 1B0s0 for 1B0s1, which worker 1 runs after 1B0s0",
  );
});

Deno.test("lists of slices are read as they are written, and take less than whole micro-batches", () => {
  const options = { workers: 4, microBatches: 8 };
  const whole = analyze(createSchedule("1f1b", options));
  const cut = analyze(createSchedule("seq1f1b", { ...options, slices: 4 }));
  assert.equal(cut.makespan - 24, (whole.makespan - 24) / 4); // 24 of work
  assert.deepEqual([whole.peakActivations[0], cut.peakActivations[0]], [4, 7 / 4]);
  const csv = formatCsv(cut.schedule.lists);
  const read = scheduleFromLists("mine", parseCsv(csv));
  assert.equal(read.slices, 4);
  assert.equal(formatCsv(read.lists), csv);
  assert.equal(analyze(read).makespan, cut.makespan);
});

Deno.test("a recomputation stands between a forward and its backward, and holds what it brings back", () => {
  assert.deepEqual(reasons("0F0,0R0,0B0\n"), []);
  assert.deepEqual(reasons("0R0,0F0,0B0\n"), ["worker 0 runs 0R0 before 0F0"]);
  assert.deepEqual(reasons("0F0,0B0,0R0\n"), ["worker 0 runs 0R0 after its backward"]);
  const peak = (csv: string) => analyze(scheduleFromLists("mine", parseCsv(csv)));
  assert.deepEqual(peak("0F0,0F1,0B0,0B1\n").peakActivations, [2]);
  const recomputed = peak("0F0,0F1,0R0,0B0,0R1,0B1\n");
  assert.deepEqual(recomputed.peakActivations, [1]);
  assert.equal(recomputed.makespan, 8); // F, R = 1, B = 2
});

Deno.test("a backward waits for the recomputation of its own stage only", () => {
  const { schedule, execution } = analyze(withLists(scheduleFromLists(
    "mine",
    parseCsv("0F0,0R0,0B0\n1F0,1R0,1B0\n"),
  )));
  assert.equal(schedule.stages, 2);
  assert.deepEqual(execution.timeline.starts.map((own) => [...own]), [[0, 1, 5], [1, 2, 3]]);
});

Deno.test("with one slice an order over slices is that which it is made from", () => {
  const options = { workers: 4, microBatches: 8 };
  const origins = {
    seq1f1b: "1f1b",
    "seq1f1b-zb": "zb-h1",
    terapipe: "gpipe",
    slimpipe: "interleaved",
  };
  for (const [name, origin] of Object.entries(origins)) {
    const csv = (name: string) => formatCsv(withLists(createSchedule(name, options)).lists);
    assert.equal(csv(name), csv(origin), name);
  }
});

Deno.test("more slices are shorter bubbles and fewer activations, down to those of one micro-batch", () => {
  const measure = (name: string, slices: number) => {
    const options = { workers: 4, microBatches: 8, slices };
    const { idle, peakActivations } = analyze(createSchedule(name, options));
    return [idle[0], peakActivations[0]];
  };
  assert.deepEqual([1, 2, 4, 8].map((slices) => measure("terapipe", slices)), [
    [9, 8],
    [4.5, 8],
    [2.25, 8],
    [1.125, 8],
  ]);
  assert.deepEqual([1, 2, 4, 8].map((slices) => measure("seq1f1b", slices)), [
    [9, 4],
    [4.5, 2.5],
    [2.25, 1.75],
    [1.125, 1.375],
  ]);
  assert.deepEqual([1, 2, 4, 8].map((slices) => measure("seq1f1b-zb", slices)), [
    [3, 4],
    [1.5, 2.5],
    [0.75, 1.75],
    [0.375, 1.375],
  ]);
  assert.deepEqual([4, 8, 16].map((slices) => measure("slimpipe", slices)), [
    [1.125, 1.75],
    [0.5625, 1.375],
    [0.28125, 1.1875],
  ]);
});
