/** Adapters of layers: their parameters, and which targets are refused. */

import assert from "node:assert/strict";
import { compileModel, gpt2, llama, type Model } from "../../../kernels/mod.ts";
import { checkLora, withLora } from "../../../kernels/internal.ts";

const SIZES = { layers: 1, hidden: 16, heads: 4, seq: 8, vocab: 32 };

/** Names and shapes of the parameters that a model trains. */
const trainedIn = (model: Model) =>
  compileModel(model, "none").parameters.filter(({ isFrozen }) => !isFrozen)
    .map(({ name, shape }) => `${name} [${shape}]`);

Deno.test("A has the shape [r, in] and B [out, r], whether a weight is [in, out] or [out, in]", () => {
  const options = { rank: 3, target: ["c_proj", "q_proj", "lm_head", "0"] };
  const block = "transformer.h.0.", config = SIZES;
  assert.deepEqual(trainedIn(withLora(gpt2(config, 1), options)), [
    `${block}attn.c_proj.lora_A.weight [3,16]`,
    `${block}attn.c_proj.lora_B.weight [16,3]`,
    `${block}mlp.c_proj.lora_A.weight [3,64]`,
    `${block}mlp.c_proj.lora_B.weight [16,3]`,
    "lm_head.lora_A.weight [3,16]",
    "lm_head.lora_B.weight [32,3]",
  ]);
  assert.deepEqual(trainedIn(withLora(llama({ ...config, intermediate: 40 }, 1), options)), [
    "model.layers.0.self_attn.q_proj.lora_A.weight [3,16]",
    "model.layers.0.self_attn.q_proj.lora_B.weight [16,3]",
    "lm_head.lora_A.weight [3,16]",
    "lm_head.lora_B.weight [32,3]",
  ]);
});

Deno.test("targets that are no dense layer, or tied ones, are refused", () => {
  const check = (target: string[], tie = false) => {
    const lora = { rank: 1, target }, model = withLora(gpt2({ ...SIZES, tie }, 1), lora);
    checkLora(compileModel(model, "none").parameters, model.ties ?? [], lora);
  };
  check(["c_attn", "mlp.c_fc", "lm_head"]);
  const must =
    /^RangeError: Cannot adapt the model: each .* end of the name of a dense layer, received/;
  assert.throws(() => check(["c_attn", "wte"]), { message: /received "wte"$/ });
  assert.throws(() => check(["attn"]), must);
  assert.throws(() => check(["c_attn", "attn_c"]), must);
  assert.throws(() => check(["lm_head"], true), /must not be tied .*received "lm_head.weight"$/);
});
