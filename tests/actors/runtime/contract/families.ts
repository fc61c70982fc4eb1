/**
 * Parents and children.
 *
 * @module
 */

import assert from "node:assert/strict";
import type {
  ActorFailedError,
  ActorRef,
  PlaceName,
  System,
} from "../../../../actors/runtime/mod.ts";
import { downOf, failureOf, thrownBy, until } from "../harness.ts";
import { PARENT, type ParentMessage, type ServerMessage } from "../players.ts";
import type { Suite, Test } from "./suite.ts";

/** A parent `p` of children `a`, `b` and `c` who write a diary. */
async function family(system: System, isolate: PlaceName, diary: string) {
  const init = { children: ["a", "b", "c"], isolate, diary };
  const parent = system.spawn(PARENT, init, { id: "p", isolate });
  const refs = await system.ask<ParentMessage, ActorRef<ServerMessage>[]>(parent, { type: "Refs" });
  const read = async () => (await Deno.readTextFile(diary)).split("\n").slice(0, -1);
  return { parent, refs, read };
}

const FAREWELL = ["c cleanup", "b cleanup", "a cleanup", "p last cleanup", "p first cleanup"];

/** A test with a family. */
function withFamily(
  test: (system: System, members: Awaited<ReturnType<typeof family>>) => Promise<void>,
): Test {
  return async ({ system, isolate }) => {
    const diary = await Deno.makeTempFile();
    try {
      await test(system, await family(system, isolate, diary));
    } finally {
      await system.stop();
      await Deno.remove(diary);
    }
  };
}

export const FAMILIES: Suite = {
  "children stop with their parent, the youngest first": withFamily(async (system, family) => {
    const { parent, read, refs } = family;
    const down = Promise.all([...refs, parent].map((ref) => downOf(system, ref)));
    system.send(parent, { type: "Stop" });
    assert.ok((await down).every(({ reason }) => reason === "stopped"));
    assert.deepEqual(await read(), FAREWELL);
  }),

  "stop() stops all, the youngest first": withFamily(async (system, { read }) => {
    await system.stop();
    assert.deepEqual(await read(), FAREWELL);
  }),

  "children can be reached from outside": withFamily(async (system, { refs }) => {
    assert.deepEqual(
      await Promise.all(refs.map((ref, n) => system.ask(ref, { type: "Double", n }))),
      [0, 2, 4],
    );
    const isolates = new Set(refs.map((ref) => ref.isolate));
    assert.equal(isolates.size, refs[0]!.isolate === 0 ? 1 : 3);
  }),

  "a failure of a child that nobody watches fails the parent, by its own name": withFamily(
    async (system, { parent, read, refs }) => {
      const down = failureOf(system, parent), siblings = refs.map((ref) => ref);
      system.send(parent, { type: "Tell", child: "b", what: "Throw" });
      const failure = await down;
      assert.equal(failure.actor, "b");
      assert.equal(failure.handling, "Throw (2F0, step 3)");
      assert.equal((await downOf(system, siblings[0]!)).reason, "stopped");
      await until(async () => (await read()).includes("p first cleanup"));
    },
  ),

  "and so up to the system": withFamily(async (system, { parent }) => {
    system.send(parent, { type: "Tell", child: "b", what: "Throw" });
    assert.equal(((await thrownBy(system.failed)) as ActorFailedError).failure.actor, "b");
  }),

  "a parent that watches its child can make it again": withFamily(
    async (system, { parent, read }) => {
      system.send(parent, { type: "WatchChild", child: "b" });
      system.send(parent, { type: "Tell", child: "b", what: "Throw" });
      await until(async () => (await read()).includes("p saw b throw"));
      system.send(parent, { type: "Respawn", child: "b" });
      const refs = await system.ask<ParentMessage, ActorRef<ServerMessage>[]>(parent, {
        type: "Refs",
      });
      assert.equal(await system.ask(refs[1]!, { type: "Double", n: 4 }), 8);
    },
  ),
};
