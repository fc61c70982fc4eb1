import assert from "node:assert/strict";
import {
  type Action,
  ActionList,
  analyze,
  B,
  createSchedule,
  execute,
  F,
  findDeadlock,
  formatAction,
  formatCsv,
  type ListedSchedule,
  validate,
  withLists,
  withOrders,
} from "../../schedules/mod.ts";
import { parts } from "../../schedules/action.ts";
import { assertRefusals } from "../console/refusals.ts";
import fc, { forAll } from "../fast_check.ts";
import { FOUR, inWords, listed, made, sentenceOf, servedCases, sized } from "./cases.ts";

const CASES = servedCases(({ workers, microBatches }) => workers <= 8 && microBatches <= 20)
  .filter((one) => made(one)!.lists);

/** A schedule, one of its workers with actions, and a number that chooses an action. */
const target = fc.tuple(fc.constantFrom(...CASES), fc.nat(), fc.nat()).map(([one, w, i]) => {
  const schedule = withLists(made(one)!);
  const busy = schedule.lists.flatMap((list, worker) => list.length > 0 ? [worker] : []);
  const worker = busy[w % busy.length]!, index = i % schedule.lists[worker]!.length;
  return { where: inWords(one), schedule, worker, index };
});

/** The violations of a schedule, each as its reason and its message. */
const wrongWith = (schedule: ListedSchedule) =>
  validate(schedule).map(({ reason, message }) => `${reason}: ${message}`);

/** The violations of a schedule after a change of its orders. */
function wrongAfter(schedule: ListedSchedule, change: (orders: Action[][]) => void): string[] {
  const orders = schedule.lists.map((list) => [...list]);
  change(orders);
  return wrongWith(withOrders(schedule, schedule.name, orders));
}

Deno.test("a dropped action is reported as missing, by its name", () =>
  forAll(100, [target], ({ where, schedule, worker, index }) => {
    const action = schedule.lists[worker]!.at(index)!;
    const wrong = wrongAfter(schedule, (orders) => orders[worker]!.splice(index, 1));
    // Without its F or its I, the following actions are early as well.
    for (const name of parts(action).map(formatAction)) {
      const isFound = wrong.includes(`missing: worker ${worker} never runs ${name}`);
      assert.ok(isFound, `${where}: ${name} is not reported, only ${wrong.slice(0, 3)}`);
    }
  }));

Deno.test("a repeated action is reported as repeated, by its name", () =>
  forAll(100, [target, fc.nat()], ({ where, schedule, worker, index }, to) => {
    const action = schedule.lists[worker]!.at(index)!, name = formatAction(parts(action)[0]!);
    const wrong = wrongAfter(schedule, ({ [worker]: list }) => {
      list!.splice(to % (list!.length + 1), 0, action);
    });
    assert.ok(wrong.includes(`repeated: worker ${worker} runs ${name} again`), `${where}: ${name}`);
  }));

Deno.test("an action on another worker's list is reported as misplaced", () =>
  forAll(100, [target, fc.nat()], ({ where, schedule, worker, index }, other) => {
    const to = (worker + 1 + other % Math.max(1, schedule.workers - 1)) % schedule.workers;
    fc.pre(to !== worker);
    const move = (orders: Action[][]) => orders[to]!.push(...orders[worker]!.splice(index, 1));
    const wrong = wrongAfter(schedule, move).join();
    assert.ok(wrong.includes("misplaced: ") && wrong.includes("missing: "), where);
  }));

Deno.test("swapped actions are rejected, or the schedule can still run", async () => {
  let rejected = 0;
  await forAll(300, [target, fc.nat()], ({ where, schedule, worker, index }, by) => {
    const orders = schedule.lists.map((list) => [...list]), list = orders[worker]!;
    const other = (index + 1 + by % list.length) % list.length;
    [list[index], list[other]] = [list[other]!, list[index]!];
    const swapped = withOrders(schedule, schedule.name, orders), violations = validate(swapped);
    const { ran } = execute(swapped);
    const isStuck = swapped.lists.some(({ length }, w) => ran[w]! < length);
    assert.ok(!isStuck || violations.length > 0, `${where}: a deadlock is not found`);
    for (const { reason } of violations) {
      assert.ok(["order", "descending", "deadlock"].includes(reason), `${where}: ${reason}`);
    }
    rejected += Number(violations.length > 0);
  });
  assert.ok(rejected > 50, `only ${rejected} of 300 swaps were rejected`);
});

Deno.test("validation names each action that is repeated, missing, early, out of order or in a circle", () =>
  assertRefusals("lists", (words) => {
    const csv = words.map((row) => `${row}\n`).join("");
    return sentenceOf(() => wrongWith(listed(csv)).join("\n"));
  }));

Deno.test("a slice that waits for a later slice of its worker is a deadlock", () => {
  const lists = listed("0F0.0,0F0.1,0B0.1,0B0.0\n1F0.0,1F0.1,1B0.0,1B0.1\n");
  const message = "worker 1 waits at 1B0.0 for 1B0.1, which worker 1 runs after 1B0.0";
  assert.equal(findDeadlock(lists)[0]?.message, message);
});

Deno.test("a recomputation takes time and holds its activation, and the backward of its stage waits for it", () => {
  const peak = (csv: string) => analyze(listed(csv));
  assert.deepEqual(peak("0F0,0F1,0B0,0B1\n").peakActivations, [2]);
  const recomputed = peak("0F0,0F1,0R0,0B0,0R1,0B1\n");
  assert.deepEqual(recomputed.peakActivations, [1]);
  assert.equal(recomputed.makespan, 8); // F, R = 1, B = 2
  const { timeline } = analyze(listed("0F0,0R0,0B0\n1F0,1R0,1B0\n")).execution;
  assert.deepEqual(timeline.starts.map((own) => [...own]), [[0, 1, 5], [1, 2, 3]]);
});

Deno.test("more activations than allowed are reported once for each worker", () => {
  const violations = validate(withLists(sized("gpipe", 2, 4)), { activations: 3 });
  assert.deepEqual(violations.map(({ message }) => message), [
    "worker 0 holds more than 3 activations",
    "worker 1 holds more than 3 activations",
  ]);
});

Deno.test("an unknown stage or micro-batch is reported", () => {
  const schedule = withLists(sized("gpipe", 1, 1));
  const lists = [ActionList.from([F(0, 0), B(0, 0), F(0, 1), F(3, 0)])];
  const unknown = validate({ ...schedule, lists }).filter(({ reason }) => reason === "unknown");
  assert.deepEqual(unknown.map(({ message }) => message), [
    "worker 0 runs 0F1 of a schedule of 1 stages and 1 micro-batches",
    "worker 0 runs 3F0 of a schedule of 1 stages and 1 micro-batches",
  ]);
});

/** Schedules of slices: the equivalent for one slice, the slices, and measures of worker 0. */
const SLICED = [
  ["seq1f1b", "1f1b", [1, 2, 4, 8], [9, 4.5, 2.25, 1.125], [4, 2.5, 1.75, 1.375]],
  ["seq1f1b-zb", "zb-h1", [1, 2, 4, 8], [3, 1.5, 0.75, 0.375], [4, 2.5, 1.75, 1.375]],
  ["terapipe", "gpipe", [1, 2, 4, 8], [9, 4.5, 2.25, 1.125], [8, 8, 8, 8]],
  ["slimpipe", "interleaved", [4, 8, 16], [1.125, 0.5625, 0.28125], [1.75, 1.375, 1.1875]],
] as const;

Deno.test("more slices give shorter bubbles and fewer activations, and one slice is a whole micro-batch", () => {
  for (const [name, origin, slices, idle, peaks] of SLICED) {
    const csv = (name: string) => formatCsv(withLists(createSchedule(name, FOUR)).lists);
    assert.equal(csv(name), csv(origin), name);
    const all = slices.map((slices) => analyze(createSchedule(name, { ...FOUR, slices })));
    assert.deepEqual(all.map(({ idle }) => idle[0]), idle, name);
    assert.deepEqual(all.map(({ peakActivations }) => peakActivations[0]), peaks, name);
  }
});
