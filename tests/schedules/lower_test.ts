import assert from "node:assert/strict";
import fc from "../fast_check.ts";
import {
  addTransfers,
  createSchedule,
  formatLowered,
  lower,
  type LoweredAction,
  parseCsv,
  scheduleFromLists,
  unmatchedTransfers,
  withLists,
} from "../../schedules/mod.ts";
import { allCases, inWords, made } from "./cases.ts";

const CASES = allCases().filter(({ options: { workers, microBatches } }) =>
  workers <= 8 && microBatches <= 24
);

Deno.test("every message of every schedule is sent and received once, in one order", () => {
  fc.assert(
    fc.property(fc.constantFrom(...CASES), (one) => {
      const plain = made(one);
      fc.pre(plain !== undefined);
      const schedule = withLists(plain!);
      const lowered = schedule.lists.map((_, worker) => [...lower(schedule, worker)]);
      assert.deepEqual(unmatchedTransfers(lowered), [], inWords(one));
      const sends = lowered.flat().filter(({ kind }) => kind === "SEND_F").length;
      const hosts = schedule.placement.flatMap((held, worker) =>
        held.map(({ stage, replica }) => ({ stage, replica, worker }))
      );
      const expected = schedule.replicaOf.reduce((sum, replica) => {
        const way = hosts.filter((one) => one.replica === replica)
          .sort((a, b) => a.stage - b.stage);
        return sum + way.filter(({ worker }, s) => s > 0 && worker !== way[s - 1]!.worker).length;
      }, 0);
      assert.equal(sends, expected, `${inWords(one)}: messages of the forwards`);
    }),
    { numRuns: 300 },
  );
});

Deno.test("without one of its messages a list is reported, whichever end it was", () => {
  const schedule = withLists(createSchedule("chimera", { workers: 4, microBatches: 4 }));
  const lowered = schedule.lists.map((_, worker) => [...lower(schedule, worker)]);
  lowered.forEach((list, worker) =>
    list.forEach((action, index) => {
      if (!("peer" in action)) return;
      const without = lowered.map((other, w) => w === worker ? list.toSpliced(index, 1) : other);
      const [violation, ...more] = unmatchedTransfers(without);
      assert.equal(more.length, 0);
      const verb = action.kind.startsWith("SEND") ? "awaits" : "sends";
      const direction = action.kind.endsWith("F") ? 1 : -1;
      const stage = verb === "awaits" ? action.stage + direction : action.stage - direction;
      const name = `${stage}${verb === "awaits" ? "RECV" : "SEND"}_${action.kind.at(-1)}`;
      assert.match(violation!.message, new RegExp(`worker ${action.peer} ${verb} ${name}`));
    })
  );
});

Deno.test("messages received in another order than they are sent are reported", () => {
  const send = (microBatch: number): LoweredAction => ({
    kind: "SEND_F",
    stage: 0,
    microBatch,
    peer: 1,
  });
  const receive = (microBatch: number): LoweredAction => ({
    kind: "RECV_F",
    stage: 1,
    microBatch,
    peer: 0,
  });
  const found = unmatchedTransfers([[send(0), send(1)], [receive(1), receive(0)]]);
  assert.deepEqual(found.map(({ message }) => message), [
    "worker 1 awaits 1RECV_F1 in another order than worker 0 sends",
  ]);
});

Deno.test("halves of a gradient are messages of their own", () => {
  const schedule = scheduleFromLists("halves", parseCsv("0F0,0B0\n1F0,1B0.0,1B0.1\n"));
  const lists = [0, 1].map((
    worker,
  ) => [...addTransfers(schedule, worker, schedule.lists[worker]!)]);
  assert.deepEqual(lists.map((list) => list.map(formatLowered).join()), [
    "0F0,0SEND_F0,0RECV_B0.0,0RECV_B0.1,0B0",
    "1RECV_F0,1F0,1B0.0,1SEND_B0.0,1B0.1,1SEND_B0.1",
  ]);
  assert.deepEqual(unmatchedTransfers(lists), []);
});

Deno.test("stages that are neighbours on one worker send no message", () => {
  const schedule = withLists(createSchedule("hanayo", { workers: 2, microBatches: 2 }));
  const text = [...lower(schedule, 1)].map(formatLowered).join();
  assert.match(text, /1F0,2F0/);
  assert.doesNotMatch(text, /1SEND_F|2RECV_F|2SEND_B|1RECV_B/);
});

Deno.test("a copy of a stage is reduced after its last gradient, and stepped once at the end", () => {
  const cases = CASES.filter(({ name }) =>
    name.startsWith("chimera") || name.startsWith("dualpipe")
  );
  fc.assert(fc.property(fc.constantFrom(...cases), (one) => {
    const plain = made(one);
    fc.pre(plain !== undefined);
    const schedule = withLists(plain!);
    const copies = new Set(schedule.placement.flat().map(({ replica }) => replica)).size;
    schedule.placement.forEach((held, worker) => {
      const names = [...lower(schedule, worker)].map(formatLowered);
      for (const { stage, replica } of held) {
        assert.equal(names.filter((name) => name === `${stage}STEP${replica}`).length, 1);
        const own = schedule.replicaOf.flatMap((of, m) => of === replica ? [m] : []);
        if (own.length === 0) continue;
        const reduce = names.indexOf(`${stage}REDUCE_GRAD${replica}`);
        assert.equal(reduce >= 0, copies > 1, inWords(one));
        const isGradient = (name: string) =>
          own.some((m) => new RegExp(`(^|&)${stage}[BW]${m}([.&]|$)`).test(name));
        const last = names.findLastIndex(isGradient);
        if (copies > 1) assert.ok(reduce > last && last >= 0, `${inWords(one)}: reduced too early`);
      }
    });
  }));
});

Deno.test("PipeDream steps after every backward", () => {
  const schedule = withLists(createSchedule("pipedream", { workers: 2, microBatches: 2 }));
  const text = [...lower(schedule, 1)].map(formatLowered).join();
  assert.equal(text, "1RECV_F0,1F0,1B0,1SEND_B0,1STEP0,1RECV_F1,1F1,1B1,1SEND_B1,1STEP0");
});
