/**
 * The layout notation for the layers of each stage, cuts of a model into stages, and the values that
 * cross them by name.
 *
 * `E,4|4|4|3,H` are four stages. `E` is the embedding (a layer of that name), `H` the head (a layer
 * of that name; in a sliced head each slice is an `H`), and a number counts the blocks of a
 * transformer, or layers without a block, such as the linear layers of an MLP including the
 * classifier. A block of several layers may be cut: one of GPT-2 has two, attention and feed-forward,
 * so that 3.5 blocks are seven layers. Every layer is named once, in the model's order.
 *
 * @module
 */

import { DTYPE_BYTES } from "../devices/device.ts";
import { assertInput, refusal } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import type { ModelProgram } from "./compile_model.ts";
import { isSkip, layersOf, type StageProgram, type StageSkip } from "./programs.ts";

/** A part of a stage: `E`, `H`, or a number of blocks, below 1 for a layer of a block with several. */
type Piece = "E" | "H" | number;

/** Numbers of blocks are written with three digits: a third of one is 0.333. */
const DIGITS = 3, TOLERANCE = 2 * 10 ** -DIGITS;

/** Returns the notation of each layer. */
function sharesOf(layers: StageProgram["layers"]): Piece[] {
  return layers.map(({ name, block }) => {
    if (name === "embedding") return "E";
    if (name === "head" || block === "head") return "H";
    return block === undefined ? 1 : 1 / layers.filter((other) => other.block === block).length;
  });
}

/** Adds up neighbouring numbers. */
function joined(pieces: Iterable<Piece>): Piece[] {
  const all: Piece[] = [];
  for (const piece of pieces) {
    const last = all.at(-1);
    if (typeof piece === "number" && typeof last === "number") all[all.length - 1] = last + piece;
    else all.push(piece);
  }
  return all;
}

/** Returns the notation of some layers, in order. */
const written = (pieces: readonly Piece[]): string =>
  joined(pieces).map((one) => typeof one === "number" ? Number(one.toFixed(DIGITS)) : one)
    .join(",");

/**
 * Formats the layers of stages in the notation.
 *
 * @param starts for each stage the index of its first layer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, gpt2 } from "@troupe/troupe/kernels";
 *
 * const model = gpt2({ layers: 3, hidden: 32, heads: 2, seq: 8, vocab: 64 }, 2);
 * assert.equal(formatLayout(compileModel(model, "none").layers, [0, 4]), "E,1.5|1.5,H");
 * ```
 */
export function formatLayout(layers: StageProgram["layers"], starts: readonly number[]): string {
  const shares = sharesOf(layers);
  return starts.map((start, i) => written(shares.slice(start, starts[i + 1]))).join("|");
}

/**
 * Reads a layout of a model.
 *
 * @param stages number of stages of the schedule.
 * @returns for each stage the index of its first layer.
 * @throws {SyntaxError} when a piece is invalid.
 * @throws {RangeError} when it has another number of stages, does not name every layer once and in
 * order, or cuts within a layer; the message has the layout of the whole model.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, gpt2 } from "@troupe/troupe/kernels";
 *
 * const { layers } = compileModel(
 *   gpt2({ layers: 3, hidden: 32, heads: 2, seq: 8, vocab: 64 }, 2),
 *   "none",
 * );
 * assert.deepEqual(readLayout("E,1|1.5|.5,H", layers, 3), [0, 3, 6]);
 * assert.throws(() => readLayout("E,1|1|H", layers, 3), /in order, E,3,H, received E,2,H/);
 * ```
 */
export function readLayout(
  layout: string,
  layers: StageProgram["layers"],
  stages: number,
): number[] {
  const cannot = `use the layout ${JSON.stringify(layout.slice(0, 200))}`;
  const said = layout.split("|").map((stage) =>
    stage.split(",").map((piece) => readPiece(piece.trim(), cannot))
  );
  const must = `the number of its stages must be that of the schedule, ${stages}`;
  assertInput(said.length === stages, cannot, must, said.length);
  const shares = sharesOf(layers), starts = startsOfLayout(said, shares);
  if (starts) return starts;
  const most = Math.round(1 / Math.min(1, ...shares.filter((one) => typeof one === "number")));
  const all = written(shares), received = written(said.flat());
  const whole = `every number must be a whole number of layers, of which a block has ${most}`;
  assertInput(all !== received, cannot, whole, "a number that cuts a layer");
  throw refusal(cannot, `its stages must have all that the model has in order, ${all}`, received);
}

function readPiece(piece: string, cannot: string): Piece {
  if (piece === "E" || piece === "H") return piece;
  const count = /^(?:\d{1,6}(?:\.\d{1,6})?|\.\d{1,6})$/.test(piece) ? Number(piece) : 0;
  if (count > 0) return count;
  const must = "each stage must have E, H and numbers above 0 with commas between them";
  const received = JSON.stringify(piece.slice(0, 50));
  throw refusal(cannot, `${must}, such as E,4|4|3,H`, received, SyntaxError);
}

/** Returns the index of the first layer of each stage; undefined if the pieces are not all layers. */
function startsOfLayout(said: readonly Piece[][], shares: readonly Piece[]): number[] | undefined {
  const starts: number[] = [];
  let at = 0;
  for (const pieces of said) {
    starts.push(at);
    for (const piece of pieces) {
      const end = endOf(piece, shares, at);
      if (end === undefined) return undefined;
      at = end;
    }
  }
  return at === shares.length ? starts : undefined;
}

/** Returns the end of the layers of a piece that starts at `from`; undefined if none match. */
function endOf(piece: Piece, shares: readonly Piece[], from: number): number | undefined {
  if (typeof piece !== "number") return shares[from] === piece ? from + 1 : undefined;
  let sum = 0, end = from;
  const isPart = () => typeof shares[end] === "number" && sum < piece - TOLERANCE;
  while (isPart()) sum += shares[end++] as number;
  return Math.abs(sum - piece) <= TOLERANCE ? end : undefined;
}

/**
 * Returns the contiguous partition with the smallest cost of its most expensive part and, among those,
 * with the most even other parts (least sum of squares), by dynamic programming. Where a worker has
 * several stages, its other stages matter too.
 *
 * @param costs of the layers, embedding and head included.
 * @param parts number of stages.
 * @param more cost of a part besides its layers. Default: none.
 * @returns for each stage the index of its first layer; each stage has at least one layer.
 * @throws {RangeError} when there are fewer layers than stages.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.deepEqual(partition([1, 10, 10, 10, 10, 4], 2), [0, 3]);
 * assert.deepEqual(partition([1, 1, 1, 1, 4], 3), [0, 2, 4]);
 * assert.throws(() => partition([1, 2], 3), RangeError);
 * ```
 */
export function partition(
  costs: readonly number[],
  parts: number,
  more: MoreCost = () => 0,
): number[] {
  if (!Number.isSafeInteger(parts) || parts < 1 || parts > costs.length) {
    const must = `the number of stages must be between 1 and its ${costs.length} layers`;
    throw new RangeError(`Cannot cut the model into ${parts} stages: ${must}`);
  }
  const { least } = cut(costs, parts, more, Math.max);
  return cut(costs, parts, more, (sum, part) => part <= least ? sum + part ** 2 : Infinity).starts;
}

/** Returns the cost of a part besides its layers, from `first` to before `end`. */
type MoreCost = (first: number, end: number) => number;

/**
 * Returns the cut with the least figure of its parts, the earliest of several.
 *
 * @param join the figure with one part more; that of no parts is 0.
 */
function cut(
  costs: readonly number[],
  parts: number,
  more: MoreCost,
  join: (figure: number, part: number) => number,
): { readonly least: number; readonly starts: number[] } {
  const prefix = [0];
  for (const cost of costs) prefix.push(prefix.at(-1)! + cost);
  // figures[n] for the current number of parts: the least over the first n layers.
  let figures = prefix.map((_, n) => n === 0 ? 0 : Infinity);
  const cuts: number[][] = [];
  for (let part = 1; part <= parts; part++) {
    const next = prefix.map(() => Infinity), starts = prefix.map(() => part - 1);
    for (let n = part; n <= costs.length; n++) {
      for (let first = n - 1; first >= part - 1; first--) {
        const own = prefix[n]! - prefix[first]!;
        // A part that starts even earlier costs more.
        const alone = join(0, own);
        if (alone > next[n]! || alone === Infinity) break;
        const figure = join(figures[first]!, own + more(first, n));
        if (figure > next[n]!) continue;
        next[n] = figure;
        starts[n] = first;
      }
    }
    cuts.push(starts);
    figures = next;
  }
  const starts: number[] = [];
  for (let n = costs.length; cuts.length > 0;) starts.unshift(n = cuts.pop()![n]!);
  return { least: figures.at(-1)!, starts };
}

/**
 * Returns the values of a model that are sent between stages by name: the key `skip.NAME`, the stage that
 * makes it, the others that use it in order, whether its gradient is sent back, and its bytes.
 *
 * @param starts for each stage the index of its first layer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, type Layer } from "@troupe/troupe/kernels";
 *
 * const layers: Layer[] = [
 *   {
 *     name: "first",
 *     build(g) {
 *       const x = g.mul(g.batch("x", [2]), g.parameter("a", [1]));
 *       g.give("early", x);
 *       return x;
 *     },
 *   },
 *   { name: "second", build: (g, x) => g.tanh(g.mul(x!, g.parameter("a", [1]))) },
 *   { name: "last", build: (g, x) => g.add(x!, g.take("early")) },
 * ];
 * const program = compileModel({ name: "three", layers, predictions: 2 }, "none");
 * assert.deepEqual(skipEdges(program, [0, 1, 2]), [
 *   { key: "skip.early", hasGradient: true, bytes: 8, from: 0, to: [2] },
 * ]);
 * assert.deepEqual(skipEdges(program, [0]), []); // within a stage nothing travels
 * ```
 */
export function skipEdges(model: StageProgram, starts: readonly number[]) {
  const stageOf = (layer: number) => starts.findLastIndex((start) => start <= layer);
  return skipValues(model).flatMap(({ maker, users, travels: _, ...value }) => {
    const from = stageOf(maker),
      to = [...new Set(users.map(stageOf))].filter((one) => one !== from);
    return to.length > 0 ? [{ ...value, from, to }] : [];
  });
}

/**
 * Returns the values that layers of a model give by name, with the layer that makes each, the layers
 * that take it, in order, and the bytes that are sent over one edge in both directions (`travels`).
 */
function skipValues(model: StageProgram) {
  const layers = layersOf(model);
  return layers.flatMap(({ program }, maker) =>
    program.outputs.filter(({ name }) => isSkip(name)).map(
      ({ name: key, hasGradient, dtype, shape }) => {
        const bytes = elementCount(shape) * DTYPE_BYTES[dtype];
        const users = layers.flatMap(({ program }, user) =>
          program.inputs.some(({ name }) => name === key) ? [user] : []
        );
        return { key, maker, users, hasGradient, bytes, travels: hasGradient ? 2 * bytes : bytes };
      },
    )
  );
}

/** Returns, by stage, the values that cross its border by name. */
function skipsOf(model: StageProgram, starts: readonly number[]): StageSkip[][] {
  const edges = skipEdges(model, starts);
  return starts.map((_, stage) =>
    edges.flatMap(({ key, from, to, hasGradient }): StageSkip[] => {
      if (stage !== from && !to.includes(stage)) return [];
      const isMaker = stage === from;
      const next = to.find((user) => user > stage);
      const before = to.findLast((user) => user < stage) ?? from;
      return [{
        key,
        ...!isMaker && { from },
        to: isMaker ? to : [],
        ...hasGradient && next !== undefined && { gradientFrom: next },
        ...hasGradient && !isMaker && { gradientTo: before },
      }];
    })
  );
}

/**
 * Returns the first layer of each stage: from the layout, or for nearly equal cost, including the
 * transfers of skip edges.
 */
export function startsOf(model: ModelProgram, stages: number): readonly number[] {
  if (model.starts) return model.starts;
  const known = knownStarts.getOrInsertComputed(model, () => new Map());
  return known.getOrInsertComputed(stages, () => evenestStarts(model, stages));
}

/** First layers by the number of stages: a planner cuts a model many times. */
const knownStarts = new WeakMap<ModelProgram, Map<number, readonly number[]>>();

function evenestStarts(model: ModelProgram, stages: number): readonly number[] {
  const values = skipValues(model);
  return partition(model.costs, stages, (first, end) => {
    let bytes = 0;
    for (const { maker, users, travels } of values) {
      const isMade = maker >= first && maker < end;
      const crosses = isMade
        ? users.some((user) => user >= end)
        : maker < first && users.some((user) => user >= first && user < end);
      if (crosses) bytes += travels;
    }
    return FLOPS_PER_BYTE * bytes;
  });
}

/**
 * Multiply-adds of a core in the time of copying a byte from a stage, sending it, and copying it to
 * another: 100 Gflop/s and about 6 GB/s. A constant, because a cut must not depend on the machine.
 */
const FLOPS_PER_BYTE = 16;

/**
 * Cuts a model into stages: those of its layout, or of nearly equal cost.
 *
 * @throws {RangeError} when the model has fewer layers than `stages`.
 */
export function cutIntoStages(model: ModelProgram, stages: number): StageProgram[] {
  const starts = startsOf(model, stages), skips = skipsOf(model, starts), { jobs } = model;
  const variants = jobs?.variants.map((variant) => cutIntoStages({ ...variant, starts }, stages));
  return starts.map((start, i) => {
    const layers = model.layers.slice(start, starts[i + 1] ?? model.layers.length);
    const used = [
      ...new Set(layers.flatMap(({ program, slices, lengths = slices ?? [program] }) => lengths)),
    ];
    const own = (program: number) => used.indexOf(program);
    return {
      programs: used.map((index) => model.programs[index]!),
      layers: layers.map((layer) => ({
        ...layer,
        program: own(layer.program),
        ...layer.slices && { slices: layer.slices.map(own) },
        ...layer.lengths && { lengths: layer.lengths.map(own) },
      })),
      ...model.slicing && { slicing: model.slicing },
      ...model.lengths && { lengths: model.lengths },
      ...skips[i]!.length > 0 && { skips: skips[i]! },
      ...jobs && { jobs: { ...jobs, variants: variants!.map((programs) => programs[i]!) } },
    };
  });
}
