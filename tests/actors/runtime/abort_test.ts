/** Questions that are taken back by a signal, in the simulator. */

import assert from "node:assert/strict";
import type { ActorRef } from "../../../actors/runtime/mod.ts";
import { random, simulate } from "../../../actors/simulation/mod.ts";
import { ABORTER, type AborterMessage } from "./abort_players.ts";
import { SERVER } from "./players.ts";

Deno.test("an actor takes a question back: a step of its own, which may come at any moment", async () => {
  const seen = new Set<string>();
  for (let seed = 0; seed < 40; seed++) {
    const run = await simulate({ seed, strategy: random() }, async ({ system }) => {
      const slow = system.spawn(SERVER, undefined, { id: "slow" });
      const fast = system.spawn(SERVER, undefined, { id: "fast" });
      const aborter = system.spawn(ABORTER, undefined, { id: "aborter" });
      const answer = await system.ask(aborter, { type: "Hedge", slow, fast });
      // The answer that came too late is a dead letter, if there was one.
      return [...answer, system.deadLetters.map(({ type }) => type).join()];
    });
    assert.equal(run.failure, undefined, `seed ${seed}`);
    const [fast, slow] = run.value!;
    assert.equal(fast, "2");
    assert.ok(slow === "AbortError: enough" || slow === "4", slow);
    seen.add(slow!);
    const again = await simulate({ seed, deviations: run.deviations }, async ({ system }) => {
      const slow = system.spawn(SERVER, undefined, { id: "slow" });
      const fast = system.spawn(SERVER, undefined, { id: "fast" });
      const aborter = system.spawn(ABORTER, undefined, { id: "aborter" });
      return await system.ask(aborter, { type: "Hedge", slow, fast });
    });
    assert.deepEqual(again.value, run.value!.slice(0, 2), `seed ${seed}`);
  }
  assert.equal(seen.size, 2, "both ends of the race are among 40 orders");
});

Deno.test("a question with a signal that has aborted is never sent", async () => {
  const { value } = await simulate({}, async ({ system, idle }) => {
    const server = system.spawn(SERVER, undefined, { id: "server" });
    const error = await system.ask(server, { type: "Throw" }, { signal: AbortSignal.abort(7) })
      .catch((error) => error);
    await idle();
    return error;
  });
  assert.equal(value, 7);
});

Deno.test("what is no signal is refused by name", async () => {
  const { failure } = await simulate({}, async ({ system }) => {
    const server = system.spawn(SERVER, undefined, { id: "server" });
    await system.ask(server, { type: "Double", n: 1 }, { signal: { aborted: true } as never });
  });
  assert.match(failure!.message, /for "Double": signal must be an AbortSignal, received object/);
});

Deno.test("a signal that outlives its questions keeps nothing of them", async () => {
  const { value } = await simulate({}, async ({ system }) => {
    const aborter: ActorRef<AborterMessage> = system.spawn(ABORTER, undefined, { id: "aborter" });
    const server = system.spawn(SERVER, undefined, { id: "server" });
    return await system.ask(aborter, { type: "Listeners", server });
  });
  assert.deepEqual(value, [3, 3]);
});
