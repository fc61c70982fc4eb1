/** Supervisors and pools begin again what ends, by OTP's strategies, in the simulator. */

import assert from "node:assert/strict";
import {
  broadcast,
  CHILD_SUPERVISOR,
  type Pool,
  spawnPool,
  type Supervision,
} from "../../../actors/runtime/mod.ts";
import { countRestarts } from "../../../actors/runtime/supervision/restarts.ts";
import type { World } from "../../../actors/simulation/mod.ts";
import { type AnyActor, type AnyMessage, type AnyRef, plain, SERVER, specOf } from "./players.ts";
import { failTest, play, playMany, playTest } from "./simulated.ts";

/** A child of a supervisor, or a member of a pool, which may know a friend. */
const UNIT = specOf(import.meta.url, "unit");

export const unit: AnyActor = (ctx, { friend }) => {
  const { id } = ctx.self, clock = ctx.spawn(SERVER, undefined, { id: `${id}'s clock` });
  let sum = 0;
  return {
    Fail() {
      throw new RangeError(`${id} is out of luck`);
    },
    End: () => ctx.stop(),
    Friend: () => ctx.reply(friend?.serial),
    Add: ({ n }) => void (sum += n),
    Sum: () => ctx.reply(sum),
    /** Lets virtual time pass: waits for an answer that never comes. */
    async Work({ ms }) {
      await ctx.ask(clock, { type: "Never" }, { timeoutMs: ms }).catch(() => {});
      ctx.reply(id);
    },
  };
};

const childOf = (id: string, more: object = {}) => ({ id, spec: UNIT, init: {}, ...more });

/** A supervisor of children a, b and c, and what is done to them. */
async function open({ system, idle }: World, options: Partial<Supervision> = {}) {
  const children = ["a", "b", "c"].map((id) => childOf(id));
  const supervision = { intensity: 10, children, ...options };
  const supervisor = system.spawn(CHILD_SUPERVISOR, supervision, { id: "supervisor" });
  const child = async (id: string) =>
    await system.ask(supervisor, { type: "Child", id }) as AnyRef | undefined;
  const tell = async (id: string, type: string) => {
    system.send((await child(id))!, { type });
    await idle();
  };
  const states = async () =>
    (await system.ask(supervisor, { type: "Children" })).map(({ id, state, restarts }) =>
      `${id} ${state} ${restarts}`
    );
  await idle();
  return { child, tell, states };
}

Deno.test("a child that ends is begun again as strategy and kind of child say", async () => {
  const cases = [
    ["one-for-one", "permanent", "Fail", "a up 0,b up 1,c up 0"],
    ["one-for-all", "permanent", "Fail", "a up 1,b up 1,c up 1"],
    ["rest-for-one", "permanent", "End", "a up 0,b up 1,c up 1"],
    ["one-for-one", "transient", "Fail", "a up 0,b up 1,c up 0"],
    ["one-for-one", "transient", "End", "a up 0,b ended 0,c up 0"],
    ["one-for-one", "temporary", "Fail", "a up 0,b ended 0,c up 0"],
  ] as const;
  for (const [strategy, restart, how, wanted] of cases) {
    const children = ["a", "b", "c"].map((id) => childOf(id, { restart }));
    const states = await play(async (world) => {
      const { tell, states } = await open(world, { strategy, children });
      await tell("b", how);
      return await states();
    });
    assert.equal(states.join(), wanted, `${strategy} ${restart} ${how}`);
  }
});

Deno.test("in a storm of failures none meets one of before, and all are up in the end", async () => {
  await playMany(20, async (world) => {
    const { system, idle, invariant } = world;
    let lives: readonly string[] = [];
    invariant("those after one that is begun are not alive", ({ actors }) => {
      const born = actors.find((id) => id.length === 1 && !lives.includes(id));
      const met = lives.filter((id) => id.length === 1 && id > born! && actors.includes(id));
      lives = [...actors];
      return met.length > 0 ? `${born} met ${met}` : undefined;
    });
    const { child, states } = await open(world, { strategy: "rest-for-one", intensity: 99 });
    for (const id of ["c", "a", "b", "a", "c", "a", "b", "a", "c", "a", "b", "a"]) {
      const ref = await child(id);
      if (ref) system.send(ref, { type: "Fail" });
    }
    await idle();
    assert.deepEqual((await states()).map((state) => state.split(" ")[1]), ["up", "up", "up"]);
  });
});

failTest(
  "a child that fails too often ends the supervisor",
  async (world) => {
    const { tell } = await open(world, { intensity: 2, periodMs: 1000 });
    for (let n = 0; n < 3; n++) await tell("b", "Fail");
  },
  /^Actor "supervisor" failed while handling Down: Error: Cannot restart "b": there must be at most 2 restarts in 1000 ms; Actor "b" failed while handling Fail: RangeError: b is out of luck$/,
);

Deno.test("each restart waits twice as long, within bounds; old ones are forgotten after some progress", () => {
  const backOff = { firstMs: 10, maxMs: 30 };
  const { failed, gotOn } = countRestarts({ intensity: 4, periodMs: 100, backOff });
  assert.deepEqual([0, 1, 2, 3, 200].map(failed), [0, 10, 20, 30, undefined]);
  gotOn();
  assert.deepEqual([299, 301].map(failed), [10, 10]);
});

playTest("a child that needs another waits until that is up again", async (world) => {
  const children = [childOf("a"), childOf("b", { needs: { friend: "a" } })];
  const { system, advance } = world, backOff = { firstMs: 100, maxMs: 1000 };
  const { child, tell } = await open(world, { children, backOff });
  await tell("a", "Fail");
  // b is to wait for less time than a.
  for (const ref of [await child("b"), await child("a")]) system.send(ref!, { type: "Fail" });
  await advance(1000);
  return typeof await system.ask((await child("b"))!, { type: "Friend" });
}, "number");

const openPool = ({ system }: World, more: Partial<Pool<object, AnyMessage>> = {}) =>
  spawnPool(system, { spec: UNIT, init: {}, size: 3, ...more }, { id: "pool" });

playTest("a pool gives its members messages in turn, and each what is for all", async (world) => {
  const { system, idle } = world, pool = openPool(world);
  for (const n of [1, 10]) system.send(pool, broadcast({ type: "Add", n }));
  await idle();
  const askFour = (type: string) =>
    Promise.all([1, 2, 3, 4].map((ms) => system.ask(pool, { type, ms })));
  return [await askFour("Work"), await askFour("Sum")];
}, [["pool-1", "pool-2", "pool-3", "pool-1"], [11, 11, 11, 11]]);

playTest(
  "the member with the least to do gets the next; one that fails is replaced",
  async (world) => {
    const { system, advance } = world, policy = "smallest-mailbox";
    const pool = openPool(world, { policy, intensity: 1 });
    const work = (ms: number) => system.ask(pool, { type: "Work", ms });
    const first = [work(1000), work(10), work(10)];
    await advance(20);
    // The first is still at work, and the others have nothing.
    const then = [work(10), work(10)];
    await advance(2000);
    system.send(pool, { type: "Fail" });
    await advance(1);
    const last = work(10);
    await advance(100);
    return await Promise.all([...first, ...then, last]);
  },
  ["pool-1", "pool-2", "pool-3", "pool-2", "pool-3", "pool-1"],
  { raceMs: 0 },
);

playTest("a message handed on keeps its sender", async ({ system }) => {
  const forwarder = plain(`(ctx, to) => {
    const hand = () => ctx.forward(to);
    return { Add: hand, Sum: hand };
  }`);
  const last = system.spawn(UNIT, {}, { id: "last" });
  const first = system.spawn(forwarder, last, { id: "first" });
  system.send(first, { type: "Add", n: 5 });
  const sum = await system.ask(first, { type: "Sum" });
  await system.stop(last);
  const error = await system.ask(first, { type: "Sum" }).catch((error) => error.message);
  return [sum, error, ...system.deadLetters.map(({ from, to }) => `${from} ${to}`)];
}, [5, 'Actor "last" failed: Error: actor "last" has stopped', "system last"]);
