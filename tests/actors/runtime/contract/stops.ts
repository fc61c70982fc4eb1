/**
 * Actors that stop others and let them drain.
 *
 * @module
 */

import assert from "node:assert/strict";
import type { ActorRef, System } from "../../../../actors/runtime/mod.ts";
import { downOf, until, withSystem } from "../harness.ts";
import { BOSS, type BossMessage, CLERK, type ClerkMessage } from "../office_players.ts";

/** A boss of two clerks, all where the suite says. */
async function office(system: System, isolate: "local" | "worker" | "process") {
  const boss = system.spawn(BOSS, { clerks: ["a", "b"], isolate }, { id: "boss", isolate });
  const clerks = await system.ask<BossMessage, ActorRef<ClerkMessage>[]>(boss, { type: "Clerks" });
  const notes = () => system.ask<BossMessage, string[]>(boss, { type: "Notes" });
  return { boss, clerks, notes };
}

export function stopContract(isolate: "local" | "worker" | "process"): void {
  const test = (name: string, body: Parameters<typeof withSystem>[1]) =>
    Deno.test(`${isolate}: ${name}`, () => withSystem({}, body));

  test("an actor stops its child and one that is not, and hears of both", async (system) => {
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
  });

  test("an actor that drains handles what has arrived, then those below it do", async (system) => {
    const { boss, clerks } = await office(system, isolate);
    await Promise.all(clerks.map((clerk) => system.ask(clerk, { type: "Notes" })));
    const dictated = system.ask(boss, { type: "Dictate", texts: ["x", "y", "z"] });
    await system.stop(boss, { drain: true });
    assert.equal(await dictated, "a wrote x, a wrote y, a wrote z");
    assert.deepEqual(system.deadLetters, []);
  });

  test("whoever watches no longer is not told", async (system) => {
    const { boss, clerks, notes } = await office(system, isolate);
    system.send(boss, { type: "Watch", ref: clerks[0]! });
    system.send(boss, { type: "Unwatch", ref: clerks[0]! });
    const down = downOf(system, clerks[0]!);
    system.send(boss, { type: "Stop", ref: clerks[0]! });
    await down;
    assert.deepEqual(await notes(), []);
  });
}
