/**
 * What is asked of gradients before they are used: how large they are, and whether they may be added.
 *
 * @module
 */

import type { Device, Tensor } from "../devices/device.ts";
import { Graph } from "../graph/graph.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Value } from "../graph/value.ts";
import { encodeModel, type Port } from "../onnx/encode_model.ts";
import { BUCKET_SIZE, type ParameterStore } from "./parameters.ts";
import { F16_MAX, F32_MAX } from "../layers/precision.ts";

/** Sizes of the gradients of a stage. */
export interface GradientNorms {
  /** The sum of squares of each parameter's gradient, by full name, in one fixed order. */
  squares(): Promise<Map<string, number>>;
  /** See {@linkcode Stage.checkGradients}. */
  areSafe(copies: number): Promise<boolean>;
}

/** A part of a parameter's gradient that one run reads. */
export interface GradientPiece {
  /** The parameter's full name. */
  readonly parameter: string;
  /** The part itself. */
  readonly gradient: Tensor;
  /** Its elements. */
  readonly length: number;
}

/** The memory of {@linkcode GradientNorms}: a number or two for each piece. */
export interface NormMemory {
  /** What each run reads. */
  readonly pieces: readonly GradientPiece[];
  /** The sum of squares of each piece. */
  readonly sums: Scalars;
  /** The largest square in each piece of FP16 gradients. */
  readonly tops?: Scalars;
  /** The number of each piece, where views are not free: a run then writes all numbers. */
  readonly indices?: readonly Tensor[];
}

/** Numbers that are written one by one and read together. */
export interface Scalars {
  /** What each run writes: its number, or all of them where views are not free. */
  readonly each: readonly Tensor[];
  /** All of them. */
  readonly all: Tensor;
}

function allocateScalars(
  device: Pick<Device, "alloc" | "view" | "hasFreeViews">,
  count: number,
): Scalars {
  const all = device.alloc("f32", [count]);
  const each = (i: number) => device.hasFreeViews ? device.view(all, i, []) : all;
  return { each: Array.from({ length: count }, (_, i) => each(i)), all };
}

/**
 * Cuts gradients into pieces: FP32 ones are read where they lie, one piece a parameter; of FP16 ones
 * a run makes a wider copy, so that pieces must not be long. They do not follow the buckets: a
 * result must not depend on the bucket size.
 */
export function allocateNorms(
  device: Pick<Device, "alloc" | "view" | "hasFreeViews">,
  { parameters, gradients }: ParameterStore,
): NormMemory {
  const isHalf = gradients.dtype === "f16";
  const longest = isHalf && device.hasFreeViews ? BUCKET_SIZE : Infinity;
  const pieces = parameters.flatMap(({ name, shape, gradient }) => {
    const count = elementCount(shape), parts: GradientPiece[] = [];
    for (let offset = 0; offset < count; offset += longest) {
      const length = Math.min(longest, count - offset);
      parts.push({ parameter: name, gradient: device.view(gradient, offset, [length]), length });
    }
    return parts;
  });
  const each = () => allocateScalars(device, pieces.length);
  return {
    pieces,
    sums: each(),
    ...isHalf && { tops: each() },
    ...!device.hasFreeViews && { indices: pieces.map(() => device.alloc("i64", [1, 1])) },
  };
}

/** Shorter pieces are reduced in one row. */
const LONG_PIECE = 2 ** 18;

/**
 * Into how many rows a piece is cut that is reduced on a GPU: one group of threads computes each
 * number of a reduction, and a GPU has many.
 */
function rowsOf(length: number): number {
  if (length < LONG_PIECE) return 1;
  let rows = 256;
  while (length % rows > 0) rows /= 2;
  return rows;
}

/**
 * One pass over a piece. The sum of squares is not finite if an element is not; a maximum may
 * overlook one. In FP32 the squares of FP16 numbers are exact, and their sum cannot overflow.
 *
 * [Note: numbers side by side] Where views are not free a run cannot write to a place among the
 * numbers of all pieces. It writes them all, in place: its own, and the others as they are. So the
 * host reads them at once, where a read for each would cost as much as the runs.
 *
 * @param count the numbers of all pieces, where a run writes them all.
 */
function pieceModel(length: number, dtype: "f32" | "f16", count: number | undefined): Uint8Array {
  const g = new Graph(), d = g.input("d", [length], dtype), wide = g.cast(d, "f32");
  const rows = count === undefined ? 1 : rowsOf(length);
  const byRow = (value: Value) => rows === 1 ? value : g.reshape(value, [rows, length / rows]);
  const sum = rows === 1 ? g.sumOfSquares(wide) : g.sum(g.sumOfSquares(byRow(wide), [1]));
  const numbers = new Map([["sum", sum]]);
  if (dtype === "f16") {
    let squares = byRow(g.mul(wide, wide));
    if (rows > 1) {
      [squares] = g.node("ReduceMax", [squares, g.int64([1])], [[rows]], { keepdims: 0 }) as [
        Value,
      ];
    }
    const [top] = g.node("ReduceMax", [squares], [[]], { keepdims: 0 });
    numbers.set("top", top!);
  }
  const outputs = [...numbers].map(([name, value]): Port => ({ name, value }));
  if (count === undefined) return encodeModel(g, [{ name: "d", value: d }], outputs);
  const index = g.input("index", [1, 1], "i64");
  const all = outputs.map(({ name, value }): Port => {
    const others = g.input(`${name}s`, [count]);
    const [result] = g.node("ScatterND", [others, index, g.reshape(value, [1])], [[count]]);
    return { name, value: result! };
  });
  return encodeModel(g, g.inputs.map((value) => ({ name: value.name, value })), all);
}

/**
 * Binds the sums and checks of a stage's gradients.
 *
 * @param memory by default allocated for it.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { createParameters, openGradientNorms, openReference } from "@troupe/troupe/kernels";
 *
 * const device = await openReference();
 * const store = createParameters(device, [{ name: "b", shape: [2] }], { moments: 1 });
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
): Promise<GradientNorms> {
  const { pieces, sums, tops, indices } = memory, count = indices?.length;
  const lengths = [...new Set(pieces.map(({ length }) => length))];
  const kernels = new Map(
    await Promise.all(lengths.map(async (length) => {
      return [
        length,
        await device.compile(pieceModel(length, tops ? "f16" : "f32", count)),
      ] as const;
    })),
  );
  const runs = pieces.map(({ gradient, length }, i) => {
    const others = indices && { index: indices[i]!, sums: sums.all, ...tops && { tops: tops.all } };
    return kernels.get(length)!.bind({ d: gradient, ...others }, {
      sum: sums.each[i]!,
      ...tops && { top: tops.each[i]! },
    });
  });
  for (const [i, index] of indices?.entries() ?? []) {
    device.write(index, BigInt64Array.of(BigInt(i)));
  }
  const read = ({ all }: Scalars) => device.read<Float32Array>(all);
  const compute = async () => {
    for (const run of runs) await run();
    return await read(sums);
  };
  return {
    async squares() {
      const result = new Map(store.parameters.map(({ name }) => [name, 0]));
      for (const [i, sum] of (await compute()).entries()) {
        const { parameter } = pieces[i]!;
        result.set(parameter, result.get(parameter)! + sum);
      }
      return result;
    },
    async areSafe(copies) {
      const found = await compute();
      if (!tops) return found.every((sum) => sum * copies ** 2 <= F32_SQUARES_MAX);
      const limit = F16_MAX - F16_ROUNDING * Math.max(0, copies - 2);
      return found.every(Number.isFinite) &&
        (await read(tops)).every((top) => copies * Math.sqrt(top) <= limit);
    },
  };
}

/**
 * Copies with this sum of squares at most have a sum whose own squares stay finite, and so do its
 * elements. Half of what f32 holds: the rest is for rounding.
 */
const F32_SQUARES_MAX = F32_MAX / 2;

/** An addition of FP16 numbers errs by this much at most, half of the largest spacing. */
const F16_ROUNDING = 16;
