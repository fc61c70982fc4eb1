/**
 * T5: an encoder, and a decoder with cross-attention to the output of the encoder.
 *
 * The architecture is that of Raffel et al. (2020): RMSNorm before each sub-layer, no biases,
 * unscaled scores, and positions as a bias of the scores, a number for each head and each bucket of
 * distances (2.1). The published T5 has ReLU and a head with the embedding's table, scaled; version
 * 1.1 has gated GELU and a separate head. Parameters have the names and layouts of Hugging Face's
 * `T5ForConditionalGeneration`.
 *
 * Layers of the encoder return a record: the states of the tokens and the padding mask. Its last
 * layer returns nothing: it gives the memory by name to each block of the decoder, as the first
 * block of a stack gives the biases of positions to the others.
 *
 * @module
 */

import { countTargets } from "../batch.ts";
import { assertInput, checkPositive } from "../errors.ts";
import type { Value } from "../graph/value.ts";
import { checkModelSizes } from "../precision.ts";
import { attention } from "./attention.ts";
import { crossEntropy, embedding, linear, rmsNorm } from "./helpers.ts";
import { withLossAndMetrics } from "./metrics.ts";
import {
  type AnyLayer,
  checkDropout,
  type Handed,
  type Initializer,
  type Layer,
  type LayerGraph,
  type Model,
  type Tie,
} from "./layer.ts";

/** The sizes of a T5. */
export interface T5Config {
  /** Blocks of the encoder, and of the decoder. */
  readonly layers: number;
  /** Width of the states. */
  readonly hidden: number;
  /** Attention heads. */
  readonly heads: number;
  /** Width of a head. Default hidden ÷ heads. */
  readonly headWidth?: number;
  /** Width of the feed-forward networks. Default 4·hidden. */
  readonly feedForward?: number;
  /** Tokens of a sample that the encoder reads. */
  readonly seq: number;
  /** Tokens that the decoder predicts. Default `seq`. */
  readonly targetSeq?: number;
  /** Number of token ids. */
  readonly vocab: number;
  /** Shares the head's table with the embedding, as in the published T5. Default false. */
  readonly tie?: boolean;
  /** Uses gated GELU in feed-forward networks, as version 1.1. Default false. */
  readonly gated?: boolean;
  /** Buckets of distances, half of them for later tokens in the encoder. Default 32. */
  readonly buckets?: number;
  /** Smallest distance of the last bucket. Default 128. */
  readonly maxDistance?: number;
  /** Dropout probability, at the places of T5. Default 0. */
  readonly dropout?: number;
}

/** All sizes of a T5. */
type T5Sizes = Required<T5Config>;

/** All sizes, with the number of samples of a micro-batch. */
type Sizes = T5Sizes & { readonly samples: number };

/** Output of the encoder's layers. */
type Encoded = {
  /** f32 [samples, seq, hidden]. */
  readonly states: Value;
  /** False for padding, bool [samples, 1, 1, seq]. */
  readonly mask: Value;
};

/** The token that pads an input and starts every output. */
const PAD = 0;

const EPSILON = 1e-6;

/**
 * Fills in the defaults of sizes and checks them.
 *
 * @throws {RangeError} with the name of an invalid size.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const { headWidth, targetSeq } = t5Sizes({ layers: 2, hidden: 64, heads: 4, seq: 32, vocab: 12 });
 * assert.deepEqual([headWidth, targetSeq], [16, 32]);
 * ```
 */
export function t5Sizes(config: T5Config): T5Sizes {
  const sizes: T5Sizes = {
    headWidth: config.hidden / config.heads,
    feedForward: 4 * config.hidden,
    targetSeq: config.seq,
    tie: false,
    gated: false,
    buckets: 32,
    maxDistance: 128,
    dropout: 0,
    ...config,
  };
  const { layers, hidden, heads, seq, vocab, headWidth, feedForward, targetSeq } = sizes;
  checkModelSizes("T5", { layers, hidden, heads, seq, vocab });
  checkModelSizes("T5", { seq: targetSeq, hidden: feedForward });
  const divides = config.headWidth !== undefined || hidden % heads === 0;
  assertInput(divides, "build T5", `hidden must be divisible by heads, ${heads}`, hidden);
  checkPositive("build T5", { headWidth });
  const { buckets, maxDistance } = sizes, exact = buckets / 4;
  const isExact = Number.isInteger(exact) && exact >= 1 && maxDistance > 2 * exact;
  const must = "buckets must be divisible by 4 and maxDistance above half of them";
  assertInput(isExact, "build T5", must, `${buckets} and ${maxDistance}`);
  checkDropout("build T5", sizes.dropout);
  return sizes;
}

function sizesOf(config: T5Config, samples: number): Sizes {
  checkModelSizes("T5", { "micro-batch": samples });
  return { ...t5Sizes(config), samples };
}

/** T5's initialization: it preserves the scale of states although scores are not scaled. */
const normal = (variance: number): Initializer => ({
  kind: "normal",
  deviation: Math.sqrt(variance),
});

/**
 * Returns T5's bucket of a distance between tokens: near distances have separate buckets, and the
 * size of buckets grows with the logarithm of the distance.
 *
 * @param distance of the key from the query, negative if the key comes first.
 * @param hasLater true if keys may come after queries; half of the buckets are for those.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const bucketOf = (distance: number) => t5Bucket(distance, false, 32, 128);
 * assert.deepEqual([0, -15, -16, -32, -500, 3].map(bucketOf), [0, 15, 16, 21, 31, 0]);
 * assert.equal(t5Bucket(3, true, 32, 128), 16 + 3);
 * ```
 */
export function t5Bucket(
  distance: number,
  hasLater: boolean,
  buckets: number,
  maxDistance: number,
): number {
  const own = hasLater ? buckets / 2 : buckets, exact = own / 2;
  const first = hasLater && distance > 0 ? own : 0;
  const length = hasLater ? Math.abs(distance) : Math.max(-distance, 0);
  if (length < exact) return first + length;
  const share = Math.log(length / exact) / Math.log(maxDistance / exact);
  return first + Math.min(exact + Math.floor(share * (own - exact)), own - 1);
}

/**
 * Returns the bias of the scores of a stack, [1, heads, tokens, tokens]. Its first block has the
 * table, and gives the bias to the others.
 */
function positionBias(g: LayerGraph, sizes: Sizes, stack: Stack, block: number): Value {
  const { heads, hidden, buckets, maxDistance, layers } = sizes, name = `${stack}.positions`;
  if (block > 0) return g.take(name);
  const isEncoder = stack === "encoder", tokens = isEncoder ? sizes.seq : sizes.targetSeq;
  const bucketOfPair = Int32Array.from(
    { length: tokens * tokens },
    (_, i) => t5Bucket(i % tokens - Math.floor(i / tokens), isEncoder, buckets, maxDistance),
  );
  const biases = embedding(g, g.constant(bucketOfPair, [tokens, tokens], "i32"), {
    name: "layer.0.SelfAttention.relative_attention_bias",
    rows: buckets,
    width: heads,
    initializer: normal(1 / hidden),
  });
  const byHead = g.reshape(g.transpose(biases, [2, 0, 1]), [1, heads, tokens, tokens]);
  if (layers > 1) g.give(name, byHead);
  return byHead;
}

type Stack = "encoder" | "decoder";

/** Adds the result of a sub-layer on normalized `x` to `x`. */
function sublayer(
  g: LayerGraph,
  x: Value,
  { dropout }: Sizes,
  name: string,
  compute: (normalised: Value) => Value,
): Value {
  const normalised = rmsNorm(g, x, { name: `${name}.layer_norm`, epsilon: EPSILON });
  return g.add(x, g.dropout(compute(normalised), dropout));
}

/** A linear map without bias, initialized with a variance. */
const project = (g: LayerGraph, x: Value, name: string, outputs: number, variance: number) =>
  linear(g, x, { name, outputs, bias: false, initializer: normal(variance) });

/** Attention of `x` to `source`. */
function attend(
  g: LayerGraph,
  x: Value,
  source: Value,
  { hidden, heads, headWidth, dropout }: Sizes,
  name: string,
  seen: { readonly mask?: Value; readonly bias?: Value; readonly causal?: boolean },
): Value {
  const inner = heads * headWidth;
  const q = project(g, x, `${name}.q`, inner, 1 / (hidden * headWidth));
  const k = project(g, source, `${name}.k`, inner, 1 / hidden);
  const v = project(g, source, `${name}.v`, inner, 1 / hidden);
  const mixed = attention(g, q, k, v, { heads, scale: 1, dropout, ...seen });
  return project(g, mixed, `${name}.o`, hidden, 1 / inner);
}

/** Adds the feed-forward network, with ReLU or gated GELU (Shazeer 2020). */
function feedForward(g: LayerGraph, x: Value, sizes: Sizes, name: string): Value {
  const { hidden, feedForward: wide, gated, dropout } = sizes;
  return sublayer(g, x, sizes, name, (normalised) => {
    const widen = (own: string) =>
      project(g, normalised, `${name}.DenseReluDense.${own}`, wide, 1 / hidden);
    const active = gated ? g.mul(g.gelu(widen("wi_0")), widen("wi_1")) : g.relu(widen("wi"));
    return project(g, g.dropout(active, dropout), `${name}.DenseReluDense.wo`, hidden, 1 / wide);
  });
}

/** Returns the layers of a block, from their builds by name. */
const layersOfBlock = <X extends Handed>(
  stack: Stack,
  index: number,
  builds: Readonly<Record<string, Layer<X, X>["build"]>>,
): Layer<X, X>[] =>
  Object.entries(builds).map(([what, build]) => {
    const block = `${stack} block ${index}`;
    return { name: `${block} ${what}`, block, prefix: `${stack}.block.${index}.`, build };
  });

const encoderBlock = (sizes: Sizes, index: number) =>
  layersOfBlock<Encoded>("encoder", index, {
    attention(g, x) {
      const { states, mask } = x!, bias = positionBias(g, sizes, "encoder", index);
      const attended = (y: Value) =>
        attend(g, y, y, sizes, "layer.0.SelfAttention", { mask, bias });
      return { states: sublayer(g, states, sizes, "layer.0", attended), mask };
    },
    "feed-forward": (g, x) => (
      { states: feedForward(g, x!.states, sizes, "layer.1"), mask: x!.mask }
    ),
  });

const decoderBlock = (sizes: Sizes, index: number) =>
  layersOfBlock<Value>("decoder", index, {
    attention(g, x) {
      const bias = positionBias(g, sizes, "decoder", index), seen = { bias, causal: true };
      const attended = (y: Value) => attend(g, y, y, sizes, "layer.0.SelfAttention", seen);
      return sublayer(g, x!, sizes, "layer.0", attended);
    },
    "cross attention"(g, x) {
      const memory = g.take("memory"), mask = g.take("mask");
      const attended = (y: Value) =>
        attend(g, y, memory, sizes, "layer.1.EncDecAttention", { mask });
      return sublayer(g, x!, sizes, "layer.1", attended);
    },
    "feed-forward": (g, x) => feedForward(g, x!, sizes, "layer.2"),
  });

/** Returns the encoder: from the field `ids` to the values "memory" and "mask". */
function encoder(sizes: Sizes): AnyLayer[] {
  const { samples, seq, vocab, hidden, dropout } = sizes;
  const first: Layer<Encoded, Encoded> = {
    name: "encoder embedding",
    prefix: "",
    build(g) {
      const ids = g.batch("ids", [samples, seq], "i32");
      const isThere = g.greater(ids, g.constant(Int32Array.of(PAD), [], "i32"));
      const states = embedding(g, ids, { name: "shared", rows: vocab, width: hidden });
      return { states: g.dropout(states, dropout), mask: g.reshape(isThere, [samples, 1, 1, seq]) };
    },
  };
  const last: Layer<Encoded, Record<never, never>> = {
    name: "encoder norm",
    prefix: "encoder.",
    build(g, x) {
      const { states, mask } = x!;
      const memory = rmsNorm(g, states, { name: "final_layer_norm", epsilon: EPSILON });
      g.give("memory", g.dropout(memory, dropout));
      g.give("mask", mask);
      return {};
    },
  };
  return [first, ...blocks(sizes, encoderBlock), last];
}

/** Returns the decoder's embedding and blocks. It reads the field `targets`; each predicts the next. */
function decoder(sizes: Sizes): AnyLayer[] {
  const { samples, targetSeq, vocab, hidden, dropout } = sizes;
  const first: Layer<Record<never, never>> = {
    name: "decoder embedding",
    prefix: "decoder.",
    build(g) {
      const ids = shiftRight(g, g.batch("targets", [samples, targetSeq], "i32"));
      const states = embedding(g, ids, { name: "embed_tokens", rows: vocab, width: hidden });
      return g.dropout(states, dropout);
    },
  };
  return [first, ...blocks(sizes, decoderBlock)];
}

const blocks = <Kind>(sizes: Sizes, block: (sizes: Sizes, index: number) => Kind[]): Kind[] =>
  Array.from({ length: sizes.layers }, (_, i) => block(sizes, i)).flat();

/** Shifts targets right: a pad before the first, and a pad for each that is not predicted. */
function shiftRight(g: LayerGraph, targets: Value): Value {
  const [samples, tokens] = targets.shape as [number, number], size = samples * tokens;
  const pad = g.constant(Int32Array.of(PAD), [1], "i32");
  const places = Int32Array.from({ length: size }, (_, i) => i % tokens === 0 ? 0 : i);
  const before = g.gather(
    g.concat([pad, g.reshape(targets, [size])], 0),
    g.constant(places, [samples, tokens], "i32"),
  );
  return g.where(g.greater(before, pad), before, pad);
}

/** Computes logits [samples, targetSeq, vocab] from states of the decoder. */
function logits(g: LayerGraph, x: Value, { vocab, hidden, tie, dropout }: Sizes): Value {
  const normalised = rmsNorm(g, x, { name: "decoder.final_layer_norm", epsilon: EPSILON });
  const states = g.dropout(normalised, dropout);
  const scaled = tie ? g.mul(states, g.scalar(1 / Math.sqrt(hidden))) : states;
  return project(g, scaled, "lm_head", vocab, 1);
}

/**
 * Returns the ties of a T5's parameters: encoder and decoder share the embedding, and with `tie` the
 * head shares it too.
 */
export function t5Ties({ tie = false }: T5Config): readonly Tie[] {
  const aliases = ["decoder.embed_tokens.weight", ...tie ? ["lm_head.weight"] : []];
  return aliases.map((alias) => ["shared.weight", alias]);
}

/**
 * T5 for training: micro-batches have the fields `ids`, int32 [B·seq], in which 0 pads at the end,
 * and `targets`, int32 [B·targetSeq], in which −1 is not predicted. The decoder reads the targets
 * shifted right by one, after a 0.
 *
 * @param microBatchSize samples of a micro-batch, B.
 * @throws {RangeError} when a size is not a positive integer, or the buckets are invalid.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { t5 } from "@troupe/troupe/kernels";
 *
 * const model = t5({ layers: 1, hidden: 64, heads: 4, seq: 16, vocab: 32, tie: true }, 8);
 * assert.deepEqual(model.layers.map((layer) => layer.name), [
 *   "encoder embedding", "encoder block 0 attention", "encoder block 0 feed-forward", "encoder norm",
 *   "decoder embedding", "decoder block 0 attention", "decoder block 0 cross attention",
 *   "decoder block 0 feed-forward", "head",
 * ]);
 * ```
 */
export function t5(config: T5Config, microBatchSize: number): Model {
  const sizes = sizesOf(config, microBatchSize);
  const lossOf = (g: LayerGraph, y: Value) =>
    crossEntropy(g, y, g.batch("targets", [sizes.samples, sizes.targetSeq], "i32"));
  return {
    name: "t5",
    layers: withLossAndMetrics(logitsLayers(sizes), lossOf),
    predictions: (batch) => countTargets(batch, "targets"),
    ties: t5Ties(config),
    samples: microBatchSize,
    withSamples: (samples) => t5(config, samples),
    length: sizes.seq,
    withLength: (seq) => {
      const targetSeq = Math.ceil(sizes.targetSeq * seq / sizes.seq);
      return t5({ ...config, seq, targetSeq }, microBatchSize);
    },
  };
}

/**
 * T5 for generation: the last layer returns logits [samples, targetSeq, vocab] for the tokens after
 * those of `targets`.
 *
 * @throws {RangeError} as {@linkcode t5}.
 */
export function t5Logits(config: T5Config, samples: number): readonly AnyLayer[] {
  return logitsLayers(sizesOf({ ...config, dropout: 0 }, samples));
}

function logitsLayers(sizes: Sizes): AnyLayer[] {
  const head: Layer = { name: "head", prefix: "", build: (g, x) => logits(g, x!, sizes) };
  return [...encoder(sizes), ...decoder(sizes), head];
}
