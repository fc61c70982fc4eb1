/**
 * Products of matrices.
 *
 * @module
 */

import { elementCount } from "../../graph/shapes.ts";
import type { Value } from "../../graph/value.ts";
import { floatOf, type ImportOp, intOf, operand, textOf } from "./call.ts";

const gemm: ImportOp = (call) => {
  const flag = (name: string) => intOf(call, name, 0) === 1;
  return call.g.gemm(operand(call, 0), operand(call, 1), call.inputs[2], {
    transA: flag("transA"),
    transB: flag("transB"),
    alpha: floatOf(call, "alpha", 1),
    beta: floatOf(call, "beta", 1),
  });
};

/** With one matrix for all of a batch it is one product, whose gradients are such, too. */
const matmul: ImportOp = (call) => {
  const { g } = call, a = operand(call, 0), b = operand(call, 1);
  if (a.shape.length < 2 || b.shape.length !== 2) return g.matmul(a, b);
  const rows = g.reshape(a, [elementCount(a.shape.slice(0, -1)), a.shape.at(-1)!]);
  return g.reshape(g.gemm(rows, b), [...a.shape.slice(0, -1), b.shape[1]!]);
};

/** By ONNX's names. */
export const PRODUCT_OPS: Readonly<Record<string, ImportOp>> = {
  Gemm: gemm,
  MatMul: matmul,
  Einsum: (call) => call.g.einsum(textOf(call, "equation", ""), call.inputs as readonly Value[]),
  "com.microsoft.FusedMatMul": (call) =>
    call.g.matmul(operand(call, 0), operand(call, 1), {
      transA: intOf(call, "transA", 0) === 1,
      transB: intOf(call, "transB", 0) === 1,
      alpha: floatOf(call, "alpha", 1),
    }),
};
