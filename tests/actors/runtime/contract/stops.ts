/**
 * Actors that stop with others, and by others.
 *
 * @module
 */

import assert from "node:assert/strict";
import { downOf, failureOf, topFailure, until } from "../harness.ts";
import { type AnyRef, BOSS, CLERK, PARENT } from "../players.ts";
import type { Given, Suite, Test } from "./suite.ts";

/** A parent `p` of children `a`, `b` and `c` who write a diary. */
async function familyOf({ system, isolate, spawn }: Given, diary: string) {
  const init = { children: ["a", "b", "c"], isolate, diary };
  const parent = spawn(PARENT, { id: "p", init });
  const refs: AnyRef[] = await system.ask(parent, { type: "Refs" });
  const read = async () => (await Deno.readTextFile(diary)).split("\n").slice(0, -1);
  return { system, parent, refs, read };
}

const FAREWELL = ["c cleanup", "b cleanup", "a cleanup", "p last cleanup", "p first cleanup"];

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
    const doubled = refs.map((ref, n) => system.ask(ref, { type: "Double", n }));
    assert.deepEqual(await Promise.all(doubled), [0, 2, 4]);
    const isolates = new Set(refs.map((ref) => ref.isolate));
    assert.equal(isolates.size, refs[0]!.isolate === 0 ? 1 : 3);
  }),

  "a failure of a child that is not watched fails the parent, by the name of the child": withFamily(
    async ({ system, parent, read, refs }) => {
      const failed = topFailure(system), sibling = downOf(system, refs[0]!);
      system.send(parent, { type: "Tell", child: "b", what: "Throw" });
      const { actor, handling } = await failed;
      assert.deepEqual([actor, handling], ["b", "Throw (2F0, step 3)"]);
      assert.equal((await failureOf(system, parent)).actor, "b");
      assert.equal((await sibling).reason, "stopped");
      await until(async () => (await read()).includes("p first cleanup"));
    },
  ),

  "a parent that watches its child can make it again": withFamily(
    async ({ system, parent, read }) => {
      system.send(parent, { type: "WatchChild", child: "b" });
      system.send(parent, { type: "Tell", child: "b", what: "Throw" });
      await until(async () => (await read()).includes("p saw b throw"));
      system.send(parent, { type: "Respawn", child: "b" });
      const refs: AnyRef[] = await system.ask(parent, { type: "Refs" });
      assert.equal(await system.ask(refs[1]!, { type: "Double", n: 4 }), 8);
    },
  ),
};

/** A boss of two clerks, in one place. */
async function officeOf({ system, isolate, spawn }: Given) {
  const boss = spawn(BOSS, { init: { clerks: ["a", "b"], isolate } });
  const clerks: AnyRef[] = await system.ask(boss, { type: "Clerks" });
  return { boss, clerks, notes: () => system.ask(boss, { type: "Notes" }) };
}

export const STOPS: Suite = {
  "an actor stops its child and one that is not, and hears of both": async (given) => {
    const { system, spawn } = given, { boss, clerks, notes } = await officeOf(given);
    const other = spawn(CLERK, { id: "other" });
    for (const ref of [clerks[0]!, other]) {
      const down = downOf(system, ref);
      system.send(boss, { type: "Watch", ref });
      system.send(boss, { type: "Stop", ref });
      assert.equal((await down).reason, "stopped");
    }
    await until(async () => (await notes()).length === 2);
    assert.deepEqual((await notes()).toSorted(), ["a stopped", "other stopped"]);
  },

  "an actor that watches no longer hears nothing": async (given) => {
    const { system } = given, { boss, clerks: [ref], notes } = await officeOf(given);
    const down = downOf(system, ref!);
    for (const type of ["Watch", "Unwatch", "Stop"] as const) {
      system.send(boss, { type, ref: ref! });
    }
    await down;
    assert.deepEqual(await notes(), []);
  },

  "an actor that drains handles what has arrived, then those below it do": async (given) => {
    const { system } = given, { boss, clerks } = await officeOf(given);
    await Promise.all(clerks.map((clerk) => system.ask(clerk, { type: "Notes" })));
    const dictated = system.ask(boss, { type: "Dictate", texts: ["x", "y", "z"] });
    await system.stop(boss, { drain: true });
    assert.equal(await dictated, "a wrote x, a wrote y, a wrote z");
    assert.deepEqual(system.deadLetters, []);
  },
};
