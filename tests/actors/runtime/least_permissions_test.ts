/** Processes of the program's own code that may do less than the program. */

import assert from "node:assert/strict";
import { type ActorRef, createSystem } from "../../../actors/runtime/mod.ts";
import { failureOf, withSystem } from "./harness.ts";
import { CLIENT, PARENT, type ParentMessage, SERVER } from "./players.ts";
import { PROBE } from "./probe.ts";

const LIMITED = { isolate: "process", permissions: {} } as const;

Deno.test("an actor that may do nothing works, and reaches others of its kind", () =>
  withSystem({}, async (system) => {
    const server = system.spawn(SERVER, undefined, { id: "server", ...LIMITED });
    const client = system.spawn(CLIENT, undefined, { id: "client", ...LIMITED });
    assert.deepEqual(await system.ask(client, { type: "Both", to: server }), [2, 4]);
    assert.deepEqual(await system.ask(client, { type: "Both", to: server }), [2, 4]);
  }));

Deno.test("an actor may do what it was given, and no more", () =>
  withSystem({}, async (system) => {
    const permissions = { read: ["/etc"], env: true };
    const probe = system.spawn(PROBE, undefined, { id: "probe", ...LIMITED, permissions });
    const tried = async (what: string) => await system.ask(probe, { type: "Try", what });
    assert.deepEqual([await tried("read"), await tried("env")], ["did it", "did it"]);
    assert.deepEqual([await tried("run"), await tried("connect")], ["NotCapable", "NotCapable"]);
  }));

for (const isolate of ["process", "worker"] as const) {
  Deno.test(`a child in a ${isolate} may do no more than its parent`, async () => {
    const system = createSystem(), diary = await Deno.makeTempFile();
    const init = { children: ["a"], isolate, diary };
    const parent = system.spawn(PARENT, init, { id: "p", ...LIMITED });
    if (isolate === "worker") {
      system.failed.catch(() => {});
      const { error } = await failureOf(system, parent);
      assert.match(error.message, /granted no more than its parent, which a worker cannot limit/);
    } else {
      const [child] = await system.ask<ParentMessage, ActorRef[]>(parent, { type: "Refs" });
      const failure = failureOf(system, child!);
      system.failed.catch(() => {});
      // It writes into a file when it stops.
      await system.stop(parent);
      assert.match((await failure).error.message, /Requires (read|write) access/);
    }
    await system.stop();
    await Deno.remove(diary);
  });
}

Deno.test("what nobody can give is refused", () => {
  const permissions = { disk: true } as object;
  const spawn = () => createSystem().spawn(PROBE, undefined, { id: "x", ...LIMITED, permissions });
  assert.throws(
    spawn,
    /TypeError: Cannot spawn "x": its permissions must be of read, .*received disk/,
  );
});
