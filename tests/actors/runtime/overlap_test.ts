/** Handlers that overlap, and what is outside, in the simulator. */

import assert from "node:assert/strict";
import { createSystem } from "../../../actors/runtime/mod.ts";
import {
  beginJournal,
  pct,
  random,
  replayInbox,
  type Scenario,
  simulate,
} from "../../../actors/simulation/mod.ts";
import { CACHE, type CacheInit } from "./overlap_players.ts";

/** Asks a cache for four keys at once. */
const play = (init: CacheInit): Scenario<{ order: string[]; most: number }> => async (world) => {
  const { system } = world, cache = system.spawn(CACHE, init, { id: "cache" });
  const order: string[] = [];
  await Promise.all(["a", "b", "a", "c"].map(async (key) => {
    order.push(await system.ask(cache, { type: "Get", key }));
  }));
  return { order, most: await system.ask(cache, { type: "Most" }) };
};

Deno.test("handlers overlap where their actor says so, and never more than it says", async () => {
  for (const [maxSteps, most] of [[undefined, 1], [1, 1], [2, 2], [Infinity, 4]] as const) {
    let seen = 0;
    for (let seed = 0; seed < 20; seed++) {
      const init = maxSteps === undefined ? {} : { maxSteps };
      const run = await simulate({ seed, strategy: random() }, play(init));
      assert.equal(run.failure, undefined, `seed ${seed}`);
      assert.deepEqual(run.value!.order.toSorted(), ["aa", "aa", "bb", "cc"]);
      assert.ok(run.value!.most <= most, `${run.value!.most} steps at once, of ${most}`);
      seen = Math.max(seen, run.value!.most);
    }
    assert.equal(seen, most);
  }
});

Deno.test("however long what is outside takes, the order is the strategy's", async () => {
  const orders = new Set<string>();
  for (let seed = 0; seed < 20; seed++) {
    const strategy = () => seed % 2 === 0 ? random() : pct(3);
    const hashes = new Set<string>();
    for (const farMs of [0, 3]) {
      const run = await simulate({ seed, strategy: strategy() }, play({ maxSteps: 9, farMs }));
      hashes.add(`${run.steps} ${run.value!.order}`);
      if (farMs === 0) {
        const again = await simulate({ seed, strategy: strategy() }, play({ maxSteps: 9, farMs }));
        assert.equal(again.hash, run.hash, `seed ${seed}`);
        const replayed = await simulate(
          { seed, deviations: run.deviations },
          play({ maxSteps: 9, farMs }),
        );
        assert.equal(replayed.value!.order.join(), run.value!.order.join());
      }
    }
    assert.equal(hashes.size, 1, `seed ${seed}`);
    orders.add([...hashes].join());
  }
  assert.ok(orders.size > 3, "answers come in several orders");
});

Deno.test("each answer goes to whoever asked for it, whatever overlaps", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const run = await simulate({ seed, strategy: random() }, async ({ system }) => {
      const near = system.spawn(CACHE, { maxSteps: 9 }, { id: "near" });
      const far = system.spawn(CACHE, { maxSteps: 9 }, { id: "far" });
      return await Promise.all(
        ["a", "b", "c", "d"].map((key) => system.ask(near, { type: "Via", to: far, key })),
      );
    });
    assert.equal(run.failure, undefined, `seed ${seed}`);
    assert.deepEqual(run.value, ["aa", "bb", "cc", "dd"], `seed ${seed}`);
  }
});

Deno.test("two whose handlers overlap may ask each other; only a true circle fails", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const run = await simulate({ seed, strategy: random() }, async ({ system }) => {
      const one = system.spawn(CACHE, { maxSteps: 9 }, { id: "one" });
      const other = system.spawn(CACHE, { maxSteps: 9 }, { id: "other" });
      return await Promise.all([
        system.ask(one, { type: "Via", to: other, key: "a" }),
        system.ask(other, { type: "Via", to: one, key: "b" }),
      ]);
    });
    assert.equal(run.failure, undefined, `seed ${seed}`);
    assert.deepEqual(run.value, ["aa", "bb"]);
  }
});

Deno.test("a step that fails ends the actor, tells what it did, and the others unwind", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const run = await simulate({ seed, strategy: random() }, async ({ system }) => {
      const cache = system.spawn(CACHE, { maxSteps: 9 }, { id: "cache" });
      const never = system.spawn(CACHE, {}, { id: "never" });
      const down = new Promise<string>((resolve) =>
        system.watch(
          cache,
          ({ reason }) =>
            resolve(reason === "stopped" ? reason : `${reason.handling}: ${reason.error.message}`),
        )
      );
      const asked = [
        system.ask(cache, { type: "Get", key: "a" }),
        system.ask(cache, { type: "Faint" }),
        system.ask(cache, { type: "Via", to: never, key: "b" }),
      ];
      const ends = await Promise.allSettled(asked);
      return [await down, ends[1]!.status];
    });
    assert.equal(run.failure, undefined, `seed ${seed}`);
    assert.deepEqual(run.value, ["Faint (weak): no air", "rejected"]);
  }
});

Deno.test("an actor whose handlers overlap stops and drains with all of them", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const run = await simulate({ seed, strategy: random() }, async ({ system, idle }) => {
      const cache = system.spawn(CACHE, { maxSteps: 2 }, { id: "cache" });
      const asked = ["a", "b", "c"].map((key) => system.ask(cache, { type: "Get", key }));
      const end = system.stop(cache, { drain: true });
      await idle();
      await end;
      const ends = (await Promise.allSettled(asked)).map(({ status }) => status);
      const other = system.spawn(CACHE, { maxSteps: 2 }, { id: "cache" });
      const late = system.ask(other, { type: "Get", key: "a" }).catch(({ name }) => name);
      await system.stop(other);
      return [...ends, await late];
    });
    assert.equal(run.failure, undefined, `seed ${seed}`);
    const late = run.value!.pop();
    assert.ok(run.value!.every((end) => end === "fulfilled"));
    assert.ok(late === "ActorFailedError" || late === "aa");
  }
});

Deno.test("a crash amid overlapping handlers is a fault like any other", async () => {
  let crashes = 0;
  for (let seed = 0; seed < 30; seed++) {
    const faults = { kinds: ["crash-before", "crash-after", "crash-amid"], rate: 0.3 } as const;
    const run = await simulate({ seed, strategy: random(), faults }, async (world) => {
      const cache = world.system.spawn(CACHE, { maxSteps: 9 }, { id: "cache" });
      world.system.watch(cache, () => crashes++);
      await Promise.allSettled(
        ["a", "b", "c"].map((key) => world.system.ask(cache, { type: "Get", key })),
      );
    });
    assert.ok(!run.failure || run.failure.name === "InjectedCrash", run.failure?.message);
  }
  assert.ok(crashes > 0);
});

Deno.test("a journal of overlapping handlers replays; an inbox of them is refused by name", async () => {
  const path = await Deno.makeTempFile();
  try {
    {
      await using system = createSystem({ observer: await beginJournal({ path, payloads: true }) });
      const cache = system.spawn(CACHE, { maxSteps: 9 }, { id: "cache" });
      await Promise.all(["a", "b"].map((key) => system.ask(cache, { type: "Get", key })));
    }
    await assert.rejects(
      replayInbox(CACHE, path),
      /Cannot replay the inbox of "cache": its handlers must not overlap/,
    );
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("the inbox of an actor that waits for what is outside replays without it", async () => {
  const path = await Deno.makeTempFile();
  try {
    {
      await using system = createSystem({ observer: await beginJournal({ path, payloads: true }) });
      const cache = system.spawn(CACHE, {}, { id: "cache" });
      await Promise.all(["a", "b"].map((key) => system.ask(cache, { type: "Get", key })));
    }
    const { steps, compared } = await replayInbox(CACHE, path);
    assert.deepEqual({ steps, compared }, { steps: 6, compared: 4 });
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("a wait for what is outside lets the other actors of an isolate go on", async () => {
  await using system = createSystem();
  const slow = system.spawn(CACHE, { farMs: 300 }, { id: "slow" });
  const fast = system.spawn(CACHE, {}, { id: "fast" });
  const order: string[] = [];
  await Promise.all([
    system.ask(slow, { type: "Get", key: "s" }).then((text) => order.push(text)),
    system.ask(fast, { type: "Get", key: "f" }).then((text) => order.push(text)),
  ]);
  assert.deepEqual(order, ["ff", "ss"]);
});

Deno.test("the number of steps is checked by name", async () => {
  const { failure } = await simulate({}, async ({ system, idle }) => {
    system.spawn(CACHE, { maxSteps: 0 }, { id: "cache" });
    await idle();
  });
  assert.match(failure!.message, /the number of steps must be 1 or more, received 0/);
});
