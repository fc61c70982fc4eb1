/**
 * Questions: answers, refusals and withdrawals.
 *
 * @module
 */

import assert from "node:assert/strict";
import { ActorFailedError, AskTimeoutError, type Message } from "../../../../actors/runtime/mod.ts";
import { downOf, failureOf, thrownBy, until } from "../harness.ts";
import { CLIENT, SERVER } from "../players.ts";
import type { Suite } from "./suite.ts";

export const ASKS: Suite = {
  "an answer comes back, also with its buffers or in a later step": async ({ system, spawn }) => {
    const ref = spawn(SERVER);
    assert.equal(await system.ask(ref, { type: "Double", n: 21 }), 42);
    const bytes = await system.ask(ref, { type: "Bytes", length: 2 });
    assert.deepEqual(bytes, new Float32Array([1, 1]));
    const answer = system.ask(ref, { type: "Later", n: 7 });
    system.send(ref, { type: "Now" });
    assert.equal(await answer, 7);
  },

  "while an actor waits for an answer, others run and it does not": async ({ system, spawn }) => {
    const server = spawn(SERVER), client = spawn(CLIENT);
    const answer = system.ask(client, { type: "Relay", to: server, n: 7 });
    system.send(client, { type: "Note", what: "next" });
    // The server must handle two messages while the client's step is suspended.
    await system.ask(server, { type: "Double", n: 1 });
    const now = setInterval(() => system.send(server, { type: "Now" }), 1);
    assert.equal(await answer, 7);
    clearInterval(now);
    assert.deepEqual(await system.ask(client, { type: "Read" }), ["ask", "answered", "next"]);
    assert.deepEqual(await system.ask(client, { type: "Both", to: server }), [2, 4]);
  },

  "a question to oneself and one without an answer are refused": async ({ system, spawn }) => {
    const client = spawn(CLIENT), to = spawn(SERVER);
    const refusal = 'TypeError: Cannot ask "client" for "Read": an actor must not wait for itself';
    assert.equal(await system.ask(client, { type: "Forgotten" }), refusal);
    const sentence = 'TypeError: Cannot answer "client": "server" must call ctx.reply for "Forget"';
    assert.equal(await system.ask(client, { type: "Forgotten", to }), sentence);
  },

  "a question that times out names sender, receiver and type": async ({ system, spawn }) => {
    const ref = spawn(SERVER);
    const error = await thrownBy(system.ask(ref, { type: "Never" }, { timeoutMs: 20 }));
    assert.ok(error instanceof AskTimeoutError);
    assert.equal(error.message, 'Actor "server" did not answer "Never" of "system" within 20 ms');
    assert.equal(await system.ask(ref, { type: "Double", n: 1 }, { timeoutMs: Infinity }), 2);
    // An answer that comes later still is a dead letter.
    await thrownBy(system.ask(ref, { type: "Later", n: 7 }, { timeoutMs: 1 }));
    system.send(ref, { type: "Now" });
    await until(() => system.deadLetters.length > 0);
    assert.deepEqual(system.deadLetters, [
      { from: "server", to: "system", type: "answer:Later", reason: "too-late" },
    ]);
  },

  "a second answer fails the actor": async ({ system, spawn }) => {
    const ref = spawn(SERVER), failure = failureOf(system, ref);
    assert.equal(await system.ask(ref, { type: "Twice" }), 1);
    const text = 'Cannot reply: "server" must answer a question only once';
    assert.equal((await failure).error.message, text);
  },

  "a question ends with the actor, in a step or in its mailbox": async ({ system, spawn, few }) => {
    for (const [how, kind] of few([["Throw", "throw"], ["Stop", "exit"]] as const)) {
      const ref = spawn(SERVER, { id: how }), down = downOf(system, ref);
      const asked = thrownBy(system.ask(ref, { type: "NeverWith", how }));
      const waits = thrownBy(system.ask(ref, { type: "Never" }));
      for (const end of [asked, waits]) {
        const error = await end;
        assert.ok(error instanceof ActorFailedError);
        assert.deepEqual([error.failure.actor, error.failure.kind], [how, kind]);
      }
      await down;
      const late = await thrownBy(system.ask(ref, { type: "Never" }));
      assert.equal((late as ActorFailedError).failure.kind, kind);
    }
  },

  "an actor that stops while it waits is not held up": async ({ system, spawn }) => {
    const to = spawn(SERVER), client = spawn(CLIENT);
    const answer = thrownBy(system.ask(client, { type: "Relay", to, n: 1 }));
    assert.equal(await system.ask(to, { type: "Double", n: 1 }), 2);
    await system.stop();
    assert.ok(await answer instanceof ActorFailedError);
  },

  "a question that cannot be asked is refused with a reason": async ({ system, spawn }) => {
    const ref = spawn(SERVER, { id: "x" }), never: Message = { type: "Never" };
    const refusal = async (...args: unknown[]) =>
      String(await thrownBy(system.ask(...args as Parameters<typeof system.ask>)));
    for (const timeoutMs of [NaN, -1, -Infinity, "1", null]) {
      assert.equal(
        await refusal(ref, never, { timeoutMs }),
        'RangeError: Cannot ask "x" for "Never": timeoutMs must be 0 or more, or Infinity, ' +
          `received ${timeoutMs}`,
      );
    }
    const wrongs = [
      [ref, null, {}, /TypeError: Cannot ask "x": a question must be a record/],
      [null, never, {}, /TypeError: Cannot ask: it must be an actor, received null/],
      [ref, never, { lane: "urgent" }, /RangeError: .*lane must be/],
      [ref, never, { signal: {} }, /for "Never": signal must be an AbortSignal, received object/],
      [ref, { type: "Double", n: () => {} }, {}, /^TypeError: .*"Double": .*not be cloned/],
    ] as const;
    for (const [to, question, options, wrong] of wrongs) {
      assert.match(await refusal(to, question, options), wrong);
    }
  },

  "a question that is taken back while it waits is never handled": async ({ system, spawn }) => {
    const server = spawn(SERVER), client = spawn(CLIENT);
    const controller = new AbortController(), { signal } = controller;
    // While the client waits for the server, new messages wait.
    const relayed = system.ask(client, { type: "Relay", to: server, n: 7 });
    const asked = system.ask(client, { type: "Note" }, { signal, timeoutMs: Infinity });
    controller.abort(new RangeError("changed my mind"));
    assert.equal((await thrownBy(asked)).message, "changed my mind");
    // "Now" may arrive before the question that it answers.
    const now = setInterval(() => system.send(server, { type: "Now" }), 5);
    assert.equal(await relayed, 7);
    clearInterval(now);
    assert.deepEqual(await system.ask(client, { type: "Read" }), ["ask", "answered"]);
  },
};
