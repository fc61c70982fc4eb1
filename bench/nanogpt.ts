/**
 * Trains character models in Troupe and in PyTorch, with the same first weights, micro-batches and
 * learning rates: nanoGPT's `shakespeare_char` with its settings for a CPU, and the GPT of the other
 * benchmarks in FP32 and BF16.
 *
 * nanoGPT has no biases: those of Troupe are 0 and frozen, and PyTorch has none. Its GELU is exact;
 * here both use the approximation by tanh.
 *
 * @module
 */

import type { TrainEvent } from "../actors/options/train_events.ts";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { train } from "../actors/run/train.ts";
import { heldOutBatches, learningRateAt, loadText, type TokenBatch } from "../kernels/mod.ts";
import { substream } from "../kernels/random.ts";
import { openTorch, type PeerTask, type TorchPrecision } from "./peers.ts";
import { type Row, rowMaker, valueRow } from "./report.ts";
import { interleave } from "./timing.ts";
import { benchModel, firstWeights, SMALL, type Workload } from "./workload.ts";

/** Settings of a training run that both libraries take. */
type Settings = typeof NANO_GPT;

const NANO_GPT = {
  steps: 2000,
  /** All but the vocabulary, which is that of the text. */
  layers: { layers: 4, hidden: 128, heads: 4, seq: 64 },
  microBatch: 12,
  warmup: 100,
};
const { vocab: _, ...SMALL_LAYERS } = SMALL.config;
const PRECISIONS: Settings = {
  steps: 200,
  layers: SMALL_LAYERS,
  microBatch: SMALL.microBatch,
  warmup: 20,
};

const OPTIMIZER = { beta2: 0.99, weightDecay: 0.1 } as const;
const CLIP = 1;

/** Steps of a round. */
const ROUND_STEPS = 50;
/** Steps between evaluations. */
const EVERY = 250;
/** Micro-batches of an evaluation. */
const HELD_OUT = 20;

/** In place of tiny Shakespeare, nanoGPT's text, for which there is no pinned package. */
const TEXT = "moby-dick";

const isBias = (name: string) => name.endsWith(".bias");

type Task = PeerTask & Required<Pick<PeerTask, "batches" | "heldOut" | "rates">>;

/** Returns the model, and micro-batches of characters: the first nine tenths of the text train. */
async function openTask({ steps, layers, microBatch, warmup }: Settings): Promise<Task> {
  const characters = [...await loadText(TEXT)], vocabulary = [...new Set(characters)].sort();
  const idOf = new Map(vocabulary.map((character, id) => [character, id]));
  const tokens = Uint16Array.from(characters, (character) => idOf.get(character)!);
  const config = { ...layers, vocab: vocabulary.length, tie: true }, { seq } = config;
  const split = Math.floor(0.9 * tokens.length), random = substream(1, "nanoGPT offsets");
  const batches = Array.from({ length: steps }, (): TokenBatch => {
    const ids = new Int32Array(microBatch * seq), targets = ids.slice();
    for (let row = 0; row < microBatch; row++) {
      const at = uniformInt(random, 0, split - seq - 1);
      ids.set(tokens.subarray(at, at + seq), row * seq);
      targets.set(tokens.subarray(at + 1, at + seq + 1), row * seq);
    }
    return { ids, targets };
  });
  const heldOut = heldOutBatches({
    ...{ tokens: tokens.subarray(split), seq, vocabularySize: config.vocab },
    ...{ microBatch, count: HELD_OUT },
  });
  const rate = { rate: 1e-3, minRate: 1e-4, schedule: "cosine", warmup, steps } as const;
  const rates = batches.map((_, i) => learningRateAt(rate, i + 1));
  const workload: Workload = { config, microBatch };
  const how = { optimizer: OPTIMIZER, clip: CLIP, lacks: isBias };
  return { workload, microBatches: 1, batches, heldOut, rates, ...how };
}

async function openTroupe(task: Task, precision: TorchPrecision = "fp32") {
  const { workload, batches, heldOut, rates } = task;
  const events = train({
    model: benchModel(workload),
    data: batches,
    steps: batches.length,
    microBatches: 1,
    precision,
    device: "native",
    runtime: "local",
    weights: firstWeights(workload),
    learningRate: (step) => rates[step - 1]!,
    optimizer: { kind: "adamw", ...OPTIMIZER },
    clip: CLIP,
    frozen: isBias,
    evaluation: { every: EVERY, batches: heldOut },
  });
  const until = async <T extends TrainEvent["type"]>(type: T) => {
    for (;;) {
      const { value, done } = await events.next();
      if (done) throw new Error(`Cannot measure: the run has ended before its next ${type}`);
      if (value.type === type) return value as Extract<TrainEvent, { type: T }>;
    }
  };
  await until("plan");
  return {
    note: `native, ${precision}, one worker, local, one thread`,
    /** Takes the next step. */
    async step() {
      const start = performance.now(), { loss } = await until("step");
      return { ms: performance.now() - start, loss };
    },
    /** Returns the mean loss of the held-out tokens, every {@linkcode EVERY} steps. */
    evaluate: async () => (await until("evaluation")).loss,
    [Symbol.asyncDispose]: async () => void await events.return(),
  };
}

/** The compared programs. */
const TRAINERS = {
  Troupe: openTroupe,
  PyTorch: (task: Task, precision?: TorchPrecision) => openTorch(1, task, precision),
};

const meanOf = (values: readonly number[]) =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/** Trains in turns, some steps of each program in a round. */
export async function nanoGptBench(): Promise<Row[]> {
  const task = await openTask(NANO_GPT), cases: Record<string, () => Promise<number>> = {};
  await using stack = new AsyncDisposableStack();
  const runs: { name: string; note: string; losses: number[]; curve: number[] }[] = [];
  for (const [name, open] of Object.entries(TRAINERS)) {
    const { note, step, evaluate } = stack.use(await open(task));
    const losses: number[] = [], curve: number[] = [];
    runs.push({ name, note, losses, curve });
    cases[name] = async () => {
      let sum = 0;
      for (let i = 0; i < ROUND_STEPS; i++) {
        const { ms, loss } = await step();
        sum += ms;
        losses.push(loss);
      }
      if (losses.length % EVERY === 0) curve.push(await evaluate());
      return sum;
    };
  }
  const options = { rounds: NANO_GPT.steps / ROUND_STEPS, warmup: 0, isAlone: false };
  const rounds = await interleave(cases, options), row = rowMaker(rounds);
  const [ours, ...others] = runs as [typeof runs[0], ...typeof runs];
  return [
    ...runs.map(({ name, note, losses }) => {
      const seconds = rounds.reduce((sum, { ms }) => sum + ms[name]!, 0) / 1000;
      return valueRow(`${name}: ${losses.length} steps`, "s", [seconds], { note });
    }),
    ...others.map(({ name, losses }) => {
      const apart = losses.slice(0, ROUND_STEPS).map((x, i) => Math.abs(x - ours.losses[i]!));
      const most = Math.max(...apart).toExponential(1);
      return row(`${ours.name} ÷ ${name}, speed`, "×", (ms) => ms[name]! / ms[ours.name]!, {
        note: `losses of the first ${ROUND_STEPS} steps differ by at most ${most}`,
      });
    }),
    ...ours.curve.map((loss, i) => {
      const end = (i + 1) * EVERY;
      const note = runs.map(({ name, losses, curve }) => {
        const mean = meanOf(losses.slice(end - ROUND_STEPS, end)).toFixed(3);
        return `${name} ${curve[i]!.toFixed(4)} (training ${mean})`;
      });
      return valueRow(`after ${end} steps: held-out loss`, "", [loss], { note: note.join("; ") });
    }),
  ];
}

/** Returns how far the losses of each step in BF16 are from those in FP32, in Troupe and in PyTorch. */
export async function precisionsBench(): Promise<Row[]> {
  const task = await openTask(PRECISIONS), rows: Row[] = [];
  for (const [name, open] of Object.entries(TRAINERS)) {
    await using fp32 = await open(task, "fp32");
    await using bf16 = await open(task, "bf16");
    const apart: number[] = [];
    for (const _ of task.batches) {
      const { loss: exact } = await fp32.step(), { loss } = await bf16.step();
      apart.push(100 * Math.abs(loss - exact) / exact);
    }
    rows.push(valueRow(`${name}: loss of a step in BF16, from FP32`, "%", apart, {
      note: `mean of ${apart.length} steps: ${meanOf(apart).toFixed(3)} %; ${bf16.note}`,
    }));
  }
  return rows;
}
