/** Checks with a time limit. */

import assert from "node:assert/strict";
import { simulate } from "../../../actors/simulation/simulate.ts";
import { spawnText } from "./players.ts";

type Work = Readonly<Record<"asked" | "done", number>>;

/** Performs each request 10 ms later, except one. */
const WORKER = `(ctx, { missed }) => {
  let asked = 0, done = 0;
  ctx.expose(() => ({ asked, done }));
  return {
    Ask({ n }) { asked++; if (n !== missed) ctx.after(10, { type: "Done" }); },
    Done() { done = asked; },
  };
}`;

/** Returns the failure of a worker that must perform each request within a time limit. */
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
  // A missed request is completed by the next one if it is soon enough.
  const cases = [[{ withinSteps: 1 }, false], [{ withinMs: 10 }, true], [{}, true]] as const;
  for (const [within, isMadeUp] of cases) {
    assert.equal(await playWorker(-1, within), undefined);
    assert.match(await playWorker(2, within) ?? "", unmet);
    assert.equal(await playWorker(1, within) === undefined, isMadeUp);
  }
  assert.match(await playWorker(-1, { withinMs: 9 }) ?? "", / not done 10 ms and 0 steps /);
  assert.match(await playWorker(-1, { withinSteps: 0 }) ?? "", / it came true 10 ms and 1 steps /);
});
