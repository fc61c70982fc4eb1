/** Norms and GELUs that PyTorch writes step by step are one operation each. */

import assert from "node:assert/strict";
import { readOnnx } from "../../../kernels/import/file/onnx_graph.ts";
import { fuseNodes } from "../../../kernels/import/fuse.ts";

async function operations(name: string, more: readonly string[] = []) {
  const path = new URL(`../../fixtures/onnx/${name}/model.onnx`, import.meta.url);
  const file = readOnnx(await Deno.readFile(path), {});
  const nodes = fuseNodes({ ...file, outputs: [...file.outputs, ...more] });
  const settings = nodes.filter(({ op }) => op === "LayerNormalization" || op === "Gelu")
    .map(({ op, attributes: { epsilon, approximate } }) => [op, approximate ?? epsilon]);
  const left = nodes.filter(({ op }) => ["ReduceMean", "Sqrt", "Erf", "Pow"].includes(op));
  return { settings, left: left.map(({ op }) => op) };
}

Deno.test("the norms and GELUs of a BERT and of a GPT are fused", async () => {
  const small = Math.fround(1e-12), { settings, left } = await operations("bert");
  const norm = ["LayerNormalization", { float: small }], gelu = ["Gelu", "none"];
  assert.deepEqual([settings, left], [[norm, norm, gelu, norm, norm, gelu, norm], []]);
  const gpt = await operations("gpt"), own = ["LayerNormalization", { float: Math.fround(1e-5) }];
  const tanh = ["Gelu", "tanh"];
  assert.deepEqual(gpt, { settings: [own, own, tanh, own, own, tanh, own], left: [] });
});

Deno.test("what somebody else reads within is left as it is", async () => {
  const { settings, left } = await operations("bert", [
    "/norm/Sqrt_output_0",
    "/layer.0/Erf_output_0",
  ]);
  assert.deepEqual(settings.map(([op]) => op).length, 5);
  assert.deepEqual(left.toSorted(), ["Erf", "Pow", "ReduceMean", "ReduceMean", "Sqrt"]);
});
