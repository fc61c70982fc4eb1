/**
 * Trains nanoGPT's `shakespeare_char` with its settings for a CPU in Troupe and in PyTorch, with the
 * same first weights, micro-batches and learning rates.
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
import { openTorch, type PeerTask } from "./peers.ts";
import { type Row, rowMaker, valueRow } from "./report.ts";
import { interleave } from "./timing.ts";
import { benchModel, firstWeights, type Workload } from "./workload.ts";

const STEPS = 2000;
const LAYERS = { layers: 4, hidden: 128, heads: 4, seq: 64 } as const;
const MICRO_BATCH = 12;
const RATE = { rate: 1e-3, minRate: 1e-4, schedule: "cosine", warmup: 100, steps: STEPS } as const;
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

type Task = PeerTask & Required<Pick<PeerTask, "batches" | "heldOut">>;

/** Returns the model, and micro-batches of characters: the first nine tenths of the text train. */
async function openTask(): Promise<Task> {
  const characters = [...await loadText(TEXT)], vocabulary = [...new Set(characters)].sort();
  const idOf = new Map(vocabulary.map((character, id) => [character, id]));
  const tokens = Uint16Array.from(characters, (character) => idOf.get(character)!);
  const config = { ...LAYERS, vocab: vocabulary.length, tie: true }, { seq } = config;
  const split = Math.floor(0.9 * tokens.length), random = substream(1, "nanoGPT offsets");
  const batches = Array.from({ length: STEPS }, (): TokenBatch => {
    const ids = new Int32Array(MICRO_BATCH * seq), targets = ids.slice();
    for (let row = 0; row < MICRO_BATCH; row++) {
      const at = uniformInt(random, 0, split - seq - 1);
      ids.set(tokens.subarray(at, at + seq), row * seq);
      targets.set(tokens.subarray(at + 1, at + seq + 1), row * seq);
    }
    return { ids, targets };
  });
  const heldOut = heldOutBatches({
    ...{ tokens: tokens.subarray(split), seq, vocabularySize: config.vocab },
    ...{ microBatch: MICRO_BATCH, count: HELD_OUT },
  });
  const rates = batches.map((_, i) => learningRateAt(RATE, i + 1));
  const workload: Workload = { config, microBatch: MICRO_BATCH };
  const how = { optimizer: OPTIMIZER, clip: CLIP, lacks: isBias };
  return { workload, microBatches: 1, batches, heldOut, rates, ...how };
}

/** A program that trains. */
interface Trainer extends AsyncDisposable {
  readonly note: string;
  /** Takes the next step. */
  readonly step: () => Promise<{ readonly ms: number; readonly loss: number }>;
  /** Returns the mean loss of the held-out tokens, every {@linkcode EVERY} steps. */
  readonly evaluate: () => Promise<number>;
}

async function openTroupe({ workload, batches, heldOut }: Task) {
  const events = train({
    model: benchModel(workload),
    data: batches,
    steps: STEPS,
    microBatches: 1,
    device: "native",
    runtime: "local",
    weights: firstWeights(workload),
    learningRate: RATE,
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
    note: "native, one worker, local, one thread",
    async step() {
      const start = performance.now(), { loss } = await until("step");
      return { ms: performance.now() - start, loss };
    },
    evaluate: async () => (await until("evaluation")).loss,
    [Symbol.asyncDispose]: async () => void await events.return(),
  };
}

/** The compared programs; the first is Troupe. */
const TRAINERS: Readonly<
  Record<string, (task: Task) => Promise<Trainer>>
> = {
  "Troupe": openTroupe,
  "PyTorch": (task) => openTorch(1, task),
};

const meanOf = (values: readonly number[]) =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/** Trains in turns, some steps of each program in a round. */
export async function nanoGptBench(): Promise<Row[]> {
  const task = await openTask(), cases: Record<string, () => Promise<number>> = {};
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
  const options = { rounds: STEPS / ROUND_STEPS, warmup: 0, isAlone: false };
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
