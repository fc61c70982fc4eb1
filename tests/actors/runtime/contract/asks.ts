/**
 * Questions and answers.
 *
 * @module
 */

import assert from "node:assert/strict";
import {
  ActorFailedError,
  type ActorRef,
  AskTimeoutError,
  type Message,
} from "../../../../actors/runtime/mod.ts";
import { downOf, thrownBy, until } from "../harness.ts";
import { CLIENT, type ClientMessage, SERVER, type ServerMessage } from "../players.ts";
import { each, type Suite } from "./suite.ts";

export const ASKS: Suite = {
  "an answer comes back": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    assert.equal(await system.ask(ref, { type: "Double", n: 21 }), 42);
  },

  "an answer can move its buffers": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    assert.deepEqual(
      await system.ask(ref, { type: "Bytes", length: 2 }),
      new Float32Array([1, 1]),
    );
  },

  "an answer can be given in a later step": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const answer = system.ask(ref, { type: "Later", n: 7 });
    system.send(ref, { type: "Now" });
    assert.equal(await answer, 7);
  },

  "an actor that waits for an answer lets others run, but not itself": async (
    { system, isolate },
  ) => {
    const server = system.spawn(SERVER, undefined, { id: "server", isolate });
    const client = system.spawn(CLIENT, undefined, { id: "client", isolate });
    const answer = system.ask(client, { type: "Relay", to: server, n: 7 });
    system.send(client, { type: "Note", what: "next" });
    // The server must handle two messages while the client's step is suspended.
    await system.ask(server, { type: "Double", n: 1 });
    const now = setInterval(() => system.send(server, { type: "Now" }), 1);
    assert.equal(await answer, 7);
    clearInterval(now);
    assert.deepEqual(await system.ask(client, { type: "Read" }), ["ask", "answered", "next"]);
  },

  "an actor can ask two things at once": async ({ system, isolate }) => {
    const to = system.spawn(SERVER, undefined, { id: "server", isolate });
    const client = system.spawn(CLIENT, undefined, { id: "client", isolate });
    assert.deepEqual(await system.ask(client, { type: "Both", to }), [2, 4]);
  },

  "an actor that asks itself is told that it must not": async ({ system, isolate }) => {
    const client = system.spawn(CLIENT, undefined, { id: "client", isolate });
    assert.equal(
      await system.ask(client, { type: "AskSelf" }),
      'TypeError: Cannot ask "client" for "Read": an actor must not wait for itself',
    );
  },

  "a timeout says who asked whom for what": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const error = await thrownBy(system.ask(ref, { type: "Never" }, { timeoutMs: 20 }));
    assert.ok(error instanceof AskTimeoutError);
    assert.equal(error.message, 'Actor "server" did not answer "Never" of "system" within 20 ms');
    assert.equal(await system.ask(ref, { type: "Double", n: 1 }, { timeoutMs: Infinity }), 2);
  },

  "a handler that forgets to answer is found out": async ({ system, isolate }) => {
    const to = system.spawn(SERVER, undefined, { id: "server", isolate });
    const client = system.spawn(CLIENT, undefined, { id: "client", isolate });
    const text = 'TypeError: Cannot answer "client": "server" must call ctx.reply for "Forget"';
    assert.equal(await system.ask(client, { type: "Ask", to, type_: "Forget" }), text);
  },

  "a second answer fails the actor": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    const down = downOf(system, ref);
    assert.equal(await system.ask(ref, { type: "Twice" }), 1);
    const { reason } = await down;
    assert.ok(reason !== "stopped");
    assert.match(reason.error.message, /Cannot reply: "server" must answer a question only once/);
  },

  ...each(
    ["Throw", "Stop"] as const,
    (
      how,
    ) => [`a question ends when the actor asked ends by ${how}`, async ({ system, isolate }) => {
      const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
      const down = downOf(system, ref);
      const error = await thrownBy(system.ask(ref, { type: "NeverWith", how }));
      assert.ok(error instanceof ActorFailedError);
      assert.equal(error.failure.actor, "server");
      assert.equal(error.failure.kind, how === "Throw" ? "throw" : "exit");
      await down;
      const late = await thrownBy(system.ask(ref, { type: "Never" }));
      assert.ok(late instanceof ActorFailedError);
      assert.equal(late.failure.kind, error.failure.kind);
    }],
  ),

  "a question that waits in the mailbox ends with the actor": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate });
    system.send(ref, { type: "Wedge", ms: 20 });
    system.send(ref, { type: "Stop" });
    const error = await thrownBy(system.ask(ref, { type: "Double", n: 1 }));
    assert.ok(error instanceof ActorFailedError);
  },

  "a question that cannot be cloned is refused": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "server", isolate }) as ActorRef<Message>;
    const question = { type: "Double", n: () => {} };
    const error = await thrownBy(system.ask(ref, question));
    assert.ok(error instanceof TypeError);
    assert.match(error.message, /^Cannot ask "server" for "Double": .*could not be cloned/);
  },

  "an actor that stops while it waits is not held up": async ({ system, isolate }) => {
    const to = system.spawn(SERVER, undefined, { id: "server", isolate });
    const client = system.spawn(CLIENT, undefined, { id: "client", isolate });
    const answer = thrownBy(
      system.ask<ClientMessage, unknown>(client, { type: "Relay", to, n: 1 }),
    );
    await until(() =>
      system.ask<ServerMessage, number>(to, { type: "Double", n: 1 }).then((n) => n === 2)
    );
    await system.stop();
    assert.ok(await answer instanceof ActorFailedError);
  },
};
