import { byTieRule } from "../../schedules/simulator/simulate.ts";
import { atDepth } from "../depth.ts";
import assert from "node:assert/strict";
import {
  analyze,
  createSchedule,
  formatAction,
  modelOfCosts,
  type Network,
  parseAction,
  pipelineWorkers,
  simulateStep,
  type StageModel,
  type StepModel,
  type TrialOptions,
  tryCandidates,
  withPolicy,
} from "../../schedules/mod.ts";
import { chooseTrial, mailboxCandidates, readCandidate } from "../../schedules/simulator/trials.ts";
import fc, { forAll } from "../fast_check.ts";
import {
  alike,
  anyCosts,
  atAnyPace,
  between,
  FOUR,
  inWords,
  isNear,
  listed,
  made,
  refuses,
  servedCases,
  sized,
} from "./cases.ts";

const SERVED = servedCases(({ workers, microBatches }) => workers * microBatches <= 512);
const servedCase = fc.constantFrom(...SERVED);
const cost = between(0.05, 4);

Deno.test("if only actions and messages take time, a simulated step equals the analysis", () =>
  forAll(atDepth(150, 400), [servedCase, anyCosts(0.05, 4)], (one, costs) => {
    const schedule = made(one)!, { makespan, idle, execution } = analyze(schedule, costs);
    const seen = simulateStep(modelOfCosts(schedule, costs));
    assert.equal(seen.makespanMs, makespan, inWords(one));
    assert.deepEqual(seen.timeline.starts, execution.timeline.starts, inWords(one));
    seen.workers.forEach(({ bubbleMs, communicationMs }, worker) => {
      const where = `${inWords(one)}: worker ${worker}`;
      assert.ok(isNear(bubbleMs + communicationMs, idle[worker]!), where);
    });
  }));

Deno.test("factors of a law must be above 0", () => {
  const schedule = sized("1f1b", 1, 500);
  const stages = [{ forwardMs: 1, backwardMs: 1 }];
  const step = (amount: number, law: readonly number[]) =>
    simulateStep({ schedule, stages, jitter: { law, amount, seed: 3 } }).makespanMs;
  assert.deepEqual([step(0, [0.5, 1, 1.5]), step(1, [1])], [1000, 1000]);
  refuses(() => step(1, []), /jitter\.law's factors must be/);
  refuses(() => step(1, [1, 0]), /jitter\.law\[1\] must be a number above 0/);
});

Deno.test("elastic lists and messages take the time that the order they took takes as a list", () =>
  forAll(atDepth(100, 300), [servedCase, fc.nat()], (one, seed) => {
    const plain = made(one)!, schedule = plain.lists ? withPolicy(plain, "elastic") : plain;
    const ran = atAnyPace(schedule, seed);
    const again = atAnyPace(withPolicy(ran.schedule, "list"), seed);
    assert.deepEqual(again.timeline, ran.timeline, inWords(one));
  }));

const someStep = fc.record({
  times: fc.array(cost, { minLength: 8, maxLength: 8 }),
  bytes: fc.array(between(0, 50), { minLength: 3, maxLength: 3 }),
  isClipped: fc.boolean(),
  isBlocking: fc.boolean(),
  protocol: fc.constantFrom("commit", "ranks"),
  algorithm: fc.constantFrom("direct", "ring", "rabenseifner"),
  coarsening: fc.integer({ min: 1, max: 3 }),
  replicas: fc.integer({ min: 1, max: 5 }),
  sharing: fc.constantFrom("pair", "worker", "node"),
});

Deno.test("the parts of each worker's time add up to the step, whatever takes time in it", () =>
  forAll(atDepth(100, 300), [servedCase, someStep], (one, step) => {
    const { times, bytes, replicas, isBlocking, sharing, ...closing } = step;
    const schedule = made(one)!, [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = times;
    const [outputBytes = 0, gradientBytes = 0, bucketBytes = 0] = bytes;
    const ms = { forwardMs: a, backwardMs: b, recomputeMs: c, checkMs: d / 8, optimizerMs: e };
    const model: StepModel = {
      ...{ schedule, replicas, dispatchMs: f / 8, controlMs: g / 8 },
      stages: alike(schedule.stages, { ...ms, outputBytes, gradientBytes }),
      network: { link: { latencyMs: h / 8, bytesPerMs: 20 }, nodeSize: 2, sharing, isBlocking },
      jitter: { law: "above", amount: 0.5, latencyAmount: 0.5, seed: 1 },
      closing: {
        ...{ ...closing, bucketBytes: 1 + bucketBytes, launchMs: h / 8, handleMs: g / 16 },
        ...{ addBytesPerMs: 30, eagerStages: [schedule.stages - 1] },
      },
    };
    const { makespanMs, computedMs, workers, timeline, closing: spans } = simulateStep(model);
    assert.ok(makespanMs >= computedMs);
    workers.forEach((worker, index) => {
      const parts = Object.values(worker), sum = parts.reduce((total, part) => total + part);
      const where = `${inWords(one)}: worker ${index}: ${JSON.stringify(worker)}`;
      assert.ok(isNear(sum, makespanMs), where);
      assert.ok(parts.every((part) => part > -1e-6), where);
      const starts = [...timeline.starts[index]!], ends = timeline.ends[index]!;
      const own = spans[index]!.filter(({ what }) => what !== "reduce");
      const busy = [
        ...starts.map((start, i) => [start, ends[i]!] as const),
        ...own.map(({ startMs, endMs }) => [startMs, endMs] as const),
      ].sort(([first], [second]) => first - second);
      // A worker does one thing at a time.
      for (let i = 1; i < busy.length; i++) assert.ok(busy[i]![0] >= busy[i - 1]![1] - 1e-9, where);
    });
  }));

const STAGE: StageModel = { forwardMs: 1, backwardMs: 2, outputBytes: 10 };

function run(network: Network, name = "1f1b") {
  const schedule = createSchedule(name, FOUR);
  return simulateStep({ schedule, stages: alike(schedule.stages, STAGE), network });
}

Deno.test("a message takes its bytes and then its latency, and the wait for it is counted separately", () => {
  const network = { link: { latencyMs: 0.5, bytesPerMs: 20 } }, schedule = sized("gpipe", 2, 1);
  const { makespanMs, workers } = simulateStep({ schedule, stages: alike(2, STAGE), network });
  assert.equal(makespanMs, 1 + 1 + 3 + 1 + 2);
  const waits = workers.map(({ communicationMs, bubbleMs }) => [communicationMs, bubbleMs]);
  assert.deepEqual(waits, [[1, 4], [1, 4]]);
});

Deno.test("of two messages that arrive at once, the wait counts from the one that the next action needs", () => {
  const csv = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n";
  const stages = [{ forwardMs: 5, sendMs: 3 }, { forwardMs: 1, sendMs: 0.5 }, { forwardMs: 1 }]
    .map((stage): StageModel => ({ backwardMs: 2, ...stage }));
  const { workers } = simulateStep({ schedule: listed(csv), stages });
  assert.equal(workers[1]!.communicationMs, 3 + 3 + 0.5); // 1F1 and 1B0 arrive at 13
});

Deno.test("messages take turns on a shared channel: a pair, a worker, a node", () => {
  const link = { latencyMs: 0, bytesPerMs: 4 };
  const time = (sharing: Network["sharing"]) =>
    run({ link, nodeSize: 2, local: { latencyMs: 0 }, sharing }, "interleaved").makespanMs;
  const [pair, worker, node] = [time("pair"), time("worker"), time("node")];
  assert.ok(pair <= worker && worker <= node && pair < node, `${pair}, ${worker}, ${node}`);
  const middle = (sharing: Network["sharing"]) => run({ link, sharing }).makespanMs;
  assert.ok(middle("pair") < middle("worker"));
});

Deno.test("messages within a node take the links of the node", () => {
  const slow = { latencyMs: 3 }, fast = { latencyMs: 0 };
  const time = (network: Network) => run(network).makespanMs;
  assert.equal(time({ link: slow, local: fast, nodeSize: 4 }), time({ link: fast }));
  assert.ok(time({ link: slow, local: fast, nodeSize: 2 }) < time({ link: slow }));
});

Deno.test("a worker that waits until its messages are sent loses the overlap", () => {
  const link = { latencyMs: 0, bytesPerMs: 20 };
  const [beside, blocking] = [run({ link }), run({ link, isBlocking: true })];
  assert.ok(blocking.makespanMs > beside.makespanMs);
  const { starts: [starts], ends: [ends] } = blocking.timeline;
  for (let i = 1; i < 5; i++) assert.ok(starts![i]! >= ends![i - 1]! + 0.5); // forwards
});

Deno.test("messages to two others share the output channel of a worker, messages from both do not share one", () => {
  const schedule = listed("0F0,0F1,0B0,0B1\n1F0,1B0\n1F1,1B1\n");
  const start = (sharing: Network["sharing"]) => {
    const network = { link: { latencyMs: 0, bytesPerMs: 4 }, sharing } as const;
    const { timeline: { starts } } = simulateStep({ schedule, stages: alike(2, STAGE), network });
    return starts.map((own) => [...own]);
  };
  assert.deepEqual(start("pair"), [[0, 1, 9, 11], [3.5, 4.5], [4.5, 5.5]]);
  assert.deepEqual(start("worker"), [[0, 1, 9, 11.5], [3.5, 4.5], [6, 7]]);
});

Deno.test("where each stage keeps its share of a byte, the peak of bytes is that of activations", () =>
  forAll(atDepth(100, 300), [servedCase], (one) => {
    const schedule = made(one)!, share = pipelineWorkers(schedule) / schedule.stages;
    const { peakActivations } = analyze(schedule);
    const stage = { forwardMs: share, backwardMs: 2 * share, memory: { keptBytes: share } };
    const { peakBytes } = simulateStep({ schedule, stages: alike(schedule.stages, stage) });
    peakBytes.forEach((bytes, worker) =>
      assert.ok(isNear(bytes, peakActivations[worker]!), `${inWords(one)}: worker ${worker}`)
    );
  }));

Deno.test("bytes over time: F keeps, I frees a part, W the rest, and the level returns to the start", () => {
  const held = { weightBytes: 100, gradientBytes: 100, optimizerBytes: 200 };
  const memory = { ...held, keptBytes: 10, freedByInputBytes: 6, workBytes: 3 };
  const stages = [{ forwardMs: 1, backwardMs: 2, memory }], schedule = sized("zb-h1", 1, 1);
  const { memoryOf, peakBytes } = simulateStep({ schedule, stages });
  const bytes = [400, 413, 410, 413, 404, 407, 400];
  assert.deepEqual(memoryOf(0), { timesMs: [0, 0, 1, 1, 2, 2, 3], bytes });
  assert.deepEqual(peakBytes, [413]);
});

Deno.test("weights are held in all versions of the schedule", () => {
  const memory = { weightBytes: 1, keptBytes: 0 }, schedule = sized("pipedream", 3, 3);
  const stages = alike(3, { forwardMs: 1, backwardMs: 2, memory });
  assert.deepEqual(simulateStep({ schedule, stages }).peakBytes, [3, 2, 1]);
});

/** Settings of the table of published figures: D = 8, N = 32, tB = 2tF, messages of 0.2. */
const SIZE = { workers: 8, microBatches: 32 } as const;

type Order = "fifo" | "backward-first";

/** Mean steps of 1F1B, then of message-driven with each limit, draws from seed 0 on. */
const means = (order: Order, limits: readonly number[], conditions: TrialOptions = {}) => {
  const candidates = limits.map((pipelineLimit) => (
    { name: `${order}:${pipelineLimit}`, options: { pipelineLimit, order } }
  ));
  return tryCandidates(candidates, SIZE, { draws: 100, ...conditions }).map(({ mean }) => mean);
};

/** An action takes its time, times 1 + 0.5·u, u from 0 to 1: the law that gives the table. */
Deno.test("with 50 % jitter static 1F1B takes 164, fifo 176, 155 and 149 with limits D, 1.5D and 2D", () => {
  const seen = means("fifo", [8, 12, 16]);
  for (const [i, stated] of [164, 176, 155, 149].entries()) {
    assert.ok(Math.abs(seen[i]! - stated) <= 0.01 * stated, `${seen[i]} for ${stated}`);
  }
  const [oneFOneB, d, oneAndAHalf, two] = seen as [number, number, number, number];
  assert.ok(two < oneAndAHalf && oneAndAHalf < oneFOneB && oneFOneB < d);
});

/** The table has 183 and 209, without the slow worker and its factor. */
Deno.test("with one slow early worker and limit D fifo beats backward-first, without one it does not", () => {
  const both = (slowWorker?: { worker: number; factor: number }) => {
    const mean = (order: Order) => means(order, [8], { slowWorker, draws: 16 })[1]!;
    return [mean("fifo"), mean("backward-first")];
  };
  for (const [worker, factor] of [[0, 1.25], [1, 2], [2, 1.5]] as const) {
    const [fifo = 0, backwardFirst = 0] = both({ worker, factor });
    const where = `worker ${worker} takes ${factor} times as long: ${fifo} and ${backwardFirst}`;
    assert.ok(fifo < 0.97 * backwardFirst, where);
  }
  const [fifo = 0, backwardFirst = 0] = both();
  assert.ok(backwardFirst < fifo);
});

/** Laws of durations, with their least, their greatest and their mean. */
const THREE = [0.5, 1, 1.5] as const;
const LAWS = [["above", 1, 1.5, 1.25], ["around", 0.5, 1.5, 1], [THREE, 0.5, 1.5, 1]] as const;

Deno.test("draws depend on the seed and the action, not on the order, and stay within their law", () => {
  /** The factor of each action compared to its time without jitter. */
  const factors = (law: typeof LAWS[number][0], seed: number, name = "1f1b") => {
    const model = modelOfCosts(createSchedule(name, SIZE)), amount = law instanceof Array ? 1 : 0.5;
    const step = simulateStep({ ...model, jitter: { law, amount, seed } });
    const { schedule: { lists }, timeline: { starts, ends } } = step;
    return new Map(lists.flatMap((list, worker) =>
      [...list].map((action, i) => {
        const ms = ends[worker]![i]! - starts[worker]![i]!;
        return [formatAction(action), action.kind === "F" ? ms : ms / 2] as const;
      })
    ));
  };
  const first = factors("above", 1), gpipe = factors("above", 1, "gpipe");
  for (const [name, factor] of first) assert.ok(Math.abs(factor - gpipe.get(name)!) < 1e-9, name);
  const other = factors("above", 2);
  assert.ok([...first].filter(([name, factor]) => factor === other.get(name)).length < 5);
  for (const [law, low, high, mean] of LAWS) {
    const all = [...factors(law, 3).values()], [least, most] = [Math.min(...all), Math.max(...all)];
    assert.ok(least > low - 1e-9 && least < low + 0.02, `${law}: ${least}`);
    assert.ok(most < high + 1e-9 && most > high - 0.02, `${law}: ${most}`);
    const seen = all.reduce((a, b) => a + b) / all.length;
    assert.ok(Math.abs(seen - mean) < 0.02, `${law}: ${seen}`);
  }
});

Deno.test("the choice has the fewest micro-batches in flight within 1 % of the shortest mean, within the memory", () => {
  const chosen = (asked: object = {}, conditions: TrialOptions = {}) => {
    const auto = { ...SIZE, pipelineLimit: "auto", order: "auto", ...asked } as const;
    const { options } = chooseTrial(tryCandidates(mailboxCandidates(auto), SIZE, conditions));
    return [options?.pipelineLimit, options?.order];
  };
  assert.deepEqual(chosen(), [10, "bfw"]);
  assert.deepEqual(chosen({ order: "fifo", activationLimit: 12.5 }), [12, "fifo"]);
  assert.deepEqual(chosen({ activationLimit: 3 }), chosen({ pipelineLimit: 3 }));
  assert.deepEqual(chosen({ pipelineLimit: 8 }), [8, "bfw"]);
  const slow = { slowWorker: { worker: 1, factor: 1.3 } };
  assert.deepEqual(chosen({ pipelineLimit: 8, order: "fifo" }, slow), [8, "fifo"]);
  assert.deepEqual(chosen({ order: "backward-first" }), [16, "backward-first"]);
  // Without variation and message times, fewer suffice.
  assert.deepEqual(chosen({}, { scenarios: ["none"], sends: [0] }), [8, "bfw"]);
});

const LAWS_TRIED = "none,uniform:0.1,lognormal:0.3,slow:1.5,stages:0.3,multimodal:0.2x3,lengths:4"
  .split(",");

/** Candidates, the least speedup over 1F1B in a run and in a scenario, and over all scenarios. */
const SPEEDUPS = [
  ["bfw", "count", 1, 1.04, 1.13],
  ["bfw-v:1.5D:4", "count", 1, 1.04, 1.32],
  ["bfw", "bytes", 1, 1.04, 1.2],
] as const;

Deno.test("BFW is faster than fixed 1F1B in each run and scenario, within its limits", () => {
  for (const [name, limitBy, run, scenario, all] of SPEEDUPS) {
    const candidate = readCandidate(name, SIZE.workers, { limitBy })!;
    const conditions = { scenarios: LAWS_TRIED, sends: [0, 0.2], draws: 8 };
    const trials = tryCandidates([candidate], SIZE, conditions).filter((one) => one.name === name);
    const logs = trials.map(({ speedup }) => Math.log(speedup.mean));
    assert.ok(Math.exp(logs.reduce((a, b) => a + b) / logs.length) >= all, name);
    for (const { speedup, peakActivations, peakBacklog, scenario: law } of trials) {
      assert.ok(speedup.least >= run && speedup.mean >= scenario, `${name} in ${law}`);
      const { activationLimit = 8, weightBacklog = 2 } = candidate.options!;
      assert.ok(peakActivations <= activationLimit + 1e-9, `${name} in ${law}`);
      assert.ok(peakBacklog <= Number(weightBacklog), `${name} in ${law}`);
    }
  }
});

Deno.test("of actions that become ready at the same time the lower micro-batch is first, then the backward", () => {
  const ready = ["1F3", "2B3", "0F1", "3B2", "1B1"].map(parseAction);
  assert.equal(ready.sort(byTieRule).map(formatAction).join(), "1B1,0F1,3B2,2B3,1F3");
});
