import assert from "node:assert/strict";
import {
  type Action,
  ActionList,
  analyze,
  B,
  type Costs,
  createSchedule,
  edgesOfParts,
  execute,
  F,
  findDeadlock,
  formatAction,
  type ListedSchedule,
  makespanLowerBound,
  modelOfCosts,
  parseCsv,
  type Schedule,
  scheduleDefinitions,
  scheduleFromLists,
  simulateStep,
  type SkipEdge,
  smallerSchedule,
  validate,
  withEdges,
  withLists,
  withOrders,
  withRecomputation,
} from "../../../schedules/mod.ts";
import { greedyOrder } from "../../../schedules/search/greedy.ts";
import { workloadOf } from "../../../schedules/search/workload.ts";
import fc from "../../fast_check.ts";
import { isNear } from "../cases.ts";

const OPTIONS = { workers: 4, microBatches: 8 };

/** Every schedule, with slices where it cuts sequences. */
const SCHEDULES: readonly Schedule[] = scheduleDefinitions
  .filter(({ name }) => name !== "search")
  .map(({ name, reads = [] }) =>
    createSchedule(name, { ...OPTIONS, ...reads.includes("slices") && { slices: 2 } })
  );

/** Halves and doubled forwards, too. */
const CHIMERAS = (["doubling", "halving"] as const).map((scale) =>
  createSchedule("chimera", { ...OPTIONS, scale })
);

/** Any skip edges between so many stages, the values of which go to later ones. */
function anyEdges(stages: number): fc.Arbitrary<SkipEdge[]> {
  const edge = fc.integer({ min: 0, max: stages - 2 }).chain((from) =>
    fc.record({
      from: fc.constant(from),
      to: fc.uniqueArray(fc.integer({ min: from + 1, max: stages - 1 }), {
        minLength: 1,
        maxLength: 3,
      }).map((to) => to.sort((a, b) => a - b)),
      hasGradient: fc.boolean(),
      bytes: fc.integer({ min: 0, max: 100 }),
    })
  );
  return fc.array(edge, { minLength: 1, maxLength: 4 });
}

const anyLinked = fc.constantFrom(...SCHEDULES, ...CHIMERAS).chain((chain) =>
  anyEdges(chain.stages).map((edges) => ({ chain, edges }))
);

const inWords = ({ chain, edges }: { chain: Schedule; edges: readonly SkipEdge[] }) =>
  `${chain.name} ${JSON.stringify(edges)}`;

Deno.test("with values that go to later stages every schedule is valid, and as long where messages take no time", () => {
  fc.assert(fc.property(anyLinked, (linked) => {
    const { chain, edges } = linked, schedule = withEdges(chain, edges);
    const { makespan, schedule: listed } = analyze(schedule);
    const kinds = validate(listed).filter(({ reason }) => reason !== "descending");
    assert.deepEqual(kinds, [], inWords(linked));
    assert.equal(makespan, analyze(chain).makespan, inWords(linked));
  }));
});

Deno.test("a value that takes no longer than the message between a stage and the next holds nobody up", () => {
  fc.assert(fc.property(anyLinked, fc.double({ min: 0, max: 4, noNaN: true }), (linked, send) => {
    const listed = withLists(linked.chain, { send }), schedule = withEdges(listed, linked.edges);
    assert.equal(analyze(schedule, { send }).makespan, analyze(listed, { send }).makespan);
  }));
});

Deno.test("values that take longer make no step shorter, and the simulation of a step as long as its execution", () => {
  const times = fc.record({
    send: fc.double({ min: 0, max: 3, noNaN: true }),
    skip: fc.double({ min: 0, max: 9, noNaN: true }),
  });
  fc.assert(fc.property(anyLinked, times, (linked, costs) => {
    const listed = withLists(linked.chain, costs), schedule = withEdges(listed, linked.edges);
    const { makespan } = analyze(schedule, costs), chain = analyze(listed, costs).makespan;
    assert.ok(makespan > chain || isNear(makespan, chain), inWords(linked));
    const simulated = simulateStep(modelOfCosts(schedule, costs)).makespanMs;
    assert.ok(isNear(makespan, simulated), `${inWords(linked)}: ${makespan}, ${simulated}`);
  }));
});

Deno.test("no action starts before what comes to it over skip edges", () => {
  const costs = { send: 0.5, skip: 3 };
  fc.assert(fc.property(anyLinked, (linked) => {
    const schedule = withEdges(withLists(linked.chain, costs), linked.edges);
    const ran = timesOf(schedule, costs);
    for (const { from, to, hasGradient } of linked.edges) {
      for (let m = 0; m < schedule.microBatches; m++) {
        to.forEach((user, i) => {
          const before = to[i - 1] ?? from;
          const forward = { kind: "F", giver: from, taker: user };
          const backward = { kind: "B", giver: user, taker: before };
          for (const { kind, giver, taker } of hasGradient ? [forward, backward] : [forward]) {
            const gives = ran(kind, giver, m), takes = ran(kind, taker, m);
            const way = gives.worker === takes.worker ? 0 : costs.skip / (schedule.slices ?? 1);
            gives.ends.forEach((end, slice) => {
              const start = takes.starts[slice] ?? takes.starts[0]!;
              assert.ok(start >= end + way - 1e-9, `${inWords(linked)}: ${kind} of ${taker}, ${m}`);
            });
          }
        });
      }
    }
  }));
});

/** When F, and B or I, of a stage of a micro-batch ran, its slices and halves in order. */
function timesOf(schedule: ListedSchedule, costs: { send: number; skip: number }) {
  const { timeline: { starts, ends } } = execute(schedule, costs);
  const found = new Map<string, { worker: number; starts: number[]; ends: number[] }>();
  schedule.lists.forEach((list, worker) => {
    for (let index = 0; index < list.length; index++) {
      for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
        const kind = "FBB"[list.kindAt(part)];
        const key = `${kind} ${list.stageAt(part)} ${list.microBatchAt(part)}`;
        const times = found.get(key) ?? { worker, starts: [], ends: [] };
        const place = list.sliceAt(part) + Math.max(0, list.halfAt(part) - 1);
        times.starts[place] = starts[worker]![index]!;
        times.ends[place] = ends[worker]![index]!;
        found.set(key, times);
      }
    }
  });
  return (kind: string, stage: number, m: number) => found.get(`${kind} ${stage} ${m}`)!;
}

Deno.test("gradients of a value go from the last stage that uses it to the one before, and so to its maker", () => {
  const chain = createSchedule("gpipe", { workers: 4, microBatches: 1 });
  const edges = [{ from: 0, to: [2, 3] }];
  const { starts } = analyze(withEdges(chain, edges), { skip: 10 }).execution.timeline;
  // 3B0 ends at 15: its gradient is at stage 2 at 25, and the sum of both at stage 0 at 37.
  assert.deepEqual(starts.map((own) => [...own]), [[0, 37], [1, 27], [11, 25], [12, 13]]);
});

Deno.test("of two stages that a backward waits for one may give halves, and the other all at once", () => {
  const halves = ["0F0,0B0.0,0B0.1\n", "1F0,1B0.0,1B0.1\n", "2F0,2B0.0,2B0.1\n"];
  const whole = ["0F0,0B0\n", "1F0,1B0\n", "2F0,2B0\n"];
  const lists = fc.tuple(fc.boolean(), fc.boolean(), fc.boolean());
  const times = fc.record({
    send: fc.double({ min: 0, max: 4, noNaN: true }),
    skip: fc.double({ min: 0, max: 8, noNaN: true }),
  });
  fc.assert(fc.property(lists, times, (isHalved, costs) => {
    const rows = isHalved.map((one, stage) => (one ? halves : whole)[stage]).join("");
    const schedule = withEdges(scheduleFromLists("mine", parseCsv(rows)), [{ from: 0, to: [2] }]);
    const { makespanMs } = simulateStep(modelOfCosts(schedule, costs));
    assert.ok(isNear(makespanMs, analyze(schedule, costs).makespan));
  }));
});

Deno.test("a value that goes to an earlier stage is refused with the circle of actions", () => {
  const anyBackEdge = fc.constantFrom(...SCHEDULES).chain((chain) =>
    fc.record({
      chain: fc.constant(chain),
      to: fc.integer({ min: 0, max: chain.stages - 2 }),
      by: fc.integer({ min: 1, max: chain.stages - 1 }),
    })
  ).filter(({ chain, to, by }) => to + by < chain.stages);
  fc.assert(fc.property(anyBackEdge, ({ chain, to, by }) => {
    const from = to + by;
    assert.throws(() => withEdges(chain, [{ from, to: [to] }]), ({ message }: Error) => {
      const circle = [...message.matchAll(/(\d+F0) waits for (\d+F0)/g)];
      circle.forEach(([, waits, awaited], i) => {
        assert.equal(awaited, circle[(i + 1) % circle.length]![1], message);
        const [taker, giver] = [parseInt(waits!), parseInt(awaited!)];
        const isWait = giver === taker - 1 || (giver === from && taker === to);
        assert.ok(isWait, message);
      });
      assert.equal(circle.length, Math.min(by + 1, 9), message);
      return true;
    });
  }));
});

Deno.test("a schedule whose skip edge nobody has checked is found to deadlock, action by action", () => {
  const chain = withLists(createSchedule("1f1b", { workers: 3, microBatches: 2 }));
  const [violation, ...more] = validate({ ...chain, edges: [{ from: 2, to: [0] }] });
  assert.deepEqual(more, []);
  assert.equal(violation?.reason, "deadlock");
  assert.equal(
    violation.message,
    "worker 0 waits at 0F0 for 2F0 of worker 2 over a skip edge; worker 2 waits at 2F0 for 1F0 of worker 1; " +
      "worker 1 waits at 1F0 for 0F0 of worker 0",
  );
});

Deno.test("a skip edge of a stage that is not there is a violation", () => {
  const chain = withLists(createSchedule("1f1b", { workers: 3, microBatches: 2 }));
  for (const edge of [{ from: 0, to: [3] }, { from: -1, to: [2] }]) {
    const [violation, ...more] = validate({ ...chain, edges: [edge] });
    assert.deepEqual(more, []);
    assert.match(`${violation?.reason} ${violation?.message}`, /^unknown skip edge .* 3 stages$/);
  }
});

Deno.test("no order of any worker is below the bound that counts skip edges", () => {
  const times = fc.record({
    send: fc.double({ min: 0, max: 3, noNaN: true }),
    skip: fc.double({ min: 0, max: 9, noNaN: true }),
  });
  fc.assert(fc.property(anyLinked, times, (linked, costs) => {
    const schedule = withEdges(withLists(linked.chain, costs), linked.edges);
    const { makespan } = analyze(schedule, costs);
    assert.ok(makespanLowerBound(schedule, costs) <= makespan + 1e-9, inWords(linked));
  }));
  const alone = scheduleFromLists("alone", parseCsv("0F0,1F0,2F0,2B0,1B0,0B0\n"));
  assert.ok(makespanLowerBound(withEdges(alone, [{ from: 0, to: [2] }]), { skip: 7 }) <= 9);
  const chain = createSchedule("1f1b", { workers: 3, microBatches: 1 });
  const bound = (schedule: Schedule) => makespanLowerBound(schedule, { skip: 7 });
  assert.equal(bound(chain), 3 + 1 + 1 + 2);
  assert.equal(bound(withEdges(chain, [{ from: 0, to: [2] }])), 1 + 7 + 1 + 1 + 7 + 2);
});

Deno.test("lists that deadlock as a chain do so with skip edges, and the circle is one of waits that exist", () => {
  const lists = [
    [F(0, 0), B(0, 0), F(0, 1), B(0, 1)],
    [F(1, 0), F(1, 1), B(1, 0), B(1, 1)],
    [F(2, 0), F(2, 1), B(2, 0), B(2, 1)],
  ].map((list) => ActionList.from(list));
  const schedule = withEdges(scheduleFromLists("wrong", lists), [{ from: 0, to: [2] }]);
  const [violation] = findDeadlock(schedule as ListedSchedule);
  assert.match(violation!.message, /^worker \d waits at \S+ for \S+/);
  for (const [, at, awaited] of violation!.message.matchAll(/waits at (\S+) for (\d[FB]\d)/g)) {
    assert.ok(waitsFor(at!, awaited!), `${at} does not wait for ${awaited}`);
  }
});

/** What the actions of that schedule wait for. */
function waitsFor(at: string, awaited: string): boolean {
  const [, stage, kind, m] = /^(\d)([FB])(\d)$/.exec(at)!;
  const by = kind === "F" ? -1 : 1, chain = `${Number(stage) + by}${kind}${m}`;
  const skip = ({ "2F": `0F${m}`, "0B": `2B${m}` } as Record<string, string>)[`${stage}${kind}`];
  return awaited === chain || awaited === skip || awaited === `${stage}F${m}`;
}

Deno.test("skip edges stay with a schedule that gets other orders, recomputations or fewer micro-batches", () => {
  const edges = [{ from: 0, to: [2, 3] }];
  const schedule = withEdges(createSchedule("1f1b", OPTIONS), edges) as ListedSchedule;
  const orders = schedule.lists.map((list): Action[] => [...list]);
  assert.deepEqual(withOrders(schedule, "mine", orders).edges, edges);
  assert.deepEqual(withRecomputation(schedule).edges, edges);
  assert.deepEqual(smallerSchedule(schedule, OPTIONS, 3).edges, edges);
  const waves = withEdges(createSchedule("hanayo", OPTIONS), [{ from: 0, to: [7] }]);
  assert.deepEqual(smallerSchedule(waves, OPTIONS, 3).edges, waves.edges);
  assert.equal(withEdges(schedule, []).edges, undefined);
});

Deno.test("the list scheduler does something else until a value is there", () => {
  const all = (...kinds: string[]) => [0, 1, 2, 3].flatMap((m) => kinds.map((kind) => kind + m));
  const rows = [all("0F", "0B"), all("1F", "2F", "2B", "1B")].map((row) => `${row}\n`).join("");
  const chain = scheduleFromLists(
    "mine",
    parseCsv(rows),
  );
  const first = (costs: Costs) => {
    const load = workloadOf(withEdges(chain, [{ from: 0, to: [2] }]), costs);
    const limits = [8, 8], pipeLimit = Infinity;
    const [, own] = greedyOrder(load, {
      ...{ isSplit: false, isForwardFirst: false, limits, pipeLimit, patience: 0 },
    });
    return own!.slice(0, 4).map(formatAction).join();
  };
  assert.equal(first({}), "1F0,2F0,2B0,1B0");
  assert.equal(first({ forward: 1.5, skip: 3 }), "1F0,1F1,1F2,2F0"); // 0F0 ends at 1: its value is there at 4
});

Deno.test("search orders a step for values that are long on their way, and gives what analysis counts", () => {
  const costs = { send: 0.25, skip: 4 }, edges = [{ from: 0, to: [1, 2] }];
  const options = { workers: 3, microBatches: 6, chunks: 1, costs };
  const found = createSchedule("search", { ...options, edges }) as ListedSchedule;
  assert.deepEqual(found.edges, edgesOfParts(edges, { parts: 3, stages: found.stages }));
  assert.deepEqual(validate(found), []);
  const blind = createSchedule("search", options);
  const linked = withEdges(blind, edgesOfParts(edges, { parts: 3, stages: blind.stages }));
  const [planned, unplanned] = [found, linked].map((one) => analyze(one, costs).makespan);
  assert.ok(planned! < unplanned!, `${planned}, ${unplanned}`);
});
