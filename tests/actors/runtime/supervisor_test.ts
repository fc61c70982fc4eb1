/** Supervisors and pools begin again what ends, by OTP's strategies, in the simulator. */

import assert from "node:assert/strict";
import {
  type ActorSpec,
  broadcast,
  CHILD_SUPERVISOR,
  type ChildSpec,
  childSpec,
  createSystem,
  type Pool,
  spawnPool,
  type Supervision,
} from "../../../actors/runtime/mod.ts";
import type { World } from "../../../actors/simulation/mod.ts";
import { ASKER } from "./circle_players.ts";
import { downOf } from "./harness.ts";
import {
  type AnyActor,
  type AnyMessage,
  type AnyRef,
  FORWARDER,
  MEMBER,
  specOf,
} from "./players.ts";
import {
  failTest,
  failureIn,
  onceTest,
  playMany,
  playOnce,
  playTest,
  replayed,
} from "./simulated.ts";

interface UnitInit {
  /** It is out of this when it fails. */
  readonly outOf: string;
  readonly friend?: AnyRef;
  /** Fails as soon as it is made. */
  readonly isStillborn?: boolean;
}

/** A child of a supervisor. */
const UNIT: ActorSpec<UnitInit, AnyMessage> = specOf(import.meta.url, "unit");

export const unit: AnyActor = (ctx, { outOf, friend, isStillborn }) => {
  const { id } = ctx.self;
  if (isStillborn) throw new RangeError(`${id} is stillborn`);
  return {
    Fail() {
      throw new RangeError(`${id} is out of ${outOf}`);
    },
    End: () => ctx.stop(),
    Friend: () => ctx.reply(friend ? `${friend.id}/${friend.serial}` : "none"),
  };
};

type Options = Partial<Omit<Supervision, "children">> & {
  readonly children?: readonly ChildSpec[];
};

const LUCKLESS = { outOf: "luck" };

const childOf = (id: string, more: Partial<ChildSpec> = {}) => ({
  ...childSpec({ id, spec: UNIT, init: LUCKLESS }),
  ...more,
});

/** The children that come and go, in order: `+a`, `-a`. */
function keepDiary({ invariant }: World, onBirth?: (id: string, lives: string[]) => void) {
  const diary: string[] = [];
  let lives: readonly string[] = [];
  invariant("diary", ({ actors }) => {
    for (const id of lives) if (!actors.includes(id)) diary.push(`-${id}`);
    for (const id of actors) {
      if (lives.includes(id)) continue;
      onBirth?.(id, lives.filter((one) => actors.includes(one)));
      diary.push(`+${id}`);
    }
    lives = [...actors];
  });
  return diary;
}

/** A supervisor of children a, b and c, and what is done to them. */
async function open(world: World, { children, ...options }: Options = {}) {
  const { system, idle } = world, diary = keepDiary(world);
  const specs = children ?? ["a", "b", "c"].map((id) => childOf(id));
  const supervision = { intensity: 10, ...options, children: specs };
  const supervisor = system.spawn(CHILD_SUPERVISOR, supervision, { id: "supervisor" });
  const child = async (id: string) =>
    await system.ask(supervisor, { type: "Child", id }) as AnyRef | undefined;
  const tell = async (id: string, type: "Fail" | "End") => {
    system.send((await child(id))!, { type });
    await idle();
  };
  const states = async () =>
    (await system.ask(supervisor, { type: "Children" })).map(({ id, state, restarts }) =>
      `${id} ${state} ${restarts}`
    );
  await idle();
  return { supervisor, child, tell, diary, states };
}

for (
  const [strategy, notes] of [
    ["one-for-one", ["-b", "+b"]],
    ["one-for-all", ["-b", "-c", "-a", "+a", "+b", "+c"]],
    ["rest-for-one", ["-b", "-c", "+b", "+c"]],
  ] as const
) {
  playTest(
    `${strategy}: a child that fails is begun again with others, in order`,
    async (world) => {
      const { tell, diary } = await open(world, { strategy }), before = diary.length;
      await tell("b", "Fail");
      return diary.slice(before);
    },
    notes,
  );
}

for (
  const [restart, how, state] of [
    ["permanent", "Fail", "b up 1"],
    ["permanent", "End", "b up 1"],
    ["transient", "Fail", "b up 1"],
    ["transient", "End", "b ended 0"],
    ["temporary", "Fail", "b ended 0"],
    ["temporary", "End", "b ended 0"],
  ] as const
) {
  playTest(`a ${restart} child that comes to its end by ${how}: ${state}`, async (world) => {
    const children = ["a", "b"].map((id) => childOf(id, { restart }));
    const { tell, states } = await open(world, { children });
    await tell("b", how);
    return await states();
  }, ["a up 0", state]);
}

playTest("a temporary child that is stopped with others stays down", async (world) => {
  const restarts = { a: "permanent", b: "temporary", c: "transient" } as const;
  const children = Object.entries(restarts).map(([id, restart]) => childOf(id, { restart }));
  const { tell, states } = await open(world, { strategy: "one-for-all", children });
  await tell("a", "Fail");
  return await states();
}, ["a up 1", "b ended 0", "c up 1"]);

failTest(
  "a child that fails too often ends the supervisor",
  async (world) => {
    const { tell } = await open(world, { intensity: 2, periodMs: 1000 });
    for (let n = 0; n < 3; n++) await tell("b", "Fail");
  },
  /^Actor "supervisor" failed while handling Down: Error: Cannot restart "b": there must be at most 2 restarts in 1000 ms; Actor "b" failed while handling Fail: RangeError: b is out of luck$/,
);

playTest("failures that are older than the period are forgotten", async (world) => {
  const { tell, states } = await open(world, { intensity: 2, periodMs: 1000 });
  for (let n = 0; n < 6; n++) {
    await tell("b", "Fail");
    await world.advance(501);
  }
  return await states();
}, ["a up 0", "b up 6", "c up 0"]);

playTest("each restart waits twice as long, within bounds, and others go on", async (world) => {
  const backOff = { firstMs: 100, maxMs: 250 }, { system, advance } = world;
  const { child, states } = await open(world, { intensity: 9, periodMs: 60_000, backOff });
  const seen: string[] = [];
  for (const waitMs of [0, 100, 200, 250, 250]) {
    system.send((await child("b"))!, { type: "Fail" });
    for (const ms of waitMs > 0 ? [waitMs - 1, 1] : [1]) {
      await advance(ms);
      seen.push((await states())[1]!);
    }
  }
  return seen;
}, [
  ...["b up 1", "b waiting 1", "b up 2", "b waiting 2", "b up 3"],
  ...["b waiting 3", "b up 4", "b waiting 4", "b up 5"],
], { raceMs: 0 });

playTest("a question for a child that is about to be begun again waits for it", async (world) => {
  const { child, tell } = await open(world, { backOff: { firstMs: 100, maxMs: 100 } });
  const first = await child("b");
  await tell("b", "Fail");
  world.system.send((await child("b"))!, { type: "Fail" });
  const third = await child("b");
  return [first!.serial < third!.serial, third!.id, await child("unknown")];
}, [true, "b", undefined]);

for (const strategy of ["rest-for-one", "one-for-one"] as const) {
  playTest(`${strategy}: a child gets references as they are at its start`, async (world) => {
    const b = childSpec({ id: "b", spec: UNIT, init: LUCKLESS, needs: { friend: "a" } });
    const { child, tell } = await open(world, { strategy, children: [childOf("a"), b] });
    const isNow = async () =>
      await world.system.ask((await child("b"))!, { type: "Friend" }) ===
        `a/${(await child("a"))!.serial}`;
    const before = await isNow();
    await tell("a", "Fail");
    return [before, await isNow()];
  }, [true, strategy === "rest-for-one"]);
}

failTest("a child that cannot even be made counts like any that fails", async (world) => {
  const init = { ...LUCKLESS, isStillborn: true };
  await open(world, { intensity: 3, children: [childSpec({ id: "b", spec: UNIT, init })] });
}, /most 3 restarts in 5000 ms; Actor "b" failed while handling init/);

playTest("children come and go while the supervisor lives", async (world) => {
  const { system, idle } = world;
  const { supervisor, states, child } = await open(world, { strategy: "rest-for-one" });
  const added = await system.ask(supervisor, { type: "StartChild", child: childOf("d") });
  const again = await system.ask(supervisor, { type: "StartChild", child: childOf("d") });
  system.send(supervisor, { type: "StopChild", id: "b" });
  await idle();
  system.send((await child("a"))!, { type: "Fail" });
  await idle();
  return [added?.serial === again?.serial, await child("b"), ...await states()];
}, [true, undefined, "a up 1", "c up 1", "d up 1"]);

for (const strategy of ["one-for-all", "rest-for-one", "one-for-one"] as const) {
  Deno.test(`${strategy}: in a storm of failures all are up again in the end`, async () => {
    await playMany(20, async (world) => {
      const { system, idle } = world;
      // A child that is begun again for others must not meet those of before.
      keepDiary(world, (id, lives) => {
        const later = ["a", "b", "c"].filter((one) => strategy === "one-for-all" || one > id);
        const met = strategy === "one-for-one" ? [] : later.filter((one) => lives.includes(one));
        assert.deepEqual(met, [], `${id} is begun while ${met} of before live`);
      });
      const { child, states } = await open(world, { strategy, intensity: 99 });
      for (const id of ["c", "a", "b", "a", "c", "a", "b", "a", "c", "a", "b", "a"]) {
        const ref = await child(id);
        if (ref) system.send(ref, { type: "Fail" });
      }
      await idle();
      assert.deepEqual((await states()).map((state) => state.split(" ")[1]), ["up", "up", "up"]);
    });
  });
}

Deno.test("what a supervisor is made with is checked at the door", async () => {
  const wrong: [Partial<Record<keyof Supervision, unknown>>, RegExp][] = [
    [{ strategy: "all-for-one" }, /strategy must be one-for-one, .*, received all-for-one/],
    [{ intensity: -1 }, /intensity must be an integer of 0 or more, received -1/],
    [{ periodMs: Number.NaN }, /periodMs must be a number of 0 or more, received NaN/],
    [{ backOff: { firstMs: -1, maxMs: 1 } }, /firstMs must be a number of 0 or more/],
    [{ children: "a" }, /children must be an array, received string/],
    [{ children: [childOf("a"), childOf("a")] }, /the id of a child must be one that none/],
    [{ children: [childOf("a", { needs: { x: "b" } })] }, /x in needs of "a" must be the id/],
    [{ children: [childOf("a", { restart: "never" as never })] }, /restart of "a" must be/],
  ];
  for (const [options, text] of wrong) {
    const message = await failureIn(async ({ system, idle }) => {
      system.spawn(CHILD_SUPERVISOR, { children: [], ...options } as Supervision, { id: "s" });
      await idle();
    });
    assert.match(message, text);
  }
  // @ts-expect-error: init must be what the factory is given
  childSpec({ id: "a", spec: UNIT, init: { outOf: 3 } });
  // @ts-expect-error: and must not lack what no other child gives
  childSpec({ id: "a", spec: UNIT, init: {}, needs: { friend: "b" } });
});

Deno.test("the inboxes of a supervisor and of a pool replay", async () => {
  const ofSupervisor = await replayed(CHILD_SUPERVISOR, async (system) => {
    const children = ["a", "b"].map((id) => childOf(id)), strategy = "one-for-all";
    const options = { id: "supervisor" };
    const supervisor = system.spawn(CHILD_SUPERVISOR, { strategy, children }, options);
    const child = () => system.ask(supervisor, { type: "Child", id: "b" });
    const ref = (await child())!, down = downOf(system, ref);
    system.send(ref as AnyRef, { type: "Fail" });
    await down;
    await child();
  });
  assert.ok(ofSupervisor.steps >= 6 && ofSupervisor.states >= 5);
  const ofPool = await replayed(POOL, async (system) => {
    const members = { spec: MEMBER, init: 0, size: 2, policy: "smallest-mailbox" } as const;
    const pool = spawnPool(system, members, { id: "pool" });
    for (const n of [1, 2, 3]) await system.ask(pool, { type: "Who", n });
  });
  assert.ok(ofPool.steps >= 7 && ofPool.states >= 6);
});

playTest("one-for-one: a child that needs another waits until that is up again", async (world) => {
  const children = [childOf("a"), childOf("b", { needs: { friend: "a" } })];
  const backOff = { firstMs: 100, maxMs: 1000 };
  const { system, idle, advance } = world;
  const { child, tell } = await open(world, { children, backOff });
  await tell("a", "Fail");
  const [a, b] = [(await child("a"))!, (await child("b"))!];
  // b is to wait for less time than a.
  system.send(b, { type: "Fail" });
  system.send(a, { type: "Fail" });
  await advance(1000);
  await idle();
  return await system.ask((await child("b"))!, { type: "Friend" }) === "none";
}, false);

const POOL = specOf(import.meta.resolve("../../../actors/runtime/pool/pool.ts"), "pool");

const openPool = ({ system }: World, more: Partial<Pool<number, AnyMessage>> = {}) =>
  spawnPool(system, { spec: MEMBER, init: 0, size: 3, ...more }, { id: "pool" });

playTest("round-robin: the members get messages in turn", (world) => {
  const pool = openPool(world);
  return Promise.all([1, 2, 3, 4].map((n) => world.system.ask(pool, { type: "Who", n })));
}, ["pool-1 1", "pool-2 2", "pool-3 3", "pool-1 4"]);

Deno.test("smallest mailbox: the member that has the least to do gets the next", async () => {
  const policy = "smallest-mailbox";
  const who = await playOnce(async (world) => {
    const { system, advance } = world, pool = openPool(world, { policy });
    const work = (ms: number) => system.ask(pool, { type: "Work", ms });
    const first = [work(1000), work(10), work(10)];
    await advance(20);
    // The first is still at work, and the others have nothing.
    const then = [work(10), work(10)], late = advance(2000);
    const who = await Promise.all([...first, ...then]);
    await late;
    return who;
  });
  assert.deepEqual(who, ["pool-1", "pool-2", "pool-3", "pool-2", "pool-3"]);
  // Messages handed out and not handled are counted down to none, in any order.
  await playMany(10, async (world) => {
    const pool = openPool(world, { policy });
    world.invariant("even", ({ state }) => {
      const waiting = (state<number[]>("pool") ?? []).filter(Number.isInteger);
      if (waiting.some((count) => count < 0)) return `below zero: ${waiting}`;
    });
    const numbers = Array.from({ length: 9 }, (_, n) => n);
    await Promise.all(numbers.map((n) => world.system.ask(pool, { type: "Who", n })));
    await world.idle();
    const wrong = (left: string) => left === "0,0,0" ? undefined : left;
    world.atEnd("nothing is left", ({ state }) => wrong(`${state("pool")}`));
  });
});

playTest("a broadcast reaches every member once", async (world) => {
  const { system, idle } = world, pool = openPool(world);
  for (const n of [1, 10]) system.send(pool, broadcast({ type: "Add", n }));
  await idle();
  return await Promise.all([1, 2, 3].map(() => system.ask(pool, { type: "Sum" })));
}, [11, 11, 11]);

for (const policy of ["round-robin", "smallest-mailbox"] as const) {
  onceTest(`${policy}: a member that fails is replaced, and others go on`, async (world) => {
    const { system, idle } = world, pool = openPool(world, { policy, size: 2, intensity: 5 });
    for (const n of [0, 1]) await system.ask(pool, { type: "Who", n });
    system.send(pool, { type: "Faint" });
    const other = await system.ask(pool, { type: "Work", ms: 5 });
    await idle();
    const who = await Promise.all([2, 3].map((n) => system.ask(pool, { type: "Who", n })));
    return [other, ...who.toSorted()];
  }, ["pool-2", "pool-1 2", "pool-2 3"]);
}

onceTest("a question fails while no member is up, until the back-off is over", async (world) => {
  const backOff = { firstMs: 100, maxMs: 100 }, { system, advance } = world;
  const pool = openPool(world, { size: 1, intensity: 9, backOff });
  for (const _ of [1, 2]) {
    system.send(pool, { type: "Faint" });
    await advance(1);
  }
  const error = await system.ask(pool, { type: "Who", n: 0 }).catch((error) => error.name);
  await advance(100);
  return [error, await system.ask(pool, { type: "Who", n: 1 })];
}, ["ActorFailedError", "pool-1 1"]);

failTest("a pool whose members fail too often fails, and says why", async (world) => {
  const pool = openPool(world, { intensity: 1, periodMs: 100 });
  for (let n = 0; n < 2; n++) world.system.send(pool, { type: "Faint" });
  await world.idle();
}, /Cannot replace "pool-2": there must be at most 1 restarts in 100 ms; Actor "pool-2" failed/);

playTest("a pool that drains lets its members handle all that it has handed out", async (world) => {
  const { system, idle } = world, pool = openPool(world, { size: 2 });
  const answers = [1, 2, 3, 4].map((n) => system.ask(pool, { type: "Who", n }));
  const end = system.stop(pool, { drain: true });
  await idle();
  await end;
  return (await Promise.allSettled(answers)).map(({ status }) => status);
}, Array(4).fill("fulfilled"));

playTest("a message handed on keeps its sender", async ({ system }) => {
  const last = system.spawn(MEMBER, 0, { id: "last" });
  const middle = system.spawn(FORWARDER, last, { id: "middle" });
  const first = system.spawn(FORWARDER, middle, { id: "first" });
  system.send(first, { type: "Add", n: 5 });
  const sum = await system.ask(first, { type: "Sum" });
  await system.stop(last);
  const error = await system.ask(first, { type: "Sum" }).catch((error) => error.message);
  return [sum, error, ...system.deadLetters.map(({ from, to }) => `${from} ${to}`)];
}, [5, 'Actor "last" failed: Error: actor "last" has stopped', "system last"]);

onceTest("a circle through an actor that hands on is found as well", async ({ system }) => {
  const a = system.spawn(ASKER, undefined, { id: "a" });
  const router = spawnPool(system, { spec: ASKER, init: undefined, size: 1 }, { id: "pool" });
  const answer = await system.ask(a, { type: "Pass", route: [router, a] });
  return [answer, ...await system.ask(router, { type: "Notes" })];
}, [
  "pool-1 failed",
  'TypeError: Cannot ask "a" for "Pass": "pool-1" would wait for "a", which waits for "pool-1"',
]);

Deno.test("a pool that cannot be made is refused with a reason", async () => {
  await using system = createSystem();
  const make = (more: object) => () =>
    spawnPool(system, { spec: MEMBER, init: 0, size: 1, ...more }, { id: "pool" });
  assert.throws(make({ size: 0 }), /size must be a positive integer, received 0/);
  assert.throws(make({ policy: "random" }), /policy must be round-robin or smallest-mailbox/);
});
