/**
 * Gradients of products of matrices.
 *
 * @module
 */

import type { Graph } from "../graph.ts";
import { sameShape } from "../shapes.ts";
import { type Node, numberOf, type Value } from "../value.ts";
import { type GradientRule, unbroadcast } from "./rule.ts";

const flag = (node: Node, name: string) => node.attributes[name] === 1;

/** The matrix and the factors of its rows whose product is `dy`. */
function scaledRows(dy: Value): { readonly rows: Value; readonly factors: Value } | undefined {
  const [rows, factors] = dy.node?.op === "Mul" ? dy.node.inputs as [Value, Value] : [];
  const isScaled = rows && factors && sameShape(rows.shape, dy.shape) &&
    sameShape(factors.shape, [dy.shape[0]!, 1]);
  return isScaled ? { rows, factors } : undefined;
}

/**
 * y = α·op(a)·op(b) + β·c: da = α·dy·op(b)ᵀ, db = α·op(a)ᵀ·dy, each transposed back where needed. Where a
 * gradient has factors of its rows and is wider than `a`, as that of logits, `a` takes them in its
 * place.
 */
const product: GradientRule = (g, node, [dy], needed) => {
  const [a, b] = node.inputs as [Value, Value];
  const ta = flag(node, "transA"), tb = flag(node, "transB"), alpha = numberOf(node, "alpha", 1);
  const multiply = (x: Value, y: Value, transA: boolean, transB: boolean) =>
    node.op === "Gemm"
      ? g.gemm(x, y, undefined, { transA, transB, alpha })
      : g.matmul(x, y, { transA, transB, alpha });
  const scaled = !ta && dy!.shape[1]! > a.shape[1]! ? scaledRows(dy!) : undefined;
  const dRows = scaled?.rows ?? dy!, toRows = (x: Value) => scaled ? g.mul(x, scaled.factors) : x;
  const da = () => ta ? multiply(b, dRows, tb, true) : toRows(multiply(dRows, b, false, !tb));
  const db = () =>
    tb ? multiply(dRows, toRows(a), true, ta) : multiply(toRows(a), dRows, !ta, false);
  return [
    needed[0] ? unbroadcast(g, da(), a.shape) : undefined,
    needed[1] ? unbroadcast(g, db(), b.shape) : undefined,
    needed[2]
      ? unbroadcast(g, added(g, dy!, numberOf(node, "beta", 1)), node.inputs[2]!.shape)
      : undefined,
  ];
};

/** The gradient of what is added with a factor. */
const added = (g: Graph, dy: Value, beta: number) => beta === 1 ? dy : g.mul(dy, g.scalar(beta));

/** Rules of products of matrices. */
export const PRODUCTS: Readonly<Record<string, GradientRule>> = {
  MatMul: product,
  FusedMatMul: product,
  Gemm: product,
};
