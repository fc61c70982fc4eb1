/** Parts of an all-reduce that come after its step was aborted belong to no step. */

import assert from "node:assert/strict";
import type { Engine } from "../../../actors/run/engines/engine.ts";
import { openPipeline } from "../../../actors/run/engines/pipeline.ts";
import { prepareRehearsal } from "../../../actors/rehearsal/plan.ts";
import { openSerial } from "../../../actors/run/engines/serial.ts";
import { hashWeights } from "../../../actors/mod.ts";
import { type Batch } from "../../../kernels/mod.ts";
import { explore, pos, random } from "../../../testing.ts";

/** Copies of a stage add their gradients while other stages still run backward. */
const PLAN = { schedule: "gpipe", workers: 2, microBatches: 2, sync: "eager" } as const;

/** Added to the data and taken away again by the first stage: only its own gradients are large. */
const FAR = 1000;

/** Under this scale the gradients of the first stage overflow, and those of the last do not. */
const TOO_HIGH = 4096;

function farFromZero() {
  const { options, requests } = prepareRehearsal(PLAN), { weights, moments } = options.state;
  const moved = new Map(weights).set(
    "layer.0.weight",
    weights.get("layer.0.weight")!.map((value) => value - FAR),
  );
  const microBatches = requests[0]!.microBatches.map((batch): Batch => ({
    rows: (batch.rows as Float32Array).map((value) => value + FAR),
  }));
  return {
    options: { ...options, state: { weights: moved, moments } },
    request: { ...requests[0]!, microBatches },
  };
}

const hashOf = async (engine: Engine) => hashWeights((await engine.save()).weights);

for (const strategy of [random(), pos()]) {
  Deno.test(`60 orders by ${strategy.name} of an aborted step leave nothing to the next one`, async () => {
    const { options, request } = farFromZero(), serial = await openSerial(options);
    assert.ok((await serial.step(request)).isCommitted);
    const expected = await hashOf(serial);
    const explored = await explore({ runs: 60, strategy }, async ({ system }) => {
      const engine = await openPipeline({ ...options, system }, "local");
      const aborted = await engine.step({ ...request, lossScale: TOO_HIGH });
      assert.equal(aborted.isCommitted, false);
      assert.ok((await engine.step(request)).isCommitted);
      assert.equal(await hashOf(engine), expected);
    });
    assert.equal(explored.failed, undefined, JSON.stringify(explored.failed?.failure));
  });
}
