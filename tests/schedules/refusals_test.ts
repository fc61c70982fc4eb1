/** Refusals of the functions of schedules, compared with `tests/golden/refusals/schedule_calls.txt`. */

import {
  type Action,
  ActionList,
  analyze,
  assertValid,
  B,
  createSchedule,
  defineSchedule,
  elasticPolicy,
  F,
  formatGrid,
  formatSvg,
  type LayerTimes,
  linear,
  parseAction,
  partitionForSchedule,
  type Place,
  smallerSchedule,
  stageMemories,
  tryCandidates,
  withLists,
  withPolicy,
  withRecomputation,
} from "../../schedules/mod.ts";
import { scheduleMemory } from "../../schedules/analysis/memory.ts";
import { type Costs, stageTimes } from "../../schedules/costs.ts";
import { takeOffers } from "../../schedules/policies.ts";
import { greedyOrder } from "../../schedules/search/greedy.ts";
import { workloadOf } from "../../schedules/search/limits.ts";
import { assertRefused } from "../kernels/graph/refused.ts";
import { FOUR, listed, sized } from "./cases.ts";

const TWO = sized("1f1b", 2, 2), unlisted = sized("message-driven", 2, 2);
const whole = listed("0F0,0F1,0B0,0B1\n").lists[0]!, grid = analyze(sized("1f1b", 4, 8));
const gpipe = createSchedule("gpipe", FOUR);
const greedy = { isSplit: true, isForwardFirst: false, pipeLimit: Infinity, patience: 0 };

const times = (costs: Costs) => () => stageTimes(sized("1f1b", 1, 1), costs);
const cut = (layers: LayerTimes) => () => partitionForSchedule(TWO, layers);
const packed = (action: Partial<Action>) => () => ActionList.from([{ ...F(0, 0), ...action }]);

/** A user's schedule with a mistake in its place. */
const placed = (change: Partial<Place>) => () =>
  defineSchedule({
    ...{ name: "wrong", summary: "a mistake in its place" },
    place: () => ({ stages: 2, workerOf: (stage) => stage, ...change }),
    order: (worker) => [F(worker, 0), F(worker, 1), B(worker, 0), B(worker, 1)],
  }).create({ workers: 2, microBatches: 2 });

/** A user's schedule with a mistake in its order. */
const ordered = (order: () => unknown) => () =>
  defineSchedule({
    ...{ name: "wrong", summary: "a mistake in its order", place: linear },
    order: order as () => Iterable<Action>,
  }).create({ workers: 2, microBatches: 2 });

function* endless() {
  for (let count = 0; count < 1e5; count++) yield F(0, 0);
  throw new Error("the order was read to its end");
}

async function* late() {
  yield await Promise.resolve(F(0, 0));
}

Deno.test("what schedules, their policies and their analysis cannot serve is refused by name", () =>
  assertRefused("schedule_calls", [
    ["policy: an action that is not offered", () => takeOffers([F(0, 1)], F(0, 0))],
    ["policy: a worker that there is not", () => TWO.policy(2)],
    ["policy: a limit below the peak", () => elasticPolicy(whole, { activationLimit: 1 })],
    ["policy: a limit that is no number", () => elasticPolicy(whole, { activationLimit: NaN })],
    ["policy: a limit of nothing", () => withPolicy(TWO, "elastic", 0)],
    ["policy: half of a backlog", () => withPolicy(TWO, "elastic", 3, 0.5)],
    ["policy: a schedule without lists", () => withPolicy(unlisted, "elastic")],
    ["list: a large stage", packed({ stage: 2 ** 25 })],
    ["list: a large micro-batch", packed({ microBatch: 2 ** 31 })],
    ["list: a stage below 0", packed({ stage: -1 })],
    ["list: half of a stage", packed({ stage: 0.5 })],
    ["list: an overlap in an overlap", packed({ overlap: parseAction("1F0&2F0") })],
    ["list: a kind that there is not", packed({ kind: "X" as "F" })],
    ["list: no action", () => ActionList.from([undefined as never])],
    ["list: a text", () => ActionList.from(["0F0" as never])],
    ["list: seven actions missing", () => assertValid(listed("0F0,0F1,0F2,0F3,0F4,0F5,0F6\n"))],
    ["place: a worker that there is not", placed({ workerOf: (stage) => stage + 1 })],
    ["place: a replica that there is not", placed({ pipelineOf: (m) => m })],
    ["place: a part of a stage", placed({ stages: 1.5 })],
    ["place: no stages", placed({ stages: 0 })],
    ["place: no slices", placed({ slices: 0 })],
    ["place: pipelines without a number", placed({ pipelineCount: NaN })],
    ["order: without an end", ordered(endless)],
    ["order: asynchronous", ordered(late)],
    ["order: none", ordered(() => undefined)],
    ["unread options", () => createSchedule("dapple", { ...FOUR, waves: 3, chunks: 2 })],
    ["costs: parts that are not the whole", times({ backward: 2, input: 2, weight: 2 })],
    ["costs: a part above the whole", times({ backward: 1, input: 2 })],
    ["costs: below 0", times({ forward: -1 })],
    ["costs: no number", times({ send: NaN })],
    ["analysis: a deadlock", () => analyze(listed("0B0,0F0\n"))],
    ["recomputation: without lists", () => withRecomputation(unlisted)],
    ["recomputation: twice", () => withRecomputation(withRecomputation(gpipe))],
    ["recomputation: overlaps", () => withRecomputation(createSchedule("dualpipe-v", FOUR))],
    ["recomputation: halves", () => withRecomputation(listed("0F0,0B0.0,0B0.1\n"))],
    ["recomputation: slices", () => withRecomputation(listed("0F0.0,0F0.1,0B0.1,0B0.0\n"))],
    ["memory: bytes of no stage", () => scheduleMemory(withLists(TWO), [])],
    ["memory: freed", () => stageMemories(TWO, { activations: 1, freedByInput: 2 })],
    ["memory: weights of three stages", () => stageMemories(TWO, { weights: [1, 2, 3] })],
    ["cut: one layer", cut({ forward: [1], backward: [2] })],
    ["cut: another number of times", cut({ forward: [1, 1], backward: [2] })],
    ["cut: times below 0", cut({ forward: [1, -1], backward: [2, 2] })],
    [
      "cut: none that fits",
      () => partitionForSchedule(TWO, { forward: [1, 1], backward: [2, 2] }, () => false),
    ],
    ["search: no room", () => {
      const load = workloadOf(sized("interleaved", 2, 2));
      return greedyOrder(load, { ...greedy, limits: [1, 1] });
    }],
    ["picture: few columns", () => formatGrid(grid, { columns: 39 })],
    ["picture: columns without a number", () => formatGrid(grid, { columns: NaN })],
    ["picture: many actions", () => formatSvg(analyze(sized("1f1b", 101, 1000)))],
    ["slow worker", () => tryCandidates([], FOUR, { slowWorker: { worker: 4, factor: 2 } })],
    ...[-1, 1.5, NaN].map((count) =>
      [`${count} micro-batches`, () => smallerSchedule(TWO, FOUR, count)] as const
    ),
  ]));
