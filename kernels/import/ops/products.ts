/**
 * Products of matrices.
 *
 * @module
 */

import { elementCount } from "../../graph/shapes.ts";
import { floatOf, type ImportOp, intOf, operand } from "./call.ts";

const gemm: ImportOp = (call) => {
  const { g, inputs: [, , c] } = call, beta = floatOf(call, "beta", 1);
  const flag = (name: string) => intOf(call, name, 0) === 1;
  return g.gemm(
    operand(call, 0),
    operand(call, 1),
    c && (beta === 1 ? c : g.mul(c, g.scalar(beta))),
    { transA: flag("transA"), transB: flag("transB"), alpha: floatOf(call, "alpha", 1) },
  );
};

/** With one matrix for all of a batch it is one product, whose gradients are such, too. */
const matmul: ImportOp = (call) => {
  const { g } = call, given = operand(call, 0), other = operand(call, 1);
  const a = given.shape.length === 1 ? g.reshape(given, [1, ...given.shape]) : given;
  const b = other.shape.length === 1 ? g.reshape(other, [...other.shape, 1]) : other;
  const inner = a.shape.at(-1)!, rows = elementCount(a.shape.slice(0, -1));
  const product = b.shape.length === 2
    ? g.reshape(g.gemm(g.reshape(a, [rows, inner]), b), [...a.shape.slice(0, -1), b.shape[1]!])
    : g.matmul(a, b);
  const shape = [...product.shape];
  if (other !== b) shape.splice(-1, 1);
  if (given !== a) shape.splice(other === b ? -2 : -1, 1);
  return g.reshape(product, shape);
};

/** By ONNX's names. */
export const PRODUCT_OPS: Readonly<Record<string, ImportOp>> = {
  Gemm: gemm,
  MatMul: matmul,
  "com.microsoft.FusedMatMul": (call) =>
    call.g.matmul(operand(call, 0), operand(call, 1), {
      transA: intOf(call, "transA", 0) === 1,
      transB: intOf(call, "transB", 0) === 1,
      alpha: floatOf(call, "alpha", 1),
    }),
};
