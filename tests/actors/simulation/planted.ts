/**
 * Planted bugs, each with the scenario that must show it, and the same without the bug: in a toy of
 * training with real f32 sums, in an actor that replaces another, and in sends that block.
 *
 * @module
 */

import { shouldFail } from "../../../actors/runtime/mod.ts";
import type { ExploreOptions, Scenario, World } from "../../../testing.ts";
import { type Any, type AnyActor, type AnyRef, specOf } from "./players.ts";
import { CRASHES, playCommit } from "./two_phase_commit.ts";

/** Small enough to be fast, large enough for the sums to depend on the order of their parts. */
const TOY = { stages: 3, microBatches: 5, limit: 3, replicas: 3, buckets: 2 };

const f32 = Math.fround;
const here = (name: string) => specOf(import.meta.url, name);

/** Injects the micro-batches of a replica, as long as there is credit. */
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
    if (bug === "Date.now() in a handler") Date.now();
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
    // What is not complete yet comes by itself.
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

/** One step of the toy; the weights that come of it. */
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

/** What must hold of the state of each actor of a kind whenever it has done something. */
const INVARIANTS: Readonly<Record<string, (state: Any) => boolean>> = {
  "feeder: in flight are at most the limit": ({ inFlight }) => inFlight <= TOY.limit,
  "feeder: only known micro-batches begin": ({ injected }) => injected <= TOY.microBatches,
  "stage: what is stashed has been forward and not backward": (state) =>
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

/** Gives jobs to a hand, makes another hand when that dies, and counts what is done. */
export const boss: AnyActor = (ctx, init) => {
  let job = 0, hands = 0, sum = 0, hand: AnyRef;
  ctx.expose(() => sum);
  const give = () => {
    if (job < init.jobs) ctx.send(hand, { type: "Do", job: job + 1, hand: hands, to: ctx.self });
  };
  const hire = () => {
    hands++;
    hand = ctx.spawn(here("hand"), undefined, { id: "hand" });
    ctx.watch(hand, () => ({ type: "Down" }));
    give();
  };
  return {
    Go: hire,
    Done(message) {
      if (init.checksHand && message.hand !== hands) return;
      sum += message.job;
      job++;
      give();
    },
    Down: hire,
  };
};

export const hand: AnyActor = (ctx) => ({
  Do: ({ job, hand, to }) => ctx.send(to as AnyRef, { type: "Done", job, hand }),
});

/** Jobs done by a hand that may die; each must count once. */
async function playBoss({ system, idle, atEnd }: World, isPlanted: boolean): Promise<void> {
  const boss = system.spawn(here("boss"), { jobs: 4, checksHand: !isPlanted }, { id: "boss" });
  system.send(boss, { type: "Go" });
  atEnd("every job counts once", ({ state }) => {
    const sum = state<number>("boss");
    if (sum !== 1 + 2 + 3 + 4) return `the sum is ${sum}`;
  });
  await idle();
}

/** A mailbox of bounded capacity: a put waits for room, a take for a message. */
export const box: AnyActor = (ctx, { capacity }) => {
  const inside: string[] = [], putters: Any[] = [];
  let taker: Any;
  ctx.expose(() => [inside, putters.map(({ what }) => what), taker !== undefined]);
  const go = () => {
    while (inside.length < capacity && putters.length > 0) {
      const { what, reply } = putters.shift();
      inside.push(what);
      reply(undefined);
    }
    if (!taker || inside.length === 0) return;
    taker(inside.shift()!);
    taker = undefined;
    go();
  };
  return {
    Put({ what }) {
      putters.push({ what, reply: ctx.deferReply() });
      go();
    },
    Take() {
      taker = ctx.deferReply();
      go();
    },
  };
};

/** Four stages, eight micro-batches, limit 4: the setting of the paper. */
const PAPER = { stages: 4, microBatches: 8, limit: 4 };

/** AxoNN's Algorithm 2 with sends that block: takes, computes, puts, and takes again. */
export const blocking: AnyActor = (ctx, { stage, boxes }) => {
  const { stages, microBatches, limit } = PAPER, patient = { timeoutMs: Infinity };
  let sent = 0, received = 0;
  ctx.expose(() => [sent, received]);
  const put = (to: number, what: "F" | "B") => {
    sent++;
    return ctx.ask(boxes[to], { type: "Put", what }, patient);
  };
  return {
    async Run() {
      if (stage === 0) { for (let n = 0; n < limit; n++) await put(1, "F"); }
      const messages = stage === 0 || stage === stages - 1 ? microBatches : 2 * microBatches;
      for (let n = 0; n < messages; n++) {
        const what = await ctx.ask(boxes[stage], { type: "Take" }, patient);
        received++;
        if (stage === 0) {
          if (sent < microBatches) await put(1, "F");
        } else if (stage === stages - 1 || what === "B") await put(stage - 1, "B");
        else await put(stage + 1, "F");
      }
    },
  };
};

async function playBlocking({ system, settle, idle }: World, capacity: number): Promise<void> {
  const stages = [...Array(PAPER.stages).keys()];
  const spawn = (name: string, init: object, stage: number) =>
    system.spawn(here(name), { ...init, stage }, { id: `${name}-${stage}` });
  const boxes = stages.map((stage) => spawn("box", { capacity }, stage));
  const workers = stages.map((stage) => spawn("blocking", { boxes }, stage));
  await settle();
  for (const worker of workers) system.send(worker, { type: "Run" });
  await idle();
}

/** A bug and how to look for it. */
export type Planted = ReturnType<typeof planted>;

type Options = Omit<ExploreOptions, "strategy">;

const planted = (name: string, options: Options, play: (world: World, is: boolean) => unknown) => ({
  name,
  options,
  /** Plays it with the bug or without. */
  scenario: (isPlanted: boolean): Scenario => async (world) => await play(world, isPlanted) as void,
});

const toyBug = (bug: string, options: Options = { mustAgree: true }) =>
  planted(bug, options, (world, isPlanted) => playToy(world, isPlanted ? { ...TOY, bug } : TOY));

const HAND_CRASHES = { kinds: ["crash-after"], actors: ["hand"], rate: 0.2 } as const;

/** All that is planted. */
export const PLANTED: readonly Planted[] = [
  toyBug("LIFO edge"),
  toyBug("missing empty guard"),
  toyBug("limit off by one"),
  toyBug("arrival-order reduce"),
  toyBug("torn optimizer step", { faults: { kinds: ["site"] } }),
  planted("reply after crash", { faults: HAND_CRASHES }, playBoss),
  toyBug("double step"),
  planted("blocking send at capacity 1", {}, (world, is) => playBlocking(world, is ? 1 : 2)),
  planted("two-phase commit that forgets its vote", { faults: CRASHES }, playCommit),
  toyBug("Date.now() in a handler"),
  toyBug("iteration over a Map keyed by arrival"),
];
