/**
 * Clock, timers and random numbers, and the notifications of a system's owner.
 *
 * @module
 */

import assert from "node:assert/strict";
import type { SystemEvent } from "../../../../actors/runtime/mod.ts";
import { until, withSystem } from "../harness.ts";
import { type AnyRef, BOSS, CLOCKWORK } from "../players.ts";
import type { Suite } from "./suite.ts";

/** The first numbers of actor "x" with label "a" under seed 7. */
const SEVEN = [0.43812587378097734, 0.199429989107327, 0.32588580048271965, 0.3090286608643714];

const HOUR_MS = 3_600_000;

export const TIME: Suite = {
  "timers ring once for each key, and end with their actor": async ({ system, spawn }) => {
    const start = performance.now(), ref = spawn(CLOCKWORK);
    system.send(ref, {
      type: "Set",
      timings: [
        { delayMs: 40, what: "late" },
        { delayMs: 0, what: "soon" },
        { delayMs: 20, what: "then" },
        { delayMs: 30, what: "old", key: "replaced" },
        { delayMs: 10, what: "new", key: "replaced" },
        // The sanitizers see a timer that is left.
        ...[{ delayMs: HOUR_MS }, { delayMs: HOUR_MS, key: "key" }],
      ],
    });
    const rung = await system.ask(ref, { type: "Await", count: 4 });
    // On a busy machine several timers are due at the same time, in any order.
    assert.deepEqual(rung.toSorted(), ["late", "new", "soon", "then"]);
    const elapsed = await system.ask(ref, { type: "Elapsed" });
    assert.ok(elapsed >= 39 && elapsed <= performance.now() - start + 1, `${elapsed} ms`);
    // A message that waits is replaced as well.
    await system.ask(ref, { type: "ReplaceRung", delayMs: 5 });
    assert.deepEqual(await system.ask(ref, { type: "Read" }), rung);
    await system.stop();
  },

  "chance depends on seed, actor and label, not on other draws": async ({ isolate, options }) => {
    await withSystem({ ...options, seed: 7 }, async (system) => {
      const ref = system.spawn(CLOCKWORK, undefined, { id: "x", isolate });
      const draw = (label: string) => system.ask(ref, { type: "Draw", label, count: 4 });
      const other = await draw("b");
      // The same in every isolate and in every version, so that recorded runs stay valid.
      assert.deepEqual(await draw("a"), SEVEN);
      assert.notDeepEqual(other, SEVEN);
      assert.notDeepEqual(await draw("a"), SEVEN);
    });
  },
};

export const SUBSCRIPTIONS: Suite = {
  "the owner hears of all dead letters and slow steps": async ({ isolate, options, few }) => {
    for (const when of few(["before", "after"])) {
      await withSystem(options, async (system) => {
        const events: SystemEvent[] = [];
        const listen = () => system.subscribe((event) => events.push(event), { slowStepMs: 20 });
        if (when === "before") listen();
        const boss = system.spawn(BOSS, { clerks: ["a"], isolate }, { id: "boss", isolate });
        const [clerk]: AnyRef[] = await system.ask(boss, { type: "Clerks" });
        if (when === "after") listen();
        const isNap = (event: SystemEvent) =>
          event.type === "slow-step" && event.actor === "a" && event.handling === "Nap";
        if (when === "before") {
          system.send(clerk!, { type: "Nap", ms: 100 });
          await until(() => events.some(isNap));
        }
        for (const type of ["Watch", "Stop"] as const) system.send(boss, { type, ref: clerk! });
        await until(async () => (await system.ask(boss, { type: "Notes" })).length === 1);
        system.send(boss, { type: "Tell", message: { type: "Write", text: "too late" } });
        const lost = () => events.flatMap((one) => one.type === "dead-letter" ? [one.message] : []);
        await until(() => lost().length > 0);
        assert.deepEqual(lost(), [{ type: "Write", text: "too late" }]);
      });
    }
  },
};
