/** The journals of releases replay: those of two actors, and those of training. */

import assert from "node:assert/strict";
import { type Journal, readJournal, replayInbox, replayJournal } from "../../../testing.ts";
import { rehearsal } from "../../../actors/mod.ts";
import { PROTOCOL_VERSION } from "../../../actors/pipeline/protocol.ts";
import { SUPERVISOR } from "../../../actors/pipeline/supervisor/supervisor.ts";
import { WORKER } from "../../../actors/pipeline/worker/worker.ts";
import { ASKER, playAsker, SUM } from "../simulation/players.ts";
import { RECORDED_PLAN } from "./recorded_plan.ts";

const FOLDER = new URL("../../fixtures/journals/", import.meta.url);

/** Whose messages are others than those of now: they replay to where they differ, all others whole. */
const DIFFERENT = ["0.1.0", "protocol-3"].map((version) => `${version}_rehearsal.jsonl`);

const names = [...Deno.readDirSync(FOLDER)].map(({ name }) => name)
  .filter((name) => name.endsWith("_rehearsal.jsonl")).sort();
const read = (name: string) => readJournal(new URL(name, FOLDER).pathname);

const training = (journal: Journal) =>
  replayJournal(journal, rehearsal, { configuration: RECORDED_PLAN, mayHaveChanged: true });

Deno.test("there are journals of training actors with these messages and with all before them", () => {
  const versions = Array.from({ length: PROTOCOL_VERSION - 2 }, (_, i) => `protocol-${i + 3}`);
  assert.deepEqual(names, ["0.1.0", ...versions].map((version) => `${version}_rehearsal.jsonl`));
});

Deno.test("the journal of two actors replays, whole and actor by actor", async () => {
  const journal = await read("0.1.0_asker.jsonl"), options = { mayHaveChanged: true };
  const { failure } = await replayJournal(journal, ({ system }) => playAsker(system), options);
  assert.equal(failure, undefined);
  assert.equal((await replayInbox(ASKER, journal)).compared, 43);
  const { steps, states } = await replayInbox(SUM, journal);
  assert.equal(states, steps);
});

for (const name of names) {
  const isSame = !DIFFERENT.includes(name);
  Deno.test(`the journal ${name} replays${isSame ? "" : " to where its messages differ"}`, async () => {
    const journal = await read(name);
    if (!isSame) {
      const refusal = /^ReplayError: .*step 0.*supervisor < system#\d+ init/s;
      return await assert.rejects(training(journal), refusal);
    }
    const { value, failure } = await training(journal);
    assert.equal(failure, undefined);
    assert.match(value!.weightsHash!, /^[0-9a-f]{64}$/);
    for (const id of ["worker-0", "worker-1"]) {
      const { steps, states } = await replayInbox(WORKER, journal, { id });
      assert.equal(states, steps);
    }
    assert.ok((await replayInbox(SUPERVISOR, journal)).compared > 20);
  });
}
