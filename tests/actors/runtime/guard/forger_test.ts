import assert from "node:assert/strict";
import type { Message, PackageSpec, SystemEvent } from "../../../../actors/runtime/mod.ts";
import { framePieces } from "../../../../actors/runtime/transports/stream/frame_head.ts";
import { failureOf, until, withSystem } from "../harness.ts";
import { HEARD, LISTENER } from "./listener.ts";

type Forger = { type: "Send"; to: string } | { type: "Say"; bytes: Uint8Array };

const FORGER: PackageSpec<undefined, Forger> = {
  from: import.meta.resolve("./fixtures/forger.ts"),
};

Deno.test("a process of a package that makes up an address is denied; one that makes up a sender ends", () =>
  withSystem({}, async (system) => {
    const events: SystemEvent[] = [];
    using _ = system.subscribe((event) => events.push(event));
    const victim = system.spawn<undefined, Message>(LISTENER, undefined, { id: "victim" });
    const forger = system.spawn(FORGER, undefined, { id: "forger" });
    const failure = failureOf(system, forger);
    system.send(forger, { type: "Send", to: JSON.stringify(victim) });
    await until(() => events.some(({ type }) => type === "denied"));
    const denied = events.filter(({ type }) => type === "denied");
    assert.deepEqual(denied, [{ type: "denied", actor: "forger", what: "message", on: "victim" }]);
    const [letter] = system.deadLetters;
    assert.deepEqual(letter, { from: "forger", to: "victim", type: "Note", reason: "denied" });
    const frame = { kind: "message", to: victim, from: victim, lane: "data", message: letter };
    const [head, body] = framePieces(frame, []);
    system.send(forger, { type: "Say", bytes: new Uint8Array([...head!, ...body!]) });
    assert.match(
      (await failure).error.message,
      /^the process of "forger" has ended: the actor of a package must not send a message in the name/,
    );
    assert.deepEqual(HEARD.victim, []);
  }));
