import assert from "node:assert/strict";
import { readJournal, ReplayError, replayInbox, replayJournal } from "../../../testing.ts";
import { ASKER, playAsker, SUM } from "./players.ts";

const FOLDER = new URL("../../fixtures/journals/", import.meta.url);

const names = [...Deno.readDirSync(FOLDER)].map(({ name }) => name)
  .filter((name) => name.endsWith("_asker.jsonl")).sort();

Deno.test("there is a journal of a release to replay", () => {
  assert.ok(names.includes("0.1.0_asker.jsonl"), `${names}`);
});

for (const name of names) {
  Deno.test(`the journal ${name} replays, whole and actor by actor`, async () => {
    const journal = await readJournal(new URL(name, FOLDER).pathname);
    const { failure } = await replayJournal(
      journal,
      ({ system }) => playAsker(system),
      { mayHaveChanged: true },
    );
    assert.equal(failure, undefined);
    assert.equal((await replayInbox(ASKER, journal)).compared, 43);
    const { steps, states } = await replayInbox(SUM, journal);
    assert.equal(states, steps);
  });

  Deno.test(`the journal ${name}, changed anywhere in a step, does not replay`, async () => {
    const journal = await readJournal(new URL(name, FOLDER).pathname);
    const index = journal.steps.findIndex(({ actor, type }) => actor === "sum" && type === "Add");
    for (const change of [{ type: "Sub" }, { did: ["stop"] }, { state: "0000000000000000" }]) {
      const steps = journal.steps.with(index, { ...journal.steps[index]!, ...change });
      await assert.rejects(replayInbox(SUM, { ...journal, steps }), ReplayError);
      await assert.rejects(
        replayJournal(
          { ...journal, steps },
          ({ system }) => playAsker(system),
          { mayHaveChanged: true },
        ),
        ReplayError,
      );
    }
  });
}
