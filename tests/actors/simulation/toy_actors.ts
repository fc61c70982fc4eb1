/**
 * A toy of training with real f32 sums, and with bugs to plant: stages pass micro-batches forward
 * and backward, an optimizer per stage adds the chunks of all replicas and steps its buckets.
 *
 * @module
 */

import {
  type ActorFactory,
  type ActorRef,
  type ActorSpec,
  type Message,
  shouldFail,
} from "../../../actors/runtime/mod.ts";

/** Bugs that can be planted in the toy. */
export type ToyBug =
  | "LIFO edge"
  | "missing empty guard"
  | "limit off by one"
  | "arrival-order reduce"
  | "torn optimizer step"
  | "double step"
  | "Date.now() in a handler"
  | "iteration over a Map keyed by arrival";

/** The size of a toy, and its bug. */
export interface Toy {
  readonly stages: number;
  readonly microBatches: number;
  readonly limit: number;
  readonly replicas: number;
  readonly buckets: number;
  readonly bug?: ToyBug;
}

function specOf<I, M extends Message>(name: string): ActorSpec<I, M> {
  return { module: import.meta.url, export: name };
}

const f32 = Math.fround;

/** Injects the micro-batches of a replica, as long as there is credit. */
export type FeederMessage =
  | { readonly type: "Go" }
  | { readonly type: "Credit"; readonly microBatch: number };

export interface FeederInit extends Toy {
  readonly replica: number;
  readonly first: ActorRef<StageMessage>;
  readonly optimizers: readonly ActorRef<OptimizerMessage>[];
}

export interface FeederState {
  readonly injected: number;
  readonly inFlight: number;
}

export const FEEDER = specOf<FeederInit, FeederMessage>("feeder");

export const feeder: ActorFactory<FeederInit, FeederMessage> = (ctx, init) => {
  const { microBatches, replica, bug, first, optimizers } = init;
  const limit = bug === "limit off by one" ? init.limit + 1 : init.limit;
  let injected = 0, inFlight = 0;
  ctx.expose((): FeederState => ({ injected, inFlight }));
  const inject = () => {
    const microBatch = injected++;
    inFlight++;
    const x = f32(0.1 + microBatch * 0.37 + replica * 1.7);
    ctx.send(first, { type: "F", microBatch, x });
  };
  return {
    Go() {
      while (inFlight < limit && injected < microBatches) inject();
    },
    Credit() {
      inFlight--;
      if (injected < microBatches || bug === "missing empty guard") inject();
      else if (inFlight === 0) {
        for (const to of optimizers) ctx.send(to, { type: "Last", replica });
      }
    },
  };
};

/** Computes, forward and backward, and adds up gradients. */
export type StageMessage =
  | {
    readonly type: "Wire";
    readonly before?: ActorRef<StageMessage>;
    readonly after?: ActorRef<StageMessage>;
    readonly feeder: ActorRef<FeederMessage>;
  }
  | { readonly type: "F"; readonly microBatch: number; readonly x: number }
  | { readonly type: "Work" }
  | { readonly type: "B"; readonly microBatch: number; readonly dy: number }
  | { readonly type: "Resend" };

export interface StageInit extends Toy {
  readonly stage: number;
  readonly replica: number;
  readonly optimizer: ActorRef<OptimizerMessage>;
}

export interface StageState {
  readonly forwards: number;
  readonly backwards: number;
  readonly stash: readonly number[];
  readonly gradients: readonly number[];
}

export const STAGE = specOf<StageInit, StageMessage>("stage");

export const stage: ActorFactory<StageInit, StageMessage> = (ctx, init) => {
  const { stage, stages, replica, microBatches, optimizer, bug } = init;
  const self: ActorRef<StageMessage> = ctx.self;
  const stash = new Map<number, number>(), waiting: [number, number][] = [];
  const gradients = new Array<number>(init.buckets).fill(0);
  let wires: Extract<StageMessage, { type: "Wire" }>, forwards = 0, backwards = 0;
  ctx.expose((): StageState & { waiting: typeof waiting } => ({
    forwards,
    backwards,
    stash: [...stash.keys()],
    gradients,
    waiting,
  }));
  const chunks = () => {
    for (const [bucket, gradient] of gradients.entries()) {
      ctx.send(optimizer, { type: "Chunk", replica, bucket, gradient });
    }
  };
  const backward = (microBatch: number, dy: number) => {
    ctx.doing(`${stage}B${microBatch}`);
    backwards++;
    const x = stash.get(microBatch)!;
    stash.delete(microBatch);
    for (const [bucket, sum] of gradients.entries()) {
      gradients[bucket] = f32(sum + f32(dy * f32(x + bucket)));
    }
    if (backwards === microBatches) chunks();
    const { before, feeder } = wires;
    if (before) ctx.send(before, { type: "B", microBatch, dy: f32(dy * 0.9) });
    else ctx.send(feeder, { type: "Credit", microBatch });
  };
  const forward = (microBatch: number, x: number) => {
    ctx.doing(`${stage}F${microBatch}`);
    // deno-lint-ignore determinism/no-ambient -- it is the bug
    if (bug === "Date.now() in a handler") Date.now();
    forwards++;
    stash.set(microBatch, x);
    const y = f32(x * 1.1 + stage);
    if (stage === stages - 1) backward(microBatch, f32(y * 0.01));
    else ctx.send(wires.after!, { type: "F", microBatch, x: y });
  };
  return {
    Wire: (message) => void (wires = message),
    F({ microBatch, x }) {
      if (bug !== "LIFO edge") return forward(microBatch, x);
      waiting.push([microBatch, x]);
      ctx.send(self, { type: "Work" });
    },
    Work: () => forward(...waiting.pop()!),
    B: ({ microBatch, dy }) => backward(microBatch, dy),
    Resend() {
      // What is not complete yet comes by itself.
      if (backwards === microBatches) chunks();
    },
  };
};

/** Adds the chunks of the replicas of a stage, and steps its buckets. */
export type OptimizerMessage =
  | { readonly type: "Stages"; readonly stages: readonly ActorRef<StageMessage>[] }
  | {
    readonly type: "Chunk";
    readonly replica: number;
    readonly bucket: number;
    readonly gradient: number;
  }
  | { readonly type: "Last"; readonly replica: number }
  | { readonly type: "Read" };

export interface OptimizerState {
  /** How often each bucket was stepped. */
  readonly stepped: readonly number[];
  readonly weights: readonly number[];
}

export const OPTIMIZER = specOf<Toy, OptimizerMessage>("optimizer");

export const optimizer: ActorFactory<Toy, OptimizerMessage> = (ctx, { replicas, buckets, bug }) => {
  const weights = new Array<number>(buckets).fill(1);
  const stepped = new Array<number>(buckets).fill(0);
  const chunks = Array.from({ length: buckets }, () => new Map<number, number>());
  const arrived = new Array<number>(buckets).fill(0), running = new Array<number>(buckets).fill(0);
  let stages: readonly ActorRef<StageMessage>[] = [], last = 0;
  ctx.expose(() => ({ stepped, weights, chunks, arrived, running, last }));

  const sumOf = (bucket: number) => {
    if (bug === "arrival-order reduce") return running[bucket]!;
    const byReplica = chunks[bucket]!;
    const parts = bug === "iteration over a Map keyed by arrival"
      ? [...byReplica.values()]
      : Array.from({ length: replicas }, (_, replica) => byReplica.get(replica)!);
    return parts.reduce((sum, part) => f32(sum + part));
  };
  const step = (bucket: number) => {
    weights[bucket] = f32(weights[bucket]! - f32(0.1 * sumOf(bucket)));
    stepped[bucket]!++;
  };
  const commit = () => {
    // All buckets or none: whatever can fail, fails before the first is stepped.
    for (let bucket = 0; bucket < buckets; bucket++) if (shouldFail("bucket step")) return;
    for (let bucket = 0; bucket < buckets; bucket++) step(bucket);
  };
  const isComplete = (bucket: number) => chunks[bucket]!.size === replicas;
  return {
    Stages: (message) => void ({ stages } = message),
    Chunk({ replica, bucket, gradient }) {
      ctx.doing(`O${bucket}`);
      const isKnown = chunks[bucket]!.has(replica);
      if (isKnown && bug !== "double step") return;
      chunks[bucket]!.set(replica, gradient);
      running[bucket] = f32(running[bucket]! + gradient);
      arrived[bucket]!++;
      if (!isComplete(bucket)) return;
      if (bug === "torn optimizer step") {
        if (!shouldFail("bucket step")) step(bucket);
      } else if (bug === "double step") step(bucket);
      else if (chunks.every((_, other) => isComplete(other))) commit();
    },
    Last() {
      if (++last < replicas) return;
      // Every replica is done: chunks that are not here yet may have been lost.
      for (const [replica, ref] of stages.entries()) {
        if (chunks.some((bucket) => !bucket.has(replica))) ctx.send(ref, { type: "Resend" });
      }
    },
    Read: () => ctx.reply(weights),
  };
};
