/**
 * Actors that stop with others, and by others.
 *
 * @module
 */

import assert from "node:assert/strict";
import { downOf, failureOf, topFailure, until } from "../harness.ts";
import { type AnyRef, BOSS, CLERK } from "../players.ts";
import type { Given, Suite, Test } from "./suite.ts";

/** A boss `p` of clerks `a` and `b`, which write into a diary when they stop. */
async function familyOf({ system, isolate, spawn }: Given, diary: string) {
  const parent = spawn(BOSS, { id: "p", init: { clerks: ["a", "b"], isolate, diary } });
  const refs: AnyRef[] = await system.ask(parent, { type: "Clerks" });
  const read = async () => (await Deno.readTextFile(diary)).split("\n").slice(0, -1);
  return { system, parent, refs, read };
}

const FAREWELL = ["b cleanup", "a cleanup", "p last cleanup", "p first cleanup"];

/** A test with a family. */
function withFamily(test: (family: Awaited<ReturnType<typeof familyOf>>) => Promise<void>): Test {
  return async (given) => {
    const diary = await Deno.makeTempFile();
    try {
      await test(await familyOf(given, diary));
    } finally {
      await given.system.stop();
      await Deno.remove(diary);
    }
  };
}

export const FAMILIES: Suite = {
  "children stop with their parent, the youngest first": withFamily(async (family) => {
    const { system, parent, read, refs } = family;
    const down = Promise.all([...refs, parent].map((ref) => downOf(system, ref)));
    system.send(parent, { type: "Stop" });
    assert.ok((await down).every(({ reason }) => reason === "stopped"));
    assert.deepEqual(await read(), FAREWELL);
  }),

  "stop() stops all, the youngest first": withFamily(async ({ system, read }) => {
    await system.stop();
    assert.deepEqual(await read(), FAREWELL);
  }),

  "children can be reached from outside": withFamily(async ({ system, refs }) => {
    const written = refs.map((ref) => system.ask(ref, { type: "Write", text: "x" }));
    assert.deepEqual(await Promise.all(written), ["a wrote x", "b wrote x"]);
    assert.equal(refs[0]!.isolate === refs[1]!.isolate, refs[0]!.isolate === 0);
  }),

  "a failure of a child that is not watched fails the parent, by the name of the child": withFamily(
    async ({ system, parent, read, refs }) => {
      const failed = topFailure(system), sibling = downOf(system, refs[0]!);
      system.send(parent, { type: "Tell", nth: 1, message: { type: "Faint" } });
      const { actor, handling } = await failed;
      assert.deepEqual([actor, handling], ["b", "Faint"]);
      assert.equal((await failureOf(system, parent)).actor, "b");
      assert.equal((await sibling).reason, "stopped");
      await until(async () => (await read()).includes("p first cleanup"));
    },
  ),

  "a parent that watches its child can make it again": withFamily(
    async ({ system, parent, refs: [, ref] }) => {
      system.send(parent, { type: "Watch", ref: ref! });
      system.send(parent, { type: "Tell", nth: 1, message: { type: "Faint" } });
      await until(async () => `${await system.ask(parent, { type: "Notes" })}` === "b throw");
      system.send(parent, { type: "Replace", nth: 1 });
      const refs: AnyRef[] = await system.ask(parent, { type: "Clerks" });
      assert.equal(await system.ask(refs[1]!, { type: "Write", text: "x" }), "b wrote x");
    },
  ),
};

/** A boss of a clerk, in one place. */
async function officeOf({ system, isolate, spawn }: Given) {
  const boss = spawn(BOSS, { init: { clerks: ["a"], isolate } });
  const [clerk]: AnyRef[] = await system.ask(boss, { type: "Clerks" });
  return { boss, clerk: clerk! };
}

export const STOPS: Suite = {
  "an actor stops its child and another actor, and is notified of both": async (given) => {
    const { system, spawn } = given, { boss, clerk } = await officeOf(given);
    for (const ref of [clerk, spawn(CLERK, { id: "other" })]) {
      const down = downOf(system, ref);
      system.send(boss, { type: "Watch", ref });
      system.send(boss, { type: "Stop", ref });
      assert.equal((await down).reason, "stopped");
    }
    const notes = () => system.ask(boss, { type: "Notes" });
    await until(async () => (await notes()).length === 2);
    assert.deepEqual((await notes()).toSorted(), ["a stopped", "other stopped"]);
  },

  "an actor that drains handles waiting messages, then its children do": async (given) => {
    const { system } = given, { boss, clerk } = await officeOf(given);
    await system.ask(clerk, { type: "Notes" });
    const dictated = system.ask(boss, { type: "Dictate", texts: ["x", "y", "z"] });
    await system.stop(boss, { drain: true });
    assert.equal(await dictated, "a wrote x, a wrote y, a wrote z");
    assert.deepEqual(system.deadLetters, []);
  },
};
