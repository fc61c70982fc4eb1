/**
 * GPT-2 as layers: embedding, transformer blocks, head with softmax cross-entropy.
 *
 * The architecture is that of Radford et al. (2019): LayerNorm before each sub-layer and after the
 * last block, learned positions, GELU in its tanh form. Parameters have the names and layouts of
 * Hugging Face's GPT-2: linear weights are [in, out], except `lm_head.weight`, [vocabulary, hidden].
 *
 * [Note: a head in slices] With a large vocabulary the head may cost more than a stage should. In
 * slices it is a chain of layers, which stages share: each multiplies the normalized residual stream
 * x by its part of the vocabulary, and passes x on with two numbers for each row: the log-sum-exp L
 * of all logits so far, and the logit t of the target if it was among them. The last slice returns
 * the loss, L − t. In the backward pass the gradient of L is the share of the slice's logits in the
 * softmax, so that a slice needs only the values that return along the chain. (In "vocabulary
 * parallelism", Yeung et al. 2024, all workers hold a slice and meet at barriers.) The two numbers
 * are in the first two columns of a second matrix of the size of x.
 *
 * @module
 */

import { countTargets } from "../batch.ts";
import { assertInput } from "../errors.ts";
import type { Value } from "../graph/value.ts";
import { checkModelSizes } from "../precision.ts";
import { byHead, cachedAttention, causalAttention, partsOf } from "./attention.ts";
import { type CachedDecoder, cachedDecoder, decoderBlocks, tokensOfSlice } from "./decoder.ts";
import { layerNorm } from "./helpers.ts";
import {
  checkDropout,
  type Initializer,
  type Layer,
  type LayerGraph,
  type MaskPlace,
  type Model,
  type Tie,
} from "./layer.ts";
import { withLoss } from "./metrics.ts";

/** Sizes of the head of a GPT-2. */
type HeadSizes = Pick<Gpt2Config, "hidden" | "seq" | "vocab" | "tie" | "headSlices">;

/** Sizes of a GPT-2 whose samples may be shorter than its table of positions. */
type Sizes = Parameters<typeof gpt2>[0];

/** Token ids from `from` to before `to`, and the parameter with their rows. */
type Slice = ReturnType<typeof slicesOf>[number];

/** State passed from slice to slice: for each row x, log-sum-exp and the logit of the target. */
type Chain = ReturnType<typeof unpack>;

function slicesOf({ vocab, headSlices = 1 }: HeadSizes) {
  if (headSlices === 1) return [{ parameter: "lm_head.weight", from: 0, to: vocab }];
  const start = (k: number) => Math.round(k * vocab / headSlices);
  return Array.from({ length: headSlices }, (_, k) => ({
    parameter: `lm_head.${k}.weight`,
    from: start(k),
    to: start(k + 1),
  }));
}

const normalised = (g: LayerGraph, x: Value): Value =>
  layerNorm(g, x, { name: "transformer.ln_f" });

const weightOf = (g: LayerGraph, { parameter, from, to }: Slice, { hidden }: HeadSizes): Value =>
  g.parameter(parameter, [to - from, hidden]);

/** Computes logits [rows, vocabulary] from the residual stream, all slices in one layer. */
function logits(g: LayerGraph, x: Value, sizes: HeadSizes): Value {
  const normal = normalised(g, x);
  const parts = slicesOf(sizes).map((slice) =>
    g.gemm(normal, weightOf(g, slice, sizes), undefined, { transB: true })
  );
  return parts.length === 1 ? parts[0]! : g.concat(parts, 1);
}

const logitsLayer = (sizes: HeadSizes): Layer => ({
  name: "head",
  prefix: "",
  build: (g, x) => logits(g, x!, sizes),
});

/** Returns the layers from the residual stream to the loss of each sample. They read `targets`. */
function headLayers(sizes: HeadSizes, microBatchSize: number): Layer[] {
  const rows = microBatchSize * sizes.seq, slices = slicesOf(sizes);
  const targetsOf = (g: LayerGraph) => g.batch("targets", [rows], "i32");
  const lossOf = (g: LayerGraph, losses: Value) =>
    g.sum(g.reshape(losses, [microBatchSize, sizes.seq]), [1]);
  if (slices.length === 1) {
    return withLoss([logitsLayer(sizes)], (g, y) => lossOf(g, g.crossEntropy(y, targetsOf(g))));
  }
  return slices.map((slice, k): Layer => ({
    name: `head slice ${k}`,
    block: "head",
    prefix: "",
    build(g, input) {
      const before = k === 0 ? undefined : unpack(g, input!);
      // Ids are f32, exact below 2²⁴, the largest vocabulary.
      const targets = g.cast(targetsOf(g), "f32"), x = before?.x ?? normalised(g, input!);
      const weight = weightOf(g, slice, sizes), { from, to } = slice;
      const isHere = g.sub(isFrom(g, targets, from), isFrom(g, targets, to));
      // For targets in other slices: the logit of column 0 is subtracted from the sum and added again.
      const column = g.cast(g.mul(g.sub(targets, g.scalar(from)), isHere), "i32");
      const logit = g.sum(g.mul(x, g.gather(weight, column)), [1]);
      const sliceLogits = g.gemm(x, weight, undefined, { transB: true });
      const ownSum = g.add(g.crossEntropy(sliceLogits, column), logit);
      const ownTarget = g.mul(logit, isHere);
      const logSum = before ? addExponentials(g, before.logSum, ownSum) : ownSum;
      const target = before ? g.add(before.target, ownTarget) : ownTarget;
      if (k < slices.length - 1) return pack(g, { x, logSum, target });
      return lossOf(g, g.mul(g.sub(logSum, target), isFrom(g, targets, 0)));
    },
  }));
}

/** Returns 1 for ids from `first`, otherwise 0. */
const isFrom = (g: LayerGraph, ids: Value, first: number): Value =>
  g.where(g.greater(ids, g.scalar(first - 0.5)), g.scalar(1), g.scalar(0));

/** ln(e^a + e^b) = (a + b + |a − b|)/2 + ln(1 + e^−|a − b|), with a correct gradient where a = b. */
function addExponentials(g: LayerGraph, a: Value, b: Value): Value {
  const distance = g.add(g.relu(g.sub(a, b)), g.relu(g.sub(b, a)));
  const highest = g.mul(g.add(g.add(a, b), distance), g.scalar(0.5));
  return g.add(highest, g.log(g.add(g.scalar(1), g.exp(g.neg(distance)))));
}

/** Returns a matrix that moves two numbers to the first two of `hidden` columns and back, exactly. */
const columns = (g: LayerGraph, hidden: number): Value =>
  g.constant(
    Float32Array.from({ length: 2 * hidden }, (_, i) => +(i === 0 || i === hidden + 1)),
    [2, hidden],
  );

function pack(g: LayerGraph, { x, logSum, target }: Chain): Value {
  const [rows, hidden] = x.shape as [number, number];
  const pair = g.concat([g.reshape(logSum, [rows, 1]), g.reshape(target, [rows, 1])], 1);
  return g.concat([x, g.gemm(pair, columns(g, hidden))], 1);
}

function unpack(g: LayerGraph, packed: Value) {
  const [x, rest] = g.split(packed, 1, 2) as [Value, Value], [rows, hidden] = x.shape;
  const pair = g.gemm(rest, columns(g, hidden!), undefined, { transB: true });
  const [logSum, target] = g.split(pair, 1, 2).map((one) => g.reshape(one, [rows!]));
  return { x, logSum: logSum!, target: target! };
}

/** The sizes of a GPT-2. */
export interface Gpt2Config {
  /** Transformer blocks. */
  readonly layers: number;
  /** Width of the residual stream. */
  readonly hidden: number;
  /** Attention heads; must divide `hidden`. */
  readonly heads: number;
  /** Tokens of a sample. */
  readonly seq: number;
  /** Number of token ids. */
  readonly vocab: number;
  /** Shares the head's table with the embedding, as in the published GPT-2. Default false. */
  readonly tie?: boolean;
  /**
   * Layers of the head, each with a slice of the vocabulary and a separate parameter
   * (`lm_head.0.weight`, ...), so that no stage must hold all of it. Default 1.
   */
  readonly headSlices?: number | undefined;
  /**
   * Dropout probability of the embedding, of attention weights, and of the output of each sub-layer.
   * Default 0.
   */
  readonly dropout?: number | undefined;
}

/**
 * Returns the ties of a GPT-2's parameters: none unless `tie` is true.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const config = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16, tie: true };
 * assert.deepEqual(gpt2Ties(config), [["transformer.wte.weight", "lm_head.weight"]]);
 * ```
 */
export function gpt2Ties({ tie = false }: Gpt2Config): readonly Tie[] {
  return tie ? [["transformer.wte.weight", "lm_head.weight"]] : [];
}

/**
 * Checks the sizes of a GPT-2.
 *
 * @throws {RangeError} when one is not a positive integer, heads do not divide hidden, dropout is not
 * from 0 to below 1, or a head in slices has more of them than token ids, a `hidden` below 2, or a tie
 * to the embedding.
 */
export function checkGpt2(config: Gpt2Config, microBatchSize: number): void {
  const { layers, hidden, heads, seq, vocab, tie, headSlices = 1, dropout = 0 } = config;
  const sizes = { layers, hidden, heads, seq, vocab, headSlices, "micro-batch": microBatchSize };
  checkModelSizes("GPT-2", sizes);
  const must = (holds: boolean, what: string, received: unknown = headSlices) =>
    assertInput(holds, "build GPT-2", what, received);
  const received = `hidden ${hidden} and heads ${heads}`, isOne = headSlices === 1;
  must(hidden % heads === 0, "hidden must be divisible by heads", received);
  must(isOne || headSlices <= vocab, `headSlices must be at most its vocabulary, ${vocab}`);
  must(isOne || hidden >= 2, "hidden must be at least 2 if the head is in slices", hidden);
  must(isOne || !tie, "a head that is tied to the embedding must be in one slice");
  checkDropout("build GPT-2", dropout);
}

const PREFIXES = { embedding: "transformer.", block: "transformer.h." } as const;

/** Maps token ids [rows] to the residual stream [rows, hidden]. Reads the field `ids`. */
function embedding(config: Sizes, microBatchSize: number, tokensOfSample: number): Layer {
  const { hidden, vocab, positions = config.seq } = config, rows = microBatchSize * tokensOfSample;
  return {
    name: "embedding",
    prefix: PREFIXES.embedding,
    build(g) {
      const table = g.parameter("wte.weight", [vocab, hidden]);
      const tokens = g.gather(table, g.batch("ids", [rows], "i32"));
      const all = g.parameter("wpe.weight", [positions, hidden]);
      const placesOfPart = () => {
        const first = g.part.index * tokensOfSample;
        const own = Int32Array.from({ length: tokensOfSample }, (_, i) => first + i);
        return g.gather(all, g.constant(own, [tokensOfSample], "i32"));
      };
      // A slice, and a shorter sample, have a part of the positions.
      const places = tokensOfSample === positions ? all : placesOfPart();
      const sum = g.add(g.reshape(tokens, [microBatchSize, tokensOfSample, hidden]), places);
      return g.dropout(g.reshape(sum, [rows, hidden]), config.dropout ?? 0);
    },
  };
}

/** GPT-2 scales weights of residual outputs by 1/√(number of residual additions). */
const residualDeviation = ({ layers }: Gpt2Config): number => 0.02 / Math.sqrt(2 * layers);

/** x·W + b with the parameters `${name}.weight`, [in, out], and `${name}.bias`. */
function linear(g: LayerGraph, x: Value, name: string, outputs: number, deviation = 0.02): Value {
  const normal: Initializer = { kind: "normal", deviation };
  const weight = g.parameter(`${name}.weight`, [x.shape[1]!, outputs], normal);
  return g.gemm(x, weight, g.parameter(`${name}.bias`, [outputs], { kind: "constant", value: 0 }));
}

/** Adds a sub-layer's last product to the residual stream. */
function addResidual(
  g: LayerGraph,
  x: Value,
  y: Value,
  name: string,
  config: Gpt2Config,
  place?: MaskPlace,
): Value {
  const product = linear(g, y, name, config.hidden, residualDeviation(config));
  return g.add(x, g.dropout(product, config.dropout ?? 0, place));
}

/** Adds causal self-attention to the residual stream. */
function attention(g: LayerGraph, x: Value, config: Gpt2Config, microBatchSize: number): Value {
  const { hidden, heads, seq, dropout = 0 } = config, slices = g.part.count;
  const tokens = seq / slices, rows = microBatchSize * tokens, width = hidden / heads;
  const qkv = linear(g, layerNorm(g, x, { name: "ln_1" }), "attn.c_attn", 3 * hidden);
  const [q, k, v] = g.split(qkv, 1, 3).map((part) =>
    g.transpose(g.reshape(part, [microBatchSize, tokens, heads, width]), [0, 2, 1, 3])
  ) as [Value, Value, Value];
  const keys = g.context("keys", k), values = g.context("values", v);
  const drop = (weights: Value, place: MaskPlace) => g.dropout(weights, dropout, place);
  const mixture = causalAttention(g, q, keys, values, slices, drop);
  const mixed = g.reshape(g.transpose(mixture, [0, 2, 1, 3]), [rows, hidden]);
  return addResidual(g, x, mixed, "attn.c_proj", config, { number: partsOf(seq) });
}

/** Adds the feed-forward network to the residual stream. */
export function feedForward(g: LayerGraph, x: Value, config: Gpt2Config): Value {
  const { hidden } = config;
  const wide = g.gelu(linear(g, layerNorm(g, x, { name: "ln_2" }), "mlp.c_fc", 4 * hidden));
  return addResidual(g, x, wide, "mlp.c_proj", config);
}

/**
 * GPT-2 for training: micro-batches have the fields `ids` and `targets`, int32 [B·seq].
 *
 * A target of −1 is not predicted: it has no loss and no gradient. To train on a sample shorter than
 * `seq`, pad it at its end with any ids and with targets of −1; no token attends to a later one.
 *
 * @param config sizes; `positions` are the rows of the table of positions, by default `seq`.
 * @param microBatchSize samples of a micro-batch, B.
 * @throws {RangeError} when a size is not a positive integer or heads do not divide hidden.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Batch, gpt2 } from "@troupe/troupe/kernels";
 *
 * const model = gpt2({ layers: 1, hidden: 64, heads: 4, seq: 32, vocab: 256 }, 8);
 * assert.deepEqual(model.layers.map((layer) => layer.name), [
 *   "embedding", "block 0 attention", "block 0 mlp", "head",
 * ]);
 * const fields = { ids: new Int32Array(8 * 32), targets: new Int32Array(8 * 32).fill(-1, 32) };
 * assert.equal((model.predictions as (batch: Batch) => number)(fields), 32);
 * assert.throws(() => gpt2({ layers: 2, hidden: 64, heads: 5, seq: 32, vocab: 256 }, 8), RangeError);
 * ```
 */
export function gpt2(
  config: Gpt2Config & { readonly positions?: number },
  microBatchSize: number,
): Model {
  checkGpt2(config, microBatchSize);
  const { positions = config.seq } = config;
  return {
    name: "gpt",
    layers: lossLayers(config, microBatchSize, 1),
    predictions: (batch) => countTargets(batch, "targets"),
    ties: gpt2Ties(config),
    samples: microBatchSize,
    withSamples: (samples) => gpt2(config, samples),
    length: config.seq,
    withLength: (seq) => gpt2({ ...config, seq, positions }, microBatchSize),
    withSlices: (slices) => lossLayers(config, microBatchSize, slices),
  };
}

/** Returns all layers, for one of `slices` slices of the tokens. */
function lossLayers(config: Sizes, microBatchSize: number, slices: number): Layer[] {
  const tokens = tokensOfSlice("GPT-2", config.seq, slices);
  const head = headLayers({ ...config, seq: tokens }, microBatchSize);
  return [...body(config, microBatchSize, tokens), ...head];
}

function body(config: Sizes, microBatchSize: number, tokens: number): Layer[] {
  const attend = (g: LayerGraph, x: Value) => attention(g, x, config, microBatchSize);
  const mlp = (g: LayerGraph, x: Value) => feedForward(g, x, config);
  const blocks = decoderBlocks(config.layers, PREFIXES.block, attend, mlp);
  return [embedding(config, microBatchSize, tokens), ...blocks];
}

/**
 * GPT-2 for generation: one sample, the last layer returns logits [seq, vocabulary].
 *
 * @throws {RangeError} as {@linkcode gpt2}.
 */
export function gpt2Logits(config: Gpt2Config): readonly Layer[] {
  checkGpt2(config, 1);
  return [...body({ ...config, dropout: 0 }, 1, config.seq), logitsLayer(config)];
}

/**
 * GPT-2 with a cache.
 *
 * @throws {RangeError} as {@linkcode gpt2}.
 */
export function cachedGpt2(config: Gpt2Config): CachedDecoder {
  checkGpt2(config, 1);
  const { layers, hidden, seq, vocab } = config, evaluated = { ...config, dropout: 0 };
  return cachedDecoder({
    ...{ layers, hidden, seq, vocab, ties: gpt2Ties(config), cache: cacheOf(config) },
    prefixes: PREFIXES,
    embed: (g, rows) => cachedEmbedding(g, config, rows),
    attend: (g, x) => cachedAttend(g, x, config),
    feedForward: (g, x) => feedForward(g, x, evaluated),
    logits: (g, x) => logits(g, x, config),
  });
}

const cacheOf = ({ heads, seq, hidden }: Gpt2Config) => ({ heads, seq, width: hidden / heads });

function cachedEmbedding(g: LayerGraph, { hidden, seq, vocab }: Gpt2Config, rows: number) {
  const rowsOf = (table: string, size: number, field: string) =>
    g.gather(g.parameter(table, [size, hidden]), g.batch(field, [rows], "i32"));
  return g.add(rowsOf("wte.weight", vocab, "ids"), rowsOf("wpe.weight", seq, "positions"));
}

function cachedAttend(g: LayerGraph, x: Value, config: Gpt2Config) {
  const { hidden, heads } = config;
  const qkv = linear(g, layerNorm(g, x, { name: "ln_1" }), "attn.c_attn", 3 * hidden);
  const parts = g.split(qkv, 1, 3).map((part) => byHead(g, part, heads));
  const cached = cachedAttention(g, parts as [Value, Value, Value], cacheOf(config));
  const { mixed, keys, values } = cached;
  return { y: g.add(x, linear(g, mixed, "attn.c_proj", hidden)), keys, values };
}
