/**
 * A builder of static-shape ONNX graphs: every method adds one node and returns its value.
 *
 * Each class below `Graph` adds the methods of a family of operations.
 *
 * @module
 */

import { one, TROUPE, type Value } from "./value.ts";
import { NormalizationGraph } from "./ops/normalization.ts";
import { sameShape } from "./shapes.ts";
import { checkCalls, SIGNATURES } from "./signatures.ts";

export type { InterpolationOptions } from "./ops/along_axis.ts";
export type { ConvOptions, ConvTransposeOptions } from "./ops/convolutions.ts";
export type { AveragePoolOptions, PoolOptions } from "./ops/pooling.ts";
export type { GemmOptions, MatmulOptions } from "./ops/products.ts";
export type { WindowOptions } from "./windows.ts";

/**
 * A static-shape ONNX graph under construction.
 *
 * @example Build y = gelu(x·w + b)
 * ```ts
 * import assert from "node:assert/strict";
 * import { Graph } from "@troupe/troupe/kernels";
 *
 * const g = new Graph();
 * const x = g.input("x", [8, 4]);
 * const y = g.gelu(g.gemm(x, g.input("w", [4, 16]), g.input("b", [16])));
 * assert.deepEqual(y.shape, [8, 16]);
 * assert.throws(() => g.matmul(x, x), RangeError);
 * ```
 */
export class Graph extends NormalizationGraph {
  /**
   * −ln softmax(logits)[target] of each row: logits [n, classes], targets [n] int32, result [n].
   * A row with target −1 has loss 0 and no gradient.
   */
  crossEntropy(logits: Value, targets: Value): Value {
    if (logits.shape.length !== 2 || !sameShape(targets.shape, logits.shape.slice(0, 1))) {
      throw new RangeError(
        `Cannot take cross-entropy: logits must be [n, classes] and targets [n], received [${logits.shape}] and [${targets.shape}]`,
      );
    }
    return one(this, "CrossEntropy", [logits, targets], targets.shape, {}, TROUPE);
  }
}

checkCalls(Graph.prototype, SIGNATURES);
