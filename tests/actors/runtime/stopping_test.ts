/** Actors that stop others, let them drain, and watch them no longer. */

import assert from "node:assert/strict";
import type { ActorRef, StopOptions, System } from "../../../actors/runtime/mod.ts";
import { random, type Scenario, simulate, type World } from "../../../actors/simulation/mod.ts";
import { BOSS, type BossMessage, CLERK } from "./office_players.ts";

/** A boss with two clerks, in the simulator. */
async function open({ system }: World) {
  const boss = system.spawn(BOSS, { clerks: ["a", "b"] }, { id: "boss" });
  const clerks = await system.ask<BossMessage, ActorRef[]>(boss, { type: "Clerks" });
  const notes = () => system.ask<BossMessage, string[]>(boss, { type: "Notes" });
  return { boss, clerks, notes };
}

const buried = ({ deadLetters }: System) =>
  deadLetters.map(({ to, type, reason }) => `${to} ${type} ${reason}`);

/** Plays in plain order and in ten others; what is returned must always be the same. */
async function play<T>(scenario: Scenario<T>): Promise<T> {
  const run = await simulate({}, scenario);
  assert.equal(run.failure, undefined);
  for (let seed = 0; seed < 10; seed++) {
    const other = await simulate({ seed, strategy: random() }, scenario);
    assert.equal(other.failure, undefined, `seed ${seed}`);
    assert.deepEqual(other.value, run.value, `seed ${seed}`);
  }
  return run.value!;
}

Deno.test("an actor stops its child, and the end is told to whoever watches", async () => {
  const notes = await play(async (world) => {
    const { boss, clerks, notes } = await open(world);
    world.system.send(boss, { type: "Watch", ref: clerks[0]! });
    world.system.send(boss, { type: "Stop", ref: clerks[0]! });
    await world.idle();
    return await notes();
  });
  assert.deepEqual(notes, ["a stopped"]);
});

Deno.test("an actor stops another that is not its child, but not the system itself", async () => {
  const alive = await play(async (world) => {
    const { boss } = await open(world);
    const other = world.system.spawn(CLERK, undefined, { id: "other" });
    const system = { ...other, id: "system", serial: 0 };
    for (const ref of [system, other]) world.system.send(boss, { type: "Stop", ref });
    const ended: string[] = [];
    world.atEnd("the others live", ({ actors }) => actors.join() === "boss,a,b" ? undefined : "no");
    world.system.watch(other, ({ reason }) => ended.push(`other ${reason}`));
    await world.idle();
    return ended;
  });
  assert.deepEqual(alive, ["other stopped"]);
});

Deno.test("a stop of what has ended, or is of another system, does nothing", async () => {
  const notes = await play(async (world) => {
    const { boss, clerks } = await open(world);
    for (const ref of [clerks[0]!, clerks[0]!, { ...clerks[1]!, system: 7 }]) {
      world.system.send(boss, { type: "Stop", ref });
      await world.idle();
    }
    return await world.system.ask(clerks[1]! as ActorRef<BossMessage>, { type: "Notes" });
  });
  assert.deepEqual(notes, []);
});

Deno.test("what waits is lost at a stop, and handled at a draining one", async () => {
  for (const [options, written] of [[undefined, 0], [{ drain: true }, 3]] as const) {
    const dead = await play(async ({ system, settle, idle }) => {
      const clerk = system.spawn(CLERK, undefined, { id: "clerk" });
      await settle();
      for (const text of ["1", "2", "3"]) system.send(clerk, { type: "Write", text });
      const end = system.stop(clerk, options as StopOptions);
      system.send(clerk, { type: "Write", text: "late" });
      await idle();
      await end;
      return buried(system);
    });
    assert.deepEqual(dead, Array(4 - written).fill("clerk Write stopped"));
  }
});

Deno.test("an actor that drains still gets the answers that it waits for, from its children too", async () => {
  const notes = await play(async ({ system, settle, idle }) => {
    const boss = system.spawn(BOSS, { clerks: ["a"] }, { id: "boss" });
    await settle();
    const answer = system.ask<BossMessage, string>(boss, { type: "Dictate", texts: ["x", "y"] });
    system.send(boss, { type: "Remind", afterMs: 5 });
    const end = system.stop(boss, { drain: true });
    await idle();
    await end;
    return [await answer, ...buried(system)];
  });
  assert.deepEqual(notes, ["a wrote x, a wrote y"]);
});

Deno.test("a signal cuts the draining short, of those below as well", async () => {
  const ends = await play(async ({ system, advance }) => {
    const clerk = system.spawn(CLERK, undefined, { id: "clerk" });
    const boss = system.spawn(BOSS, { clerks: ["a"] }, { id: "boss" });
    const [a] = await system.ask<BossMessage, ActorRef<{ type: "Nap"; ms: number }>[]>(boss, {
      type: "Clerks",
    });
    for (const ref of [clerk, a!]) system.send(ref, { type: "Nap", ms: 1000 });
    for (const ref of [clerk, a!]) system.send(ref, { type: "Nap", ms: 1000 });
    const controller = new AbortController();
    await advance(10);
    const ended: string[] = [];
    for (const ref of [clerk, boss]) {
      system.stop(ref, { drain: true, signal: controller.signal }).then(() => ended.push(ref.id));
    }
    await advance(100);
    const before = [...ended];
    controller.abort();
    await advance(10);
    return { before, after: ended.toSorted(), dead: buried(system).toSorted() };
  });
  assert.deepEqual(ends.before, []);
  assert.deepEqual(ends.after, ["boss", "clerk"]);
  assert.ok(ends.dead.includes("a Nap stopped") && ends.dead.includes("clerk Nap stopped"));
});

Deno.test("a system can drain as a whole, and be stopped at once meanwhile", async () => {
  const whole = await play(async ({ system, advance }) => {
    const clerk = system.spawn(CLERK, undefined, { id: "clerk" });
    for (let n = 0; n < 3; n++) system.send(clerk, { type: "Nap", ms: 1000 });
    let isOver = false;
    system.stop({ drain: true }).then(() => isOver = true);
    await advance(2500);
    const before = isOver;
    await advance(1000);
    return [before, isOver, ...buried(system)];
  });
  assert.deepEqual(whole, [false, true]);
  const short = await play(async ({ system, advance }) => {
    const clerk = system.spawn(CLERK, undefined, { id: "clerk" });
    for (let n = 0; n < 3; n++) system.send(clerk, { type: "Nap", ms: 1000 });
    let isOver = false;
    system.stop({ drain: true }).then(() => isOver = true);
    await advance(500);
    system.stop();
    await advance(1);
    return isOver;
  });
  assert.equal(short, true);
});

Deno.test("whoever watches no longer is not told, even of an end that waits to be told", async () => {
  const notes = await play(async (world) => {
    const { system, idle } = world, { boss, clerks, notes } = await open(world);
    for (const ref of clerks) system.send(boss, { type: "Watch", ref });
    await idle();
    system.send(boss, { type: "Unwatch", ref: clerks[0]! });
    await idle();
    system.send(boss, { type: "StopAndUnwatch", stop: clerks, unwatch: clerks[1]! });
    await idle();
    return await notes();
  });
  assert.deepEqual(notes, []);
});

Deno.test("the failure of a child that is watched no longer is its parent's again", async () => {
  const failed = await simulate({}, async (world) => {
    const { boss, clerks } = await open(world);
    world.system.send(boss, { type: "Watch", ref: clerks[0]! });
    world.system.send(boss, { type: "Unwatch", ref: clerks[0]! });
    await world.idle();
    world.system.send(clerks[0]! as ActorRef<{ type: "Faint" }>, { type: "Faint" });
    await world.idle();
  });
  assert.equal(failed.failure?.kind, "actor");
  assert.match(failed.failure!.message, /Actor "a" failed while handling Faint/);
});

Deno.test("what is no reference is refused by name", async () => {
  for (const type of ["Stop", "Unwatch"] as const) {
    const run = await simulate({}, async (world) => {
      const { boss } = await open(world);
      world.system.send(boss, { type, ref: { id: 3 } as never });
      await world.idle();
    });
    assert.match(
      run.failure!.message,
      new RegExp(`Cannot ${type.toLowerCase()}: it must be given the reference of an actor`),
    );
  }
});
