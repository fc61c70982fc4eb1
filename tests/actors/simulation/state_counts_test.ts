import assert from "node:assert/strict";
import { dfs, explore } from "../../../actors/simulation/mod.ts";
import { ATOMIC, type Pipeline, playPipeline, TWO_STEP } from "./axonn_models.ts";

type Model = Parameters<typeof playPipeline>[1];

/** Distinct states of a model, by exhaustive search. */
async function countStates(model: Model, offers: "by-sender" | "by-arrival", pipeline: Pipeline) {
  const strategy = dfs();
  const { failed } = await explore(
    { strategy, offers, runs: Infinity, isRepeated: false, digests: false },
    (world) => playPipeline(world, model, pipeline),
  );
  assert.equal(failed, undefined);
  return strategy.states;
}

const pipeline = (stages: number): Pipeline => ({
  stages,
  microBatches: 2 * stages,
  limit: stages,
});

/** The published counts; with 5 stages, model A has 85,071, which takes half a minute. */
const COUNTS = [
  ["A, one mailbox in order of arrival", TWO_STEP, "by-arrival", [39, 517, 6693]],
  ["B, one mailbox in order of arrival", ATOMIC, "by-arrival", [12, 103, 999, 9109]],
  ["B, one queue for each edge", ATOMIC, "by-sender", [12, 95, 714, 5247]],
] as const;

for (const [name, model, offers, counts] of COUNTS) {
  Deno.test(`Algorithm 2 has exactly the published states: model ${name}`, async () => {
    for (const [index, expected] of counts.entries()) {
      assert.equal(await countStates(model, offers, pipeline(index + 2)), expected);
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
