/** Small training runs for the tests, with results to compare bit for bit. */

import type { TrainEvent } from "../../actors/options/train_events.ts";
import assert from "node:assert/strict";
import { train } from "../../actors/run/train.ts";
import type { TrainOptions } from "../../actors/options/train_options.ts";
import {
  type Batch,
  gpt2,
  type Gpt2Config,
  type TokenBatch,
  tokenBatches,
} from "../../kernels/mod.ts";
import { lengthsOf } from "../../kernels/batch.ts";
import { substream } from "../../kernels/random.ts";
import type { Schedule } from "../../schedules/mod.ts";

/** A model and the data of a run. */
export interface Sizes extends Gpt2Config {
  readonly microBatch: number;
  readonly microBatches: number;
  readonly steps: number;
}

/** Two blocks: as small as a GPT can be. */
export const SMALL: Sizes = {
  ...{ layers: 2, hidden: 32, heads: 4, seq: 16, vocab: 64 },
  ...{ microBatch: 2, microBatches: 6, steps: 2 },
};

/** 512 rows per micro-batch: sums long enough for a different order of additions to change the bits. */
export const LARGE: Sizes = {
  ...{ ...SMALL, hidden: 256, seq: 128, vocab: 256, microBatch: 4, microBatches: 3 },
};

/** Tokens drawn from seed 1. */
export function batchesOf(sizes: Sizes, count = sizes.microBatches * sizes.steps): TokenBatch[] {
  const { seq, vocab, microBatch } = sizes, generator = substream(1, "tokens");
  const length = seq * microBatch * count + 1;
  const tokens = Int32Array.from({ length }, () => (generator.next() >>> 0) % vocab);
  const cut = { seq, microBatch, microBatches: 1, steps: count };
  return [...tokenBatches({ ...cut, tokens, vocabularySize: vocab })];
}

/** The first tokens of each sample. */
export const shortened = ({ microBatch, seq }: Sizes, batch: Batch, length: number): Batch =>
  Object.fromEntries(
    Object.entries(batch).map(([name, values]) => {
      const rows = Array.from(
        { length: microBatch },
        (_, row) => [...values.subarray(row * seq, row * seq + length)] as number[],
      );
      return [name, Int32Array.from(rows.flat())];
    }),
  );

/** Micro-batches of these lengths, in no order. */
export function unequalBatches(
  sizes: Sizes,
  count: number,
  all: readonly number[] = lengthsOf(sizes.seq),
): Batch[] {
  return batchesOf(sizes, count).map((batch, i) =>
    shortened(sizes, batch, all[3 * i % all.length]!)
  );
}

type EventOf<T extends TrainEvent["type"]> = Extract<TrainEvent, { type: T }>;

/** Result of a run. */
export interface Outcome {
  /** Losses, norms and the hash of the weights: equal for equal runs, bit for bit. */
  readonly bits: { readonly losses: number[]; readonly norms: number[]; readonly hash: string };
  readonly peakActivations: readonly number[];
  readonly weightsHeld: readonly number[];
  readonly plan: EventOf<"plan">["plan"];
  readonly events: readonly TrainEvent[];
  readonly end: EventOf<"end">;
}

/** Trains any model to the end; passes on each event as it arrives. */
export async function trained(
  options: TrainOptions,
  see: (event: TrainEvent) => void = () => {},
): Promise<Outcome> {
  const events = await Array.fromAsync(train(options), (event) => (see(event), event));
  const first = events[0]!, end = events.at(-1)!;
  assert.ok(first.type === "plan" && end.type === "end", "a run begins with its plan and ends");
  const steps = eventsOf(events, "step"), { peakActivations, weightsHeld, weightsHash } = end;
  const bits = {
    losses: steps.map(({ loss }) => loss),
    norms: steps.map(({ gradNorm }) => gradNorm),
    hash: weightsHash,
  };
  return { bits, peakActivations, weightsHeld, plan: first.plan, events, end };
}

/** The events of a type. */
export const eventsOf = <T extends TrainEvent["type"]>(events: readonly TrainEvent[], type: T) =>
  events.filter((event): event is EventOf<T> => event.type === type);

/** Trains a GPT to the end. */
export function outcome(
  sizes: Sizes,
  options: Partial<TrainOptions>,
  see?: (event: TrainEvent) => void,
): Promise<Outcome> {
  const { microBatches, steps } = sizes, { replicas = 1 } = options;
  // Chimera in waves has twice the micro-batches of its options.
  const count = 2 * replicas * microBatches * steps;
  const data = batchesOf(sizes, count), model = gpt2(sizes, sizes.microBatch);
  return trained({ model, data, steps, microBatches, ...options }, see);
}

/** Trains in a pipeline and serially; asserts equal bits, and returns the run in the pipeline. */
export async function trainTwice<R extends Pick<Outcome, "bits">>(
  train: (options: Partial<TrainOptions>) => Promise<R>,
  options: Partial<TrainOptions>,
): Promise<R> {
  const run = await train({ runtime: "local", ...options });
  const serial = await train({ ...options, runtime: "serial", faults: [], buddy: false });
  const { data: _, ...rest } = options;
  assert.deepEqual(run.bits, serial.bits, JSON.stringify(rest));
  assert.ok(run.bits.losses.every(Number.isFinite));
  return run;
}

/** Returns how a schedule groups sums of gradients: "8 micro-batches: 2 copies, 00001111, in halves". */
export function groupingOf({ lists, pipelineOf }: Schedule, replicas: number): string {
  const halves = lists?.some((list) => /\.[01]/.test(String(list))) ?? false;
  const copies = replicas * new Set(pipelineOf).size;
  return `${replicas * pipelineOf.length} micro-batches: ${copies} copies, ${pipelineOf.join("")}${
    halves ? ", in halves" : ""
  }`;
}

/** Caches a deterministic run by name: only the first call runs it. */
export function once<A extends unknown[], T>(
  run: (name: string, ...rest: A) => Promise<T>,
): (name: string, ...rest: A) => Promise<T> {
  const runs = new Map<string, Promise<T>>();
  return (name, ...rest) => {
    const known = runs.get(name) ?? run(name, ...rest);
    runs.set(name, known);
    return known;
  };
}

/** Waits for all runs, even if one fails, so that none overlaps with another test. */
export async function sideBySide(runs: readonly Promise<unknown>[]): Promise<void> {
  for (const ended of await Promise.allSettled(runs)) {
    if (ended.status === "rejected") throw ended.reason;
  }
}
