/** Actors that stop, drain and unwatch others; notifications of the owner. */

import assert from "node:assert/strict";
import {
  ActorFailedError,
  type ActorRef,
  type System,
  type SystemEvent,
} from "../../../actors/runtime/mod.ts";
import { turn } from "../../../actors/runtime/steps.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import type { World } from "../../../actors/simulation/run.ts";
import { downOf, thrownBy } from "./harness.ts";
import { type AnyRef, BOSS, CLERK, kindOf, plain, SERVER } from "./players.ts";
import { failTest, failureIn, onceTest, play, playOnce, playTest } from "./simulated.ts";

/** A boss with two clerks, in the simulator. */
async function open({ system }: World) {
  const boss = system.spawn(BOSS, { clerks: ["a", "b"] }, { id: "boss" });
  const clerks: AnyRef[] = await system.ask(boss, { type: "Clerks" });
  return { boss, clerks };
}

const clerkOf = (system: System, id = "clerk") => system.spawn(CLERK, undefined, { id });

const write = (text: string) => ({ type: "Write", text });

/** Waits for an end while the rest of the system runs. */
async function ended({ idle }: World, end: Promise<void>): Promise<void> {
  await idle();
  await end;
}

/** Collects the dead letters of a system: type, reason and message. */
function lettersOf(system: System): unknown[] {
  const lost: unknown[] = [];
  system.subscribe((event) => {
    if (event.type === "dead-letter") {
      lost.push([event.letter.type, event.letter.reason, event.message]);
    }
  });
  return lost;
}

const buried = ({ deadLetters }: System) =>
  deadLetters.map(({ to, type, reason }) => `${to} ${type} ${reason}`);

Deno.test("an actor that stops while it is being made ends", async () => {
  const module = "data:text/javascript,export const brief = (ctx) => (ctx.stop(), { Go() {} })";
  const down = await playOnce(({ system }) =>
    downOf(system, system.spawn({ module, export: "brief" }, undefined, { id: "brief" }))
  );
  assert.equal(down.reason, "stopped");
});

Deno.test("an actor that is stopped while its module loads does not fail", async () => {
  const gate = Promise.withResolvers<void>();
  Object.assign(globalThis, { gate: gate.promise });
  const code = 'await globalThis.gate; export const late = () => { throw new Error("made"); }';
  await using system = createSystem();
  const spec = { module: `data:text/javascript,${code}`, export: "late" };
  const ref = system.spawn(spec, undefined, { id: "late" }), down = downOf(system, ref);
  await turn();
  const end = system.stop(ref);
  gate.resolve();
  await end;
  assert.equal((await down).reason, "stopped");
});

playTest(
  "an actor stops any other actor of its system, but not the system itself",
  async (world) => {
    const { system, idle } = world, { boss, clerks: [a, b] } = await open(world);
    const other = clerkOf(system, "other"), down = downOf(system, other);
    for (const ref of [{ ...other, id: "system", serial: 0 }, other, a, a, { ...b, system: 7 }]) {
      system.send(boss, { type: "Stop", ref });
      await idle();
    }
    return [(await down).reason, await system.ask(b!, { type: "Notes" })];
  },
  ["stopped", []],
);

for (const [options, written] of [[undefined, 0], [{ drain: true }, 3]] as const) {
  playTest(`of what waits, ${written} are handled at a stop`, async (world) => {
    const { system, settle } = world, clerk = clerkOf(system);
    await settle();
    for (const text of ["1", "2", "3"]) system.send(clerk, write(text));
    const end = system.stop(clerk, options);
    system.send(clerk, write("late"));
    await ended(world, end);
    return buried(system);
  }, Array(4 - written).fill("clerk Write stopped"));
}

playTest("an actor that drains still gets the answers that it waits for", async (world) => {
  const { system } = world, { boss } = await open(world);
  const answer = system.ask(boss, { type: "Dictate", texts: ["x", "y"] });
  system.send(boss, { type: "Remind", afterMs: 5 });
  await ended(world, system.stop(boss, { drain: true }));
  return [await answer, ...buried(system)];
}, ["a wrote x, a wrote y"]);

onceTest("the timers of an actor that drains do not ring any more", async (world) => {
  const spec = plain(`(ctx) => ({
    async Go({ to }) {
      ctx.after(5, { type: "Ring" });
      await ctx.ask(to, { type: "Silence" }, { timeoutMs: 10 }).catch(() => {});
    },
    Ring() { throw new Error("too late"); },
  })`);
  const { system, advance } = world, ref = system.spawn(spec, undefined, { id: "ringer" });
  system.send(ref, { type: "Go", to: clerkOf(system) });
  await advance(1);
  await ended(world, system.stop(ref, { drain: true }));
}, undefined);

onceTest("the failures of the last thousand actors are kept", async ({ system }) => {
  const reasonOf = async (ref: ActorRef) => kindOf((await downOf(system, ref)).reason);
  const refs = Array.from({ length: 1001 }, (_, n) => clerkOf(system, `${n}`));
  const ends = Promise.all(refs.map(reasonOf));
  for (const ref of refs) system.send(ref, { type: "Faint" });
  await ends;
  return await Promise.all([refs[0]!, refs[1]!, refs[1000]!].map(reasonOf));
}, ["stopped", "throw", "throw"]);

playTest("a signal cuts the draining short, of those below as well", async (world) => {
  const { system, advance } = world, { boss, clerks: [a] } = await open(world);
  const clerk = clerkOf(system), controller = new AbortController(), ended: string[] = [];
  for (const ref of [clerk, clerk, a!, a!]) system.send(ref, { type: "Nap", ms: 1000 });
  await advance(10);
  for (const ref of [clerk, boss]) {
    system.stop(ref, { drain: true, signal: controller.signal }).then(() => ended.push(ref.id));
  }
  await advance(100);
  const before = ended.length;
  controller.abort();
  await advance(10);
  const lost = ["a Nap stopped", "clerk Nap stopped"].map((one) => buried(system).includes(one));
  return [before, ended.toSorted(), lost];
}, [0, ["boss", "clerk"], [true, true]]);

for (const isShort of [false, true]) {
  const short = isShort ? ", and be stopped at once meanwhile" : "";
  playTest(`a system can drain as a whole${short}`, async ({ system, advance }) => {
    const clerk = clerkOf(system);
    for (let n = 0; n < 3; n++) system.send(clerk, { type: "Nap", ms: 1000 });
    let isOver = false;
    system.stop({ drain: true }).then(() => isOver = true);
    await advance(2500);
    const wasOver = isOver;
    if (isShort) system.stop();
    await advance(isShort ? 1 : 1000);
    return [wasOver, isOver, buried(system).length];
  }, [false, true, 0]);
}

failTest("a stop without a valid reference fails the actor", async (world) => {
  const { boss } = await open(world);
  world.system.send(boss, { type: "Stop", ref: { id: 3 } });
  await world.idle();
}, /Cannot stop: it must be given the reference of an actor/);

Deno.test("a stop leaves behind a handler that never ends", async () => {
  const system = createSystem({ stopGraceMs: 20 });
  const ref = system.spawn(SERVER, undefined, { id: "server" });
  await system.ask(ref, { type: "Double", n: 1 });
  const waiting = thrownBy(system.ask(ref, { type: "Hang" }));
  await new Promise((resolve) => setTimeout(resolve, 5));
  await system.stop();
  assert.ok(await waiting instanceof ActorFailedError);
});

playTest("a dead letter has a copy of its message", async ({ system, settle, idle }) => {
  const clerk = clerkOf(system), server = system.spawn(SERVER, undefined, { id: "server" });
  await settle();
  const lost = lettersOf(system);
  system.send(clerk, write("waits"));
  const end = system.stop(clerk), message = { ...write("late"), bytes: new Uint8Array([1]) };
  system.send(clerk, message);
  message.bytes[0] = 2;
  await end;
  system.send(clerk, { type: "Write", text: () => {} });
  await idle();
  await system.ask(server, { type: "Later", n: 7 }, { timeoutMs: 5 }).catch(() => {});
  system.send(server, { type: "Now" });
  await idle();
  return lost;
}, [
  ["Write", "stopped", write("waits")],
  ["Write", "stopped", { ...write("late"), bytes: new Uint8Array([1]) }],
  ["Write", "not-cloneable", undefined],
  ["answer:Later", "too-late", 7],
], { raceMs: 0 });

Deno.test("a listener that throws fails the system, and others hear all the same", async () => {
  let lost: unknown[] = [];
  const text = await failureIn(async ({ system, idle }) => {
    const clerk = clerkOf(system);
    await system.stop(clerk);
    system.subscribe(() => {
      throw new RangeError("no ink");
    });
    lost = lettersOf(system);
    system.send(clerk, { type: "Faint" });
    await idle();
  });
  assert.match(text, /while handling dead-letter: RangeError: no ink/);
  assert.equal(lost.length, 1);
});

Deno.test("a subscription that cannot be served is refused", async () => {
  await using system = createSystem();
  assert.throws(() => system.subscribe(3 as never), /the listener must be a function/);
  const negative = { slowStepMs: -1 };
  assert.throws(() => system.subscribe(() => {}, negative), /slowStepMs must be a number/);
});

Deno.test("a step that takes longer than the limit is reported once, with those it waits for", async () => {
  const value = await play(async ({ system, advance }) => {
    const events: SystemEvent[] = [], counts: number[] = [];
    using _ = system.subscribe((event) => events.push(event), { slowStepMs: 100 });
    const clerk = clerkOf(system);
    for (const [ms, waits] of [[50, [60]], [5000, [99, 1, 6000]]] as const) {
      system.send(clerk, { type: "Nap", ms });
      for (const wait of waits) {
        await advance(wait);
        counts.push(events.length);
      }
    }
    return [...counts, ...events];
  }, { raceMs: 0 });
  const event = { type: "slow-step", actor: "clerk", handling: "Nap", forMs: 100, isOver: false };
  assert.deepEqual(value, [0, 0, 1, 1, { ...event, waitsFor: ["clerk's pillow"] }]);
});

Deno.test("a step that held up its isolate is reported when it is over; a short one is not", async () => {
  const events: SystemEvent[] = [];
  let now = 0;
  // Its clock advances by ten at each reading.
  await using system = createSystem({ now: () => now += 10 });
  const clerk = clerkOf(system);
  {
    using _ = system.subscribe((event) => events.push(event), { slowStepMs: 1000 });
    await system.ask(clerk, write("a"));
    assert.equal(events.length, 0);
  }
  using _ = system.subscribe((event) => events.push(event), { slowStepMs: 10 });
  await system.ask(clerk, write("a"));
  const [event, ...others] = events;
  assert.deepEqual(others, []);
  assert.ok(event?.type === "slow-step" && event.isOver);
  assert.deepEqual([event.actor, event.handling, event.waitsFor], ["clerk", "Write", []]);
});
