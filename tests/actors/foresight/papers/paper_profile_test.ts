import assert from "node:assert/strict";
import { parseProfile } from "../../../../actors/foresight/profile/read_profile.ts";
import { PIZ_DAINT } from "../../../../actors/foresight/papers/machines/gloo_clusters.ts";
import {
  machineFacts,
  PAPER_MACHINES,
} from "../../../../actors/foresight/papers/machines/machines.ts";
import { statedProfile } from "../../../../actors/foresight/papers/paper_profile.ts";
import { BERT_48, GPT2_64 } from "../../../../actors/foresight/papers/transformer.ts";

Deno.test("profiles of the papers' machines are read as any other, and say that they are stated", () => {
  for (const machine of PAPER_MACHINES) {
    const profile = statedProfile(machine, BERT_48, [1, 2, 4, 8]);
    assert.deepEqual(parseProfile(JSON.stringify(profile)), JSON.parse(JSON.stringify(profile)));
    assert.equal(profile.source, "stated");
    for (const source of Object.values(profile.sources!)) assert.ok(source.length > 10, source);
  }
});

Deno.test("each figure of a machine has a source that names a paper, a document or a reason", () => {
  const facts = machineFacts();
  assert.ok(facts.length > 60, `${facts.length} facts`);
  for (const { machine, field, by, source } of facts) {
    const where = `${machine}, ${field}`;
    assert.ok(source.length > 10, where);
    if (by === "stated" || by === "fitted") assert.match(source, /Chimera|Hanayo|AxoNN/, where);
    if (by === "fitted") assert.match(source, /section [\dIVX]/, where);
  }
});

Deno.test("a micro-batch of more samples takes longer, and less for each of them", () => {
  const { layers } = statedProfile(PIZ_DAINT, GPT2_64, [1, 2, 4, 8]);
  const blocks = layers.filter(({ kind }) => kind === "block");
  for (const [i, { microBatch, forwardMs, backwardMs }] of blocks.entries()) {
    assert.equal(backwardMs, 2 * forwardMs);
    if (i === 0) continue;
    assert.ok(forwardMs > blocks[i - 1]!.forwardMs);
    assert.ok(forwardMs / microBatch < blocks[i - 1]!.forwardMs / blocks[i - 1]!.microBatch);
  }
});

Deno.test("halves of a micro-batch are computed with the efficiency of halves", () => {
  const backward = (samples: number, halves: boolean) =>
    statedProfile(PIZ_DAINT, BERT_48, [samples], halves).layers[1]!.backwardMs;
  assert.ok(Math.abs(backward(8, true) - 2 * backward(4, false)) < 1e-9);
});
