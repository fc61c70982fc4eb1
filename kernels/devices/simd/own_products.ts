/**
 * How our kernel computes products of matrices.
 *
 * @module
 */

import { elementCount, sameShape } from "../../graph/shapes.ts";
import type { NodeProto } from "../../onnx/onnx_pb.ts";
import { floatOf, intOf } from "../../onnx/value_types.ts";
import type { OwnNode } from "./own_call.ts";

/** Bytes of working memory of a product: what `source/gemm.as` copies, and a tile. */
const WORK_BYTES = 4 * (256 * (128 + 504) + 4 * 12);

/** Two matrices as they lie, whose product is wanted. */
interface Factors {
  /** Sizes of the first: rows and columns. */
  readonly a: readonly [number, number];
  readonly b: readonly [number, number];
  readonly isATransposed: boolean;
  readonly isBTransposed: boolean;
}

/** What the kernel takes: sizes, then elements between rows and columns of each factor. */
function layoutOf({ a, b, isATransposed, isBTransposed }: Factors) {
  const [m, k] = isATransposed ? [a[1], a[0]] : a, n = isBTransposed ? b[0] : b[1];
  const steps = (columns: number, isTransposed: boolean) =>
    (isTransposed ? [1, columns] : [columns, 1]) as [number, number];
  return { m, n, k, a: steps(a[1], isATransposed), b: steps(b[1], isBTransposed) };
}

const isTransposed = (node: NodeProto, name: string) => intOf(node, name, 0) === 1;

const matrix = (shape: readonly number[]) => shape.slice(-2) as [number, number];

/** α·a·b + c, where c is a row, as large as the product, or left out. */
export const ownGemm: OwnNode = (node, [a, b, c]) => {
  const alpha = floatOf(node, "alpha", 1);
  const { m, n, k, ...steps } = layoutOf({
    a: matrix(a!.shape),
    b: matrix(b!.shape),
    isATransposed: isTransposed(node, "transA"),
    isBTransposed: isTransposed(node, "transB"),
  });
  const isRow = c && c.shape.at(-1) === n && elementCount(c.shape) === n;
  if (c && !isRow && !sameShape(c.shape, [m, n])) return undefined;
  if (c && floatOf(node, "beta", 1) !== 1) return undefined;
  const cRow = isRow && m > 1 ? 0 : n;
  return {
    workBytes: WORK_BYTES,
    run: (kernels, inputs, [y], work) =>
      kernels.gemm(
        m,
        n,
        k,
        inputs[0]!,
        ...steps.a,
        inputs[1]!,
        ...steps.b,
        inputs[2] ?? 0,
        cRow,
        y!,
        alpha,
        work,
      ),
  };
};

/** Products of the matrices in the last two axes; the other axes are alike, or the second has none. */
export const ownMatMul: OwnNode = (node, [a, b]) => {
  const batch = a!.shape.slice(0, -2), alpha = floatOf(node, "alpha", 1);
  const isPlain = ["transBatchA", "transBatchB"].every((name) => !isTransposed(node, name));
  if (!isPlain || a!.shape.length < 2 || !sameShape(batch, b!.shape.slice(0, -2))) return undefined;
  const { m, n, k, ...steps } = layoutOf({
    a: matrix(a!.shape),
    b: matrix(b!.shape),
    isATransposed: isTransposed(node, "transA"),
    isBTransposed: isTransposed(node, "transB"),
  });
  const count = elementCount(batch);
  return {
    workBytes: WORK_BYTES,
    run(kernels, [atA, atB], [y], work) {
      for (let i = 0; i < count; i++) {
        const from = [atA! + 4 * m * k * i, atB! + 4 * k * n * i] as const;
        kernels.gemm(
          m,
          n,
          k,
          from[0],
          ...steps.a,
          from[1],
          ...steps.b,
          0,
          0,
          y! + 4 * m * n * i,
          alpha,
          work,
        );
      }
    },
  };
};
