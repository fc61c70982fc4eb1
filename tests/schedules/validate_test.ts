import assert from "node:assert/strict";
import {
  type Action,
  ActionList,
  analyze,
  assertValid,
  B,
  createSchedule,
  execute,
  F,
  findDeadlock,
  formatAction,
  formatCsv,
  type ListedSchedule,
  parseCsv,
  parts,
  scheduleFromLists,
  validate,
  withLists,
  withOrders,
} from "../../schedules/mod.ts";
import fc from "../fast_check.ts";
import { allCases, inWords, listed, made, refuses } from "./cases.ts";

const CASES = allCases()
  .filter(({ options }) => options.workers <= 8 && options.microBatches <= 20)
  .filter((one) => made(one)?.lists !== undefined);

/** A schedule, one of its workers that does something, and a number to choose an action by. */
const target = fc.tuple(fc.constantFrom(...CASES), fc.nat(), fc.nat()).map(([one, w, i]) => {
  const schedule = withLists(made(one)!);
  const busy = schedule.lists.flatMap((list, worker) => list.length > 0 ? [worker] : []);
  const worker = busy[w % busy.length]!;
  return { one, schedule, worker, index: i % schedule.lists[worker]!.length };
});

function changed(
  schedule: ListedSchedule,
  worker: number,
  change: (actions: Action[]) => void,
): ListedSchedule {
  const orders = schedule.lists.map((list) => [...list]);
  change(orders[worker]!);
  return withOrders(schedule, schedule.name, orders);
}

const reasons = (schedule: ListedSchedule) => validate(schedule).map(({ reason }) => reason);

/** The violations of lists in CSV. */
const violations = (csv: string) => validate(listed(csv)).map(({ message }) => message);

Deno.test("a dropped action is reported as missing, by its name", () => {
  fc.assert(fc.property(target, ({ one, schedule, worker, index }) => {
    const action = schedule.lists[worker]!.at(index)!;
    const violations = validate(changed(schedule, worker, (list) => list.splice(index, 1)));
    for (const part of parts(action)) {
      const name = formatAction(part);
      // Without its F or its I, what follows is early as well; without either half of a backward,
      // and without a lone I or W, the report names what is left of the backward.
      const found = violations.some(({ reason, message }) =>
        reason === "missing" && message === `worker ${worker} never runs ${name}`
      );
      assert.ok(
        found,
        `${inWords(one)}: ${name} is not reported, only ${JSON.stringify(violations.slice(0, 3))}`,
      );
    }
  }));
});

Deno.test("a repeated action is reported as repeated, by its name", () => {
  fc.assert(fc.property(target, fc.nat(), ({ one, schedule, worker, index }, to) => {
    const list = schedule.lists[worker]!;
    const action = list.at(index)!;
    const again = changed(schedule, worker, (actions) => {
      actions.splice(to % (actions.length + 1), 0, action);
    });
    const name = formatAction(parts(action)[0]!);
    const found = validate(again).some(({ reason, message }) =>
      reason === "repeated" && message === `worker ${worker} runs ${name} again`
    );
    assert.ok(found, `${inWords(one)}: the second ${name} is not reported`);
  }));
});

Deno.test("an action on another worker's list is reported as misplaced", () => {
  const moved = fc.property(target, fc.nat(), ({ one, schedule, worker, index }, other) => {
    const to = (worker + 1 + other % Math.max(1, schedule.workers - 1)) % schedule.workers;
    fc.pre(to !== worker);
    const orders = schedule.lists.map((list) => [...list]);
    const [action] = orders[worker]!.splice(index, 1) as [Action];
    orders[to]!.push(action);
    const found = reasons(withOrders(schedule, schedule.name, orders));
    assert.ok(found.includes("misplaced") && found.includes("missing"), inWords(one));
  });
  fc.assert(moved);
});

Deno.test("swapped actions are rejected, or the schedule can still run", () => {
  let rejected = 0;
  fc.assert(
    fc.property(target, fc.nat(), ({ one, schedule, worker, index }, by) => {
      const length = schedule.lists[worker]!.length;
      const other = (index + 1 + by % length) % length;
      const swapped = changed(schedule, worker, (list) => {
        [list[index], list[other]] = [list[other]!, list[index]!];
      });
      const violations = validate(swapped);
      const { ran } = execute(swapped);
      const isStuck = swapped.lists.some((list, w) => ran[w]! < list.length);
      if (violations.length === 0) assert.ok(!isStuck, `${inWords(one)}: a deadlock is not found`);
      for (const { reason } of violations) {
        assert.ok(
          ["order", "descending", "deadlock"].includes(reason),
          `${inWords(one)}: ${reason}`,
        );
      }
      if (isStuck) assert.ok(violations.length > 0);
      if (violations.length > 0) rejected++;
    }),
    { numRuns: 300 },
  );
  assert.ok(rejected > 50, `only ${rejected} of 300 swaps were rejected`);
});

/** Lists of a worker (or of two), and all that is wrong with them. */
const WRONG: readonly [csv: string, ...messages: string[]][] = [
  ["0F0,0F1,0B1,0B0\n1F0,1F1,1B0,1B1\n", "worker 0 runs 0B0 after a later micro-batch"],
  ["0F0,0F1,0B0.1,0B0.0,0B1.0,0B1.1\n", "worker 0 runs 0B0.0 after a later micro-batch"],
  ["0F0,0I0,0W0,0B0\n", "worker 0 runs 0B0 again"],
  ["0F0,0I0,0B0,0W0\n", "worker 0 runs 0B0 again"],
  ["0F0,0B0,0W0\n", "worker 0 runs 0W0 again"],
  ["0F0,0B0.0,0I0,0W0,0B0.1\n", "worker 0 runs 0I0 again", "worker 0 runs 0W0 again"],
  ["0F0,0W0,0I0\n", "worker 0 runs 0W0 before 0I0"],
  ["0F0,0F1,0I0,0I1,0W1,0W0\n", "worker 0 runs 0W0 after a later micro-batch"],
  ["0B0,0F0\n", "worker 0 runs 0B0 before 0F0"],
  ["0F0s0,0F0s1,0B0s1,0B0s0\n"],
  ["0F0s1,0F0s0,0B0s1,0B0s0\n", "worker 0 runs 0F0s1 before 0F0s0"],
  [
    "0F0s0,0F0s1,0B0s0,0B0s1\n",
    "worker 0 runs 0B0s0 before 0B0s1",
    "worker 0 runs 0B0s1 after a later micro-batch",
  ],
  ["0F0s0,0F0s1,0I0s1,0I0s0,0W0s1,0W0s0\n"],
  ["0F0s0,0F0s1,0B0s1\n", "worker 0 never runs 0B0s0"],
  ["0F0,0R0,0B0\n"],
  ["0R0,0F0,0B0\n", "worker 0 runs 0R0 before 0F0"],
  ["0F0,0B0,0R0\n", "worker 0 runs 0R0 after its backward"],
  ["0F0,0I0,0R0,0W0\n", "worker 0 runs 0R0 after its backward"],
  [
    "0F0,0R0,0R0,0B0\n",
    "worker 0 runs 0R0 again",
    "worker 0 holds more than 1 activations",
  ],
];

Deno.test("validation names each action that is repeated, missing, early or out of order", () => {
  for (const [csv, ...messages] of WRONG) assert.deepEqual(violations(csv), messages, csv);
  const many = listed("0F0,0F1,0F2,0F3,0F4,0F5,0F6\n");
  refuses(() => assertValid(many), /never runs 0B4; and 2 more$/);
});

Deno.test("a recomputation takes time and holds the activation that it brings back", () => {
  const peak = (csv: string) => analyze(listed(csv));
  assert.deepEqual(peak("0F0,0F1,0B0,0B1\n").peakActivations, [2]);
  const recomputed = peak("0F0,0F1,0R0,0B0,0R1,0B1\n");
  assert.deepEqual(recomputed.peakActivations, [1]);
  assert.equal(recomputed.makespan, 8); // F, R = 1, B = 2
});

Deno.test("a deadlock is the circle of actions that wait for each other, worker by worker", () => {
  const three = scheduleFromLists(
    "three",
    parseCsv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n"),
  );
  const [violation] = validate(three);
  assert.equal(violation?.reason, "deadlock");
  assert.equal(
    violation?.message,
    "worker 0 waits at 0B0 for 1B0, which worker 1 runs after 1F1; " +
      "worker 1 waits at 1F1 for 0F1, which worker 0 runs after 0B0",
  );
  refuses(() => assertValid(three), /Cannot run .* waits at/);
});

Deno.test("a circle of three workers names all three", () => {
  const lists = parseCsv([
    "0F0,0F1,0B0,0B1,0F2,0B2",
    "1F0,1F1,1F2,1B0,1B1,1B2",
    "2F0,2B0,2F1,2F2,2B1,2B2",
  ].join("\n"));
  const [violation] = validate(scheduleFromLists("circle", lists));
  assert.equal(violation?.reason, "deadlock");
  assert.match(violation!.message, /worker 0 waits at 0B0 for 1B0, which worker 1 runs after 1F2/);
  assert.match(violation!.message, /worker 1 waits at 1F2 for 0F2, which worker 0 runs after 0B0/);
});

Deno.test("an overlap whose halves wait for each other deadlocks with itself", () => {
  const schedule = scheduleFromLists("self", parseCsv("0F0&0B0\n"));
  assert.deepEqual(reasons(schedule), ["deadlock"]);
});

Deno.test("more activations than allowed are reported once for each worker", () => {
  const schedule = withLists(createSchedule("gpipe", { workers: 2, microBatches: 4 }));
  const violations = validate(schedule, { activations: 3 });
  assert.deepEqual(violations.map(({ message }) => message), [
    "worker 0 holds more than 3 activations",
    "worker 1 holds more than 3 activations",
  ]);
});

Deno.test("a stage or micro-batch that the schedule does not have is reported", () => {
  const schedule = withLists(createSchedule("gpipe", { workers: 1, microBatches: 1 }));
  const lists = [ActionList.from([F(0, 0), B(0, 0), F(0, 1), F(3, 0)])];
  const unknown = validate({ ...schedule, lists }).filter(({ reason }) => reason === "unknown");
  assert.deepEqual(unknown.map(({ message }) => message), [
    "worker 0 runs 0F1 of a schedule of 1 stages and 1 micro-batches",
    "worker 0 runs 3F0 of a schedule of 1 stages and 1 micro-batches",
  ]);
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
