/** Questions in the simulator: circles of them, some taken back, and handlers that overlap. */

import assert from "node:assert/strict";
import { type ActorSpec, createSystem, type System } from "../../../actors/runtime/mod.ts";
import { random, type Scenario, simulate } from "../../../actors/simulation/mod.ts";
import { atDepth } from "../../depth.ts";
import { ASKER } from "./circle_players.ts";
import { failureOf } from "./harness.ts";
import {
  type Any,
  type AnyActor,
  type AnyMessage,
  type AnyRef,
  CLIENT,
  plain,
  SERVER,
  specOf,
} from "./players.ts";
import { failTest, onceTest, playMany, playTest, replayed } from "./simulated.ts";

const spawnAll = (system: System, spec: ActorSpec<Any, AnyMessage>, ...ids: string[]) =>
  ids.map((id) => system.spawn(spec, undefined, { id })) as [AnyRef, AnyRef, AnyRef, AnyRef];

const askers = (system: System, ...ids: string[]) => spawnAll(system, ASKER, ...ids);

const notesOf = (system: System, refs: readonly AnyRef[]): Promise<string[][]> =>
  Promise.all(refs.map((ref) => system.ask(ref, { type: "Notes" })));

const AB = 'TypeError: Cannot ask "a" for "Pass": "b" would wait for "a", which waits for "b"';
const KEPT = 'TypeError: Cannot ask "b" for "Pass": "a" would wait for "b", which waits for "a"';

playTest(
  "the second of two that ask each other fails",
  async ({ system, advance }) => {
    const [a, b] = askers(system, "a", "b");
    const answer = system.ask(a, { type: "Pass", route: [b, a] });
    await advance(0);
    return [await answer, await notesOf(system, [a, b]), system.deadLetters.length];
  },
  ["b failed", [[], [AB]], 0],
  { raceMs: 0 },
);

playTest(
  "an asker in no circle learns of it, or is answered",
  async ({ system, idle }) => {
    const [first, a, b, c, d] = spawnAll(system, ASKER, "first", "a", "b", "c", "d") as AnyRef[];
    const pass = (to: AnyRef, route: unknown[]) => system.ask(to, { type: "Pass", route });
    const answers = [await pass(first!, [a, b, a])];
    // An actor that answers in the same step is in no circle, nor are two that ask one.
    answers.push(await system.ask(c!, { type: "Relay", to: d, question: "Answer" }));
    await idle();
    const notes = await notesOf(system, [a!, b!, c!, d!]);
    answers.push(...await Promise.all([pass(a!, [c, d]), pass(b!, [c, d])]));
    return [answers, notes];
  },
  [["b failed", "first", "d", "d"], [[], [AB], [], ["c"]]],
  { raceMs: 0 },
);

playTest(
  "an answer that was put off is owed, which makes a circle",
  async (world) => {
    const { system, advance } = world, [a, b] = askers(system, "a", "b");
    const answer = system.ask(b, { type: "Relay", to: a, question: "Keep" });
    await advance(1);
    system.send(a, { type: "Go", route: [b] });
    return [await answer, await notesOf(system, [a])];
  },
  ["kept", [[KEPT, "a failed"]]],
  { raceMs: 0 },
);

Deno.test("where all in a ring ask at once, at least one fails and all go on", async () => {
  const failed = await playMany(20, async ({ system, idle }) => {
    const refs = askers(system, "a", "b", "c").slice(0, 3);
    refs.forEach((ref, n) =>
      system.send(ref, { type: "Go", route: [refs[(n + 1) % 3]!, refs[(n + 2) % 3]!] })
    );
    await idle();
    const notes = (await notesOf(system, refs)).flat();
    assert.ok(notes.every((note) => !note.includes("AskTimeoutError")), notes.join("\n"));
    return notes.filter((note) => note.startsWith("TypeError")).length;
  });
  assert.ok(failed.some((count) => count > 0));
});

/** Takes questions back. */
const ABORTER = specOf(import.meta.url, "aborter");

export const aborter: AnyActor = (ctx) => {
  const double = (to: AnyRef, n: number, signal?: AbortSignal) =>
    ctx.ask(to, { type: "Double", n }, signal && { signal });
  return {
    /** Asks two, and takes the one question back once the other is answered. */
    async Hedge({ slow, fast }) {
      const controller = new AbortController();
      const second = double(slow, 2, controller.signal).then(String, String);
      const first = await double(fast, 1);
      controller.abort(new DOMException("enough", "AbortError"));
      ctx.reply([`${first}`, await second]);
    },
    /** Asks three times with one signal; says how often that got a listener, and lost one. */
    async Listeners({ server }) {
      const { signal } = new AbortController(), counts = [0, 0];
      for (const [n, name] of ["addEventListener", "removeEventListener"].entries()) {
        const original = Reflect.get(signal, name);
        Reflect.set(signal, name, (...args: unknown[]) => {
          counts[n]!++;
          Reflect.apply(original, signal, args);
        });
      }
      for (const n of [1, 2, 3]) await double(server, n, signal);
      ctx.reply(counts);
    },
  };
};

Deno.test("an actor takes a question back in a step that may come at any moment", async () => {
  const hedge: Scenario<readonly string[]> = ({ system }) => {
    const [slow, fast] = spawnAll(system, SERVER, "slow", "fast");
    const aborter = system.spawn(ABORTER, undefined, { id: "aborter" });
    return system.ask(aborter, { type: "Hedge", slow, fast });
  };
  const seen = new Set<string>();
  for (let seed = 0; seed < atDepth(20, 200); seed++) {
    const run = await simulate({ seed, strategy: random() }, hedge);
    assert.equal(run.failure, undefined, `seed ${seed}`);
    const [fast, slow] = run.value!;
    assert.equal(fast, "2");
    assert.ok(slow === "AbortError: enough" || slow === "4", slow);
    seen.add(slow);
    const again = await simulate({ seed, deviations: run.deviations }, hedge);
    assert.deepEqual(again.value, run.value, `seed ${seed}`);
  }
  assert.equal(seen.size, 2, "both ends of the race are among the orders");
});

onceTest("a question with a signal that has aborted is never sent", async ({ system, idle }) => {
  const server = system.spawn(SERVER, undefined, { id: "server" });
  const asked = system.ask(server, { type: "Throw" } as never, { signal: AbortSignal.abort(7) });
  const error = await asked.catch((error) => error);
  await idle();
  return error;
}, 7);

onceTest("a signal that outlives its questions keeps nothing of them", ({ system }) => {
  const aborter = system.spawn(ABORTER, undefined, { id: "aborter" });
  const server = system.spawn(SERVER, undefined, { id: "server" });
  return system.ask(aborter, { type: "Listeners", server });
}, [3, 3]);

const CACHE = specOf(import.meta.url, "cache");

/** Its handlers may overlap; what is outside takes it `farMs`, on which nothing may depend. */
export const cache: AnyActor = (ctx, { maxSteps, farMs = 0 }) => {
  if (maxSteps !== undefined) ctx.reentrant(maxSteps);
  const known = new Map<string, string>();
  let now = 0, most = 0;
  const enter = () => void (most = Math.max(most, ++now));
  const fetch = (key: string) =>
    new Promise<string>((resolve) => setTimeout(resolve, farMs, key + key));
  return {
    /** Looks a key up, from afar the first time: the key itself, doubled. */
    async Get({ key }) {
      enter();
      ctx.doing(key);
      if (!known.has(key)) known.set(key, await ctx.outside(() => fetch(key)));
      ctx.reply(known.get(key)!);
      now--;
    },
    async Via({ to, key }) {
      enter();
      ctx.doing(`via ${to.id}`);
      ctx.reply(await ctx.ask(to as AnyRef, { type: "Get", key }).catch(String));
      now--;
    },
    Most: () => ctx.reply(most),
    async Faint() {
      ctx.doing("weak");
      await ctx.outside(() => Promise.reject(new RangeError("no air")));
    },
    Never: () => void ctx.deferReply(),
  };
};

interface CacheInit {
  readonly maxSteps?: number;
  readonly farMs?: number;
}

const cacheIn = (system: System, id = "cache", init: CacheInit = { maxSteps: 9 }) =>
  system.spawn(CACHE, init, { id });

/** Asks a cache for four keys at once. */
const askFour =
  (init: CacheInit): Scenario<{ order: string[]; most: number }> => async ({ system }) => {
    const cache = cacheIn(system, "cache", init), order: string[] = [];
    await Promise.all(["a", "b", "a", "c"].map(async (key) => {
      order.push(await system.ask(cache, { type: "Get", key }));
    }));
    return { order, most: await system.ask(cache, { type: "Most" }) };
  };

Deno.test("handlers overlap where their actor allows it, and never more than it allows", async () => {
  for (const [maxSteps, most] of [[undefined, 1], [1, 1], [2, 2], [Infinity, 4]] as const) {
    const runs = await playMany(10, askFour(maxSteps === undefined ? {} : { maxSteps }));
    for (const { order } of runs) assert.deepEqual(order.toSorted(), ["aa", "aa", "bb", "cc"]);
    assert.equal(Math.max(...runs.map((run) => run.most)), most);
  }
});

Deno.test("however long what is outside takes, the order is the strategy's", async () => {
  const orders = new Set<string>();
  for (let seed = 0; seed < atDepth(8, 40); seed++) {
    const playFor = (farMs: number, more = {}) =>
      simulate({ seed, strategy: random(), ...more }, askFour({ maxSteps: 9, farMs }));
    const [near, again, far] = [await playFor(0), await playFor(0), await playFor(3)];
    assert.equal(again.hash, near.hash, `seed ${seed}`);
    const order = near.value!.order.join();
    assert.deepEqual([far.steps, far.value!.order.join()], [near.steps, order], `seed ${seed}`);
    const replay = await simulate({ seed, deviations: near.deviations }, askFour({ maxSteps: 9 }));
    assert.equal(replay.value!.order.join(), order);
    orders.add(order);
  }
  assert.ok(orders.size > 2, "answers come in several orders");
});

playTest("each answer goes to its asker, only a true circle fails", async ({ system }) => {
  const near = cacheIn(system, "near"), far = cacheIn(system, "far");
  const plain = cacheIn(system, "plain", {});
  const via = (from: AnyRef, to: AnyRef, key: string) => system.ask(from, { type: "Via", to, key });
  return [
    await Promise.all(["a", "b", "c", "d"].map((key) => via(near, far, key))),
    await Promise.all([via(near, far, "e"), via(far, near, "f")]),
    await Promise.all([via(near, plain, "g"), via(plain, near, "h"), via(near, plain, "i")]),
  ];
}, [["aa", "bb", "cc", "dd"], ["ee", "ff"], ["gg", "hh", "ii"]]);

playTest("a step that fails ends the actor and says what it did", async ({ system }) => {
  const cache = cacheIn(system), never = cacheIn(system, "never", {});
  const failure = failureOf(system, cache);
  const ends = await Promise.allSettled([
    system.ask(cache, { type: "Get", key: "a" }),
    system.ask(cache, { type: "Faint" }),
    system.ask(cache, { type: "Via", to: never, key: "b" }),
  ]);
  const { handling, error } = await failure;
  return [handling, error.message, ends[1]!.status];
}, ["Faint (weak)", "no air", "rejected"]);

Deno.test("an actor whose handlers overlap stops, and drains with all of them", async () => {
  for (
    const [late, ...ends] of await playMany(10, async ({ system, idle }) => {
      const cache = cacheIn(system, "cache", { maxSteps: 2 });
      const asked = ["a", "b", "c"].map((key) => system.ask(cache, { type: "Get", key }));
      const end = system.stop(cache, { drain: true });
      await idle();
      await end;
      const ends = (await Promise.allSettled(asked)).map(({ status }) => status);
      const other = cacheIn(system, "cache", { maxSteps: 2 });
      const late = system.ask(other, { type: "Get", key: "a" }).catch(({ name }) => name);
      await system.stop(other);
      return [await late, ...ends];
    })
  ) {
    assert.deepEqual(ends, Array(3).fill("fulfilled"));
    assert.ok(late === "ActorFailedError" || late === "aa");
  }
});

Deno.test("a crash amid overlapping handlers is a fault like any other", async () => {
  let crashes = 0;
  for (let seed = 0; seed < atDepth(10, 100); seed++) {
    const faults = { kinds: ["crash-before", "crash-after", "crash-amid"], rate: 0.3 } as const;
    const run = await simulate({ seed, strategy: random(), faults }, async ({ system }) => {
      const cache = cacheIn(system);
      system.watch(cache, () => crashes++);
      const asked = ["a", "b", "c"].map((key) => system.ask(cache, { type: "Get", key }));
      await Promise.allSettled(asked);
    });
    assert.ok(!run.failure || run.failure.name === "InjectedCrash", run.failure?.message);
  }
  assert.ok(crashes > 0);
});

Deno.test("an inbox of overlapping handlers is refused by name; one that waits for what is outside replays", async () => {
  const askTwo = (init: CacheInit) => (system: System) => {
    const cache = cacheIn(system, "cache", init);
    return Promise.all(["a", "b"].map((key) => system.ask(cache, { type: "Get", key })));
  };
  await assert.rejects(
    replayed(CACHE, askTwo({ maxSteps: 9 })),
    /Cannot replay the inbox of "cache": its handlers must not overlap/,
  );
  const { steps, compared } = await replayed(CACHE, askTwo({}));
  assert.deepEqual({ steps, compared }, { steps: 6, compared: 4 });
});

Deno.test("the inbox of an actor that asks two at once replays", async () => {
  const { compared } = await replayed(CLIENT, (system) => {
    const to = system.spawn(SERVER, undefined, { id: "server" });
    const ref = system.spawn(CLIENT, undefined, { id: "client" });
    return system.ask(ref, { type: "Both", to });
  });
  assert.ok(compared >= 3, `${compared} effects`);
});

Deno.test("what comes from outside must be data where a journal is kept", async () => {
  const spec = plain(`(ctx) => ({
    async Go() { ctx.reply(await ctx.outside(() => () => {}).catch(String)); },
  })`);
  await replayed(spec, async (system) => {
    const answer = await system.ask(system.spawn(spec, undefined, { id: "x" }), { type: "Go" });
    assert.match(`${answer}`, /^TypeError: Cannot keep what comes from outside: .*cloneable/);
  });
});

Deno.test("a wait for what is outside lets the other actors of an isolate go on", async () => {
  await using system = createSystem();
  const slow = cacheIn(system, "slow", { farMs: 50 }), fast = cacheIn(system, "fast", {});
  const order: string[] = [];
  await Promise.all(
    [slow, fast].map(async (ref) =>
      order.push(await system.ask(ref, { type: "Get", key: ref.id[0] }))
    ),
  );
  assert.deepEqual(order, ["ff", "ss"]);
});

failTest("a number of steps below one is refused", async ({ system, idle }) => {
  cacheIn(system, "cache", { maxSteps: 0 });
  await idle();
}, /the number of steps must be 1 or more, received 0/);
