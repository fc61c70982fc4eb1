/**
 * Isolates of different transports in one system.
 *
 * @module
 */

import assert from "node:assert/strict";
import type { ActorRef, PlaceName } from "../../../../actors/runtime/mod.ts";
import { failureOf, until } from "../harness.ts";
import { CLIENT, RECORDER, type RecorderMessage, SENDER, SERVER } from "../players.ts";
import type { Suite } from "./suite.ts";

/** Messages and news between an isolate of the place and one of another, both ways. */
export function neighbours(outer: PlaceName, inner: PlaceName): Suite {
  return {
    [`a ${outer} and a ${inner} reach each other`]: async ({ system }) => {
      const notesOf = (ref: ActorRef<RecorderMessage>) =>
        system.ask<RecorderMessage, unknown[]>(ref, { type: "Read" });
      const server = system.spawn(SERVER, undefined, { id: "server", isolate: inner });
      const client = system.spawn(CLIENT, undefined, { id: "client", isolate: outer });
      assert.deepEqual(await system.ask(client, { type: "Both", to: server }), [2, 4]);
      const to = system.spawn(RECORDER, undefined, { id: "recorder", isolate: inner });
      const lanes = Array.from({ length: 500 }, () => "data" as const);
      const sender = system.spawn(SENDER, { to, lanes }, { id: "sender", isolate: outer });
      await system.ask(sender, { type: "Go" });
      await until(async () => (await notesOf(to)).length === lanes.length);
      const notes = await notesOf(to) as { n: number }[];
      assert.deepEqual(notes.map(({ n }) => n), [...lanes.keys()]);
      for (const [watched, where] of [["near", inner], ["far", outer]] as const) {
        const ref = system.spawn(SERVER, undefined, { id: watched, isolate: where });
        system.send(to, { type: "Watch", ref });
        await notesOf(to);
        const down = failureOf(system, ref);
        system.send(ref, { type: "Exit" });
        await down;
        await until(async () => (await notesOf(to)).at(-1) === `${watched} exit`);
      }
    },
  };
}
