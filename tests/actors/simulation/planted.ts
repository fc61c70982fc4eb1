/**
 * Planted bugs, each with a scenario that must reveal it, and the same without the bug, in a toy model of
 * training with real f32 sums.
 *
 * @module
 */

import { shouldFail } from "../../../actors/runtime/mod.ts";
import type { ExploreOptions, Scenario, World } from "../../../testing.ts";
import { type Any, type AnyActor, type AnyRef, specOf } from "./players.ts";

/** Small enough to be fast, large enough for the sums to depend on the order of their parts. */
const TOY = { stages: 3, microBatches: 5, limit: 3, replicas: 3, buckets: 2 };

const f32 = Math.fround;
const here = (name: string) => specOf(import.meta.url, name);

/** Injects the micro-batches of a replica while there is credit. */
export const feeder: AnyActor = (ctx, init) => {
  const { microBatches, replica, bug, first, optimizers } = init;
  const limit = init.limit + (bug === "limit off by one" ? 1 : 0);
  let injected = 0, inFlight = 0;
  ctx.expose(() => ({ injected, inFlight }));
  const inject = () => {
    const microBatch = injected++;
    inFlight++;
    ctx.send(first, { type: "F", microBatch, x: f32(0.1 + microBatch * 0.37 + replica * 1.7) });
  };
  return {
    Go() {
      while (inFlight < limit && injected < microBatches) inject();
    },
    Credit() {
      inFlight--;
      if (injected < microBatches || bug === "missing empty guard") inject();
      else if (inFlight === 0) { for (const to of optimizers) ctx.send(to, { type: "Last" }); }
    },
  };
};

/** Computes, forward and backward, and adds up gradients. */
export const stage: AnyActor = (ctx, init) => {
  const { stage, stages, replica, microBatches, optimizer, bug } = init;
  const stash = new Map<number, number>(), waiting: [number, number][] = [];
  const gradients = new Array<number>(init.buckets).fill(0);
  let wires: Any, forwards = 0, backwards = 0;
  ctx.expose(() => ({ forwards, backwards, stash: [...stash.keys()], gradients, waiting }));
  const chunks = () =>
    gradients.forEach((gradient, bucket) =>
      ctx.send(optimizer, { type: "Chunk", replica, bucket, gradient })
    );
  const backward = (microBatch: number, dy: number) => {
    ctx.setActivity(`${stage}B${microBatch}`);
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
    ctx.setActivity(`${stage}F${microBatch}`);
    forwards++;
    stash.set(microBatch, x);
    const y = f32(x * 1.1 + stage);
    if (stage === stages - 1) backward(microBatch, f32(y * 0.01));
    else ctx.send(wires.after, { type: "F", microBatch, x: y });
  };
  return {
    Wire: (message) => void (wires = message),
    F({ microBatch, x }) {
      if (bug !== "LIFO edge") return forward(microBatch, x);
      waiting.push([microBatch, x]);
      ctx.send(ctx.self, { type: "Work" });
    },
    Work: () => forward(...waiting.pop()!),
    B: ({ microBatch, dy }) => backward(microBatch, dy),
    // Incomplete buckets follow later.
    Resend: () => backwards === microBatches ? chunks() : undefined,
  };
};

/** Adds the chunks of the replicas of a stage, and steps its buckets. */
export const optimizer: AnyActor = (ctx, { replicas, buckets, bug }) => {
  const numbers = (value: number) => new Array<number>(buckets).fill(value);
  const weights = numbers(1), stepped = numbers(0), running = numbers(0);
  const chunks = Array.from({ length: buckets }, () => new Map<number, number>());
  let stages: readonly AnyRef[] = [], last = 0;
  ctx.expose(() => ({ stepped, weights, chunks, running, last }));

  const sumOf = (bucket: number) => {
    if (bug === "arrival-order reduce") return running[bucket]!;
    const byReplica = chunks[bucket]!;
    const parts = Array.from({ length: replicas }, (_, replica) => byReplica.get(replica)!);
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
      ctx.setActivity(`O${bucket}`);
      const isKnown = chunks[bucket]!.has(replica);
      if (isKnown && bug !== "double step") return;
      chunks[bucket]!.set(replica, gradient);
      running[bucket] = f32(running[bucket]! + gradient);
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

/** Plays one step of the toy; returns the resulting weights. */
async function playToy(world: World, toy: Any): Promise<unknown> {
  const { system, settle, idle } = world;
  const spawn = (name: string, id: unknown, init: object) =>
    system.spawn(here(name), { ...toy, ...init }, { id: `${name}-${id}` });
  const stages: number[] = [...Array(toy.stages).keys()];
  const optimizers = stages.map((stage) => spawn("optimizer", stage, {}));
  const rows = Array.from(
    { length: toy.replicas },
    (_, replica) =>
      stages.map((stage) =>
        spawn("stage", `${replica}.${stage}`, { stage, replica, optimizer: optimizers[stage] })
      ),
  );
  const feeders = rows.map((row, replica) => {
    const feeder = spawn("feeder", replica, { replica, first: row[0], optimizers });
    for (const [stage, ref] of row.entries()) {
      const [before, after] = [row[stage - 1], row[stage + 1]];
      system.send(ref, { type: "Wire", feeder, ...before && { before }, ...after && { after } });
    }
    return feeder;
  });
  for (const [stage, ref] of optimizers.entries()) {
    system.send(ref, { type: "Stages", stages: rows.map((row) => row[stage]!) });
  }
  await settle();
  addInvariants(world);
  for (const feeder of feeders) system.send(feeder, { type: "Go" });
  await idle();
  return await Promise.all(optimizers.map((ref) => system.ask(ref, { type: "Read" })));
}

/** Invariants of the state of each kind of actor, checked after each step. */
const INVARIANTS: Readonly<Record<string, (state: Any) => boolean>> = {
  "feeder: in flight are at most the limit": ({ inFlight }) => inFlight <= TOY.limit,
  "feeder: only known micro-batches begin": ({ injected }) => injected <= TOY.microBatches,
  "stage: stashed micro-batches had a forward and no backward": (state) =>
    state.forwards - state.backwards === state.stash.length,
  "optimizer: a bucket is stepped once": ({ stepped }) => Math.max(...stepped) <= 1,
};

function addInvariants({ invariant, atEnd }: World): void {
  for (const [name, holds] of Object.entries(INVARIANTS)) {
    const [kind] = name.split(":");
    invariant(name, ({ actor, state }) => {
      if (actor.startsWith(kind!) && !holds(state(actor))) return Deno.inspect(state(actor));
    });
  }
  atEnd("a step commits in all buckets or in none", ({ actors, state }) => {
    for (const id of actors.filter((id) => id.startsWith("optimizer"))) {
      const { stepped } = state<Any>(id);
      if (new Set(stepped).size > 1) return `${id} stepped its buckets ${stepped} times`;
    }
  });
}

/** A bug and how to look for it. */
export type Planted = ReturnType<typeof planted>;

type Options = Omit<ExploreOptions, "strategy">;

const planted = (bug: string, options: Options = { mustAgree: true }) => ({
  name: bug,
  options,
  /** Plays it with the bug or without. */
  scenario: (isPlanted: boolean): Scenario => async (world) =>
    await playToy(world, isPlanted ? { ...TOY, bug } : TOY) as void,
});

/** All planted bugs. */
export const PLANTED: readonly Planted[] = [
  planted("LIFO edge"),
  planted("missing empty guard"),
  planted("limit off by one"),
  planted("arrival-order reduce"),
  planted("torn optimizer step", { faults: { kinds: ["site"] } }),
  planted("double step"),
];
