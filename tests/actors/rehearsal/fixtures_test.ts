/** The journals of releases replay: those of two actors, and those of training. */

import assert from "node:assert/strict";
import {
  type Journal,
  readJournal,
  ReplayError,
  replayInbox,
  replayJournal,
  type Scenario,
} from "../../../testing.ts";
import { rehearsal } from "../../../actors/mod.ts";
import { PROTOCOL_VERSION } from "../../../actors/pipeline/protocol.ts";
import { SUPERVISOR } from "../../../actors/pipeline/supervisor/supervisor.ts";
import { WORKER } from "../../../actors/pipeline/worker/worker.ts";
import { ASKER, playAsker, SUM } from "../simulation/players.ts";
import { RECORDED_PLAN } from "./recorded_plan.ts";

const FOLDER = new URL("../../fixtures/journals/", import.meta.url);

/** Whose messages are others than those of now: they replay to where they differ, all others whole. */
const DIFFERENT = ["0.1.0", "protocol-3"].map((version) => `${version}_rehearsal.jsonl`);

const allNames = [...Deno.readDirSync(FOLDER)].map(({ name }) => name).sort();
const namesOf = (what: string) => allNames.filter((name) => name.endsWith(`_${what}.jsonl`));
const names = namesOf("rehearsal");
const read = (name: string) => readJournal(new URL(name, FOLDER).pathname);

const asking: Scenario<number> = ({ system }) => playAsker(system);
const training = (journal: Journal) =>
  replayJournal(journal, rehearsal, { configuration: RECORDED_PLAN, mayHaveChanged: true });

/** A journal in which one step is another. */
function changed(journal: Journal, index: number, change: object): Journal {
  return { ...journal, steps: journal.steps.with(index, { ...journal.steps[index]!, ...change }) };
}

Deno.test("there are journals of training actors with these messages and with all before them", () => {
  const versions = Array.from({ length: PROTOCOL_VERSION - 2 }, (_, i) => `protocol-${i + 3}`);
  assert.deepEqual(names, ["0.1.0", ...versions].map((version) => `${version}_rehearsal.jsonl`));
  assert.ok(namesOf("asker").includes("0.1.0_asker.jsonl"), `${allNames}`);
});

for (const name of namesOf("asker")) {
  Deno.test(`the journal ${name} replays, whole and actor by actor, unless a step is changed`, async () => {
    const journal = await read(name);
    const { failure } = await replayJournal(journal, asking, { mayHaveChanged: true });
    assert.equal(failure, undefined);
    assert.equal((await replayInbox(ASKER, journal)).compared, 43);
    const { steps, states } = await replayInbox(SUM, journal);
    assert.equal(states, steps);
    const index = journal.steps.findIndex(({ actor, type }) => actor === "sum" && type === "Add");
    for (const change of [{ type: "Sub" }, { did: ["stop"] }, { state: "0000000000000000" }]) {
      const other = changed(journal, index, change);
      await assert.rejects(replayInbox(SUM, other), ReplayError);
      await assert.rejects(replayJournal(other, asking, { mayHaveChanged: true }), ReplayError);
    }
  });
}

for (const name of DIFFERENT) {
  Deno.test(`the journal ${name}, of other messages, is read, and replayed to where they differ`, async () => {
    const journal = await read(name);
    assert.ok(journal.steps.length > 100);
    const refusal = /^ReplayError: .*step 0.*supervisor < system#\d+ init/s;
    await assert.rejects(training(journal), refusal);
  });
}

for (const name of names.filter((one) => !DIFFERENT.includes(one))) {
  Deno.test(`the journal ${name} replays, whole and actor by actor, unless it is changed`, async () => {
    const journal = await read(name), { value, failure } = await training(journal);
    assert.equal(failure, undefined);
    assert.match(value!.weightsHash!, /^[0-9a-f]{64}$/);
    for (const id of ["worker-0", "worker-1"]) {
      const { steps, states } = await replayInbox(WORKER, journal, { id });
      assert.equal(states, steps);
    }
    assert.ok((await replayInbox(SUPERVISOR, journal)).compared > 20);
    // A worker that computes something else.
    const at = journal.steps.findIndex(({ actor, did }) =>
      actor === "worker-1" && did.some((deed) => deed.startsWith("send worker-0 Activation"))
    );
    const did = journal.steps[at]!.did.map((deed) => deed.replace(/[0-9a-f]{16}$/, "0".repeat(16)));
    const other = replayInbox(WORKER, changed(journal, at, { did }), { id: "worker-1" });
    await assert.rejects(other, ReplayError);
  });
}
