/** Questions in the simulator: circular questions, withdrawn questions, and waits for external calls. */

import assert from "node:assert/strict";
import { type ActorSpec, type System } from "../../../actors/runtime/mod.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { random } from "../../../actors/simulation/strategies.ts";
import type { Scenario, SimulateOptions } from "../../../actors/simulation/run.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import { atDepth } from "../../depth.ts";
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
import { onceTest, replayed } from "./simulated.ts";

const spawnAll = (system: System, spec: ActorSpec<Any, AnyMessage>, ...ids: string[]) =>
  ids.map((id) => system.spawn(spec, undefined, { id })) as [AnyRef, AnyRef, AnyRef, AnyRef];

/** Forwards a question along a route; answers with the result. */
const PASSER = plain(`(ctx) => ({
  async Pass({ route: [next, ...route], timeoutMs }) {
    const asked = next && ctx.ask(next, { type: "Pass", route, timeoutMs: Infinity }, { timeoutMs });
    ctx.reply(next ? await asked.catch(String) : ctx.self.id);
  },
})`);

const CIRCLES = [
  ["wait until one of them gives up", 1000, / "b" did not answer "Pass" of "a" within 1000 ms$/],
  ["are a deadlock where none does", Infinity, /"a" waits for "b" to answer "Pass".*"b" waits/s],
] as const;
for (const [how, timeoutMs, answer] of CIRCLES) {
  Deno.test(`two that ask each other ${how}`, async () => {
    const { value, failure } = await simulate({}, async ({ system }) => {
      const [a, b] = spawnAll(system, PASSER, "a", "b");
      const question = { type: "Pass", route: [b, a], timeoutMs };
      return await system.ask(a, question, { timeoutMs: Infinity });
    });
    assert.match(`${value ?? failure?.waits}`, answer);
  });
}

/** Withdraws questions. */
const ABORTER = specOf(import.meta.url, "aborter");

export const aborter: AnyActor = (ctx) => {
  const double = (to: AnyRef, n: number, signal?: AbortSignal) =>
    ctx.ask(to, { type: "Double", n }, signal && { signal });
  return {
    /** Asks two, and withdraws one question once the other is answered. */
    async Hedge({ slow, fast }) {
      const controller = new AbortController();
      const second = double(slow, 2, controller.signal).then(String, String);
      const first = await double(fast, 1);
      controller.abort(new DOMException("enough", "AbortError"));
      ctx.reply([`${first}`, await second]);
    },
    /** Asks three times with one signal; returns how often a listener was added, and removed. */
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
    const [aborter] = spawnAll(system, ABORTER, "aborter");
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
  const [aborter] = spawnAll(system, ABORTER, "aborter"), [server] = spawnAll(system, SERVER, "s");
  return system.ask(aborter, { type: "Listeners", server });
}, [3, 3]);

const CACHE = specOf(import.meta.url, "cache");

/** Its external calls take `farMs`, which must not affect the order. */
export const cache: AnyActor = (ctx, farMs: number) => ({
  /** Looks up a key with an external call: the value is the key, doubled. */
  async Get({ key }) {
    const fetch = () => new Promise((resolve) => setTimeout(resolve, farMs, key + key));
    ctx.reply(await ctx.external(fetch));
  },
});

const cacheIn = (system: System, id = "cache", farMs = 0) => system.spawn(CACHE, farMs, { id });

Deno.test("however long an external call takes, the strategy decides the order", async () => {
  const orders = new Set<string>();
  for (let seed = 0; seed < atDepth(8, 40); seed++) {
    const playFor = (farMs: number, more: SimulateOptions = { strategy: random() }) =>
      simulate({ seed, ...more }, async ({ system }) => {
        const order: string[] = [];
        await Promise.all(["a", "b", "c", "d"].map(async (key) => {
          const cache = cacheIn(system, `cache ${key}`, farMs);
          order.push(await system.ask(cache, { type: "Get", key }));
        }));
        return order.join();
      });
    const near = await playFor(0), far = await playFor(3);
    assert.deepEqual([far.steps, far.value], [near.steps, near.value], `seed ${seed}`);
    const replay = await playFor(0, { deviations: near.deviations });
    assert.equal(replay.value, near.value);
    orders.add(near.value!);
  }
  assert.ok(orders.size > 2, "answers come in several orders");
});

Deno.test("an inbox replays external calls and two questions at the same time", async () => {
  const outside = await replayed(CACHE, (system) => {
    const cache = cacheIn(system);
    return Promise.all(["a", "b"].map((key) => system.ask(cache, { type: "Get", key })));
  });
  assert.deepEqual([outside.steps, outside.compared], [6, 4]);
  const { compared } = await replayed(CLIENT, (system) => {
    const [to] = spawnAll(system, SERVER, "server"), [ref] = spawnAll(system, CLIENT, "client");
    return system.ask(ref, { type: "Both", to });
  });
  assert.ok(compared >= 3, `${compared} effects`);
});

Deno.test("results of external calls must be data if a journal is kept", async () => {
  const spec = plain(`(ctx) => ({
    async Go() { ctx.reply(await ctx.external(() => () => {}).catch(String)); },
  })`);
  await replayed(spec, async (system) => {
    const answer = await system.ask(system.spawn(spec, undefined, { id: "x" }), { type: "Go" });
    assert.match(`${answer}`, /^TypeError: Cannot record an external value: .*cloneable/);
  });
});

Deno.test("the other actors of an isolate run while one waits for an external call", async () => {
  await using system = createSystem();
  const slow = cacheIn(system, "slow", 50), fast = cacheIn(system, "fast");
  const order: string[] = [];
  await Promise.all([slow, fast].map(async (ref) => {
    order.push(await system.ask(ref, { type: "Get", key: ref.id[0] }));
  }));
  assert.deepEqual(order, ["ff", "ss"]);
});
