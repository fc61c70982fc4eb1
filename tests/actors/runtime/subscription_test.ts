/** Dead letters with what they hold, for those who subscribe. */

import assert from "node:assert/strict";
import { createSystem, type SystemEvent } from "../../../actors/runtime/mod.ts";
import { random, simulate } from "../../../actors/simulation/mod.ts";
import { CLERK, type ClerkMessage } from "./office_players.ts";
import { SERVER } from "./players.ts";

/** What a dead letter held, and why it is one. */
const told = (event: SystemEvent) =>
  event.type === "dead-letter" ? [event.letter.type, event.letter.reason, event.message] : [];

Deno.test("a dead letter comes with a copy of what it holds, also of what waited", async () => {
  for (let seed = 0; seed < 5; seed++) {
    const lost: unknown[] = [];
    const { failure } = await simulate({ seed, strategy: random() }, async ({ system, settle }) => {
      const clerk = system.spawn(CLERK, undefined, { id: "clerk" });
      await settle();
      using _ = system.subscribe((event) => lost.push(told(event)));
      system.send(clerk, { type: "Write", text: "waits" });
      const end = system.stop(clerk);
      system.send(clerk, { type: "Write", text: "late" });
      await end;
    });
    assert.equal(failure, undefined);
    assert.deepEqual(
      lost,
      ["waits", "late"].map((text) => ["Write", "stopped", { type: "Write", text }]),
    );
  }
});

Deno.test("an answer that comes too late is told with its value", async () => {
  const { value } = await simulate({}, async ({ system, idle }) => {
    const lost: unknown[] = [];
    system.subscribe((event) => lost.push(told(event)));
    const server = system.spawn(SERVER, undefined, { id: "server" });
    await system.ask(server, { type: "Later", n: 7 }, { timeoutMs: 5 }).catch(() => {});
    system.send(server, { type: "Now" });
    await idle();
    return lost;
  });
  assert.deepEqual(value, [["answer:Later", "too-late", 7]]);
});

Deno.test("what cannot be copied is told without what it holds, and a copy is the listener's own", async () => {
  const { value } = await simulate({}, async ({ system, idle }) => {
    const lost: unknown[][] = [];
    system.subscribe((event) => lost.push(told(event)));
    const clerk = system.spawn(CLERK, undefined, { id: "clerk" });
    await system.stop(clerk);
    const message = { type: "Write", text: "a", bytes: new Uint8Array([1]) } as ClerkMessage;
    system.send(clerk, message);
    (message as unknown as { bytes: Uint8Array }).bytes[0] = 2;
    system.send(clerk, { type: "Write", text: (() => {}) as never });
    await idle();
    return lost;
  });
  assert.deepEqual(value, [
    ["Write", "stopped", { type: "Write", text: "a", bytes: new Uint8Array([1]) }],
    ["Write", "not-cloneable", undefined],
  ]);
});

Deno.test("a listener that throws fails the system, and others are told all the same", async () => {
  const lost: unknown[] = [];
  const { failure } = await simulate({}, async ({ system, idle }) => {
    const clerk = system.spawn(CLERK, undefined, { id: "clerk" });
    await system.stop(clerk);
    system.subscribe(() => {
      throw new RangeError("no ink");
    });
    system.subscribe((event) => lost.push(told(event)));
    system.send(clerk, { type: "Faint" });
    await idle();
  });
  assert.match(failure!.message, /while handling dead-letter: RangeError: no ink/);
  assert.equal(lost.length, 1);
});

Deno.test("what is subscribed to is checked at the door", async () => {
  await using system = createSystem();
  assert.throws(() => system.subscribe(3 as never), /the listener must be a function/);
  assert.throws(
    () => system.subscribe(() => {}, { slowStepMs: -1 }),
    /slowStepMs must be a number/,
  );
});

/** The steps told of, without how long they took. */
const slow = (events: readonly SystemEvent[]) =>
  events.flatMap((event) =>
    event.type === "slow-step"
      ? [`${event.actor} ${event.handling}, waits for ${event.waitsFor.join() || "nobody"}`]
      : []
  );

Deno.test("a step that takes longer than the limit is told of once, with whom it waits for", async () => {
  for (let seed = 0; seed < 5; seed++) {
    const { value, failure } = await simulate(
      { seed, strategy: random(), raceMs: 0 },
      async ({ system, advance }) => {
        const events: SystemEvent[] = [];
        using _ = system.subscribe((event) => events.push(event), { slowStepMs: 100 });
        const clerk = system.spawn(CLERK, undefined, { id: "clerk" });
        system.send(clerk, { type: "Nap", ms: 50 });
        await advance(60);
        assert.equal(events.length, 0);
        system.send(clerk, { type: "Nap", ms: 5000 });
        await advance(99);
        assert.equal(events.length, 0);
        await advance(1);
        const told = slow(events), [event] = events;
        await advance(6000);
        return [...told, event, events.length];
      },
    );
    assert.equal(failure, undefined, failure?.message);
    const waitsFor = ["clerk's pillow"];
    assert.deepEqual(value, [
      "clerk Nap, waits for clerk's pillow",
      { type: "slow-step", actor: "clerk", handling: "Nap", forMs: 100, isOver: false, waitsFor },
      1,
    ]);
  }
});

Deno.test("a step that held up its isolate is told of when it is over; a short one is not", async () => {
  const events: SystemEvent[] = [];
  let now = 0;
  // Its clock goes on by ten whenever somebody looks.
  await using system = createSystem({ now: () => now += 10 });
  const clerk = system.spawn(CLERK, undefined, { id: "clerk" });
  const write = { type: "Write", text: "a" } as const;
  {
    using _ = system.subscribe((event) => events.push(event), { slowStepMs: 1000 });
    await system.ask(clerk, write);
    assert.equal(events.length, 0);
  }
  using _ = system.subscribe((event) => events.push(event), { slowStepMs: 10 });
  await system.ask(clerk, write);
  assert.deepEqual(slow(events), ["clerk Write, waits for nobody"]);
  assert.ok(events.every((event) => event.type === "slow-step" && event.isOver));
});
