/**
 * Products of matrices.
 *
 * @module
 */

import { MICROSOFT, one, type Value } from "../value.ts";
import { broadcastShape, productShape, sameShape } from "../shapes.ts";
import { GatherGraph } from "./gathers.ts";

/** Options of {@linkcode Graph.matmul} and {@linkcode Graph.gemm}. */
export interface MatmulOptions {
  /** Use the transpose of the last two axes of `a`. */
  transA?: boolean;
  /** Use the transpose of the last two axes of `b`. */
  transB?: boolean;
  /** Factor of the product. */
  alpha?: number;
}

/** Options of {@linkcode Graph.gemm}. */
export interface GemmOptions extends MatmulOptions {
  /** Factor of what is added. */
  beta?: number;
}

/** A graph to which products of matrices are added. */
export class ProductGraph extends GatherGraph {
  /** Batched matrix product of the last two axes; of one axis it is a row on the left, a column on the right. */
  matmul(a: Value, b: Value, options: MatmulOptions = {}): Value {
    const { transA = false, transB = false, alpha = 1 } = options;
    const isRow = a.shape.length === 1, isColumn = b.shape.length === 1;
    if (isRow || isColumn) {
      const row = isRow ? this.reshape(a, [1, ...a.shape]) : a;
      const column = isColumn ? this.reshape(b, [...b.shape, 1]) : b;
      const product = this.matmul(row, column, {
        transA: transA && !isRow,
        transB: transB && !isColumn,
        alpha,
      });
      const sizes = [
        ...isRow ? [] : product.shape.slice(-2, -1),
        ...isColumn ? [] : product.shape.slice(-1),
      ];
      return this.reshape(product, [...product.shape.slice(0, -2), ...sizes]);
    }
    const shape = productShape(a.shape, b.shape, { transA, transB });
    if (!transA && !transB && alpha === 1) return one(this, "MatMul", [a, b], shape);
    const attributes = { transA: +transA, transB: +transB, alpha: { float: alpha } };
    return one(this, "FusedMatMul", [a, b], shape, attributes, MICROSOFT);
  }
  /** Matrix product alpha·a·b + beta·c of two-dimensional tensors; c broadcasts (a bias). */
  gemm(a: Value, b: Value, c?: Value, options: GemmOptions = {}): Value {
    const { transA = false, transB = false, alpha = 1, beta = 1 } = options;
    const shape = productShape(a.shape, b.shape, { transA, transB }, "two");
    if (c && !sameShape(broadcastShape(c.shape, shape), shape)) {
      throw new RangeError(`Cannot add [${c.shape}] to a product: it must broadcast to [${shape}]`);
    }
    return one(this, "Gemm", c ? [a, b, c] : [a, b], shape, {
      transA: +transA,
      transB: +transB,
      alpha: { float: alpha },
      ...beta !== 1 && { beta: { float: beta } },
    });
  }
}
