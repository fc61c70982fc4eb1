/**
 * Parents and children.
 *
 * @module
 */

import assert from "node:assert/strict";
import type { ActorFailedError, ActorRef, System } from "../../../../actors/runtime/mod.ts";
import { downOf, failureOf, thrownBy, until, withSystem } from "../harness.ts";
import { PARENT, type ParentMessage, type ServerMessage } from "../players.ts";

/** A parent `p` of children `a`, `b` and `c` who write a diary. */
async function family(system: System, isolate: "local" | "worker" | "process", diary: string) {
  const init = { children: ["a", "b", "c"], isolate, diary };
  const parent = system.spawn(PARENT, init, { id: "p", isolate });
  const refs = await system.ask<ParentMessage, ActorRef<ServerMessage>[]>(parent, { type: "Refs" });
  const read = async () => (await Deno.readTextFile(diary)).split("\n").slice(0, -1);
  return { parent, refs, read };
}

const FAREWELL = ["c cleanup", "b cleanup", "a cleanup", "p last cleanup", "p first cleanup"];

export function familyContract(isolate: "local" | "worker" | "process"): void {
  const test = (
    name: string,
    body: (system: System, members: Awaited<ReturnType<typeof family>>) => Promise<void>,
  ) =>
    Deno.test(`${isolate}: ${name}`, async () => {
      const diary = await Deno.makeTempFile();
      await withSystem({}, async (system) => body(system, await family(system, isolate, diary)))
        .finally(() => Deno.remove(diary));
    });

  test("children stop with their parent, the youngest first", async (system, family) => {
    const { parent, read, refs } = family;
    const down = Promise.all([...refs, parent].map((ref) => downOf(system, ref)));
    system.send(parent, { type: "Stop" });
    assert.ok((await down).every(({ reason }) => reason === "stopped"));
    assert.deepEqual(await read(), FAREWELL);
  });

  test("stop() stops all, the youngest first", async (system, { read }) => {
    await system.stop();
    assert.deepEqual(await read(), FAREWELL);
  });

  test("children can be reached from outside", async (system, { refs }) => {
    assert.deepEqual(
      await Promise.all(refs.map((ref, n) => system.ask(ref, { type: "Double", n }))),
      [0, 2, 4],
    );
    const isolates = new Set(refs.map((ref) => ref.isolate));
    assert.equal(isolates.size, isolate === "local" ? 1 : 3);
  });

  test(
    "a failure of a child that nobody watches fails the parent, by its own name",
    async (system, { parent, read, refs }) => {
      const down = failureOf(system, parent), siblings = refs.map((ref) => ref);
      system.send(parent, { type: "Tell", child: "b", what: "Throw" });
      const failure = await down;
      assert.equal(failure.actor, "b");
      assert.equal(failure.handling, "Throw (2F0, step 3)");
      assert.equal((await downOf(system, siblings[0]!)).reason, "stopped");
      await until(async () => (await read()).includes("p first cleanup"));
    },
  );

  test("and so up to the system", async (system, { parent }) => {
    system.send(parent, { type: "Tell", child: "b", what: "Throw" });
    assert.equal(((await thrownBy(system.failed)) as ActorFailedError).failure.actor, "b");
  });

  test("a parent that watches its child can make it again", async (system, { parent, read }) => {
    system.send(parent, { type: "WatchChild", child: "b" });
    system.send(parent, { type: "Tell", child: "b", what: "Throw" });
    await until(async () => (await read()).includes("p saw b throw"));
    system.send(parent, { type: "Respawn", child: "b" });
    const refs = await system.ask<ParentMessage, ActorRef<ServerMessage>[]>(parent, {
      type: "Refs",
    });
    assert.equal(await system.ask(refs[1]!, { type: "Double", n: 4 }), 8);
  });
}
