/** Actors of packages under a virtual clock, and their journals. */

import assert from "node:assert/strict";
import type { Ask } from "../../../actors/runtime/mod.ts";
import { packageActor } from "../../../actors/sandbox/host.ts";
import { random } from "../../../actors/simulation/strategies.ts";
import { replayInbox } from "../../../actors/simulation/replay_actor.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import type { World } from "../../../actors/simulation/run.ts";
import { writeJournal } from "../../../actors/simulation/journal_writer.ts";
import { parseJournal } from "../../../actors/simulation/journal.ts";
import { folderTest } from "../../in_folder.ts";

type Counter = { type: "Add"; by: number } | { type: "Read" } & Ask<number>;

const FROM = import.meta.resolve("./fixtures/counter.ts");

for (const permissions of [{}, "inherit"] as const) {
  const how = permissions === "inherit" ? "that is trusted" : "in a sandbox";
  folderTest(`an actor ${how} runs the same again, and its inbox replays`, async (folder) => {
    const spec = packageActor<number, Counter>({ from: FROM, permissions });
    const scenario = async ({ system }: World) => {
      const counter = system.spawn(spec, 40, { id: "counter" });
      system.send(counter, { type: "Add", by: 2 });
      await assert.rejects(system.ask(counter, { type: "Add", by: "2" } as never), TypeError);
      assert.equal(await system.ask(counter, { type: "Read" }), 42);
    };
    const path = `${folder}/run.jsonl`;
    const pen = await writeJournal({ path, seed: 3, payloads: true });
    const run = await simulate({ seed: 3, strategy: random(), ...pen }, scenario);
    pen.close();
    assert.equal(run.failure, undefined);
    const again = await simulate({ seed: 3, strategy: random() }, scenario);
    assert.equal(again.hash, run.hash);
    // Its messages and what its process said are in the journal: no process is started.
    const journal = parseJournal(await Deno.readTextFile(path));
    const { steps, compared } = await replayInbox(spec, journal, { id: "counter" });
    assert.ok(steps >= 4 && compared >= 2, `${steps} ${compared}`);
  });
}
