/** All data that comes with Troupe can be begun anywhere, as the command opens it. */

import assert from "node:assert/strict";
import {
  type DataOptions,
  type DataSource,
  findPart,
  importPart,
  openTask,
} from "../../../actors/mod.ts";
import { builtInNames } from "../../../actors/registry/mod.ts";
import { type Batch, knowFile } from "../../../kernels/mod.ts";
import fc from "../../fast_check.ts";
import { folderTest } from "../../in_folder.ts";
import { someTokens, writeTokens } from "../../console/command.ts";

const SIZES = { layers: 1, hidden: 4, heads: 1, seq: 8, vocab: 256, tie: false };
/** Models for data that is no text. */
const MODELS: Readonly<Record<string, string>> = {
  mnist: "mlp",
  "noisy-mnist": "unet",
  sort: "t5",
  reverse: "t5",
};
const CUT = { microBatch: 2, microBatches: 2, replicas: 1, steps: 50, seed: 3 };

/** The first micro-batches, whoever makes them. */
async function some(batches: Iterable<Batch> | AsyncIterable<Batch>, count: number) {
  const taken: Batch[] = [];
  for await (const batch of batches) {
    taken.push(batch);
    if (taken.length === count) break;
  }
  return taken;
}

folderTest(
  "built-in data of every name is begun at any micro-batch with those that it would have come to",
  async (folder) => {
    const path = await writeTokens(folder, someTokens(4000)), known = await knowFile(path);
    const bytes = new TextEncoder().encode("Fellow citizens of the Senate. ".repeat(60));
    const files: Readonly<Record<string, DataOptions["file"]>> = {
      text: { path: "a.txt", content: bytes },
      tokens: {
        path,
        known,
        get content(): Uint8Array {
          return assert.fail("tokens must be read by ranges");
        },
      },
    };
    for (const name of builtInNames("data")) {
      const { value: data } = await importPart(await findPart("data", name));
      const model = MODELS[name] ?? "gpt";
      const { value } = await importPart(await findPart("model", model));
      const options = { ...SIZES, ...CUT, tokenizer: undefined, file: files[name], announce() {} };
      const open = async () => (await openTask(value, data, options)).data as DataSource;
      const whole = await some((await open()).from(0), 60);
      const property = async (number: number) => {
        assert.deepEqual(
          await some((await open()).from(number), 3),
          whole.slice(number, number + 3),
        );
      };
      const runs = ["text", "tokens"].includes(name) ? 10 : 2;
      await fc.assert(fc.asyncProperty(fc.nat(57), property), { numRuns: runs });
    }
  },
);
