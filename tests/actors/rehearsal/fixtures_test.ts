import assert from "node:assert/strict";
import { readJournal, ReplayError, replayInbox, replayJournal } from "../../../testing.ts";
import { rehearsal } from "../../../actors/mod.ts";
import { PROTOCOL_VERSION } from "../../../actors/pipeline/protocol.ts";
import { SUPERVISOR } from "../../../actors/pipeline/supervisor/supervisor.ts";
import { WORKER } from "../../../actors/pipeline/worker/worker.ts";
import { RECORDED_PLAN } from "./recorded_plan.ts";

const FOLDER = new URL("../../fixtures/journals/", import.meta.url);

/** Whose messages are others than those of now: they replay to where they differ, all others whole. */
const DIFFERENT = ["0.1.0", "protocol-3"].map((version) => `${version}_rehearsal.jsonl`);

const names = [...Deno.readDirSync(FOLDER)].map(({ name }) => name)
  .filter((name) => name.endsWith("_rehearsal.jsonl")).sort();

Deno.test("there are journals of training actors with these messages and with all before them", () => {
  const versions = Array.from({ length: PROTOCOL_VERSION - 2 }, (_, i) => `protocol-${i + 3}`);
  const kept = ["0.1.0", ...versions].map((version) => `${version}_rehearsal.jsonl`);
  assert.deepEqual(names, kept);
});

for (const name of DIFFERENT) {
  Deno.test(`the journal ${name}, of other messages, is read, and replayed to where they differ`, async () => {
    const journal = await readJournal(new URL(name, FOLDER).pathname);
    assert.ok(journal.steps.length > 100);
    const options = { configuration: RECORDED_PLAN, mayHaveChanged: true };
    await assert.rejects(
      replayJournal(journal, rehearsal, options),
      /^ReplayError: .*step 0.*supervisor < system#\d+ init/s,
    );
  });
}

for (const name of names.filter((one) => !DIFFERENT.includes(one))) {
  Deno.test(`the journal ${name} replays, whole and actor by actor`, async () => {
    const journal = await readJournal(new URL(name, FOLDER).pathname);
    const options = { configuration: RECORDED_PLAN, mayHaveChanged: true };
    const { value, failure } = await replayJournal(journal, rehearsal, options);
    assert.equal(failure, undefined);
    assert.match(value!.weightsHash!, /^[0-9a-f]{64}$/);
    for (const id of ["worker-0", "worker-1"]) {
      const { steps, states } = await replayInbox(WORKER, journal, { id });
      assert.equal(states, steps);
    }
    assert.ok((await replayInbox(SUPERVISOR, journal)).compared > 20);
  });

  Deno.test(`the journal ${name} does not replay to a worker that computes something else`, async () => {
    const journal = await readJournal(new URL(name, FOLDER).pathname);
    const at = journal.steps.findIndex(({ actor, did }) =>
      actor === "worker-1" && did.some((deed) => deed.startsWith("send worker-0 Activation"))
    );
    const step = journal.steps[at]!;
    const did = step.did.map((deed) => deed.replace(/[0-9a-f]{16}$/, "0".repeat(16)));
    const steps = journal.steps.with(at, { ...step, did });
    await assert.rejects(
      replayInbox(WORKER, { ...journal, steps }, { id: "worker-1" }),
      ReplayError,
    );
  });
}
