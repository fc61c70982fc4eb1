/**
 * Norms and sums of gradients on the device. Sums are added left to right in f32, and FP16 gradients
 * are rounded once at the end, as on the host for devices that use host memory.
 *
 * One parameter is added at a time, from its own gradient, a *term* from the host, and the *sum* so
 * far, if more than two are added.
 *
 * @module
 */

import type { Allocator, Device, DType, Kernel, MessageArray, Run } from "../devices/device.ts";
import { assertInput } from "../errors.ts";
import { Graph } from "../ops/graph.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Value } from "../graph/value.ts";
import { encodeGraph } from "../onnx/encode.ts";
import { F16_MAX, F32_MAX } from "../precision.ts";
import type { SumOptions } from "./options.ts";
import {
  allocateFlat,
  BUCKET_SIZE,
  cutRange,
  type FlatPart,
  type FlatRange,
  type ParameterStore,
} from "./parameters.ts";

/**
 * Allocates numbers that are read together: `each` is the output of each run, the number of a piece, or
 * all of them where views are not free.
 */
function allocateScalars(device: Allocator, count: number) {
  const all = device.alloc("f32", [count]);
  if (!device.hasFreeViews) return { each: [all], all };
  return { each: Array.from({ length: count }, (_, i) => device.view(all, i, [])), all };
}

type Scalars = ReturnType<typeof allocateScalars>;

/**
 * Cuts gradients into pieces: FP32 ones are read in place, one piece per parameter; FP16 ones are
 * widened by each run, so their pieces must be short. Pieces are independent of the buckets, so that
 * results do not depend on the bucket size.
 */
export function allocateNorms(device: Allocator, { parameters, gradients }: ParameterStore) {
  const isHalf = gradients.dtype === "f16";
  const longest = isHalf && device.hasFreeViews ? BUCKET_SIZE : Infinity;
  const pieces = parameters.flatMap(({ name, shape, gradient }) =>
    cutRange(0, elementCount(shape), longest).map(({ offset, length }) => (
      { parameter: name, gradient: device.view(gradient, offset, [length]), length }
    ))
  );
  // Equal lengths side by side, for one run of all.
  if (!device.hasFreeViews) pieces.sort((a, b) => a.length - b.length);
  const each = () => allocateScalars(device, pieces.length);
  return {
    /** The pieces in the order of their numbers. */
    pieces,
    /** The sum of squares of each piece. */
    sums: each(),
    /** The largest square in each piece of FP16 gradients. */
    tops: isHalf ? each() : undefined,
  };
}

/** The memory of {@linkcode openGradientNorms}: one or two numbers for each piece. */
export type NormMemory = ReturnType<typeof allocateNorms>;

/** Shorter pieces are reduced in one row. */
const LONG_PIECE = 2 ** 16;

/** Elements of short pieces that are reduced at a time. */
const STACK_ELEMENTS = 2 ** 18;

/** Returns the largest power of two, up to 256, into which a length can be divided. */
const rowsOf = (length: number): number => Math.min(256, length & -length);

type PieceType = "f32" | "f16";

/** Names the gradients of a model of several pieces, and of one. */
const nameOf = (i: number, count: number) => count === 1 ? "d" : `d.${i}`;

const largest = (g: Graph, value: Value, to: readonly number[], axes: readonly Value[] = []) =>
  g.node("ReduceMax", [value, ...axes], [to], { keepdims: 0 })[0]!;

/**
 * Encodes one pass over a piece. The sum of squares is not finite if an element is not; a maximum may
 * miss one. In FP32 the squares of FP16 numbers are exact, and their sum cannot overflow.
 */
function pieceModel(length: number, dtype: PieceType): Uint8Array {
  const g = new Graph(), d = g.input("d", [length], dtype), wide = g.cast(d, "f32");
  return encodeGraph(g, {
    sum: g.sumOfSquares(wide),
    ...dtype === "f16" && { top: largest(g, g.mul(wide, wide), []) },
  });
}

/**
 * Encodes the numbers of all pieces, whose lengths ascend, in one vector: a run per piece would take a
 * GPU longer than its work, and it could not write one element of a vector.
 *
 * [Note: pieces as rows] A GPU computes each row of a matrix with one group of threads. Short pieces of
 * one length are the rows of a matrix; a long piece is a matrix, whose rows are added afterwards. The
 * only row of a matrix would be added in another order, so there are at least two: the numbers of a
 * piece must not depend on the other pieces of its stage.
 */
function piecesModel(lengths: readonly number[], dtype: PieceType): Uint8Array {
  const g = new Graph(), sums: Value[] = [], tops: Value[] = [];
  const inputs = lengths.map((length, i) => g.input(nameOf(i, lengths.length), [length], dtype));
  for (let from = 0, to = 0; from < lengths.length; from = to) {
    const length = lengths[from]!, isLong = length >= LONG_PIECE;
    const most = isLong ? 1 : Math.floor(STACK_ELEMENTS / length);
    while (lengths[to] === length && to - from < most) to++;
    const own = inputs.slice(from, to), rows = isLong ? rowsOf(length) : Math.max(2, own.length);
    const all = isLong ? own[0]! : g.concat(own.length === 1 ? [...own, ...own] : own, 0);
    const matrix = g.cast(g.reshape(all, [rows, isLong ? length / rows : length]), "f32");
    const whole = (each: Value, join: (rows: Value) => Value) =>
      isLong ? g.reshape(join(each), [1]) : g.slice(each, [0], [own.length]);
    sums.push(whole(g.sumOfSquares(matrix, [1]), (each) => g.sum(each)));
    if (dtype === "f32") continue;
    const top = largest(g, g.mul(matrix, matrix), [rows], [g.int64([1])]);
    tops.push(whole(top, (each) => largest(g, each, [])));
  }
  const vector = (parts: readonly Value[]) => parts.length === 1 ? parts[0]! : g.concat(parts, 0);
  return encodeGraph(g, { sum: vector(sums), ...tops.length > 0 && { top: vector(tops) } });
}

/** Binds the run of each piece, or one run of all where views are not free. */
async function bindNorms(
  device: Device,
  { pieces, sums, tops }: NormMemory,
): Promise<readonly Run[]> {
  const dtype = tops ? "f16" : "f32";
  const outputs = (i: number) => ({ sum: sums.each[i]!, ...tops && { top: tops.each[i]! } });
  if (!device.hasFreeViews && pieces.length > 0) {
    const kernel = await device.compile(piecesModel(pieces.map(({ length }) => length), dtype));
    const named = pieces.map(({ gradient }, i) => [nameOf(i, pieces.length), gradient]);
    return [kernel.bind(Object.fromEntries(named), outputs(0))];
  }
  const lengths = new Set(pieces.map(({ length }) => length));
  const kernels = new Map(
    await Promise.all(
      lengths.values().map(async (length) =>
        [length, await device.compile(pieceModel(length, dtype))] as const
      ),
    ),
  );
  return pieces.map(({ gradient, length }, i) =>
    kernels.get(length)!.bind({ d: gradient }, outputs(i))
  );
}

/**
 * Binds the norms and checks of a stage's gradients.
 *
 * @param memory allocated by default.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { openReference, SGD_DEFAULTS } from "@troupe/troupe/kernels";
 * import { createParameters } from "./parameters.ts";
 *
 * const device = await openReference(), settings = { optimizer: SGD_DEFAULTS };
 * const store = createParameters(device, [{ name: "b", shape: [2] }], settings);
 * const { squares, areSafe } = await openGradientNorms(device, store);
 * device.write(store.parameters[0]!.gradient, Float32Array.of(3, 4));
 * assert.deepEqual(await squares(), new Map([["b", 25]]));
 * assert.equal(await areSafe(2), true);
 * device.write(store.parameters[0]!.gradient, Float32Array.of(3, NaN));
 * assert.equal(await areSafe(2), false);
 * device.close();
 * ```
 */
export async function openGradientNorms(
  device: Device,
  store: ParameterStore,
  memory: NormMemory = allocateNorms(device, store),
) {
  const { pieces, sums, tops } = memory, runs = await bindNorms(device, memory);
  const read = ({ all }: Scalars) => device.read<Float32Array>(all);
  const compute = async () => {
    for (const run of runs) await run();
    return await read(sums);
  };
  return {
    /** Returns the sum of squares of each parameter's gradient, by full name, in a fixed order. */
    async squares() {
      const result = new Map(store.parameters.map(({ name }) => [name, 0]));
      for (const [i, sum] of (await compute()).entries()) {
        const { parameter } = pieces[i]!;
        result.set(parameter, result.get(parameter)! + sum);
      }
      return result;
    },
    /** See {@linkcode Stage.checkGradients}. */
    async areSafe(copies: number) {
      const found = await compute();
      if (!tops) return found.every((sum) => sum * copies ** 2 <= F32_SQUARES_MAX);
      const limit = F16_MAX - F16_ROUNDING * Math.max(0, copies - 2);
      return found.every(Number.isFinite) &&
        (await read(tops)).every((top) => copies * Math.sqrt(top) <= limit);
    },
  };
}

/**
 * Largest sum of squares of each copy for which the squares of the copies' sum, and its elements, stay
 * finite: half of the largest f32, with the rest for rounding.
 */
export const F32_SQUARES_MAX = F32_MAX / 2;

/** Largest error of an addition of FP16 numbers: half of the largest spacing. */
const F16_ROUNDING = 16;

/** Allocates the memory for adding; undefined where the host adds. */
export function allocateSums(
  device: Allocator,
  { gradients: { dtype, parts } }: ParameterStore,
  { addends = 1, collects = false }: SumOptions,
) {
  if (device.hasFreeViews || addends < 2 || parts.length === 0) return undefined;
  const longest = { offset: 0, length: Math.max(...parts.map(({ length }) => length)) };
  const sums = collects ? parts : [longest];
  return {
    /** A buffer of the length of the longest parameter. */
    term: device.alloc(dtype, [longest.length]),
    /** A buffer of that length in f32, or of all gradients where copies are collected. */
    sums: collects || addends > 2 ? allocateFlat(device, "f32", sums) : undefined,
  };
}

/** The memory of {@linkcode GradientSums}. */
type SumMemory = NonNullable<ReturnType<typeof allocateSums>>;

/** An operand of a sum. */
type Operand = "own" | "term" | "sum";

/** The gradient of one parameter with its other operands; runs are bound on first use. */
type Piece = ReturnType<typeof openPiece>;

/** Returns a function that runs a sum of a piece; sums are compiled and bound on first use. */
function openRuns(device: Device) {
  const kernels = new Map<string, Promise<Kernel>>();
  return async (piece: Piece, into: Operand, left: Operand, right?: Operand) => {
    const { length, runs, tensors } = piece, key = `${into} ${left} ${right}`;
    const bound = await runs.getOrInsertComputed(key, async () => {
      const dtypes = [into, left, ...right ? [right] : []].map((name) => tensors[name]!.dtype);
      const name = `${length} ${dtypes}`;
      const compile = () => device.compile(sumModel(length, dtypes));
      const kernel = await kernels.getOrInsertComputed(name, compile);
      const inputs = { left: tensors[left]!, ...right && { right: tensors[right]! } };
      return kernel.bind(inputs, { sum: tensors[into]! });
    });
    await bound();
  };
}

/** Opens the sums of a stage's gradients. */
export function openGradientSums(
  device: Device,
  { gradients, ranges }: ParameterStore,
  memory: SumMemory,
) {
  const pieces = gradients.parts.map((part, i) => openPiece(device, part, i, memory));
  const run = openRuns(device);
  const borders = [...pieces.map(({ offset }) => offset), endOf(pieces.at(-1)!)];
  const ends = new Set([...borders, ...[...ranges.values()].map(endOf)]);
  return {
    /** Allowed limits of a range that is added, in elements of the flat gradients, ascending. */
    borders,
    /**
     * Replaces the stage's gradients by the sum of some terms, left to right.
     *
     * @param offset of the terms in the flat gradients.
     * @param terms from the host; undefined for the stage's own gradients.
     * @throws {RangeError} when they are not those of whole parameters.
     */
    async add(offset: number, terms: readonly (MessageArray | undefined)[]): Promise<void> {
      const { length } = terms.find((term) => term)!;
      const areWhole = length === 0 || borders.includes(offset) && ends.has(offset + length);
      const received = `elements ${offset} to ${offset + length}`;
      const must = "they must be those of whole parameters";
      assertInput(areWhole, "add gradients", must, received);
      for (const piece of pieces.filter((one) => isWithin(one, { offset, length }))) {
        const from = piece.offset - offset;
        const bring = (term: MessageArray | undefined): Operand => {
          if (!term) return "own";
          device.write(piece.tensors.term!, padded(term.subarray(from), piece.length));
          return "term";
        };
        let left = bring(terms[0]);
        for (const [i, term] of terms.entries().drop(1)) {
          if (left === "term" && term) {
            await run(piece, "sum", left);
            left = "sum";
          }
          const into = i === terms.length - 1 ? "own" : "sum";
          await run(piece, into, left, bring(term));
          left = into;
        }
      }
    },
    /**
     * Adds the gradients of copy `rank` of `count`, which this device computes one after the other. The
     * last call leaves the sum of all in the gradients.
     */
    async collect(rank: number, count: number): Promise<void> {
      for (const piece of pieces) {
        if (rank === 0) await run(piece, "sum", "own");
        else await run(piece, rank === count - 1 ? "own" : "sum", "sum", "own");
      }
    },
    /** Sets the gradients of parameters of one shape to their sum, added left to right. */
    async tie(names: readonly string[]): Promise<void> {
      const [first, ...others] = names.map((name) =>
        pieces.find(({ offset }) => offset === ranges.get(name)!.offset)!
      ) as [Piece, ...Piece[]];
      // They are added into the first parameter; the shared term copies those of the others.
      for (const [i, other] of others.entries()) {
        await run(other, "term", "own");
        const into = i === others.length - 1 ? "own" : "sum";
        await run(first, into, i === 0 ? "own" : "sum", "term");
      }
      await run(first, "term", "own");
      for (const other of others) await run(other, "own", "term");
    },
  };
}

/** Adds to the gradients of a stage, on its device. */
export type GradientSums = ReturnType<typeof openGradientSums>;

const endOf = ({ offset, length }: FlatRange) => offset + length;

function openPiece(
  device: Device,
  { offset, length, tensor: own }: FlatPart,
  index: number,
  { term, sums }: SumMemory,
) {
  const sum = sums && (sums.parts[index] ?? sums.parts[0])!.tensor;
  const tensors = {
    own,
    term: device.view(term, 0, [length]),
    sum: sum && device.view(sum, 0, [length]),
  };
  return { offset, length, tensors, runs: new Map<string, Promise<Run>>() };
}

const isWithin = ({ offset }: FlatRange, range: FlatRange) =>
  offset >= range.offset && offset < endOf(range);

/** Returns `length` values: a part of `values`, or all of them padded with zeros. */
function padded(values: Float32Array | Float16Array, length: number) {
  if (values.length >= length) return values.subarray(0, length);
  const all = values instanceof Float32Array ? new Float32Array(length) : new Float16Array(length);
  all.set(values);
  return all;
}

/** Encodes the sum of one or two values, rounded to the type of the result. */
function sumModel(length: number, [into, ...dtypes]: readonly DType[]): Uint8Array {
  const g = new Graph();
  const inputs = dtypes.map((dtype, i) => g.input(i === 0 ? "left" : "right", [length], dtype));
  const [left, right] = inputs.map((value) => g.cast(value, "f32"));
  return encodeGraph(g, { sum: g.cast(right ? g.add(left!, right) : left!, into!) });
}
