/**
 * What the owner of a system is told of, from wherever it happens.
 *
 * @module
 */

import assert from "node:assert/strict";
import type { ActorRef, SystemEvent } from "../../../../actors/runtime/mod.ts";
import { until } from "../harness.ts";
import { BOSS, type BossMessage, type ClerkMessage } from "../office_players.ts";
import { each, type Suite } from "./suite.ts";

const LETTERS: Suite = each(
  ["before actors are made", "after actors are made"],
  (moment) => [
    `dead letters of isolates below isolates are told whole, ${moment}`,
    async ({ system, isolate }) => {
      const lost: unknown[] = [];
      const listen = () =>
        system.subscribe((event: SystemEvent) => {
          if (event.type === "dead-letter") lost.push(event.message);
        });
      if (moment.startsWith("before")) listen();
      const boss = system.spawn(BOSS, { clerks: ["a"], isolate }, { id: "boss", isolate });
      const [clerk] = await system.ask<BossMessage, ActorRef[]>(boss, { type: "Clerks" });
      if (moment.startsWith("after")) listen();
      system.send(boss, { type: "Watch", ref: clerk! });
      system.send(boss, { type: "Stop", ref: clerk! });
      const notes = () => system.ask<BossMessage, string[]>(boss, { type: "Notes" });
      await until(async () => (await notes()).length === 1);
      system.send(boss, { type: "Tell", text: "to nobody" });
      await until(() => lost.length > 0);
      assert.deepEqual(lost, [{ type: "Write", text: "to nobody" }]);
    },
  ],
);

export const SUBSCRIPTIONS: Suite = {
  ...LETTERS,
  "a step that takes long is told of, wherever it is taken": async ({ system, isolate }) => {
    const events: SystemEvent[] = [];
    using _ = system.subscribe((event) => events.push(event), { slowStepMs: 20 });
    const boss = system.spawn(BOSS, { clerks: ["a"], isolate }, { id: "boss", isolate });
    const [clerk] = await system.ask<BossMessage, ActorRef<ClerkMessage>[]>(boss, {
      type: "Clerks",
    });
    system.send(clerk!, { type: "Nap", ms: 200 });
    const isOfClerk = (event: SystemEvent) =>
      event.type === "slow-step" && event.actor === "a" && event.handling === "Nap";
    await until(() => events.some(isOfClerk));
  },
};
