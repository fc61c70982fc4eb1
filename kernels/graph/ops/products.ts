/**
 * Products of matrices.
 *
 * @module
 */

import { one } from "../node_graph.ts";
import { broadcastShape, productShape, sameShape } from "../shapes.ts";
import { MICROSOFT, type Value } from "../value.ts";
import { MoveGraph } from "./moves.ts";

/** Options of {@linkcode Graph.matmul} and {@linkcode Graph.gemm}. */
export interface MatmulOptions {
  /** Use the transpose of the last two axes of `a`. */
  transA?: boolean;
  /** Use the transpose of the last two axes of `b`. */
  transB?: boolean;
  /** Factor of the product. */
  alpha?: number;
}

/** A graph to which products of matrices are added. */
export class ProductGraph extends MoveGraph {
  /** Batched matrix product of the last two axes. */
  matmul(a: Value, b: Value, options: MatmulOptions = {}): Value {
    const { transA = false, transB = false, alpha = 1 } = options;
    const shape = productShape(a.shape, b.shape, { transA, transB });
    if (!transA && !transB && alpha === 1) return one(this, "MatMul", [a, b], shape);
    const attributes = { transA: +transA, transB: +transB, alpha: { float: alpha } };
    return one(this, "FusedMatMul", [a, b], shape, attributes, MICROSOFT);
  }
  /** Matrix product a·b + c of two-dimensional tensors; c broadcasts (a bias). */
  gemm(a: Value, b: Value, c?: Value, options: MatmulOptions = {}): Value {
    const { transA = false, transB = false, alpha = 1 } = options;
    const shape = productShape(a.shape, b.shape, { transA, transB }, "two");
    if (c && !sameShape(broadcastShape(c.shape, shape), shape)) {
      throw new RangeError(`Cannot add [${c.shape}] to a product: it must broadcast to [${shape}]`);
    }
    return one(this, "Gemm", c ? [a, b, c] : [a, b], shape, {
      transA: +transA,
      transB: +transB,
      alpha: { float: alpha },
    });
  }
}
