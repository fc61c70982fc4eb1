import assert from "node:assert/strict";
import fc from "../fast_check.ts";
import {
  type Action,
  ActionList,
  assertValid,
  B,
  createSchedule,
  execute,
  F,
  formatAction,
  type ListedSchedule,
  parseCsv,
  parts,
  scheduleFromLists,
  validate,
  type ViolationReason,
  withLists,
  withOrders,
} from "../../schedules/mod.ts";
import { allCases, inWords, made } from "./cases.ts";

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

function reasons(schedule: ListedSchedule): ViolationReason[] {
  return validate(schedule).map(({ reason }) => reason);
}

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
  assert.throws(() => assertValid(three), {
    name: "RangeError",
    message: /Cannot run .* waits at/,
  });
});

Deno.test("a sum out of order is reported even where nothing gets stuck", () => {
  const schedule = scheduleFromLists("mine", parseCsv("0F0,0F1,0B1,0B0\n1F0,1F1,1B0,1B1\n"));
  assert.deepEqual(validate(schedule).map(({ message }) => message), [
    "worker 0 runs 0B0 after a later micro-batch",
  ]);
});

Deno.test("the second half of a backward before the first is a sum out of order", () => {
  const schedule = scheduleFromLists("mine", parseCsv("0F0,0F1,0B0.1,0B0.0,0B1.0,0B1.1\n"));
  assert.deepEqual(validate(schedule).map(({ reason, message }) => [reason, message]), [
    ["descending", "worker 0 runs 0B0.0 after a later micro-batch"],
  ]);
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
