/** Circles of questions are found at once and named, in the simulator. */

import assert from "node:assert/strict";
import type { ActorRef, System } from "../../../actors/runtime/mod.ts";
import { pct, random, type Scenario, simulate } from "../../../actors/simulation/mod.ts";
import { ASKER, type AskerMessage } from "./circle_players.ts";

const spawn = (system: System, ...ids: string[]) =>
  ids.map((id) => system.spawn(ASKER, undefined, { id })) as [
    ActorRef<AskerMessage>,
    ActorRef<AskerMessage>,
    ActorRef<AskerMessage>,
  ];

const notesOf = (system: System, refs: readonly ActorRef<AskerMessage>[]) =>
  Promise.all(refs.map((ref) => system.ask(ref, { type: "Notes" })));

/** Plays in many orders; nothing may take virtual time, and all must come out the same. */
async function play(scenario: Scenario<unknown>): Promise<unknown> {
  const run = await simulate({}, scenario);
  assert.equal(run.failure, undefined);
  for (let seed = 0; seed < 20; seed++) {
    const strategy = seed % 2 === 0 ? random() : pct(3);
    const other = await simulate({ seed, strategy, raceMs: 0 }, scenario);
    assert.equal(other.failure, undefined, `seed ${seed}`);
    assert.deepEqual(other.value, run.value, `seed ${seed}`);
  }
  return run.value;
}

Deno.test("two that ask each other: the second to ask is told at once, and the first answered", async () => {
  assert.deepEqual(
    await play(async ({ system, advance }) => {
      const [a, b] = spawn(system, "a", "b");
      const answer = system.ask(a, { type: "Pass", route: [b, a] });
      await advance(0);
      return [await answer, await notesOf(system, [a, b]), system.deadLetters.length];
    }),
    ["b failed", [[], [
      'TypeError: Cannot ask "a" for "Pass": "b" would wait for "a", which waits for "b"',
    ]], 0],
  );
});

Deno.test("a circle of three names all of them", async () => {
  const text =
    'TypeError: Cannot ask "a" for "Pass": "c" would wait for "a", which waits for "b", which waits for "c"';
  assert.deepEqual(
    await play(async ({ system }) => {
      const [a, b, c] = spawn(system, "a", "b", "c");
      const answer = await system.ask(a, { type: "Pass", route: [b, c, a, b] });
      return [answer, await notesOf(system, [a, b, c])];
    }),
    ["c failed", [[], [], [text]]],
  );
});

Deno.test("who asked first may be in no circle, and still learns of it", async () => {
  assert.deepEqual(
    await play(async ({ system }) => {
      const [first, a, b] = spawn(system, "first", "a", "b");
      return await system.ask(first, { type: "Pass", route: [a, b, a] });
    }),
    "b failed",
  );
});

Deno.test("one that answers in the same breath is in no circle", async () => {
  assert.deepEqual(
    await play(async ({ system, idle }) => {
      const [a, b] = spawn(system, "a", "b");
      const answer = await system.ask(a, { type: "Relay", to: b, question: "Answer" });
      await idle();
      return [answer, await notesOf(system, [a, b])];
    }),
    ["first", [[], ["a"]]],
  );
});

Deno.test("two who ask one, which asks a third, are no circle", async () => {
  assert.deepEqual(
    await play(async ({ system }) => {
      const [a, b, c] = spawn(system, "a", "b", "c");
      const [d] = spawn(system, "d");
      return await Promise.all([
        system.ask(a, { type: "Pass", route: [c, d] }),
        system.ask(b, { type: "Pass", route: [c, d] }),
      ]);
    }),
    ["d", "d"],
  );
});

Deno.test("an answer that was put off is owed, so its asker must not be waited for", async () => {
  assert.deepEqual(
    await play(async ({ system, advance }) => {
      const [a, b] = spawn(system, "a", "b");
      const answer = system.ask(b, { type: "Relay", to: a, question: "Keep" });
      await advance(1);
      system.send(a, { type: "Go", route: [b] });
      return [await answer, await notesOf(system, [a])];
    }),
    ["kept", [[
      'TypeError: Cannot ask "b" for "Pass": "a" would wait for "b", which waits for "a"',
      "a failed",
    ]]],
  );
});

Deno.test("whoever asks all at once in a ring: at least one is told, all go on", async () => {
  for (let seed = 0; seed < 30; seed++) {
    const run = await simulate({ seed, strategy: random() }, async ({ system, idle }) => {
      const refs = spawn(system, "a", "b", "c");
      refs.forEach((ref, n) =>
        system.send(ref, { type: "Go", route: [refs[(n + 1) % 3]!, refs[(n + 2) % 3]!] })
      );
      await idle();
      const notes = (await notesOf(system, refs)).flat();
      assert.ok(notes.every((note) => !note.includes("AskTimeoutError")), notes.join("\n"));
      return notes.filter((note) => note.startsWith("TypeError")).length;
    });
    assert.equal(run.failure, undefined, `seed ${seed}`);
  }
});
