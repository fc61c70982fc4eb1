/**
 * Tests your own actors in many message orders, and one actor with the messages that it got
 * in a recorded run. Run it with `deno test -A examples/replay_test.ts`.
 *
 * @module
 */

import assert from "node:assert/strict";
import { type ActorFactory, type ActorRef, type ActorSpec, createSystem } from "@troupe/troupe";
import { beginJournal, replayInbox, simulationTest } from "@troupe/troupe/testing";

type Adding = { type: "Add"; from: number; value: number } | { type: "Sum" };
type Sending = { to: ActorRef<Adding>; from: number; value: number };

/** Adds values in the order of their senders: in f32, the order of arrival would show. */
export const adder: ActorFactory<undefined, Adding> = (ctx) => {
  const values: number[] = [];
  ctx.expose(() => values);
  return {
    Add: ({ from, value }) => void (values[from] = value),
    Sum: () => ctx.reply(values.reduce((sum, value) => Math.fround(sum + value), 0)),
  };
};

/** Says its value when it is made. */
export const sender: ActorFactory<Sending, never> = (ctx, { to, from, value }) => {
  ctx.send(to, { type: "Add", from, value });
  return {};
};

const ADDER: ActorSpec<undefined, Adding> = { module: import.meta.url, export: "adder" };
const SENDER: ActorSpec<Sending, never> = { module: import.meta.url, export: "sender" };
const VALUES = [1e8, 1, -1e8, 3];

simulationTest("every order gives one sum", { mustAgree: true }, async ({ system, idle }) => {
  const to = system.spawn(ADDER, undefined, { id: "adder" });
  for (const [from, value] of VALUES.entries()) {
    system.spawn(SENDER, { to, from, value }, { id: `sender-${from}` });
  }
  await idle();
  return await system.ask<Adding, number>(to, { type: "Sum" });
});

Deno.test("a replay of the adder gives the recorded actions", async () => {
  const path = await Deno.makeTempFile();
  const system = createSystem({ observer: await beginJournal({ path, payloads: true }) });
  const to = system.spawn(ADDER, undefined, { id: "adder", isolate: "worker" });
  for (const [from, value] of VALUES.entries()) system.send(to, { type: "Add", from, value });
  assert.equal(await system.ask(to, { type: "Sum" }), 3);
  await system.stop();
  // Fails at the first message after which actions or state differ.
  const { steps, states } = await replayInbox(adder, path);
  assert.deepEqual({ steps, states }, { steps: 7, states: 7 });
  await Deno.remove(path);
});
