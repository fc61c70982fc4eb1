/**
 * Circles of questions, and questions that are taken back.
 *
 * @module
 */

import assert from "node:assert/strict";
import type { ActorRef, PlaceName, System } from "../../../../actors/runtime/mod.ts";
import { ASKER, type AskerMessage } from "../circle_players.ts";
import { thrownBy } from "../harness.ts";
import type { Suite } from "./suite.ts";

const spawnAt = (system: System, isolate: PlaceName, id: string): ActorRef<AskerMessage> =>
  system.spawn(ASKER, undefined, { id, isolate });

const pass = (route: readonly ActorRef<AskerMessage>[]) => ({ type: "Pass", route }) as const;

export const CIRCLES: Suite = {
  "a circle of questions fails at once and is named": async ({ system, isolate }) => {
    const spawn = (id: string) => spawnAt(system, isolate, id);
    const [a, b, c] = ["a", "b", "c"].map((id) => spawn(id));
    assert.equal(await system.ask(a!, pass([b!, c!, a!]), { timeoutMs: Infinity }), "c failed");
    assert.deepEqual(await system.ask(c!, { type: "Notes" }), [
      'TypeError: Cannot ask "a" for "Pass": "c" would wait for "a", which waits for "b", ' +
      'which waits for "c"',
    ]);
    // Nobody is stuck.
    assert.equal(await system.ask(a!, pass([b!, c!])), "c");
  },

  "an answer that is under way ends a circle before it is one": async ({ system, isolate }) => {
    const spawn = (id: string) => spawnAt(system, isolate, id);
    const a = spawn("a"), b = spawn("b");
    for (let n = 0; n < 20; n++) {
      const question = { type: "Relay", to: b, question: "Answer" } as const;
      assert.equal(await system.ask(a, question), "first");
    }
    assert.deepEqual(await system.ask(b, { type: "Notes" }), Array(20).fill("a"));
  },

  "a question that is taken back is never handled if it still waits": async (
    { system, isolate },
  ) => {
    const spawn = (id: string) => spawnAt(system, isolate, id);
    const a = spawn("a"), b = spawn("b");
    const { signal, abort } = withAbort();
    // While a waits for b, what comes waits.
    const relayed = system.ask(a, { type: "Relay", to: b, question: "Keep" });
    const asked = system.ask(a, { type: "Answer", ask: b }, { signal, timeoutMs: Infinity });
    abort(new RangeError("changed my mind"));
    assert.equal((await thrownBy(asked)).message, "changed my mind");
    // It may be before the question that it is to answer has reached it.
    const go = setInterval(() => system.send(b, { type: "Go", route: [] }), 5);
    assert.equal(await relayed, "kept");
    clearInterval(go);
    assert.deepEqual(await system.ask(a, { type: "Notes" }), []);
  },
};

function withAbort() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: (reason: Error) => controller.abort(reason) };
}
