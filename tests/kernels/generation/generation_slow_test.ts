/** Tokens that are generated, with a cache and without. */

import assert from "node:assert/strict";
import { generate, openReference } from "../../../kernels/mod.ts";
import { ISOLATE_DEVICES } from "../../devices.ts";
import { testGeneration } from "./generation.ts";

for (const name of ISOLATE_DEVICES) testGeneration(name);

Deno.test("what cannot be generated is refused before anything is computed", async () => {
  const device = await openReference();
  const config = { layers: 1, hidden: 4, heads: 1, seq: 4, vocab: 4 };
  const options = { config, weights: new Map<string, Float32Array>(), prompt: [1], tokens: 1 };
  const cases = [
    [{ architecture: "t5" as "llama" }, /architecture must be gpt2 or llama, received t5$/],
    [{ prompt: [] }, /the prompt must be one or more ids below 4, received none$/],
    [{ prompt: [0, 4] }, /received 4 at position 1$/],
    [{ temperature: -1 }, /temperature must be 0 or more, received -1$/],
    ...[0, 1.5, NaN].map((topK) =>
      [{ topK }, /topK must be a whole number from 1, received/] as const
    ),
    ...[-0.1, 1.1, NaN].map((topP) =>
      [{ topP }, /topP must be a number from 0 to 1, received/] as const
    ),
    ...[0, 5, 1.5].map((slide) =>
      [{ slide }, /slide must be a whole number from 1 to 4, received/] as const
    ),
    [{}, /^TypeError: Cannot generate: the weight "transformer.wte.weight" must be given$/],
  ] as const;
  for (const [given, message] of cases) {
    await assert.rejects(
      Array.fromAsync(generate(device, { ...options, ...given })),
      (error) => message.test(String(error)),
      `${message}`,
    );
  }
  assert.equal(device.allocatedBytes, 0);
  device.close();
});
