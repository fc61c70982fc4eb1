/** Instances of classes as handlers. */

import assert from "node:assert/strict";
import type { ActorRef } from "../../../actors/runtime/mod.ts";
import { beginJournal, random, replayInbox, simulate } from "../../../actors/simulation/mod.ts";
import { createSystem } from "../../../actors/runtime/mod.ts";
import { ACCOUNT } from "./class_players.ts";

Deno.test("the methods of a class, inherited ones and functions in its fields are handlers", async () => {
  for (let seed = 0; seed < 5; seed++) {
    const run = await simulate({ seed, strategy: random() }, async ({ system }) => {
      const account = system.spawn(ACCOUNT, 40, { id: "account" });
      system.send(account, { type: "Pay", amount: 5 });
      system.send(account, { type: "Refund", amount: 3 });
      const balance: number = await system.ask(account, { type: "Balance" });
      return [balance, await system.ask(account, { type: "Name" })];
    });
    assert.equal(run.failure, undefined);
    assert.deepEqual(run.value, [42, "nobody's"]);
  }
});

for (
  const type of ["toString", "constructor", "hasOwnProperty", "__proto__", "fees", "Total", "ctx"]
) {
  Deno.test(`"${type}" of an instance is no handler`, async () => {
    const run = await simulate({}, async ({ system, idle }) => {
      const account = system.spawn(ACCOUNT, 0, { id: "account" });
      system.send(account as ActorRef as ActorRef<{ type: string }>, { type });
      await idle();
    });
    assert.equal(run.failure?.kind, "actor");
    assert.match(
      run.failure!.message,
      /has a handler for \(Refund, Pay, Balance, Name\)$/,
    );
  });
}

Deno.test("a journal of an instance replays", async () => {
  const path = await Deno.makeTempFile();
  try {
    {
      await using system = createSystem({ observer: await beginJournal({ path, payloads: true }) });
      const account = system.spawn(ACCOUNT, 40, { id: "account" });
      system.send(account, { type: "Pay", amount: 2 });
      assert.equal(await system.ask(account, { type: "Balance" }), 42);
    }
    const { steps, compared } = await replayInbox(ACCOUNT, path);
    assert.deepEqual({ steps, compared }, { steps: 4, compared: 1 });
  } finally {
    await Deno.remove(path);
  }
});
