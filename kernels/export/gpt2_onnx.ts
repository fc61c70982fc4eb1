/**
 * A GPT-2 as an ONNX file.
 *
 * The layers that are trained have fixed sizes. Here batch and sequence have those of the input, and
 * nothing is ONNX Runtime's own.
 *
 * @module
 */

import { gpt2Parameters } from "../compile/decoder_parameters.ts";
import { MASKED } from "../layers/causal_attention.ts";
import type { Gpt2Config } from "../layers/gpt2.ts";
import { arithmetic } from "../onnx/fused_ops.ts";
import type { Writer } from "../onnx/graph_writer.ts";
import { type OnnxFile, onnxFile, onnxGraph } from "./onnx_file.ts";

/**
 * A GPT-2 as an ONNX file, of operations of opset 20 only: `input_ids`, int64 [batch, sequence], to
 * `logits`, f32 [batch, sequence, vocabulary]. A sequence has from 1 to `seq` tokens, and a shorter
 * one in a batch is padded at its end, with any ids: no token sees a later one.
 *
 * Weights have the names of {@linkcode gpt2}; one that is tied is there once. `metadata_props` hold
 * `model` and the sizes, by the names of {@linkcode Gpt2Config}.
 *
 * @param metadata what else the file tells, such as its tokenizer.
 * @throws {RangeError} as {@linkcode gpt2}; or when it would have 2 GiB or more.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { gpt2Onnx, gpt2Parameters, initialValues } from "@troupe/troupe/kernels";
 *
 * const config = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16 };
 * const weights = new Map(
 *   gpt2Parameters(config).map(({ name, spec }) => [name, initialValues(spec, name, 1)]),
 * );
 * const file = gpt2Onnx(config, { tokenizer: "bytes" });
 * const blob = new Blob([...file.pieces((name) => weights.get(name))]);
 * assert.equal(blob.size, file.byteLength);
 * ```
 */
export function gpt2Onnx(
  config: Gpt2Config,
  metadata: Readonly<Record<string, string>> = {},
): OnnxFile {
  const { layers, hidden, heads, seq, vocab, tie = false } = config;
  const parameters = gpt2Parameters(config);
  const input = { name: "input_ids", dtype: "i64", shape: ["batch", "sequence"] } as const;
  const output = { name: "logits", dtype: "f32", shape: ["batch", "sequence", vocab] } as const;
  const names = parameters.map(({ name }) => name);
  return onnxFile({
    graph: onnxGraph("gpt2", input, output, (write) => buildGpt2(write, config, names)),
    parameters,
    metadata: { model: "gpt2", layers, hidden, heads, seq, vocab, tie, ...metadata },
  });
}

/** What each block needs: how heads are split, and who may attend to whom. */
interface Shared {
  /** Axes of a stream [batch · sequence, hidden] cut into heads. */
  readonly byHead: string;
  /** True where a token may attend to another, [sequence, sequence]. */
  readonly isSeen: string;
}

function buildGpt2(write: Writer, config: Gpt2Config, parameters: readonly string[]): void {
  const { layers, hidden, heads, vocab } = config, { node } = write, { add } = arithmetic(write);
  const int = (...values: number[]) => write.constant("i64", values);
  const count = (value: number) => write.constant("i64", [value], []);
  const shape = node("Shape", ["input_ids"]);
  const length = node("Gather", [shape, count(1)]);
  // Beyond the last position a program that runs this finds no row, and says so.
  const positions = node("Range", [count(0), length, count(1)]);
  const tokens = node("Gather", ["transformer.wte.weight", "input_ids"]);
  const sum = add(tokens, node("Gather", ["transformer.wpe.weight", positions]));
  const shared = {
    byHead: node("Concat", [shape, int(heads, hidden / heads)], { axis: 0 }),
    isSeen: node("GreaterOrEqual", [node("Unsqueeze", [positions, int(1)]), positions]),
  };
  let x = node("Reshape", [sum, int(-1, hidden)]);
  for (let i = 0; i < layers; i++) {
    x = add(x, attention(write, x, `transformer.h.${i}.`, config, shared));
    x = add(x, feedForward(write, x, `transformer.h.${i}.`));
  }
  const normal = layerNorm(write, x, "transformer.ln_f");
  // A head is whole, in slices of the vocabulary, or the table of the embedding.
  const own = parameters.filter((name) => name.startsWith("lm_head."));
  const parts = (own.length > 0 ? own : ["transformer.wte.weight"])
    .map((name) => node("Gemm", [normal, name], { transB: 1 }));
  const all = parts.length > 1 ? node("Concat", parts, { axis: 1 }) : parts[0]!;
  const logits = node("Concat", [shape, int(vocab)], { axis: 0 });
  node("Reshape", [all, logits], {}, "logits");
}

const layerNorm = ({ node }: Writer, x: string, name: string): string =>
  node("LayerNormalization", [x, `${name}.weight`, `${name}.bias`], {
    axis: -1,
    epsilon: { float: 1e-5 },
  });

const linear = ({ node }: Writer, x: string, name: string): string =>
  node("Gemm", [x, `${name}.weight`, `${name}.bias`]);

function attention(
  write: Writer,
  x: string,
  prefix: string,
  { hidden, heads }: Gpt2Config,
  { byHead, isSeen }: Shared,
): string {
  const { node } = write, { mul, scalar } = arithmetic(write);
  const qkv = linear(write, layerNorm(write, x, `${prefix}ln_1`), `${prefix}attn.c_attn`);
  const parts = write.nodes("Split", [qkv], { axis: 1, num_outputs: 3 }, 3);
  // Queries and values [batch, heads, sequence, width], keys with the last two axes exchanged.
  const [q, k, v] = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]].map((perm, i) =>
    node("Transpose", [node("Reshape", [parts[i]!, byHead])], { perm })
  ) as [string, string, string];
  const scores = mul(node("MatMul", [q, k]), scalar(1 / Math.sqrt(hidden / heads)));
  const masked = node("Where", [isSeen, scores, scalar(MASKED)]);
  const mixed = node("MatMul", [node("Softmax", [masked], { axis: -1 }), v]);
  const joined = node("Transpose", [mixed], { perm: [0, 2, 1, 3] });
  const rows = node("Reshape", [joined, write.constant("i64", [-1, hidden])]);
  return linear(write, rows, `${prefix}attn.c_proj`);
}

function feedForward(write: Writer, x: string, prefix: string): string {
  const wide = linear(write, layerNorm(write, x, `${prefix}ln_2`), `${prefix}mlp.c_fc`);
  return linear(
    write,
    write.node("Gelu", [wide], { approximate: "tanh" }),
    `${prefix}mlp.c_proj`,
  );
}
