/** Adapters train only their own weights, with the bits of the serial run in every pipeline. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { readAdapterConfig } from "../../../actors/checkpoints/peft.ts";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import type { TrainEvent } from "../../../actors/options/train_events.ts";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { loadModel } from "../../../actors/run/load_model.ts";
import { train } from "../../../actors/run/train.ts";
import { readMetrics } from "../../../actors/run_folder/metrics_file.ts";
import { readRun, summarizeRun } from "../../../actors/run_folder/read.ts";
import { readCurves } from "../../../console/run_files/losses.ts";
import { compileModel, gpt2, type Layer } from "../../../kernels/mod.ts";
import { initialValues, isLora } from "../../../kernels/internal.ts";
import { atDepth } from "../../depth.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import {
  batchesOf,
  eventsOf,
  type Outcome,
  outcome,
  type Sizes,
  SMALL,
  trained,
  trainTwice,
} from "../runs.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";

const SIZES: Sizes = { ...SMALL, hidden: 16, seq: 8, vocab: 32, microBatches: 4, steps: 3 };
const LORA = { rank: 2, alpha: 4, target: ["c_attn", "mlp.c_proj"] };

const run = (options: Partial<TrainOptions> = {}, sizes = SIZES): Promise<Outcome> =>
  outcome(sizes, {
    ...{ lora: LORA, device: "native", runtime: "serial", learningRate: 0.01, ...options },
  });

/** The weights of a run by name, those of adapters or the others. */
const weightsOf = ({ end }: Outcome, areOwn: boolean) =>
  new Map([...end.weights].filter(([name]) => isLora(name) === areOwn));

Deno.test("only the adapter is trained, and its first step has the loss of the base model", async () => {
  const adapted = await run(), base = await run({ lora: undefined });
  assert.equal(adapted.bits.losses[0], base.bits.losses[0], "B begins with zeros");
  assert.notEqual(adapted.bits.losses[1], base.bits.losses[1]);
  for (const { name, spec } of compileModel(gpt2(SIZES, 1), "none").parameters) {
    assert.deepEqual(adapted.end.weights.get(name), initialValues(spec, name, 1), name);
  }
  const own = weightsOf(adapted, true);
  assert.equal(own.size, 2 * 2 * SIZES.layers);
  for (const [name, values] of own) assert.ok(values.every((value) => value !== 0), name);
  const [{ plan }] = eventsOf(adapted.events, "plan") as [TrainEvent & { readonly type: "plan" }];
  assert.equal(plan.trained, [...own.values()].reduce((sum, { length }) => sum + length, 0));
  assert.ok(plan.trained < plan.parameters);
});

Deno.test("every pipeline trains an adapter to the bits of the serial run", async () => {
  const { bits } = await run();
  for (const schedule of ["1f1b", "zb-h1", "message-driven"]) {
    // On four workers the stages of embedding and head have nothing to train.
    for (const workers of [2, 4]) {
      const found = await run({ runtime: "local", schedule, workers });
      assert.deepEqual(found.bits, bits, `${schedule}, ${workers} workers`);
    }
  }
  const more: Partial<TrainOptions>[] = [
    { schedule: "chimera", workers: 4 },
    { schedule: "seq1f1b", workers: 2, scheduleOptions: { slices: 2 } },
    { schedule: "1f1b", workers: 4, replicas: 2, sync: "eager", clip: 0.01, precision: "fp16" },
    { schedule: "pipedream", workers: 2 },
    { schedule: "1f1b", workers: 2, recompute: "full", offload: true },
    { workers: 2, faults: [{ worker: 1, afterActions: 12, kind: "throw" }] },
  ];
  for (const options of more) await trainTwice(run, options);
});

folderTest("an adapter resumes with its bits, and with no other settings", async (directory) => {
  const whole = await run(), checkpoint = { directory };
  await run({ steps: 1, checkpoint, runtime: "local", workers: 2, schedule: "zb-h1" });
  const resume = await readCheckpoint(directory);
  assert.deepEqual(resume!.config.lora, LORA);
  const rest = await run({ resume, runtime: "local", workers: 4, schedule: "1f1b" });
  assert.equal(rest.bits.hash, whole.bits.hash);
  await assert.rejects(run({ resume, lora: { ...LORA, alpha: 2 } }), /lora must be .*"alpha":4/);
  await assert.rejects(run({ resume, lora: undefined }), /each must be a parameter of the model/);
});

Deno.test("weights of a base model, also with an adapter, begin a run of an adapter", async () => {
  const first = await run({ steps: 1 }), base = weightsOf(first, false);
  const again = await run({ steps: 1, weights: base, seed: 2 });
  assert.deepEqual(weightsOf(again, false), base);
  assert.notDeepEqual(weightsOf(again, true), weightsOf(first, true), "A depends on the seed");
  const both = await run({ steps: 1, weights: first.end.weights, learningRate: 0 });
  assert.deepEqual(both.end.weights, first.end.weights);
});

Deno.test("an update has the gradient of the weight that it is added to", async () => {
  // One step of plain SGD on B moves W + BA as one on W would, projected on A: ΔB = ΔW·Aᵀ.
  const optimizer = { kind: "sgd", momentum: 0, weightDecay: 0 } as const, learningRate = 1;
  const how = { optimizer, learningRate, runtime: "serial", device: "reference" } as const;
  const sizes = { ...SIZES, steps: 1, microBatches: 1 };
  const name = "transformer.h.1.mlp.c_proj", [inputs, outputs, rank, scale] = [64, 16, 2, 2];
  const whole = await outcome(sizes, how);
  const lora = { rank, alpha: 4, target: ["mlp.c_proj"] };
  const { end } = await outcome(sizes, { ...how, lora });
  const weights = compileModel(gpt2(SIZES, SIZES.microBatch), "none").parameters;
  const { spec } = weights.find((one) => one.name === `${name}.weight`)!;
  const before = initialValues(spec, `${name}.weight`, 1);
  const after = whole.end.weights.get(`${name}.weight`)!;
  const [a, b] = ["A", "B"].map((factor) => end.weights.get(`${name}.lora_${factor}.weight`)!);
  for (let o = 0; o < outputs; o++) {
    for (let k = 0; k < rank; k++) {
      let sum = 0;
      for (let i = 0; i < inputs; i++) {
        sum += (after[i * outputs + o]! - before[i * outputs + o]!) * a![k * inputs + i]!;
      }
      assert.ok(Math.abs(b![o * rank + k]! - scale * sum) < 1e-6, `B[${o},${k}]`);
    }
  }
});

const JOB_SIZES: Sizes = { ...SIZES, layers: 1, microBatches: 2, steps: 30, dropout: 0.1 };
const BASE = new Map(
  compileModel(gpt2(JOB_SIZES, 1), "none").parameters.map(({ name, spec }) =>
    [name, initialValues(spec, name, 9)] as const
  ),
);
const COMMON = {
  ...{ model: gpt2(JOB_SIZES, JOB_SIZES.microBatch), weights: BASE, microBatches: 2 },
  ...{ clip: 0.03, device: atDepth<"reference" | "native">("reference", "native") },
} as const;

/** Jobs that begin and end in different steps, with two settings of adapters. */
function jobsOf(count: number) {
  const all = batchesOf(JOB_SIZES), loras = [LORA, { rank: 3, target: ["c_attn"] }];
  return Array.from({ length: count }, (_, j) => ({
    ...{ name: `job-${j}`, data: all.slice(3 * j, 3 * j + 10), lora: loras[j % 2]! },
    ...{ steps: 2 + j % 3, start: 1 + j % 4, learningRate: 0.01 * (j + 1), seed: j },
  }));
}

type Jobs = ReturnType<typeof jobsOf>;

/** The bits of each job, alone in a serial run. */
async function alone(jobs: Jobs): Promise<Map<string, Outcome["bits"]>> {
  const bits = new Map<string, Outcome["bits"]>();
  for (const { name, start: _, ...own } of jobs) {
    bits.set(name, (await trained({ ...COMMON, ...own, runtime: "serial" })).bits);
  }
  return bits;
}

/** The bits of jobs that are trained together, and the failure of the run. */
async function together(options: Omit<TrainOptions, "model">) {
  const losses: Record<string, number[]> = {}, norms: Record<string, number[]> = {};
  const bits = new Map<string, Outcome["bits"]>(), adapters: TrainEvent[] = [];
  let failure: Error | undefined;
  try {
    for await (const event of train({ ...COMMON, runtime: "local", workers: 2, ...options })) {
      if (event.type === "step") {
        (losses[event.job!] ??= []).push(event.loss);
        (norms[event.job!] ??= []).push(event.gradNorm);
      }
      if (event.type !== "job") continue;
      const { job, weightsHash: hash } = event;
      bits.set(job, { losses: losses[job]!, norms: norms[job]!, hash });
      adapters.push(event);
    }
  } catch (error) {
    failure = error as Error;
  }
  return { bits, adapters, failure };
}

const sorted = <T>(map: ReadonlyMap<string, T>) => new Map([...map].sort());

Deno.test("jobs on one pipeline of threads have the bits that each has alone", async () => {
  const jobs = jobsOf(atDepth(2, 8)), bits = await alone(jobs);
  const cases: Partial<TrainOptions>[] = ["zb-h1", "1f1b", "message-driven"].flatMap((schedule) => [
    { runtime: "workers", schedule },
    { runtime: "local", schedule, recompute: "full", offload: true },
    { runtime: "workers", isolation: "process", schedule },
    { schedule, faults: [{ worker: 1, afterActions: 40, kind: "throw" }] },
  ]);
  for (const options of cases.slice(0, atDepth(1, Infinity))) {
    const found = await together({ jobs, ...options });
    assert.equal(found.failure, undefined);
    assert.deepEqual(sorted(found.bits), bits, JSON.stringify(options));
  }
});

folderTest("a job that fails leaves the others their bits and their folders", async (out) => {
  const [first, last] = jobsOf(2) as [Jobs[number], Jobs[number]];
  const wild = { ...first, name: "wild", steps: 4, learningRate: 1e30 };
  const short = { ...first, data: first.data.slice(0, 3) }, others = [short, last];
  const { learningRate: _, ...without } = { ...wild, name: "without" };
  const [one] = first.data, targets = one!.targets!.map(() => -1);
  const empty = { ...first, name: "empty", data: [{ ...one!, targets }] };
  const learningRate = (step: number) => step > 1 ? NaN : 1;
  const bits = await alone(others), jobs = [wild, without, empty, ...others];
  const found = await together({ jobs, out, learningRate });
  assert.deepEqual(sorted(found.bits), bits, "the last step of a job may be smaller");
  const failure = found.failure as Error & { suppressed: Error[] };
  const sentences = [failure, ...failure.suppressed].map(({ message }) =>
    /^Cannot train the job (.*?): ([a-z ]*[a-z])/.exec(message)?.slice(1)
  );
  assert.deepEqual(sentences.sort(), [
    ["empty", "cannot train"],
    ["wild", "cannot take step"],
    ["without", "cannot run step"],
  ]);
  const event = found.adapters.at(-1), { lora } = last;
  assert.ok(event?.type === "job" && event.adapter === join(out, "job-1"));
  assert.deepEqual(readAdapterConfig(event.adapter), { ...lora, alpha: 3 });
  const again = { ...last, name: "again", start: 1, adapter: event.adapter, learningRate: 0 };
  const { adapters: [same] } = await together({ jobs: [again] });
  assert.ok(same?.type === "job");
  assert.deepEqual(same.weights, event.weights);
  const refused = together({ jobs: others, out });
  assert.match(`${(await refused).failure}`, /the folder of a job must be new, received/);
});

Deno.test("jobs that are interrupted do not wait for a micro-batch of one that never comes", async () => {
  const [fine, other] = jobsOf(2) as [Jobs[number], Jobs[number]], stop = new AbortController();
  const data = async function* () {
    yield* other.data.slice(0, COMMON.microBatches);
    setTimeout(() => stop.abort(), 1);
    await new Promise(() => {});
  }();
  const { adapters } = await together({ jobs: [fine, { ...other, data }], signal: stop.signal });
  assert.equal(adapters.length, 2);
});

folderTest("jobs resume with their bits; some leave, and others join", async (out) => {
  const jobs = jobsOf(3), [first, second, third] = jobs;
  const late = { ...first!, name: "late", start: 5 };
  const bits = await alone([...jobs, late]), controller = new AbortController();
  const local = { runtime: "local", workers: 2, checkpoint: { every: 1 } } as const;
  const common = { ...COMMON, ...local, out };
  for await (const event of train({ ...common, jobs, signal: controller.signal })) {
    if (event.type === "step" && event.job === "job-2") controller.abort();
  }
  assert.deepEqual(readAdapterConfig(join(out, "job-2")), LORA, "of an interrupted job");
  const resumed = (jobs: readonly Jobs[number][]) =>
    together({ ...common, resume: out, schedule: "zb-h1", jobs: jobs as Jobs });
  const failed = async (job: Jobs[number]) => {
    throw (await resumed([job])).failure;
  };
  const resume = (await readCheckpoint(out))!;
  const model = { name: "gpt", build: () => COMMON.model };
  const deep = JSON.parse("[".repeat(1e5) + "]".repeat(1e5));
  const lora = { ...second!.lora, alpha: 3 }, kept = { step: 2, isOver: false, lora };
  const forged = async (own: unknown) => {
    const config = { progress: { jobs: { step: 3, each: { "job-1": own } } } };
    throw (await together({ ...COMMON, resume: { ...resume, config }, jobs: [second!] })).failure;
  };
  await assertRefused("resumed_jobs", [
    () => failed({ ...second!, lora: { ...second!.lora, alpha: 7 } as typeof LORA }),
    () => failed({ ...second!, start: 1 }),
    () => failed({ ...late, start: 3 }),
    () => loadModel(model, out),
    () => forged(null),
    () => forged({ ...kept, step: "2" }),
    () => forged({ ...kept, isOver: deep }),
    () => forged({ ...kept, lora: deep }),
    () => forged({ ...kept, lora: { ...lora, rank: deep } }),
  ], { FOLDER: out });
  for (const end of ["", "-old"]) {
    await Deno.mkdir(join(out, `.job-2-${crypto.randomUUID()}${end}`)); // after a kill
  }
  const found = await resumed([second!, third!, late]);
  assert.equal(found.failure, undefined);
  const names = await namesIn(out);
  assert.deepEqual(names.filter((name) => name.startsWith(".job")), []);
  for (const [name, { hash, losses }] of found.bits) {
    assert.deepEqual([name, hash], [name, bits.get(name)!.hash]);
    assert.deepEqual(losses, bits.get(name)!.losses.slice(-losses.length));
  }
  assert.deepEqual([...found.bits.keys()].sort(), ["job-1", "job-2", "late"]);
  const lines = Array.from(readMetrics(out), ({ metrics }) => metrics);
  for (const { name, start, steps } of [...jobs, late]) {
    const own = lines.filter(({ job }) => job === name);
    const inOrder = Array.from({ length: steps }, (_, i) => start + i);
    assert.deepEqual(own.map(({ step }) => step), inOrder, name);
    assert.deepEqual(own.map(({ loss }) => loss), bits.get(name)!.losses, name);
  }
  const run = await readRun(out), curves = readCurves(run).map(({ name }) => basename(name));
  assert.deepEqual(curves, ["job-0", "job-1", "job-2", "late"]);
  assert.deepEqual(run.record!.flags["jobs"], ["job-1", "job-2", "late"]);
  const summary = summarizeRun(run), last = lines.filter(({ step }) => step === summary.steps);
  assert.equal(summary.state, "finished");
  assert.equal(summary.loss, last.reduce((sum, { loss }) => sum + loss!, 0) / last.length);
  const event = found.adapters.find((one) => one.type === "job" && one.job === "job-2");
  assert.ok(event?.type === "job");
  const again = { ...third!, name: "again", start: 1, adapter: event.adapter!, learningRate: 0 };
  const { adapters: [same] } = await together({ jobs: [again] });
  assert.ok(same?.type === "job");
  assert.deepEqual(same.weights, event.weights, "the folder has the last weights");
});

folderTest("an adapter of a layer with any name is read again", async (out) => {
  const layer: Layer = {
    name: "in-put",
    build: (g) => {
      const weight = g.parameter("weight", [2, 1], { kind: "constant", value: 1 });
      return g.reshape(g.gemm(g.batch("x", [1, 2]), weight), [1]);
    },
  };
  const job = { name: "a", data: [{ x: Float32Array.of(1, 2) }], steps: 1 };
  const model = { name: "one", layers: [layer], predictions: 1 };
  const options = {
    ...{ model, microBatches: 1, workers: 1, weights: undefined, out },
    lora: { rank: 1, target: ["in-put"] },
  };
  assert.equal((await together({ ...options, jobs: [job] })).failure, undefined);
  const next = { ...job, name: "b", start: 2, adapter: join(out, "a") };
  const found = await together({ ...options, resume: out, jobs: [job, next] });
  assert.equal(found.failure, undefined);
  assert.deepEqual([...found.bits.keys()], ["b"]);
});
