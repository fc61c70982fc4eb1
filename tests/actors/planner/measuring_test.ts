/** Costs from measured probes and steps, and the check of predictions. */

import { chooseSchedule } from "../../../actors/run/prepare.ts";
import assert from "node:assert/strict";
import {
  checkResult,
  checkStep,
  configurationsFor,
  drawConfigurations,
  meanParts,
  measuredParts,
  nameOf,
} from "../../../actors/planner/check.ts";
import {
  actionTimes,
  calibrate,
  type CalibratedLoad,
  layerCosts,
  loadCosts,
  loadNotes,
  type LoadTimes,
  Probes,
  spreads,
} from "../../../actors/planner/measure.ts";
import {
  besideActions,
  linkOf,
  openLink,
  openMeasuredRun,
  overheadsOf,
  reduceMs,
} from "../../../actors/planner/measure_links.ts";
import { openLayerCosts } from "../../../actors/planner/costs.ts";
import { acts } from "../run/timeline/acts.ts";
import {
  type LayerCost,
  type LayerFacts,
  type LoadCost,
  parametersOf,
  slicedFacts,
  variationOf,
} from "../../../actors/planner/profile.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { compileModel, gpt2, mlp, type Model, t5 } from "../../../kernels/mod.ts";
import { cutIntoStages } from "../../../kernels/compile/layout.ts";

const mlpFacts: LayerFacts = {
  ...{ kind: "mlp", precision: "fp32", parameters: 500_000, activationBytes: 10, outputBytes: 5 },
  ...{ forwardFlops: 100, backwardFlops: 200 },
};

const none = { runs: 0, ms: 0 };

/** The times of the only layer. */
const summing = (sums: Record<"F" | "B" | "I" | "W", typeof none>) => ({
  layers: new Map([["mlp", { facts: mlpFacts, sums }]]),
});

/** One round of one model under a load. */
const round = (atOnce: number, more: Partial<LoadTimes> = {}): LoadTimes => ({
  model: 0,
  atOnce,
  stages: atOnce,
  ...summing({ F: { runs: 2, ms: 6 }, B: { runs: 1, ms: 5 }, I: none, W: none }),
  actions: [{ F: [4, 4], B: [6], I: [], W: [] }],
  closing: [{ vote: 1, norm: 2, optimizer: 4, end: 0.5, parameters: 500_000 }],
  ...more,
});

const models = [{ microBatch: 4, recompute: "none" }] as const;
const about = { device: "native", sizes: { hidden: 8 }, models };

Deno.test("the cost of a layer is the median of the means of its rounds, for each load", () => {
  const slow = summing({ F: { runs: 1, ms: 900 }, B: { runs: 1, ms: 900 }, I: none, W: none });
  const [F, B, W] = [{ runs: 2, ms: 10 }, { runs: 1, ms: 7 }, { runs: 1, ms: 3 }] as const;
  const slower = summing({ F, B, I: none, W });
  const costs = layerCosts([round(1), round(2, slower), round(1, slower)], about);
  assert.deepEqual(
    costs.map((one) => [one.atOnce, one.forwardMs, one.backwardMs, one.inputMs, one.weightMs]),
    [[1, 4, 6, 0, 3], [2, 5, 7, 0, 3]],
  );
  assert.equal(costs[0]!.microBatch, 4);
  const [one] = layerCosts([round(1), round(1, slow), round(1)], about);
  assert.deepEqual([one!.forwardMs, one!.backwardMs, one!.weightMs], [3, 5, undefined]);
});

Deno.test("the spread is that of the first stage; the use of cores by other programs is noted", () => {
  const round = (ms: number[], cpuShare?: number) =>
    ({ ...both(1), actions: [{ F: ms }, { F: [99] }], cpuShare }) as unknown as LoadTimes;
  const rounds = [round([5, 1, 2, 3], 0.4), round([4], 0.6), round([6, 7, 8, 9, 10, 11])];
  const spread = spreads(rounds, models);
  const quantiles = { p10Ms: 2, medianMs: 6, p90Ms: 10 };
  assert.deepEqual(spread, [{ ...models[0], atOnce: 2, ...quantiles, cpuShare: 0.5 }]);
  assert.match(loadNotes(spread).join(), /^other programs used up to 50 % of the cores/);
  assert.deepEqual(loadNotes(spreads([round([1])], models)), []);
});

Deno.test("the end of a step costs milliseconds per million elements, for each load", () => {
  const [alone, together] = loadCosts([round(1), round(2), round(2)]);
  const [optimizer, vote, norm, end] = [8, 2, 4, 1].map((msPerMillion) => ({
    ms: 0,
    msPerMillion,
  }));
  assert.deepEqual(alone, { atOnce: 1, optimizer, vote, norm, end });
  assert.deepEqual(together, { ...alone, atOnce: 2 });
});

Deno.test("actions of all kinds vary around a mean of one", () => {
  const actions = [{ F: [1, 2, 3], B: [10, 20, 30], I: [], W: [7] }];
  const factors = variationOf(actionTimes([round(1, { actions })]));
  assert.equal(factors.length, 101);
  assert.ok(Math.abs(factors[0]! - 0.5) < 0.02 && Math.abs(factors.at(-1)! - 1.5) < 0.02);
  const mean = factors.reduce((sum, one) => sum + one, 0) / factors.length;
  assert.ok(Math.abs(mean - 1) < 0.01, `${mean}`);
  assert.deepEqual(variationOf([[3], []]), []);
});

/** Measures a model with probes, on a clock that counts its readings. */
async function probed(model: Model, microBatch: number, loads = [{ atOnce: 1, stages: 1 }]) {
  let now = 0;
  await using system = createSystem({ now: () => now++ });
  const program = compileModel(model, "none"), recompute = "none" as const;
  const probes = new Probes(system, {
    device: { name: "reference" },
    models: [{ program, microBatch, recompute }],
    loads,
    isolate: "local",
  });
  return { program, costs: layerCosts(await probes.measure(400, () => now), about) };
}

Deno.test("probes measure a model with skip connections and ties", async () => {
  const config = { layers: 2, hidden: 4, heads: 1, seq: 3, vocab: 5, tie: true };
  const { program, costs } = await probed(t5(config, 1), 1);
  // The last cross attention differs from the first only in that it adds to no gradient.
  assert.equal(costs.length, program.programs.length - 1);
  for (const { forwardMs, backwardMs } of costs) assert.ok(forwardMs > 0 && backwardMs > 0);
});

const MLP = mlp({ inputs: 3, hidden: 4, layers: 2, classes: 2 }, 2);

Deno.test("probes measure each kind of layer", async () => {
  const { program, costs } = await probed(MLP, 2);
  // Nothing reads the clock between the start of a run and its end. The last layer overwrites its
  // logits, step by step, before its backward: those runs count, too.
  const steps = program.programs.at(-1)!.overwrites!.length;
  const found = costs.map(({ kind, atOnce, forwardMs, backwardMs, parameters }) =>
    [kind, atOnce, forwardMs, backwardMs, parameters].join(" ")
  );
  assert.deepEqual(found, ["hidden 1 1 1 16", "hidden 1 1 1 20", `classifier 1 1 ${1 + steps} 10`]);
});

Deno.test("probes measure larger stages under the highest load", async () => {
  const load = (atOnce: number, stages: number) => ({ atOnce, stages });
  const { costs } = await probed(MLP, 2, [load(1, 1), load(2, 2), load(2, 1)]);
  const held = costs.map(({ atOnce, heldParameters }) => `${atOnce} ${heldParameters}`);
  assert.deepEqual([...new Set(held)], ["1 46", "2 23", "2 46"]);
});

const program = compileModel(mlp({ inputs: 4, hidden: 4, layers: 3, classes: 2 }, 2), "none");
const facts = slicedFacts(program)[0]!;

/** Every layer takes 1 ms forward and 2 ms backward, whatever the load. */
const costsAt = (atOnce: number): LayerCost[] =>
  facts.map((one) => ({
    ...one,
    ...{ sizes: {}, microBatch: 2, device: "native", recompute: "none", atOnce },
    ...{ forwardMs: 1, backwardMs: 2, inputMs: 1, weightMs: 1 },
  }));

const onceAt = (atOnce: number): LoadCost => {
  const cost = { ms: 1, msPerMillion: 0 };
  return { atOnce, optimizer: cost, vote: cost, norm: cost, end: cost };
};

const [first, second] = cutIntoStages(program, 2).map(({ layers }) => layers.length);

/** One worker, whose actions take `factor` times what costs say. */
const alone = (factor: number): CalibratedLoad => ({
  model: 0,
  atOnce: 1,
  stages: 1,
  steps: [[acts(
    `0F0 0-${4 * factor}, 0B0 20-${20 + 8 * factor}, reduce 0 50-51, optimizer 60-62`,
  )]],
});

/** Two workers that always compute at the same time. */
const both = (factor: number): CalibratedLoad => {
  const trace = (stage: number, layers: number) => {
    const ms = factor * layers;
    return acts(`${stage}F0 0-${ms}, ${stage}B0 ${ms}-${3 * ms}, optimizer 50-52`);
  };
  return { model: 0, atOnce: 2, stages: 2, steps: [[trace(0, first!), trace(1, second!)]] };
};

const layersAt = (layers: readonly LayerCost[], atOnce: number) =>
  layers.filter((one) => one.atOnce === atOnce);

Deno.test("all costs of a load are scaled by the factor between its run and its probes", () => {
  const probed = { layers: [costsAt(1)], loads: [onceAt(1)], programs: [program] };
  const { layers, loads } = calibrate(probed, [alone(1.25)]);
  for (const { forwardMs, backwardMs, inputMs, weightMs } of layers) {
    assert.deepEqual([forwardMs, backwardMs, inputMs, weightMs], [1.25, 2.5, 1.25, 1.25]);
  }
  // 3 ms of predicted costs take 2 ms.
  assert.deepEqual(loads.map(({ optimizer }) => optimizer.ms), [1.5]);
});

Deno.test("the factor of a load counts that of the lower loads", () => {
  const layers = [[...costsAt(1), ...costsAt(2)]], loads = [onceAt(1), onceAt(2)];
  const runs = [both(1.5), alone(1)]; // in any order
  const calibrated = calibrate({ layers, loads, programs: [program] }, runs).layers;
  assert.ok(layersAt(calibrated, 1).every(({ forwardMs }) => forwardMs === 1));
  const [one] = layersAt(calibrated, 2);
  assert.ok(one!.forwardMs > 1.4 && one!.forwardMs <= 1.5 + 1e-9, `${one!.forwardMs}`);
  // The prediction for the load of that run equals its duration.
  const { layer } = openLayerCosts(calibrated, "native");
  assert.ok(layer(facts[1]!, 1.5, 0).forwardMs > 1 && layer(facts[1]!, 1.5, 0).forwardMs < 1.5);
});

/** The costs in workers that hold a number of elements. */
const heldAt = (atOnce: number, heldParameters: number, forwardMs = 1): LayerCost[] =>
  costsAt(atOnce).map((one) => ({ ...one, heldParameters, forwardMs }));

Deno.test("a layer has the cost of the elements that its worker holds, under each load", () => {
  const costs = [...heldAt(1, 40), ...heldAt(2, 40, 2), ...heldAt(2, 20, 1.5)];
  const { layer, measured } = openLayerCosts(costs, "native");
  const cases = [
    ...[[1, 40, 1], [2, 20, 1.5], [2, 40, 2], [2, 30, 1.75], [2, 10, 1.5], [2, 99, 2]],
    // Under the lower load one number was measured; the ratio is that of the highest.
    ...[[1, 20, 0.75], [1, 30, 0.875], [1.5, 30, 1.3125]],
  ] as const;
  for (const [atOnce, held, expected] of cases) {
    assert.equal(layer(facts[0]!, atOnce, held).forwardMs, expected, `${atOnce} ${held}`);
  }
  assert.deepEqual(measured(facts[0]!).map((one) => one.forwardMs), [0.75, 1, 1.5, 2]);
});

Deno.test("the run with larger stages scales their costs only", () => {
  const all = parametersOf(facts);
  const layers = [[...heldAt(1, all), ...heldAt(2, all / 2), ...heldAt(2, all)]];
  const [step] = alone(1.5).steps, steps = [[...step!, ...step!]];
  const run = { model: 0, atOnce: 2, stages: 1, steps };
  const calibrated = calibrate({ layers, loads: [onceAt(2)], programs: [program] }, [run]);
  const factors = new Set(
    calibrated.layers.map((one) => `${one.atOnce} ${one.heldParameters! / all} ${one.forwardMs}`),
  );
  assert.deepEqual([...factors], ["1 1 1", "2 0.5 1", "2 1 1.5"]);
  assert.deepEqual(calibrated.loads, [onceAt(2)]);
});

Deno.test("a load without a run has the costs of its probes", () => {
  const layers = [[...costsAt(1), ...costsAt(2)]], loads = [onceAt(1), onceAt(2)];
  const calibrated = calibrate({ layers, loads, programs: [program] }, [alone(2)]).layers;
  assert.ok(layersAt(calibrated, 1).every(({ forwardMs }) => forwardMs === 2));
  assert.ok(layersAt(calibrated, 2).every(({ forwardMs }) => forwardMs === 1));
});

Deno.test("latency is half a round trip, and bandwidth follows from the additional time of large messages", () => {
  const copied = linkOf([{ small: [0.2, 0.2, 9], large: [4.2, 4.2] }]);
  assert.equal(copied.latencyMs, 0.1);
  assert.ok(Math.abs(copied.bytesPerMs! - (2 ** 22 - 4) / 2) < 1e-6, `${copied.bytesPerMs}`);
  // The time of a transferred buffer does not grow with its size.
  assert.deepEqual(linkOf([{ small: [0.2], large: [0.22] }]), { latencyMs: 0.1 });
});

Deno.test("pingers measure each round trip of a tensor", async () => {
  let now = 0;
  await using system = createSystem({ now: () => now++ });
  const { small, large } = await openLink(system, "local")();
  // On a clock that counts its readings nothing reads it between a Ping and its Pong.
  assert.ok(small.length === 25 && [...small, ...large].every((ms) => ms === 1));
});

Deno.test("overheads of an action and of a step follow from a short and a long step", () => {
  // 4 and 68 micro-batches: 128 actions of 0.5 ms between them.
  const none = overheadsOf([{ fewMs: 9, manyMs: 73 }], 0);
  assert.equal(none.dispatchMs, 0.5);
  assert.equal(none.stepMs, 9 - 8 * 0.5);
  // Messages explain some of it.
  const some = overheadsOf([{ fewMs: 9, manyMs: 73 }], 0.25);
  assert.ok(some.stepMs < none.stepMs && some.stepMs > 0, `${some.stepMs}`);
  assert.equal(overheadsOf([{ fewMs: 1, manyMs: 1 }], 10).stepMs, 0);
});

Deno.test("the overhead of a step is the time in which no action ran", () => {
  assert.equal(besideActions({ ms: 7, traces: [acts("0F0 1-3, 0B0 4-4.5")] }), 4.5);
});

Deno.test("the all-reduce is measured on the last copy, since the first also takes the norms", () => {
  const copy = (end: number) => acts(`0F0 0-1, reduce 0 2-${end}, reduce 0 10-11`);
  assert.equal(reduceMs([copy(9), copy(5)]), 4);
});

const times = { busyMs: 0, dispatchMs: 0, messageMs: 0, bubbleMs: 0, closingMs: 0, actions: {} };
const parts = { measured: times, predicted: times };

/** A step with these repeats and this prediction. */
const step = (repeats: readonly number[], predicted: number) =>
  checkStep(repeats, predicted, { configuration: "1f1b", parts, notes: [] });

Deno.test("the error is that of the median, and at least 0", () => {
  const { measured, spread, predicted, error } = step([90, 100, 130, 95, 105], 80);
  assert.deepEqual([measured, spread, predicted, error], [100, 30, 80, 0.2]);
  assert.equal(step([4, 1, 3, 2], 1).measured, 2.5);
});

Deno.test("a check passes if the median error is within 5 % and each error within 12 %", () => {
  const check = (...predicted: number[]) =>
    checkResult(predicted.map((one) => step([100, 100, 100], one)));
  assert.ok(check(104, 96, 112).isPassed);
  assert.ok(!check(104, 96, 113).isPassed);
  assert.ok(!check(106, 94, 100).isPassed);
  assert.equal(check(104, 80).missed.length, 1);
  assert.throws(() => checkResult([]), RangeError);
});

Deno.test("two cores have at least twelve configurations, none with more workers than cores", () => {
  const names = configurationsFor(2).map(nameOf);
  assert.ok(names.length >= 12 && new Set(names).size === names.length, names.join("; "));
  for (const cores of [1, 2, 4]) {
    for (const { options: { workers, replicas = 1 } } of configurationsFor(cores)) {
      assert.ok(workers * replicas <= cores);
    }
  }
  assert.ok(configurationsFor(4).some(({ options }) => options.workers === 4));
});

Deno.test("the parts of a traced step add up to it", () => {
  const traces = [
    acts("0F0 10-12, 0B0 18-20<17.5, optimizer 21-22"),
    acts("1F0 13-15<13, 1B0 15.5-17, optimizer 21-23"),
  ];
  const parts = measuredParts(16, traces, 1);
  assert.equal(parts.busyMs, (4 + 3.5) / 2);
  assert.equal(parts.closingMs, 6);
  assert.equal(parts.messageMs, (0.5 + 1) / 2);
  assert.equal(parts.dispatchMs, (0.5 + 0.5) / 2);
  const { busyMs, dispatchMs, messageMs, bubbleMs, closingMs } = parts;
  assert.equal(busyMs + dispatchMs + messageMs + bubbleMs + closingMs, 16);
  assert.deepEqual(parts.actions, { "0B": 2, "0F": 2, "1B": 1.5, "1F": 2 });
  assert.equal(meanParts([parts, { ...parts, busyMs: parts.busyMs + 2 }]).busyMs, busyMs + 1);
});

Deno.test("held-out configurations follow from their seed, and differ from calibration in two values", () => {
  const names = (seed: number, cores = 4) => drawConfigurations(seed, cores).map(nameOf);
  assert.deepEqual(names(1), names(1));
  assert.notDeepEqual(names(1), names(2));
  const all = [1, 2, 3].flatMap((seed) => drawConfigurations(seed, 4));
  for (const word of ["zb-h1", "N=16", "B=3", "W=2", "recompute-interval 2", "layout E,1|3,H"]) {
    assert.ok(all.some((one) => nameOf(one).includes(word)), word);
  }
  for (const { microBatch, options } of [...all, ...drawConfigurations(4, 2)]) {
    const { schedule, workers, microBatches, replicas, recomputeInterval, layout } = options;
    const others = [microBatch !== 4, schedule !== "1f1b", workers !== 2, microBatches !== 8];
    const more = [replicas, recomputeInterval, layout].map((one) => one !== undefined);
    assert.ok([...others, ...more].filter(Boolean).length >= 2);
    chooseSchedule({ schedule, workers, microBatches: microBatches!, scheduleOptions: {} });
  }
  for (const { options: { workers, replicas = 1 } } of drawConfigurations(5, 2)) {
    assert.ok(workers * replicas <= 2);
  }
});

Deno.test("runs with slices or halves take steps on whole micro-batches", async () => {
  const model = gpt2({ layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 8 }, 2);
  const ways = { seq1f1b: { slices: 2 }, chimera: { scale: "halving" } } as const;
  for (const [schedule, scheduleOptions] of Object.entries(ways)) {
    const place = { device: "reference", runtime: "local", workers: 2, microBatches: 4 } as const;
    await using run = await openMeasuredRun({ ...place, schedule, scheduleOptions, model });
    assert.ok((await run.step()).ms > 0);
  }
});
