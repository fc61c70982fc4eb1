/**
 * Planted bugs, each with the scenario that must show it, and the same without the bug.
 *
 * @module
 */

import type { ActorRef } from "../../../actors/runtime/mod.ts";
import type { ExploreOptions, Scenario, World } from "../../../testing.ts";
import { BOSS, playBlocking } from "./other_bugs.ts";
import {
  FEEDER,
  type FeederState,
  OPTIMIZER,
  type OptimizerMessage,
  type OptimizerState,
  STAGE,
  type StageMessage,
  type StageState,
  type Toy,
  type ToyBug,
} from "./toy_actors.ts";
import { CRASHES, playCommit } from "./two_phase_commit.ts";

/** Small enough to be fast, large enough for the sums to depend on the order of their parts. */
const TOY: Toy = { stages: 3, microBatches: 5, limit: 3, replicas: 3, buckets: 2 };

/** A bug and how to look for it. */
export interface Planted {
  readonly name: string;
  readonly options: Omit<ExploreOptions, "strategy">;
  /** Plays it with the bug or without. */
  readonly scenario: (isPlanted: boolean) => Scenario;
}

function toyBug(name: ToyBug, options: Planted["options"] = {}): Planted {
  const scenario = (isPlanted: boolean): Scenario => (world) =>
    playToy(world, isPlanted ? { ...TOY, bug: name } : TOY);
  return { name, options: { mustAgree: true, ...options }, scenario };
}

/** All that is planted. */
export const PLANTED: readonly Planted[] = [
  toyBug("LIFO edge"),
  toyBug("missing empty guard"),
  toyBug("limit off by one"),
  toyBug("arrival-order reduce"),
  toyBug("torn optimizer step", { mustAgree: false, faults: { kinds: ["site"] } }),
  {
    name: "reply after crash",
    options: { faults: { kinds: ["crash-after"], actors: ["hand"], rate: 0.2 } },
    scenario: (isPlanted) => (world) => playBoss(world, isPlanted),
  },
  toyBug("double step"),
  {
    name: "blocking send at capacity 1",
    options: {},
    scenario: (isPlanted) => (world) => playBlocking(world, isPlanted ? 1 : 2),
  },
  {
    name: "two-phase commit that forgets its vote",
    options: { faults: CRASHES },
    scenario: (isPlanted) => (world) => playCommit(world, isPlanted),
  },
  toyBug("Date.now() in a handler"),
  toyBug("iteration over a Map keyed by arrival"),
];

/** One step of the toy; the weights that come of it. */
async function playToy(world: World, toy: Toy): Promise<unknown> {
  const { system, settle, idle } = world, { stages, replicas } = toy;
  const optimizers = Array.from(
    { length: stages },
    (_, stage) => system.spawn(OPTIMIZER, toy, { id: `optimizer-${stage}` }),
  );
  const replicasOf: ActorRef<StageMessage>[][] = Array.from({ length: stages }, () => []);
  const feeders = Array.from({ length: replicas }, (_, replica) => {
    const row = Array.from({ length: stages }, (_, stage) => {
      const init = { ...toy, stage, replica, optimizer: optimizers[stage]! };
      return system.spawn(STAGE, init, { id: `stage-${replica}.${stage}` });
    });
    row.forEach((ref, stage) => replicasOf[stage]!.push(ref));
    const feeder = system.spawn(FEEDER, { ...toy, replica, first: row[0]!, optimizers }, {
      id: `feeder-${replica}`,
    });
    for (const [stage, ref] of row.entries()) {
      const before = row[stage - 1], after = row[stage + 1];
      system.send(ref, {
        type: "Wire",
        feeder,
        ...(before ? { before } : {}),
        ...(after ? { after } : {}),
      });
    }
    return feeder;
  });
  for (const [stage, ref] of optimizers.entries()) {
    system.send<OptimizerMessage>(ref, { type: "Stages", stages: replicasOf[stage]! });
  }
  await settle();
  addInvariants(world, toy);
  for (const feeder of feeders) system.send(feeder, { type: "Go" });
  await idle();
  return await Promise.all(
    optimizers.map((ref) => system.ask<OptimizerMessage, number[]>(ref, { type: "Read" })),
  );
}

function addInvariants({ invariant, atEnd }: World, toy: Toy): void {
  invariant("in flight are at most the limit, and at most the micro-batches there are", (view) => {
    if (!view.actor.startsWith("feeder")) return;
    const { injected, inFlight } = view.state<FeederState>(view.actor)!;
    if (inFlight > toy.limit) return `${inFlight} are in flight, the limit is ${toy.limit}`;
    if (injected > toy.microBatches) return `micro-batch ${injected - 1} does not exist`;
  });
  invariant("what is stashed has been forward and not backward", (view) => {
    if (!view.actor.startsWith("stage")) return;
    const { forwards, backwards, stash } = view.state<StageState>(view.actor)!;
    if (forwards - backwards !== stash.length) return `${stash.length} are stashed`;
  });
  invariant("a bucket is stepped once", (view) => {
    if (!view.actor.startsWith("optimizer")) return;
    const { stepped } = view.state<OptimizerState>(view.actor)!;
    if (stepped.some((times) => times > 1)) return `stepped ${stepped} times`;
  });
  atEnd("a step commits in all buckets or in none", ({ actors, state }) => {
    for (const id of actors.filter((id) => id.startsWith("optimizer"))) {
      const { stepped } = state<OptimizerState>(id)!;
      if (new Set(stepped).size > 1) return `${id} stepped its buckets ${stepped} times`;
    }
  });
}

/** Jobs done by a hand that may die; each must count once. */
async function playBoss({ system, idle, atEnd }: World, isPlanted: boolean): Promise<void> {
  const boss = system.spawn(BOSS, { jobs: 4, checksWho: !isPlanted }, { id: "boss" });
  system.send(boss, { type: "Go" });
  atEnd("every job counts once", ({ state }) => {
    const sum = state<number>("boss");
    if (sum !== 1 + 2 + 3 + 4) return `the sum is ${sum}`;
  });
  await idle();
}
