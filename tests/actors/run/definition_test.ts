/** A definition of a model: trained with metrics, evaluated, and opened for predictions. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { defineData } from "../../../actors/registry/component.ts";
import { openTask } from "../../../actors/registry/task.ts";
import { buildModel, scriptModelOptions } from "../../../actors/options/model_definition.ts";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { loadModel, predict } from "../../../actors/run/load_model.ts";
import { readMetrics } from "../../../actors/run_folder/metrics_file.ts";
import {
  accuracy,
  encodeSafetensors,
  f1Score,
  type Layer,
  type LayerGraph,
  type Metric,
  openPredictor,
  openReference,
  readSafetensors,
  type Value,
} from "../../../kernels/mod.ts";
import { folderTest } from "../../in_folder.ts";
import type { TrainEvent } from "../../../actors/options/train_events.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { eventsOf, trained } from "../runs.ts";
import { DATA, MODEL, PLAIN, TABLE } from "./sides.ts";

const HOW = { microBatches: 2, device: "reference", runtime: "local", learningRate: 0.05 } as const;

const run = (options: Partial<TrainOptions> = {}) =>
  trained({ model: MODEL, data: DATA, steps: 6, ...HOW, ...options } as TrainOptions);

const metricsIn = (events: readonly TrainEvent[]) =>
  eventsOf(events, "step").map(({ metrics }) => metrics);

Deno.test("metrics leave the bits of training as they are, under any schedule", async () => {
  const plain = await run({ model: PLAIN }), measured = await run();
  const own = metricsIn(measured.events);
  assert.deepEqual(measured.bits, plain.bits);
  assert.equal(own.length, 6);
  const others = [
    { runtime: "serial" },
    { workers: 2, schedule: "1f1b" },
    { workers: 2, schedule: "zb-h1" },
    { workers: 2, schedule: "message-driven" },
  ] as const;
  for (const options of others) {
    const other = await run(options);
    assert.deepEqual(other.bits, plain.bits, JSON.stringify(options));
    assert.deepEqual(metricsIn(other.events), own, JSON.stringify(options));
  }
  const scheduleOptions = { scale: "halving" } as const;
  const halved = { workers: 2, schedule: "chimera", microBatches: 4, scheduleOptions };
  const { bits } = await run({ ...halved, model: PLAIN });
  assert.deepEqual((await run(halved)).bits, bits, "half micro-batches");
});

folderTest("metrics are those of the weights before the step, by hand", async (folder) => {
  const out = join(folder, "sides"), batches = TABLE.inOrder(4);
  const { end, events } = await run({ out, evaluation: { every: 6, batches } });
  const [evaluation] = eventsOf(events, "evaluation");
  using model = await loadModel(MODEL, out, { device: "reference" });
  const { point, side } = TABLE.inOrder(48)[0]! as { point: Float32Array; side: Int32Array };
  const logits = await model.predict({ point }),
    predicted = Array.from(side, (_, i) => +(logits[2 * i]! < logits[2 * i + 1]!));
  const count = (is: (predicted: number, actual: number) => boolean) =>
    predicted.filter((one, i) => is(one, side[i]!)).length;
  const both = count((a, b) => a === 1 && b === 1);
  const f1 = 2 * both / (count((a) => a === 1) + count((_, b) => b === 1));
  const score = logits.reduce((sum, one) => sum + one, 0) / 48, own = evaluation!.metrics!;
  assert.deepEqual([own.accuracy, own.f1], [count((a, b) => a === b) / 48, f1]);
  assert.ok(Math.abs(own.score! - score) < 1e-6, `${own.score} and ${score}`);
  const { loss, metrics } = await model.evaluate(batches);
  assert.deepEqual([loss, metrics], [evaluation!.loss, evaluation!.metrics]);
  const half = {
    point: point.filter((_, i) => i % 4 < 2),
    side: side.filter((_, i) => i % 2 === 0),
  };
  const known = { point, side: side.map((one, i) => i % 2 === 0 ? one : -1) };
  const [wanted, found] = [await model.evaluate([half]), await model.evaluate([known])];
  assert.equal(found.metrics!.f1, wanted.metrics!.f1, "a sample without a class is no error");
  assert.deepEqual(model.classes, { side: ["in", "out"] });
  const lines = Array.from(readMetrics(out), ({ metrics }) => metrics);
  assert.deepEqual(lines.at(-1)!.metrics, evaluation!.metrics);
  assert.deepEqual(lines[0]!.metrics, eventsOf(events, "step")[0]!.metrics);
  assert.equal(end.steps, 6);
});

Deno.test("a loaded model counts several predictions of a sample as training does", async () => {
  const build: typeof MODEL.build = (options) => {
    const layers = PLAIN.build(options) as Layer[], last = layers.at(-1)!;
    const apart: Layer = {
      ...last,
      build: (g, x) => g.reshape(last.build(g, x) as Value, [-1, 1]),
    };
    const predictions = 2 * options.microBatch;
    return { name: "rows", layers: [...layers.slice(0, -1), apart], predictions };
  };
  const row: Metric["terms"][string] = (g, y) => g.reshape(g.mul(y, y), [-1]);
  const model = { name: "rows", build, loss: row, metrics: { row } };
  const evaluation = { every: 6, batches: TABLE.inOrder(4) };
  const { events, end } = await run({ model, evaluation });
  const sizes = { point: 2, side: 2 };
  using loaded = await loadModel(model, end.weights, { device: "reference", sizes });
  const { loss, metrics } = eventsOf(events, "evaluation")[0]!;
  assert.deepEqual(await loaded.evaluate(evaluation.batches), { loss, metrics });
});

folderTest("any number of samples is predicted as the training graph does", async (folder) => {
  const out = join(folder, "sides"), { end } = await run({ out });
  const file = join(folder, "sides.safetensors"), sizes = { point: 2, side: 2 };
  const { layers } = await buildModel(MODEL, scriptModelOptions(1, sizes));
  assert.equal(layers.length, 3);
  const shapes: Record<string, number[]> = {
    ...{ "a.weight": [2, 8], "a.bias": [8], "b.weight": [8, 2], "b.bias": [2] },
  };
  const tensors = Array.from(
    end.weights,
    ([name, data]) => [name, { dtype: "F32", shape: shapes[name]!, data }] as const,
  );
  await Deno.writeFile(file, encodeSafetensors(new Map(tensors)));
  const options = { device: "reference", sizes } as const;
  const { point } = TABLE.inOrder(48)[0]! as { point: Float32Array };
  using byName = await loadModel(MODEL, out, { device: "reference" });
  using byFile = await loadModel(MODEL, file, options);
  using byMap = await loadModel(MODEL, end.weights, options);
  const many = new Float32Array(2 * 600).map((_, i) => point[i % 96]!);
  const all = await byName.predict({ point: many });
  assert.equal(all.length, 1200);
  for (const model of [byName, byFile, byMap]) {
    for (const [from, count] of [[0, 1], [5, 3], [255, 300], [40, 8]] as const) {
      const part = await model.predict({ point: many.subarray(2 * from, 2 * (from + count)) });
      assert.deepEqual(part, all.slice(2 * from, 2 * (from + count)), `${count} samples`);
    }
  }
  const [first] = await predict(MODEL, out, { point: many.subarray(0, 2) }, options);
  assert.equal(first, all[0]);
  await Deno.mkdir(join(folder, "empty"));
  await assertRefused("run_folders", [
    () => loadModel(MODEL, `${folder}/none`),
    () => loadModel(MODEL, `${folder}/empty`),
  ], { FOLDER: folder });
});

folderTest("checkpoints keep the sizes of the data, without a run's folder", async (folder) => {
  const { point } = TABLE.inOrder(4)[0]! as { point: Float32Array }, sizes = { point: 2, side: 2 };
  const reference = { device: "reference" } as const;
  const saved = async (name: string, checkpoint = {}, options: Partial<TrainOptions> = {}) => {
    const directory = join(folder, name);
    const { end } = await run({ ...options, checkpoint: { directory, ...checkpoint } });
    return [directory, end.weights] as const;
  };
  const [directory, weights] = await saved("kept", { config: { note: "mine", classes: {} } });
  using model = await loadModel(MODEL, directory, reference);
  using byMap = await loadModel(MODEL, weights, { ...reference, sizes });
  assert.deepEqual(await model.predict({ point }), await byMap.predict({ point }));
  assert.deepEqual(model.classes, {}, "the script's own fields of config.json are kept");
  const { layers } = await buildModel(MODEL, scriptModelOptions(4, sizes));
  const [old] = await saved("old", {}, { model: { name: "sides", layers, predictions: 4 } });
  await assertRefused("sizes_of_data", [() => loadModel(MODEL, old, reference)]);
  using byGiven = await loadModel(MODEL, old, { ...reference, sizes });
  assert.equal((await byGiven.predict({ point })).length, 8);
});

folderTest("the averages of a run are opened as its weights, and are a file", async (folder) => {
  const out = join(folder, "averaged"), batches = TABLE.inOrder(4), reference = "reference";
  const evaluation = { every: 6, batches, ema: true };
  const optimizer = { ema: 0.5, groups: [{ match: "a.bias", frozen: true }] };
  const { events } = await run({ out, optimizer, evaluation });
  const step = join(out, "step-00000006"), file = join(step, "ema.safetensors");
  const [own] = eventsOf(events, "evaluation"), device = { device: reference } as const;
  using averages = await loadModel(MODEL, out, { ...device, ema: true });
  using weights = await loadModel(MODEL, out, device);
  assert.equal((await averages.evaluate(batches)).loss, own!.loss);
  assert.notEqual((await weights.evaluate(batches)).loss, own!.loss);
  const { tensors } = await readSafetensors(file);
  assert.deepEqual([...tensors.keys()].sort(), ["a.weight", "b.bias", "b.weight"]);
  const plain = join(folder, "plain");
  await run({ out: plain });
  const sources = { file, "a map": new Map<string, Float32Array>(), "a run without them": plain };
  const refusals = Object.entries(sources).map(([what, source]) =>
    [what, () => loadModel(MODEL, source, { ema: true })] as const
  );
  await assertRefused("averages", refusals, { FOLDER: folder });
});

folderTest("a run is opened with its adapter, from its folder and its URL", async (folder) => {
  const lora = { rank: 2, target: ["a"] }, reference = { device: "reference" } as const;
  const evaluation = { every: 2, batches: TABLE.inOrder(4) };
  const { events } = await run({ out: join(folder, "sides"), lora, evaluation, steps: 2 });
  const { point } = TABLE.inOrder(4)[0]! as { point: Float32Array };
  using local = await loadModel(MODEL, join(folder, "sides"), reference);
  const { loss, metrics } = await local.evaluate(evaluation.batches);
  const [own] = eventsOf(events, "evaluation");
  assert.deepEqual([loss, metrics], [own!.loss, own!.metrics]);
  const expected = await local.predict({ point }), step = "sides/step-00000002";
  const read = (name: string) => Deno.readTextFile(join(folder, name));
  const write = (name: string, value: unknown) =>
    Deno.writeTextFile(join(folder, name), JSON.stringify(value));
  await using server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen() {} },
    (request) =>
      Deno.readFile(join(folder, new URL(request.url).pathname)).then(
        (body) => new Response(body),
        () => new Response("none", { status: 404 }),
      ),
  );
  const at = (name: string) => `http://127.0.0.1:${server.addr.port}/${name}`;
  const open = (name: string, options = {}) =>
    loadModel(MODEL, at(name), { ...reference, ...options });
  for (const name of ["sides", `${step}/`]) {
    using model = await open(name);
    assert.deepEqual(await model.predict({ point }), expected, name);
  }
  const refused = (name: string, must: RegExp, options = {}) =>
    assert.rejects(open(name, options), must);
  await refused("other", /^RangeError: Cannot read .*other\/run.json: it must be a file/);
  await refused("sides", /must be a run's folder or name/, { ema: true });
  const file = `${step}/model.safetensors`, sizes = { point: 2, side: 2 };
  const foreign = /every tensor must be a parameter of the model, received "a.lora_A.weight"/;
  await refused(file, foreign, { sizes });
  await refused(file, /must have the sizes point and side/);
  const { end: _, ...record } = JSON.parse(await read("sides/run.json"));
  await write("sides/run.json", record);
  await refused("sides", /Cannot load sides: .* must be a run that has ended/);
  const { tensors } = await readSafetensors(join(folder, file));
  const names = [...tensors.keys()], shards = [names.slice(0, 2), names.slice(2)];
  for (const [i, own] of shards.entries()) {
    const shard = new Map(own.map((name) => {
      const { shape, data: { buffer } } = tensors.get(name)!;
      return [name, { dtype: "F32", shape, data: new Float32Array(buffer) }] as const;
    }));
    await Deno.writeFile(join(folder, step, `${i}.safetensors`), encodeSafetensors(shard));
  }
  const placed = shards.flatMap((own, i) => own.map((n) => [n, `${i}.safetensors`]));
  await write(`${file}.index.json`, { weight_map: Object.fromEntries(placed) });
  await write(`${step}/manifest.json`, { format: 2, step: 2 });
  await Deno.remove(join(folder, file));
  using sharded = await open(step);
  assert.deepEqual(await sharded.predict({ point }), expected, "of shards");
  await write(`${step}/manifest.json`, { format: 3, step: 2 });
  await refused(step, /must have a manifest of format 1 or 2, received "3"/);
});

Deno.test("predictions that overlap are answered in order, of fixed layers too", async () => {
  const { end } = await run(), sizes = { point: 2, side: 2 };
  const { predicting } = await buildModel(MODEL, scriptModelOptions(4, sizes));
  const device = await openReference();
  const fixed = await openPredictor(device, predicting!, end.weights);
  const inputs = TABLE.inOrder(4).map(({ point }) => ({ point: point! }));
  const alone: Float32Array[] = [];
  for (const input of inputs) alone.push(await fixed(input));
  const wrong = fixed({}).catch(({ message }) => message);
  assert.deepEqual(await Promise.all(inputs.map(fixed)), alone);
  assert.match(await wrong, /point/);
  device.close();
});

Deno.test("epochs are counted in whole steps of the data", async () => {
  const stepsOf = async (options: Partial<TrainOptions>) =>
    (await trained({ model: MODEL, data: DATA, ...HOW, ...options })).end.steps;
  assert.equal(await stepsOf({ epochs: 1 }), 6);
  assert.equal(await stepsOf({ epochs: 2, microBatches: 5 }), 4, "24 micro-batches");
  const parts = { data: { ...DATA, length: 1 / 49 }, epochs: 49, microBatches: 1 };
  assert.equal(await stepsOf(parts), 1, "a length that is rounded");
  await assertRefused("epochs", [
    () => stepsOf({}),
    () => stepsOf({ epochs: 1, steps: 2 }),
    () => stepsOf({ epochs: 1, microBatches: 100 }),
    () => stepsOf({ epochs: 1, data: { from: DATA.from, samples: 4 } }),
    () => stepsOf({ steps: 1, data: DATA.from(0) as never }),
  ]);
});

folderTest("a run on a table resumes within an epoch, with the same bits", async (folder) => {
  const out = join(folder, "sides"), whole = await run({ steps: 8 });
  const controller = new AbortController(), { signal } = controller;
  const onStep = ({ step }: { step: number }) => step === 4 && controller.abort();
  assert.equal((await run({ steps: 8, out, signal, onStep })).end.steps, 4);
  const resumed = await run({ steps: 8, resume: out });
  assert.equal(resumed.end.weightsHash, whole.end.weightsHash);
  const lastOf = ({ events }: typeof whole) => metricsIn(events).slice(-4);
  assert.deepEqual(lastOf(resumed), lastOf(whole));
});

Deno.test("the command trains a definition as a script does", async () => {
  const sizes = { layers: 4, hidden: 128, heads: 4, seq: 64, vocab: undefined, tie: false };
  const options = { ...sizes, microBatch: 4, microBatches: 2, replicas: 1, steps: 6, seed: 1 };
  const data = defineData({
    ...{ name: "points", version: "1" },
    open: ({ microBatch }) => ({
      batches: TABLE.batches({ samples: microBatch }),
      sizes: DATA.sizes,
    }),
  });
  const none = { tokenizer: undefined, file: undefined, announce: () => {} };
  const task = await openTask(MODEL, data, { ...options, ...none });
  const [command, script] = [await run({ model: task.model, data: task.data }), await run()];
  assert.deepEqual(command.bits, script.bits);
  assert.deepEqual(metricsIn(command.events), metricsIn(script.events));
});

Deno.test("callbacks get the events of the loop, and one that fails ends the run", async () => {
  const seen: string[] = [];
  const note = (event: { type: string; step: number }) => seen.push(`${event.type} ${event.step}`);
  const evaluation = { every: 2, batches: TABLE.inOrder(4) };
  await run({ steps: 2, evaluation, onStep: note, onEvaluation: note });
  assert.deepEqual(seen, ["step 1", "step 2", "evaluation 2"]);
  const fail = () => Promise.reject(new Error("the tracker is gone"));
  for (const how of [{ onStep: fail }, { metrics: fail }]) {
    await assert.rejects(run(how), /the tracker is gone/);
  }
});

Deno.test("a loaded model refuses what it cannot read", async () => {
  const { end: { weights } } = await run(), sizes = { point: 2, side: 2 };
  const options = { device: "reference", sizes } as const;
  using model = await loadModel(MODEL, weights, options);
  const short = new Map([...weights, ["a.bias", new Float32Array(3)]]);
  await assertRefused("loaded_models", [
    () => loadModel(MODEL, weights, { ...options, emaa: true } as never),
    () => loadModel(MODEL, undefined as never, options),
    () => loadModel(MODEL, short, options),
    () => model.predict(undefined as never),
    () => model.predict({}),
    () => model.predict({ point: [1, 2] } as never),
    () => model.predict({ point: new Float64Array(2) } as never),
    () => model.predict({ point: null } as never),
    () => model.predict({ point: Float32Array.of(0, NaN) }),
    () => model.predict({ point: new Float32Array(3) }),
    () => model.evaluate(TABLE as never),
    () => model.evaluate([]),
  ]);
});

Deno.test("a loss, a metric or layers of another form are refused", async () => {
  const one = { name: "one", build: (g: LayerGraph, x: Value) => g.mean(x, [1], true) };
  const forms = [
    { metrics: { mean: (g: LayerGraph, y: Value) => g.mean(y) } },
    { metrics: { a: {} } },
    { metrics: { a: f1Score("side", 2) } },
    {
      build: (options: never) => [...PLAIN.build(options) as Layer[], one],
      loss: (g: LayerGraph, y: Value) => g.reshape(y, [-1]),
      metrics: { accuracy: accuracy("side") },
    },
    { loss: (g: LayerGraph, y: Value) => g.mean(g.mean(y, [1], false), [0], true) },
    { loss: () => {} },
    { loss: undefined },
    { build: () => {} },
    { build: () => [] },
  ];
  const refusals = forms.map((own) =>
    [own, () => run({ model: { ...PLAIN, ...own } as never })] as const
  );
  await assertRefused("definitions", refusals);
});
