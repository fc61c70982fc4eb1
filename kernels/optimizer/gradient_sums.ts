/**
 * Sums of gradients on a device whose memory is its own: added where they lie, left to right in f32,
 * FP16 gradients rounded once at the end, as the host adds them where their memory is the host's.
 *
 * What is added lies in one parameter at a time: its own gradient, a *term* that came from the host,
 * and the *sum* so far, where more than two are added.
 *
 * @module
 */

import type { Device, DType, Kernel, MessageArray, Run, Tensor } from "../devices/device.ts";
import { Graph } from "../graph/graph.ts";
import { encodeModel, type Port } from "../onnx/encode_model.ts";
import { allocateFlat, type FlatPart, type FlatRange, type FlatTensor } from "./flat_tensor.ts";
import type { ParameterStore } from "./parameters.ts";

/** Adds to the gradients of a stage, on its device. */
export interface GradientSums {
  /** Where a range that is added may begin and end, in elements of the flat gradients, ascending. */
  readonly borders: readonly number[];
  /**
   * Puts the sum of some terms, left to right, in the place of the stage's own gradients.
   *
   * @param offset where the terms begin in the flat gradients.
   * @param terms from the host; undefined is the place of the stage's own.
   * @throws {RangeError} when they are not those of whole parameters.
   */
  add(offset: number, terms: readonly (MessageArray | undefined)[]): Promise<void>;
  /**
   * Takes the gradients of copy `rank` of `count`, which are computed here one after the other. The
   * last one leaves the sum of all in the gradients.
   */
  collect(rank: number, count: number): Promise<void>;
  /** Gives parameters of one shape the sum of their gradients, left to right. */
  tie(names: readonly string[]): Promise<void>;
}

/** Which memory adding takes on a device of its own. */
export interface SumOptions {
  /** Gradients that are added to one, the stage's own included; 1 where not given. */
  readonly addends?: number;
  /** Whether the copies of the stage are computed here one after the other, and added. */
  readonly collects?: boolean;
}

/** The memory of {@linkcode GradientSums}. */
export interface SumMemory {
  /** As long as the longest parameter. */
  readonly term: Tensor;
  /** As long, in f32; where copies are collected as long as all gradients. */
  readonly sums?: FlatTensor;
}

/** Allocates what adding needs; nothing where it is the host that adds. */
export function allocateSums(
  device: Pick<Device, "alloc" | "hasFreeViews">,
  { gradients: { dtype, parts } }: ParameterStore,
  { addends = 1, collects = false }: SumOptions,
): SumMemory | undefined {
  if (device.hasFreeViews || addends < 2 || parts.length === 0) return undefined;
  const longest = { offset: 0, length: Math.max(...parts.map(({ length }) => length)) };
  const sums = collects ? parts : [longest];
  return {
    term: device.alloc(dtype, [longest.length]),
    ...(collects || addends > 2) && { sums: allocateFlat(device, "f32", sums) },
  };
}

/** What is added in one parameter. */
type Operand = "own" | "term" | "sum";

/** The gradient of one parameter and what is added to it; runs are bound when first wanted. */
interface Piece extends FlatRange {
  readonly tensors: Readonly<Record<Operand, Tensor | undefined>>;
  readonly runs: Map<string, Run>;
}

/** Opens the sums of a stage's gradients. */
export function openGradientSums(
  device: Device,
  { gradients, ranges }: ParameterStore,
  memory: SumMemory,
): GradientSums {
  const pieces = gradients.parts.map((part, i) => openPiece(device, part, i, memory));
  const kernels = new Map<string, Promise<Kernel>>();
  const run = async (piece: Piece, into: Operand, left: Operand, right?: Operand) => {
    const { length, runs, tensors } = piece, key = `${into} ${left} ${right}`;
    let bound = runs.get(key);
    if (!bound) {
      const dtypes = [into, left, ...right ? [right] : []].map((name) => tensors[name]!.dtype);
      const name = `${length} ${dtypes}`;
      const kernel = kernels.get(name) ?? device.compile(sumModel(length, dtypes));
      kernels.set(name, kernel);
      const inputs = { left: tensors[left]!, ...right && { right: tensors[right]! } };
      bound = (await kernel).bind(inputs, { sum: tensors[into]! });
      runs.set(key, bound);
    }
    await bound();
  };
  const borders = [...pieces.map(({ offset }) => offset), endOf(pieces.at(-1)!)];
  const ends = new Set([...borders, ...[...ranges.values()].map(endOf)]);
  return {
    borders,
    async add(offset, terms) {
      const { length } = terms.find((term) => term)!;
      if (length > 0 && !(borders.includes(offset) && ends.has(offset + length))) {
        throw new RangeError(
          `Cannot add gradients: they must be those of whole parameters, received elements ${offset} to ${
            offset + length
          }`,
        );
      }
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
    async collect(rank, count) {
      for (const piece of pieces) {
        if (rank === 0) await run(piece, "sum", "own");
        else await run(piece, rank === count - 1 ? "own" : "sum", "sum", "own");
      }
    },
    tie: (names) =>
      addTied(
        names.map((name) => pieces.find(({ offset }) => offset === ranges.get(name)!.offset)!),
        run,
      ),
  };
}

/** Adds in one parameter, to which the term, the same memory for all, brings those of the others. */
async function addTied(
  pieces: readonly Piece[],
  run: (piece: Piece, into: Operand, left: Operand, right?: Operand) => Promise<void>,
): Promise<void> {
  const [first, ...others] = pieces as [Piece, ...Piece[]];
  for (const [i, other] of others.entries()) {
    await run(other, "term", "own");
    const into = i === others.length - 1 ? "own" : "sum";
    await run(first, into, i === 0 ? "own" : "sum", "term");
  }
  await run(first, "term", "own");
  for (const other of others) await run(other, "own", "term");
}

const endOf = ({ offset, length }: FlatRange) => offset + length;

function openPiece(
  device: Device,
  { offset, length, tensor: own }: FlatPart,
  index: number,
  { term, sums }: SumMemory,
): Piece {
  const sum = sums && (sums.parts[index] ?? sums.parts[0])!.tensor;
  const tensors = {
    own,
    term: device.view(term, 0, [length]),
    sum: sum && device.view(sum, 0, [length]),
  };
  return { offset, length, tensors, runs: new Map() };
}

const isWithin = ({ offset }: FlatRange, range: FlatRange) =>
  offset >= range.offset && offset < endOf(range);

/** So many values; what a parameter lacks of its place is zero. */
function padded(values: Float32Array | Float16Array, length: number) {
  if (values.length >= length) return values.subarray(0, length);
  const all = values instanceof Float32Array ? new Float32Array(length) : new Float16Array(length);
  all.set(values);
  return all;
}

/** The sum of one or two values, rounded to what it is stored in. */
function sumModel(length: number, [into, ...dtypes]: readonly DType[]): Uint8Array {
  const g = new Graph();
  const inputs = dtypes.map((dtype, i): Port => {
    const name = i === 0 ? "left" : "right";
    return { name, value: g.input(name, [length], dtype) };
  });
  const [left, right] = inputs.map(({ value }) => g.cast(value, "f32"));
  const value = g.cast(right ? g.add(left!, right) : left!, into!);
  return encodeModel(g, inputs, [{ name: "sum", value }]);
}
