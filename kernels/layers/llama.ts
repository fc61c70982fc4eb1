/**
 * Llama as layers (Touvron et al. 2023): a decoder with RMSNorm before each sub-layer (Zhang,
 * Sennrich 2019), rotary positions (Su et al. 2021), SwiGLU (Shazeer 2020) and, where keys and
 * values have fewer heads than queries, grouped-query attention (Ainslie et al. 2023). No linear
 * map has a bias.
 *
 * Parameters have the names and layouts of Hugging Face's `LlamaForCausalLM`: weights are [out, in].
 *
 * @module
 */

import { countTargets } from "../batch.ts";
import { assertInput } from "../errors.ts";
import type { Value } from "../graph/value.ts";
import { checkModelSizes } from "../precision.ts";
import type { Gpt2Config } from "./gpt2.ts";
import { attention, byHead, cachedAttention, rotary } from "./attention.ts";
import { type CachedDecoder, cachedDecoder, decoderBlocks, tokensOfSlice } from "./decoder.ts";
import { crossEntropy, embedding, linear, rmsNorm } from "./helpers.ts";
import {
  checkDropout,
  type Initializer,
  type Layer,
  type LayerGraph,
  type Model,
  type Tie,
} from "./layer.ts";
import { withLoss } from "./metrics.ts";

/** The sizes of a Llama. */
export interface LlamaConfig extends Pick<Gpt2Config, "layers" | "hidden" | "seq" | "vocab"> {
  /** Heads of the queries; must divide `hidden` into even widths. */
  readonly heads: number;
  /** Heads of keys and values; must divide `heads`. Default `heads`. */
  readonly keyValueHeads?: number | undefined;
  /** Width of the feed-forward network. Default: 8/3 of `hidden`, rounded up to a multiple of 32. */
  readonly intermediate?: number | undefined;
  /** Base of the angles of rotary positions. Default 10000. */
  readonly ropeTheta?: number | undefined;
  /** Added to the mean square in RMSNorm. Default 1e-6. */
  readonly normEpsilon?: number | undefined;
  /** Shares the head's table with the embedding. Default false. */
  readonly tie?: boolean;
  /** Dropout probability of the attention weights. Default 0. */
  readonly dropout?: number | undefined;
}

/** The sizes of a Llama with all defaults. */
type LlamaSizes = Required<{ [Name in keyof LlamaConfig]: NonNullable<LlamaConfig[Name]> }>;

/**
 * Fills in the defaults of sizes and checks them.
 *
 * @throws {RangeError} with the name of an invalid size.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const sizes = llamaSizes({ layers: 2, hidden: 64, heads: 4, seq: 32, vocab: 256 });
 * assert.equal(sizes.keyValueHeads, 4);
 * assert.equal(sizes.intermediate, 192);
 * ```
 */
export function llamaSizes(config: LlamaConfig): LlamaSizes {
  const { layers, hidden, heads, seq, vocab, keyValueHeads = heads, dropout = 0 } = config;
  const { intermediate = 32 * Math.ceil(hidden / 12), ropeTheta = 10_000 } = config;
  const { normEpsilon = 1e-6, tie = false } = config;
  checkModelSizes("a Llama", { layers, hidden, heads, seq, vocab });
  checkModelSizes("a Llama", { heads: keyValueHeads });
  checkDropout("build a Llama", dropout);
  const must = (holds: boolean, what: string, received: unknown) =>
    assertInput(holds, "build a Llama", what, received);
  const twice = 2 * heads;
  must(hidden % twice === 0, `hidden must be divisible by twice its heads, ${twice}`, hidden);
  must(heads % keyValueHeads === 0, `keyValueHeads must divide its heads, ${heads}`, keyValueHeads);
  must(
    Number.isSafeInteger(intermediate) && intermediate >= 1 && intermediate <= INTERMEDIATE_MAX,
    `intermediate must be a whole number from 1 to ${INTERMEDIATE_MAX}`,
    intermediate,
  );
  const isPositive = (value: number) => Number.isFinite(value) && value > 0;
  must(isPositive(ropeTheta), "ropeTheta must be a positive number", ropeTheta);
  must(isPositive(normEpsilon), "normEpsilon must be a positive number", normEpsilon);
  return {
    ...{ layers, hidden, heads, keyValueHeads, intermediate, seq, vocab },
    ...{ ropeTheta, normEpsilon, tie, dropout },
  };
}

/** The widest feed-forward network. */
const INTERMEDIATE_MAX = 2 ** 18;

/** Initial values of all tables and matrices. */
const FIRST: Initializer = { kind: "normal", deviation: 0.02 };

/** Returns the ties of a Llama's parameters: none unless `tie` is true. */
export function llamaTies({ tie = false }: LlamaConfig): readonly Tie[] {
  return tie ? [["model.embed_tokens.weight", "lm_head.weight"]] : [];
}

/**
 * A Llama for training: micro-batches have the fields `ids` and `targets`, int32 [B·seq]; a target of
 * −1 is not predicted.
 *
 * @param microBatchSize samples of a micro-batch, B.
 * @throws {RangeError} when a size is invalid.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { llama } from "@troupe/troupe/kernels";
 *
 * const sizes = { layers: 1, hidden: 64, heads: 4, keyValueHeads: 2, seq: 32, vocab: 256 };
 * assert.deepEqual(llama(sizes, 8).layers.map((layer) => layer.name), [
 *   "embedding", "block 0 attention", "block 0 mlp", "head",
 * ]);
 * assert.throws(() => llama({ ...sizes, keyValueHeads: 3 }, 8), RangeError);
 * ```
 */
export function llama(config: LlamaConfig, microBatchSize: number): Model {
  const sizes = llamaSizes(config);
  checkModelSizes("a Llama", { "micro-batch": microBatchSize });
  return {
    name: "llama",
    layers: lossLayers(sizes, microBatchSize, 1),
    predictions: (batch) => countTargets(batch, "targets"),
    ties: llamaTies(sizes),
    samples: microBatchSize,
    withSamples: (samples) => llama(config, samples),
    length: sizes.seq,
    withLength: (seq) => llama({ ...config, seq }, microBatchSize),
    withSlices: (slices) => lossLayers(sizes, microBatchSize, slices),
  };
}

/**
 * A Llama for prediction: the last layer returns logits [B, seq, vocabulary].
 *
 * @throws {RangeError} as {@linkcode llama}.
 */
export function llamaLogits(config: LlamaConfig, microBatchSize: number): readonly Layer[] {
  const sizes = llamaSizes({ ...config, dropout: 0 });
  return logitsLayers(sizes, [microBatchSize, sizes.seq]);
}

function lossLayers(sizes: LlamaSizes, microBatchSize: number, slices: number): Layer[] {
  const shape = [microBatchSize, tokensOfSlice("a Llama", sizes.seq, slices)] as const;
  const lossOf = (g: LayerGraph, y: Value) => crossEntropy(g, y, g.batch("targets", shape, "i32"));
  return withLoss(logitsLayers(sizes, shape), lossOf);
}

const PREFIXES = { embedding: "model.", block: "model.layers." } as const;

/** Returns the layers from token ids to logits [samples, tokens, vocabulary]. */
function logitsLayers(sizes: LlamaSizes, shape: readonly number[]): Layer[] {
  const of =
    (build: (g: LayerGraph, x: Value, sizes: LlamaSizes) => Value) =>
    (g: LayerGraph, x: Value | undefined) => build(g, x!, sizes);
  return [
    {
      name: "embedding",
      prefix: PREFIXES.embedding,
      build: (g) => embed(g, g.batch("ids", shape, "i32"), sizes),
    },
    ...decoderBlocks(sizes.layers, PREFIXES.block, of(attend), of(feedForward)),
    { name: "head", prefix: "", build: of(logits) },
  ];
}

const project = (g: LayerGraph, x: Value, name: string, outputs: number): Value =>
  linear(g, x, { name, outputs, bias: false, initializer: FIRST });

/** Maps token ids [...] to the residual stream [..., hidden]. */
const embed = (g: LayerGraph, ids: Value, { vocab, hidden }: LlamaSizes): Value =>
  embedding(g, ids, { name: "embed_tokens", rows: vocab, width: hidden, initializer: FIRST });

/** Returns queries, keys and values of an attention, without positions. */
function projections(g: LayerGraph, x: Value, sizes: LlamaSizes): [Value, Value, Value] {
  const { hidden, heads, keyValueHeads, normEpsilon: epsilon } = sizes;
  const normal = rmsNorm(g, x, { name: "input_layernorm", epsilon });
  const ofKeys = hidden / heads * keyValueHeads;
  return [
    project(g, normal, "self_attn.q_proj", hidden),
    project(g, normal, "self_attn.k_proj", ofKeys),
    project(g, normal, "self_attn.v_proj", ofKeys),
  ];
}

/** Adds the projected output of an attention to the residual stream. */
const addMixed = (g: LayerGraph, x: Value, mixed: Value): Value =>
  g.add(x, project(g, mixed, "self_attn.o_proj", x.shape.at(-1)!));

/** Adds causal self-attention to the residual stream. */
function attend(g: LayerGraph, x: Value, sizes: LlamaSizes): Value {
  const { heads, keyValueHeads, dropout, ropeTheta: theta } = sizes;
  const position = (one: Value) => rotary(g, one, { theta });
  const options = { heads, keyValueHeads, causal: true, position, dropout };
  return addMixed(g, x, attention(g, ...projections(g, x, sizes), options));
}

/** Adds the feed-forward network to the residual stream: down(silu(gate(x))·up(x)). */
function feedForward(g: LayerGraph, x: Value, sizes: LlamaSizes): Value {
  const { hidden, intermediate, normEpsilon } = sizes;
  const normal = rmsNorm(g, x, { name: "post_attention_layernorm", epsilon: normEpsilon });
  const gate = project(g, normal, "mlp.gate_proj", intermediate);
  const up = project(g, normal, "mlp.up_proj", intermediate);
  const gated = g.mul(g.silu(gate), up);
  return g.add(x, project(g, gated, "mlp.down_proj", hidden));
}

/** Computes logits from the residual stream. */
function logits(g: LayerGraph, x: Value, { vocab, normEpsilon }: LlamaSizes): Value {
  const normal = rmsNorm(g, x, { name: "model.norm", epsilon: normEpsilon });
  return project(g, normal, "lm_head", vocab);
}

/**
 * A Llama with a cache.
 *
 * @throws {RangeError} as {@linkcode llama}.
 */
export function cachedLlama(config: LlamaConfig): CachedDecoder {
  const sizes = llamaSizes(config);
  return cachedDecoder({
    ...sizes,
    ties: llamaTies(sizes),
    cache: cacheOf(sizes),
    prefixes: PREFIXES,
    embed: (g, rows) => embed(g, g.batch("ids", [rows], "i32"), sizes),
    attend: (g, x) => cachedAttend(g, x, sizes),
    feedForward: (g, x) => feedForward(g, x, sizes),
    logits: (g, x) => logits(g, x, sizes),
  });
}

const cacheOf = ({ keyValueHeads, seq, hidden, heads }: LlamaSizes) => ({
  heads: keyValueHeads,
  seq,
  width: hidden / heads,
});

function cachedAttend(g: LayerGraph, x: Value, sizes: LlamaSizes) {
  const { heads, keyValueHeads, seq, ropeTheta: theta } = sizes;
  const positions = { at: g.batch("positions", [x.shape[0]!], "i32"), count: seq };
  const rotated = (one: Value, count: number) =>
    rotary(g, byHead(g, one, count), { theta, positions });
  const [q, k, v] = projections(g, x, sizes);
  const { mixed, keys, values } = cachedAttention(
    g,
    [rotated(q, heads), rotated(k, keyValueHeads), byHead(g, v, keyValueHeads)],
    cacheOf(sizes),
  );
  return { y: addMixed(g, x, mixed), keys, values };
}
