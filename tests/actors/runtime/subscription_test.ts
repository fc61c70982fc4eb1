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
