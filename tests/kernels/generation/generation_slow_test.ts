/** Tokens that are generated, with a cache and without. */

import assert from "node:assert/strict";
import { generate, openReference } from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { assertRefused } from "../graph/refused.ts";
import { testGeneration } from "./generation.ts";
import { closing } from "../devices/models.ts";

for (const name of ISOLATE_DEVICES) testGeneration(name);

Deno.test("what cannot be generated is refused before anything is computed", async () => {
  using device = closing(await openReference());
  const config = { layers: 1, hidden: 4, heads: 1, seq: 4, vocab: 4 };
  const options = { config, weights: new Map<string, Float32Array>(), prompt: [1], tokens: 1 };
  const cases = [
    ...[{ architecture: "t5" as "llama" }, { prompt: [] }, { prompt: [0, 4] }, { temperature: -1 }],
    ...[0, 1.5, NaN].map((topK) => ({ topK })),
    ...[-0.1, 1.1, NaN].map((topP) => ({ topP })),
    ...[0, 5, 1.5].map((slide) => ({ slide })),
    {},
  ];
  const run = (given: object) => Array.fromAsync(generate(device, { ...options, ...given }));
  await assertRefused("generation", cases.map((given) => [given, () => run(given)]));
  assert.equal(device.allocatedBytes, 0);
});
