import assert from "node:assert/strict";
import { dfs, explore } from "../../../actors/simulation/mod.ts";
import { countStates, MODELS, pipelineOf } from "./count_states.ts";

/** The published counts; with 5 stages, model A has 85,071, which takes half a minute. */
const COUNTS = [
  [MODELS.twoStepByArrival, [39, 517, 6693]],
  [MODELS.atomicByArrival, [12, 103, 999, 9109]],
  [MODELS.atomicBySender, [12, 95, 714, 5247]],
] as const;

for (const [model, counts] of COUNTS) {
  Deno.test(`Algorithm 2 has exactly the published states: model ${model.name}`, async () => {
    for (const [index, expected] of counts.entries()) {
      assert.equal((await countStates(model, pipelineOf(index + 2))).states, expected);
    }
  });
}

Deno.test("a search for states needs actors that expose theirs", async () => {
  const strategy = dfs();
  const module = "data:text/javascript,export const shy = () => ({ Note() {} })";
  const shy = { module, export: "shy" };
  const search = explore({ strategy }, async ({ system, settle, idle }) => {
    const ref = system.spawn<undefined, { type: "Note" }>(shy, undefined, { id: "shy" });
    await settle();
    system.send(ref, { type: "Note" });
    await idle();
  });
  await assert.rejects(search, /Cannot count states: "shy" must call ctx.expose/);
});
