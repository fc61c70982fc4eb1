import assert from "node:assert/strict";
import {
  type Action,
  analyze,
  type Costs,
  createSchedule,
  formatAction,
  type ListedSchedule,
  makespanLowerBound,
  modelOfCosts,
  type Schedule,
  scheduleDefinitions,
  simulateStep,
  type SkipEdge,
  smallerSchedule,
  stageMemories,
  tryCandidates,
  validate,
  withLists,
  withOrders,
  withPolicy,
  withRecomputation,
} from "../../schedules/mod.ts";
import { edgesOfParts, withEdges } from "../../schedules/schedule.ts";
import { scheduleMemory } from "../../schedules/analysis/memory.ts";
import { bytesOf, freedBy } from "../../schedules/analysis/skip_memory.ts";
import { stageRoutes } from "../../schedules/skip_edges.ts";
import { greedyOrder } from "../../schedules/search/greedy.ts";
import { workloadOf } from "../../schedules/search/limits.ts";
import fc, { forAll } from "../fast_check.ts";
import { alike, between, FOUR, isNear, listed, refuses, sized } from "./cases.ts";

/** Every schedule, with slices if it reads them. */
const SCHEDULES: readonly Schedule[] = scheduleDefinitions
  .filter(({ name }) => name !== "search")
  .map(({ name, reads = [] }) =>
    createSchedule(name, { ...FOUR, ...reads.includes("slices") && { slices: 2 } })
  );

/** Also halves and doubled forwards. */
const CHIMERAS = (["doubling", "halving"] as const).map((scale) =>
  createSchedule("chimera", { ...FOUR, scale })
);

/** Any skip edges between stages with values for later stages. */
function anyEdges(stages: number): fc.Arbitrary<SkipEdge[]> {
  const edge = fc.record({
    path: fc.uniqueArray(fc.integer({ min: 0, max: stages - 1 }), { minLength: 2, maxLength: 4 }),
    hasGradient: fc.boolean(),
    bytes: fc.integer({ min: 0, max: 100 }),
  }).map(({ path, ...edge }) => {
    const [from, ...to] = path.sort((a, b) => a - b) as [number, ...number[]];
    return { from, to, ...edge };
  });
  return fc.array(edge, { minLength: 1, maxLength: 4 });
}

const anyLinked = fc.constantFrom(...SCHEDULES, ...CHIMERAS).chain((chain) =>
  anyEdges(chain.stages).map((edges) => ({ chain, edges }))
);

const inWords = ({ chain, edges }: { chain: Schedule; edges: readonly SkipEdge[] }) =>
  `${chain.name} ${JSON.stringify(edges)}`;

const anyCosts = fc.record({ send: between(0, 3), skip: between(0, 9) });

Deno.test("with values for later stages every schedule is valid, and equally long if messages take no time", () =>
  forAll(100, [anyLinked], (linked) => {
    const { makespan, schedule } = analyze(withEdges(linked.chain, linked.edges));
    const kinds = validate(schedule).filter(({ reason }) => reason !== "descending");
    assert.deepEqual(kinds, [], inWords(linked));
    assert.equal(makespan, analyze(linked.chain).makespan, inWords(linked));
  }));

Deno.test("a step is at least as long as its lower bound and as without skip edges, and simulated as executed", () =>
  forAll(100, [anyLinked, anyCosts], (linked, costs) => {
    const listed = withLists(linked.chain, costs), schedule = withEdges(listed, linked.edges);
    const { makespan } = analyze(schedule, costs), chain = analyze(listed, costs).makespan;
    assert.ok(makespan > chain || isNear(makespan, chain), inWords(linked));
    const simulated = simulateStep(modelOfCosts(schedule, costs)).makespanMs;
    assert.ok(isNear(makespan, simulated), `${inWords(linked)}: ${makespan}, ${simulated}`);
    assert.ok(makespanLowerBound(schedule, costs) <= makespan + 1e-9, inWords(linked));
  }));

Deno.test("gradients of a value go from the last stage that uses it through the others to its maker", () => {
  const chain = sized("gpipe", 4, 1), edges = [{ from: 0, to: [2, 3] }];
  const { starts } = analyze(withEdges(chain, edges), { skip: 10 }).execution.timeline;
  // 3B0 ends at 15: its gradient is at stage 2 at 25, and the sum of both at stage 0 at 37.
  assert.deepEqual(starts.map((own) => [...own]), [[0, 37], [1, 27], [11, 25], [12, 13]]);
});

Deno.test("candidates with more stages have skip edges between the same parts of the model", () => {
  const edges = [{ from: 0, to: [3] }], candidate = { name: "zb-v", listed: "zb-v" };
  const trials = tryCandidates([candidate], FOUR, { edges, draws: 1 });
  const expected = [edges, [{ from: 1, to: [6] }]];
  assert.deepEqual(trials.map(({ schedule }) => schedule.edges), expected);
});

Deno.test("a value of a slice takes its share of the time, in either direction", () => {
  const rows = [0, 1, 2].map((s) => `${s}F0.0,${s}F0.1,${s}B0.1,${s}B0.0\n`);
  const schedule = withEdges(listed(rows.join("")), [{ from: 0, to: [2] }]);
  const { starts } = analyze(schedule, { skip: 10 }).execution.timeline;
  const expected = [[0, 0.5, 12.5, 13.5], [0.5, 1, 7.5, 8.5], [5.5, 6, 6.5, 7.5]];
  assert.deepEqual(starts.map((own) => [...own]), expected);
});

Deno.test("of two stages that a backward waits for, one may send halves and the other the whole", () =>
  forAll(100, [fc.tuple(fc.boolean(), fc.boolean(), fc.boolean()), anyCosts], (isHalved, costs) => {
    const rows = isHalved.map((is, s) => is ? `${s}F0,${s}B0.0,${s}B0.1\n` : `${s}F0,${s}B0\n`);
    const schedule = withEdges(listed(rows.join("")), [{ from: 0, to: [2] }]);
    const { makespanMs } = simulateStep(modelOfCosts(schedule, costs));
    assert.ok(isNear(makespanMs, analyze(schedule, costs).makespan));
  }));

Deno.test("a value for an earlier stage is refused with the circle of actions", () => {
  const chain = createSchedule("1f1b", FOUR);
  const back = (from: number, to: number) => () => withEdges(chain, [{ from, to: [to] }]);
  refuses(back(1, 0), /0F0 waits for 1F0.*1F0 waits for 0F0/);
  refuses(back(3, 1), /1F0 waits for 3F0.*3F0 waits for 2F0.*2F0 waits for 1F0/);
});

Deno.test("an unchecked skip edge is a violation if it deadlocks or its stage does not exist", () => {
  const chain = withLists(sized("1f1b", 3, 2));
  const wrong = (from: number, to: number) =>
    validate({ ...chain, edges: [{ from, to: [to] }] })
      .map(({ reason, message }) => `${reason} ${message}`).join("\n");
  assert.equal(
    wrong(2, 0),
    "deadlock worker 0 waits at 0F0 for 2F0 of worker 2 over a skip edge; " +
      "worker 2 waits at 2F0 for 1F0 of worker 1; worker 1 waits at 1F0 for 0F0 of worker 0",
  );
  for (const [from, to] of [[0, 3], [-1, 2]] as const) {
    assert.match(wrong(from, to), /^unknown skip edge .* 3 stages$/);
  }
});

Deno.test("the lower bound counts skip edges", () => {
  const alone = withEdges(listed("0F0,1F0,2F0,2B0,1B0,0B0\n"), [{ from: 0, to: [2] }]);
  const chain = sized("1f1b", 3, 1);
  const bound = (schedule: Schedule) => makespanLowerBound(schedule, { skip: 7 });
  assert.ok(bound(alone) <= 9);
  assert.equal(bound(chain), 3 + 1 + 1 + 2);
  assert.equal(bound(withEdges(chain, [{ from: 0, to: [2] }])), 1 + 7 + 1 + 1 + 7 + 2);
});

Deno.test("a schedule keeps its skip edges with other orders, recomputations or fewer micro-batches", () => {
  const edges = [{ from: 0, to: [2, 3] }];
  const schedule = withEdges(createSchedule("1f1b", FOUR), edges) as ListedSchedule;
  const orders = schedule.lists.map((list): Action[] => [...list]);
  assert.deepEqual(withOrders(schedule, "mine", orders).edges, edges);
  assert.deepEqual(withRecomputation(schedule).edges, edges);
  assert.deepEqual(smallerSchedule(schedule, FOUR, 3).edges, edges);
  const waves = withEdges(createSchedule("hanayo", FOUR), [{ from: 0, to: [7] }]);
  assert.deepEqual(smallerSchedule(waves, FOUR, 3).edges, waves.edges);
  assert.equal(withEdges(schedule, []).edges, undefined);
});

Deno.test("the list scheduler runs other actions until a value arrives", () => {
  const all = (...kinds: string[]) => [0, 1, 2, 3].flatMap((m) => kinds.map((kind) => kind + m));
  const rows = [all("0F", "0B"), all("1F", "2F", "2B", "1B")].map((row) => `${row}\n`).join("");
  const linked = withEdges(listed(rows), [{ from: 0, to: [2] }]);
  const choices = { isSplit: false, isForwardFirst: false, limits: [8, 8], patience: 0 };
  const first = (costs: Costs) => {
    const [, own] = greedyOrder(workloadOf(linked, costs), { ...choices, pipeLimit: Infinity });
    return own!.slice(0, 4).map(formatAction).join();
  };
  assert.equal(first({}), "1F0,2F0,2B0,1B0");
  assert.equal(first({ forward: 1.5, skip: 3 }), "1F0,1F1,1F2,2F0"); // 0F0 ends at 1: its value is there at 4
});

Deno.test("search orders a step for slow values, with the time that analysis measures", () => {
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

/** Memory for skip edges, compared with counts by hand and with any durations. */

Deno.test("a value is held from its arrival to the end of the backward that uses it, a gradient to that of its stage", () => {
  const chain = listed("0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0\n");
  const schedule = withEdges(withLists(chain), [{ from: 0, to: [2, 3], bytes: 8 }]);
  const stages = alike(4, { forwardMs: 1, backwardMs: 2, outputBytes: 0 });
  const network = { link: { latencyMs: 0.25, bytesPerMs: 16 } };
  const { peakBytes, memoryOf, makespanMs } = simulateStep({ schedule, stages, network });
  // Worker 2 holds the value, and the gradient of stage 3 until it has added its own.
  assert.deepEqual(peakBytes, [8, 0, 16, 8]);
  assert.deepEqual(memoryOf(2), { timesMs: [0, 2.5, 3.5, 7.5, 9.5], bytes: [0, 8, 8, 16, 0] });
  // Stage 3 ends at 6.75, its gradients arrive at stage 2 at 7 and 7.5; the gradient that arrives at
  // stage 0 at 10.25 waits for stage 1.
  assert.equal(makespanMs, 14);
  assert.deepEqual(analyze(schedule).peakSkips, [1, 0, 2, 1]);
});

Deno.test("values within one worker are held and not sent", () => {
  const chain = withLists(listed("0F0,1F0,2F0,2B0,1B0,0B0\n"));
  const schedule = withEdges(chain, [{ from: 0, to: [2], bytes: 8 }]);
  const stages = alike(3, { forwardMs: 1, backwardMs: 2 });
  const network = { link: { latencyMs: 9, bytesPerMs: 1 } };
  const { makespanMs, peakBytes } = simulateStep({ schedule, stages, network });
  // The value of stage 2, and while its backward runs the gradient of that value.
  assert.deepEqual([makespanMs, peakBytes], [9, [16]]);
});

Deno.test("values share their link with other messages in turn", () => {
  const chain = withLists(sized("gpipe", 3, 1));
  const stages = alike(3, { forwardMs: 1, backwardMs: 1, outputBytes: 2 });
  const network = { link: { latencyMs: 0, bytesPerMs: 1 }, sharing: "worker" } as const;
  const timeOf = (schedule: Schedule) => simulateStep({ schedule, stages, network }).makespanMs;
  assert.equal(timeOf(chain), 14);
  // 4 ms after the activation, which stage 1 received earlier; likewise for the gradients.
  assert.equal(timeOf(withEdges(chain, [{ from: 0, to: [2], bytes: 4 }])), 16);
  assert.equal(timeOf(withEdges(chain, [{ from: 0, to: [2], bytes: 4, hasGradient: false }])), 15);
});

/** Planned memory of each worker, of values over skip edges only. */
const plannedOf = (schedule: ListedSchedule) =>
  scheduleMemory(schedule, stageMemories(schedule, {}));

/** Bytes that the micro-batches in flight can bring to each worker, in any order of its actions. */
function bytesInFlight(schedule: Schedule): number[] {
  const { edges = [], injectionLimit, pipelineOf, placement, stages } = schedule;
  const freed = freedBy(stageRoutes(stages, edges)!, bytesOf(edges));
  const most = (pipeline: number) =>
    Math.min(injectionLimit, pipelineOf.filter((one) => one === pipeline).length);
  return placement.map((held) =>
    held.reduce((sum, { stage, pipeline }) => sum + most(pipeline) * freed[stage]!, 0)
  );
}

/** Schedules with skip edges, with the factors and times of a step. */
const anyStep = fc.record({
  linked: anyLinked,
  seed: fc.nat(),
  slow: fc.array(fc.constantFrom<number>(1, 1, 1, 30), { minLength: 8, maxLength: 8 }),
  skipMs: fc.constantFrom<number>(0, 5),
}).map(({ linked, ...step }) => ({ ...linked, ...step }));

/** The step with all times drawn. */
type DrawnStep = typeof anyStep extends fc.Arbitrary<infer T> ? T : never;

function simulated(schedule: Schedule, { edges, seed, slow, skipMs }: DrawnStep) {
  return simulateStep({
    schedule,
    stages: alike(schedule.stages, { forwardMs: 1, backwardMs: 2 }),
    jitter: { law: "above", amount: 2, latencyAmount: 1, seed },
    slowdowns: slow.slice(0, schedule.workers),
    skipMs: alike(edges.length, skipMs),
  });
}

Deno.test("no durations make a worker hold more than is planned, in the order of its list or another", () =>
  forAll(100, [anyStep], (step) => {
    const schedule = withEdges(withLists(step.chain), step.edges), planned = plannedOf(schedule);
    const { peakBytes, memoryOf } = simulated(schedule, step);
    // Workers without lists hold at most the values of the micro-batches in flight.
    const early = step.chain.lists ? withPolicy(step.chain, "elastic") : step.chain;
    const elastic = withEdges(early, step.edges), inFlight = bytesInFlight(elastic);
    const most = simulated(elastic, step).peakBytes;
    peakBytes.forEach((bytes, worker) => {
      assert.ok(most[worker]! <= inFlight[worker]! + 1e-9);
      const where = `${inWords(step)}, worker ${worker}`, { peak } = planned[worker]!;
      assert.ok(Math.abs(memoryOf(worker).bytes.at(-1)!) < 1e-9, `${where}: bytes are left over`);
      assert.ok(bytes <= peak + 1e-9, `${where}: ${bytes} of ${peak}`);
    });
  }));

Deno.test("a worker reaches its planned level if all others are much faster", () =>
  forAll(100, [anyStep], (step) => {
    const schedule = withEdges(withLists(step.chain), step.edges), planned = plannedOf(schedule);
    for (let worker = 0; worker < schedule.workers; worker++) {
      const slow = planned.map((_, w) => w === worker ? 1e6 : 1);
      const { peakBytes } = simulated(schedule, { ...step, slow, skipMs: 0 });
      const gap = Math.abs(peakBytes[worker]! - planned[worker]!.peak);
      assert.ok(gap < 1e-6, `${inWords(step)}, worker ${worker}`);
    }
  }));
