/**
 * The head of a GPT-2: logits and softmax cross-entropy, in one layer or in slices of the vocabulary.
 *
 * [Note: a head in slices] With a large vocabulary the head may cost more than a stage should. In
 * slices it is a chain of layers, and stages share it: each multiplies the normalised residual
 * stream x with its part of the vocabulary, and hands on x with two numbers of each row: the
 * log-sum-exp L of all logits so far, and the logit t of the target where it was among them. The
 * last has the loss, L − t. Backwards the gradient of an L is the share of its logits in the
 * softmax, so that each slice needs nothing of the others but what comes back along the chain. (In
 * "vocabulary parallelism", Yeung et al. 2024, all workers hold a slice and meet at barriers.) The
 * numbers stand in the first two columns of a second matrix as large as x.
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import { layerNorm } from "./helpers/norms.ts";
import type { Layer, LayerGraph } from "./layer.ts";

/** What the head must know of a GPT-2. */
interface HeadSizes {
  readonly hidden: number;
  readonly seq: number;
  readonly vocab: number;
  readonly tie?: boolean;
  readonly headSlices?: number | undefined;
}

/** Token ids from `from` to before `to`, and the parameter with their rows. */
interface Slice {
  readonly parameter: string;
  readonly from: number;
  readonly to: number;
}

/** What is handed from slice to slice: of each row x, log-sum-exp and the logit of the target. */
interface Chain {
  readonly x: Value;
  readonly logSum: Value;
  readonly target: Value;
}

/**
 * Checks that a head can be in slices.
 *
 * @throws {RangeError} when there are more slices than token ids, a row has no place for two numbers,
 * or the head is tied to the embedding.
 */
export function checkHead({ hidden, vocab, tie = false, headSlices = 1 }: HeadSizes): void {
  if (headSlices === 1) return;
  const must = headSlices > vocab
    ? `headSlices must be at most its vocabulary, ${vocab}`
    : hidden < 2
    ? "hidden must be at least 2 where the head is in slices"
    : tie
    ? "a head that is tied to the embedding must be in one slice"
    : undefined;
  if (must === undefined) return;
  throw new RangeError(`Cannot build GPT-2: ${must}, received ${hidden < 2 ? hidden : headSlices}`);
}

function slicesOf({ vocab, headSlices = 1 }: HeadSizes): Slice[] {
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

/** The residual stream to logits [rows, vocabulary], by all slices in one layer. */
export function logits(g: LayerGraph, x: Value, sizes: HeadSizes): Value {
  const normal = normalised(g, x);
  const parts = slicesOf(sizes).map((slice) =>
    g.gemm(normal, weightOf(g, slice, sizes), undefined, { transB: true })
  );
  return parts.length === 1 ? parts[0]! : g.concat(parts, 1);
}

/** The layers from the residual stream to the loss of each sample. Read the field `targets`. */
export function headLayers(sizes: HeadSizes, microBatchSize: number): Layer[] {
  const rows = microBatchSize * sizes.seq, slices = slicesOf(sizes);
  const targetsOf = (g: LayerGraph) => g.batch("targets", [rows], "i32");
  const lossOf = (g: LayerGraph, losses: Value) =>
    g.sum(g.reshape(losses, [microBatchSize, sizes.seq]), [1]);
  if (slices.length === 1) {
    const build: Layer["build"] = (g, x) =>
      lossOf(g, g.crossEntropy(logits(g, x!, sizes), targetsOf(g)));
    return [{ name: "head", prefix: "", build }];
  }
  return slices.map((slice, k): Layer => ({
    name: `head slice ${k}`,
    block: "head",
    prefix: "",
    build(g, x) {
      const before = k === 0 ? undefined : unpack(g, x!);
      const targets = g.cast(targetsOf(g), "f32"), normal = before?.x ?? normalised(g, x!);
      const chain = goOn(g, normal, before, targets, slice, weightOf(g, slice, sizes));
      if (k < slices.length - 1) return pack(g, chain);
      return lossOf(g, g.mul(g.sub(chain.logSum, chain.target), isFrom(g, targets, 0)));
    },
  }));
}

/** Adds a slice to the chain. Ids are f32, which holds all below 2²⁴, the largest vocabulary. */
function goOn(
  g: LayerGraph,
  x: Value,
  before: Chain | undefined,
  targets: Value,
  { from, to }: Slice,
  weight: Value,
): Chain {
  const isHere = g.sub(isFrom(g, targets, from), isFrom(g, targets, to));
  // Of a target that is elsewhere the first logit: what is taken from the sum is added again.
  const column = g.cast(g.mul(g.sub(targets, g.scalar(from)), isHere), "i32");
  const logit = g.sum(g.mul(x, g.gather(weight, column)), [1]);
  const sliceLogits = g.gemm(x, weight, undefined, { transB: true });
  const logSum = g.add(g.crossEntropy(sliceLogits, column), logit);
  const target = g.mul(logit, isHere);
  return {
    x,
    logSum: before ? addExponentials(g, before.logSum, logSum) : logSum,
    target: before ? g.add(before.target, target) : target,
  };
}

/** 1 for ids from `first` on, 0 for those before. */
const isFrom = (g: LayerGraph, ids: Value, first: number): Value =>
  g.where(g.greater(ids, g.scalar(first - 0.5)), g.scalar(1), g.scalar(0));

/** ln(e^a + e^b) = (a + b + |a − b|)/2 + ln(1 + e^−|a − b|), whose gradient is right where a = b, too. */
function addExponentials(g: LayerGraph, a: Value, b: Value): Value {
  const distance = g.add(g.relu(g.sub(a, b)), g.relu(g.sub(b, a)));
  const highest = g.mul(g.add(g.add(a, b), distance), g.scalar(0.5));
  return g.add(highest, g.log(g.add(g.scalar(1), g.exp(g.neg(distance)))));
}

/** Takes two numbers to the first two of `hidden` columns and back, exactly. */
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

function unpack(g: LayerGraph, packed: Value): Chain {
  const [x, rest] = g.split(packed, 1, 2) as [Value, Value], [rows, hidden] = x.shape;
  const pair = g.gemm(rest, columns(g, hidden!), undefined, { transB: true });
  const [logSum, target] = g.split(pair, 1, 2).map((one) => g.reshape(one, [rows!]));
  return { x, logSum: logSum!, target: target! };
}
