/**
 * Actors that stop others and let them drain.
 *
 * @module
 */

import assert from "node:assert/strict";
import type { ActorRef, PlaceName, System } from "../../../../actors/runtime/mod.ts";
import { downOf, until } from "../harness.ts";
import { BOSS, type BossMessage, CLERK, type ClerkMessage } from "../office_players.ts";
import type { Suite } from "./suite.ts";

/** A boss of two clerks, all where the suite says. */
async function office(system: System, isolate: PlaceName) {
  const boss = system.spawn(BOSS, { clerks: ["a", "b"], isolate }, { id: "boss", isolate });
  const clerks = await system.ask<BossMessage, ActorRef<ClerkMessage>[]>(boss, { type: "Clerks" });
  const notes = () => system.ask<BossMessage, string[]>(boss, { type: "Notes" });
  return { boss, clerks, notes };
}

export const STOPS: Suite = {
  "an actor stops its child and one that is not, and hears of both": async (
    { system, isolate },
  ) => {
    const { boss, clerks, notes } = await office(system, isolate);
    const other = system.spawn(CLERK, undefined, { id: "other", isolate });
    for (const ref of [clerks[0]!, other]) {
      const down = downOf(system, ref);
      system.send(boss, { type: "Watch", ref });
      system.send(boss, { type: "Stop", ref });
      assert.equal((await down).reason, "stopped");
    }
    await until(async () => (await notes()).length === 2);
    assert.deepEqual((await notes()).toSorted(), ["a stopped", "other stopped"]);
    assert.deepEqual(await system.ask(clerks[1]!, { type: "Notes" }), []);
  },

  "an actor that drains handles what has arrived, then those below it do": async (
    { system, isolate },
  ) => {
    const { boss, clerks } = await office(system, isolate);
    await Promise.all(clerks.map((clerk) => system.ask(clerk, { type: "Notes" })));
    const dictated = system.ask(boss, { type: "Dictate", texts: ["x", "y", "z"] });
    await system.stop(boss, { drain: true });
    assert.equal(await dictated, "a wrote x, a wrote y, a wrote z");
    assert.deepEqual(system.deadLetters, []);
  },

  "whoever watches no longer is not told": async ({ system, isolate }) => {
    const { boss, clerks, notes } = await office(system, isolate);
    system.send(boss, { type: "Watch", ref: clerks[0]! });
    system.send(boss, { type: "Unwatch", ref: clerks[0]! });
    const down = downOf(system, clerks[0]!);
    system.send(boss, { type: "Stop", ref: clerks[0]! });
    await down;
    assert.deepEqual(await notes(), []);
  },
};
