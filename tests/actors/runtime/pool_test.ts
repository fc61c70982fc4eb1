/** Pools, broadcasts and messages that are handed on, in the simulator. */

import assert from "node:assert/strict";
import {
  type ActorRef,
  broadcast,
  createSystem,
  type Pool,
  spawnPool,
} from "../../../actors/runtime/mod.ts";
import {
  beginJournal,
  random,
  replayInbox,
  simulate,
  type World,
} from "../../../actors/simulation/mod.ts";
import { FORWARDER, MEMBER, type MemberMessage } from "./pool_players.ts";

const POOL = { module: new URL("../../../actors/runtime/pool/pool.ts", import.meta.url).href };

const open = ({ system }: World, more: Partial<Pool<number, MemberMessage>> = {}) =>
  spawnPool(system, { spec: MEMBER, init: 0, size: 3, ...more }, { id: "pool" });

Deno.test("round-robin: the members in turn, whatever the order of answers", async () => {
  for (let seed = 0; seed < 10; seed++) {
    const { value, failure } = await simulate({ seed, strategy: random() }, async (world) => {
      const pool = open(world);
      return await Promise.all(
        [1, 2, 3, 4].map((n) => world.system.ask(pool, { type: "Who", n })),
      );
    });
    assert.equal(failure, undefined);
    assert.deepEqual(value, ["pool-1 1", "pool-2 2", "pool-3 3", "pool-1 4"], `seed ${seed}`);
  }
});

Deno.test("smallest mailbox: whoever has the least to do gets the next", async () => {
  const run = await simulate({}, async (world) => {
    const { system, advance } = world, pool = open(world, { policy: "smallest-mailbox" });
    const work = (ms: number) => system.ask(pool, { type: "Work", ms });
    const first = [work(1000), work(10), work(10)];
    await advance(20);
    // The first is still at work, and the others have nothing.
    const then = [work(10), work(10)];
    const late = advance(2000);
    const who = await Promise.all([...first, ...then]);
    await late;
    return who;
  });
  assert.equal(run.failure, undefined);
  assert.deepEqual(run.value, [
    ...["pool-1", "pool-2", "pool-3"],
    ...["pool-2", "pool-3"],
  ]);
  for (let seed = 0; seed < 20; seed++) {
    // Messages handed out and not handled never differ by more than one, in any order.
    const other = await simulate({ seed, strategy: random() }, async (world) => {
      const pool = open(world, { policy: "smallest-mailbox" });
      world.invariant("even", ({ state }) => {
        const waiting = (state<number[]>("pool") ?? []).filter(Number.isInteger);
        if (waiting.some((count) => count < 0)) return `below zero: ${waiting}`;
      });
      const answers = Array.from(
        { length: 9 },
        (_, n) => world.system.ask(pool, { type: "Who", n }),
      );
      await Promise.all(answers);
      await world.idle();
      world.atEnd(
        "nothing is left",
        ({ state }) => `${state("pool")}` === "0,0,0" ? undefined : `${state("pool")}`,
      );
    });
    assert.equal(other.failure, undefined, `seed ${seed}`);
  }
});

Deno.test("a broadcast reaches every member once", async () => {
  const { value } = await simulate({ strategy: random() }, async (world) => {
    const { system, idle } = world, pool = open(world);
    for (const n of [1, 10]) system.send(pool, broadcast({ type: "Add", n }));
    await idle();
    return await Promise.all([1, 2, 3].map(() => system.ask(pool, { type: "Sum" })));
  });
  assert.deepEqual(value, [11, 11, 11]);
});

for (const policy of ["round-robin", "smallest-mailbox"] as const) {
  Deno.test(`${policy}: a member that fails is replaced, and whoever asked it is told`, async () => {
    const run = await simulate({}, async (world) => {
      const { system, idle } = world, pool = open(world, { policy, size: 2, intensity: 5 });
      await system.ask(pool, { type: "Who", n: 0 });
      await system.ask(pool, { type: "Who", n: 1 });
      system.send(pool, { type: "Faint" });
      const error = await system.ask(pool, { type: "Work", ms: 5 }).catch((error) => error.name);
      await idle();
      const who = await Promise.all([2, 3].map((n) => system.ask(pool, { type: "Who", n })));
      return [error, who.toSorted()];
    });
    assert.equal(run.failure, undefined);
    assert.deepEqual(run.value, ["pool-2", ["pool-1 2", "pool-2 3"]]);
  });
}

Deno.test("while no member is up, whoever asks is told; after the back-off all is well", async () => {
  const backOff = { firstMs: 100, maxMs: 100 };
  const { value } = await simulate({}, async (world) => {
    const { system, advance } = world, pool = open(world, { size: 1, intensity: 9, backOff });
    const faint = async () => {
      system.send(pool, { type: "Faint" });
      await advance(1);
    };
    await faint();
    await faint();
    const error = await system.ask(pool, { type: "Who", n: 0 }).catch((error) => error.name);
    await advance(100);
    return [error, await system.ask(pool, { type: "Who", n: 1 })];
  });
  assert.deepEqual(value, ["ActorFailedError", "pool-1 1"]);
});

Deno.test("a pool whose members fail too often fails, and says why", async () => {
  const { failure } = await simulate({}, async (world) => {
    const pool = open(world, { intensity: 1, periodMs: 100 });
    for (let n = 0; n < 2; n++) world.system.send(pool, { type: "Faint" });
    await world.idle();
  });
  assert.match(
    failure!.message,
    /Cannot replace "pool-2": there must be at most 1 restarts in 100 ms; Actor "pool-2" failed/,
  );
});

Deno.test("a pool that drains lets its members handle all that it has handed out", async () => {
  const { value, failure } = await simulate({}, async (world) => {
    const { system, idle } = world, pool = open(world, { size: 2 });
    const answers = [1, 2, 3, 4].map((n) => system.ask(pool, { type: "Who", n }));
    const end = system.stop(pool, { drain: true });
    await idle();
    await end;
    return await Promise.allSettled(answers);
  });
  assert.equal(failure, undefined);
  assert.ok(value!.every(({ status }) => status === "fulfilled"));
});

Deno.test("a message handed on keeps its sender, and its answer comes from there", async () => {
  for (let seed = 0; seed < 5; seed++) {
    const { value, failure } = await simulate({ seed, strategy: random() }, async ({ system }) => {
      const last = system.spawn(MEMBER, 0, { id: "last" });
      const middle = system.spawn(FORWARDER, last, { id: "middle" });
      const first = system.spawn(FORWARDER, middle, { id: "first" });
      system.send(first, { type: "Add", n: 5 });
      const sum = await system.ask(first, { type: "Sum" });
      await system.stop(last);
      const error = await system.ask(first, { type: "Sum" }).catch((error) => error.message);
      return [sum, error, system.deadLetters.map(({ from, to }) => `${from} ${to}`)];
    });
    assert.equal(failure, undefined);
    assert.deepEqual(value, [
      5,
      'Actor "last" failed: Error: actor "last" has stopped',
      ["system last"],
    ]);
  }
});

Deno.test("a circle through one who hands on is found as well", async () => {
  const { value, failure } = await simulate({}, async ({ system }) => {
    const { ASKER } = await import("./circle_players.ts");
    const a = system.spawn(ASKER, undefined, { id: "a" });
    const router = spawnPool(system, { spec: ASKER, init: undefined, size: 1 }, { id: "pool" });
    const answer = await system.ask(a, { type: "Pass", route: [router, a] });
    return [answer, await system.ask(router, { type: "Notes" })];
  });
  assert.equal(failure, undefined);
  assert.deepEqual(value, ["pool-1 failed", [
    'TypeError: Cannot ask "a" for "Pass": "pool-1" would wait for "a", which waits for "pool-1"',
  ]]);
});

Deno.test("what a pool is made of is checked at the door", async () => {
  await using system = createSystem();
  const make = (more: object) => () =>
    spawnPool(system, { spec: MEMBER, init: 0, size: 1, ...more }, { id: "pool" });
  assert.throws(make({ size: 0 }), /size must be a positive integer, received 0/);
  assert.throws(make({ policy: "random" }), /policy must be round-robin or smallest-mailbox/);
});

Deno.test("the inbox of a pool replays", async () => {
  const path = await Deno.makeTempFile();
  try {
    {
      await using system = createSystem({ observer: await beginJournal({ path, payloads: true }) });
      const pool: ActorRef<MemberMessage> = spawnPool(
        system,
        { spec: MEMBER, init: 0, size: 2, policy: "smallest-mailbox" },
        { id: "pool" },
      );
      for (const n of [1, 2, 3]) await system.ask(pool, { type: "Who", n });
    }
    const { steps, states } = await replayInbox({ ...POOL, export: "pool" }, path);
    assert.ok(steps >= 7 && states >= 6, `${steps} ${states}`);
  } finally {
    await Deno.remove(path);
  }
});
