/**
 * Pools, and messages that are handed on.
 *
 * @module
 */

import assert from "node:assert/strict";
import { ActorFailedError, broadcast, spawnPool } from "../../../../actors/runtime/mod.ts";
import { downOf, thrownBy, until } from "../harness.ts";
import { FORWARDER, MEMBER } from "../pool_players.ts";
import type { Suite } from "./suite.ts";

export const POOLS: Suite = {
  "a pool has members wherever they live, and replaces them": async ({ system, isolate }) => {
    const members = { spec: MEMBER, init: 0, size: 2, isolate, intensity: 3 } as const;
    // Whose turn it is does not depend on when receipts come.
    const pool = spawnPool(system, members, { id: "pool" });
    system.send(pool, broadcast({ type: "Add", n: 4 }));
    assert.equal(await system.ask(pool, { type: "Sum" }), 4);
    const error = thrownBy(system.ask(pool, { type: "Silence" }));
    for (const _ of [1, 2]) system.send(pool, { type: "Faint" });
    assert.ok(await error instanceof ActorFailedError);
    // Whoever asked may know of an end before the pool does.
    const isNew = async () => await system.ask(pool, { type: "Sum" }).catch(() => {}) === 0;
    await until(async () => await isNew() && await isNew());
  },

  "a question that is handed on ends with the one that owes its answer": async (
    { system, isolate },
  ) => {
    const member = system.spawn(MEMBER, 0, { id: "member", isolate });
    const forwarder = system.spawn(FORWARDER, member, { id: "forwarder", isolate });
    assert.equal(await system.ask(forwarder, { type: "Who", n: 7 }), "member 7");
    const error = thrownBy(system.ask(forwarder, { type: "Silence" }, { timeoutMs: Infinity }));
    await system.ask(forwarder, { type: "Sum" });
    const down = downOf(system, forwarder);
    await system.stop(forwarder);
    await down;
    // Whoever handed it on is no longer needed for it.
    assert.equal(await system.ask(member, { type: "Sum" }), 0);
    await system.stop(member);
    assert.ok(await error instanceof ActorFailedError);
  },
};
