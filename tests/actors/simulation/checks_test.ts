/** What must come true in the end, and what clients saw of an object. */

import assert from "node:assert/strict";
import {
  checkLinearizable,
  History,
  type SequentialModel,
  simulate,
} from "../../../actors/simulation/mod.ts";
import { spawnText } from "./players.ts";

type Work = Readonly<Record<"asked" | "done", number>>;

/** Does what it is asked 10 ms later, but for one thing. */
const WORKER = `(ctx, { missed }) => {
  let asked = 0, done = 0;
  ctx.expose(() => ({ asked, done }));
  return {
    Ask({ n }) { asked++; if (n !== missed) ctx.after(10, { type: "Done" }); },
    Done() { done = asked; },
  };
}`;

/** How a worker fails that must do within some time each thing that it is asked. */
async function playWorker(missed: number, options: { withinMs?: number; withinSteps?: number }) {
  const run = await simulate({}, async ({ system, eventually, idle }) => {
    const worker = spawnText(system, "worker", WORKER, { missed });
    const isOpen = ({ asked, done }: Work) => asked > done;
    eventually(
      "what is asked is done",
      ({ state }) => isOpen(state<Work>("worker")!) ? "not done" : undefined,
      { ...options, when: ({ state }) => isOpen(state<Work>("worker") ?? { asked: 0, done: 0 }) },
    );
    for (let n = 0; n < 3; n++) {
      system.send(worker, { type: "Ask", n });
      await idle();
    }
  });
  return run.failure && `${run.failure.kind} ${run.failure.name}: ${run.failure.message}`;
}

Deno.test("what must follow each time is due each time, in the time and the steps that are given", async () => {
  const unmet =
    /^liveness what is asked is done: not done \d+ ms and \d+ steps after it became due$/;
  // What was missed is made up for by the next, where that is soon enough.
  const cases = [[{ withinSteps: 1 }, false], [{ withinMs: 10 }, true], [{}, true]] as const;
  for (const [within, isMadeUp] of cases) {
    assert.equal(await playWorker(-1, within), undefined);
    assert.match(await playWorker(2, within) ?? "", unmet);
    assert.equal(await playWorker(1, within) === undefined, isMadeUp);
  }
  assert.match(await playWorker(-1, { withinMs: 9 }) ?? "", / not done 10 ms and 0 steps /);
  assert.match(await playWorker(-1, { withinSteps: 0 }) ?? "", / it came true 10 ms and 1 steps /);
});

type Input = { readonly key: string; readonly write?: number };

/** Registers by key: a write gives nothing, a read what is there. */
const REGISTERS: SequentialModel<number, Input, number> = {
  initial: 0,
  apply: (state, { write }) => ({ state: write ?? state, output: write === undefined ? state : 0 }),
  objectOf: ({ key }) => key,
};

Deno.test("a history is linearizable where an order explains it, and operations that touch overlap", () => {
  const write = { client: "a", input: { key: "x", write: 1 }, call: 0 };
  const read = { client: "b", input: { key: "x" }, returned: { at: 9, output: 0 } };
  const judge = (call: number, most?: number) =>
    checkLinearizable(
      REGISTERS,
      [{ ...write, returned: { at: 5, output: 0 } }, { ...read, call }],
      most,
    );
  const found = [4, 5, 6].map((call) => judge(call).isLinearizable);
  assert.deepEqual(found, [true, true, false]);
  assert.deepEqual(judge(6).stuck.map(({ client }) => client), ["b"]);
  const history = new History<Input, number>();
  history.call("a", write.input)(0);
  history.call("b", read.input)(1);
  assert.ok(checkLinearizable(REGISTERS, history.operations).isLinearizable);
  assert.throws(() => judge(6, 0), /a history of 2 operations: it must have at most 0 states/);
});
