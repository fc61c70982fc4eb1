/**
 * The loss that is put behind the output of a file.
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Model } from "../layers/layer.ts";
import type { LayerGraph } from "../layers/layer.ts";
import { meanSquaredError } from "../layers/helpers/losses.ts";
import { countTargets } from "../layers/batch.ts";
import { quoted } from "./file/quoted.ts";

/** What an imported model is trained by. */
export type OnnxLoss = "cross-entropy" | "mse";

/** The losses that there are. */
export const ONNX_LOSSES: readonly OnnxLoss[] = ["cross-entropy", "mse"];

/** A loss, for an output of one shape. */
export interface LossPlan {
  /** Samples of a micro-batch. */
  readonly samples: number;
  readonly predictions: Model["predictions"];
  /** The loss of each sample. */
  build(g: LayerGraph, output: Value): Value;
}

/**
 * What a loss is for an output.
 *
 * @param label the field of the micro-batch that says what the output should be.
 * @throws {TypeError} when there is no such loss.
 * @throws {RangeError} when an output of that shape has none.
 */
export function lossOf(
  loss: OnnxLoss,
  { name, shape, dtype }: Pick<Value, "name" | "shape" | "dtype">,
  label: string,
): LossPlan {
  const refuse = (must: string) => {
    throw new RangeError(
      `Cannot import the ONNX model: for ${loss} its output ${
        quoted(name)
      } must be ${must}, received ${dtype} [${shape}]`,
    );
  };
  const [samples = 0] = shape;
  if (loss === "cross-entropy") {
    const classes = shape.at(-1)!, rows = elementCount(shape.slice(0, -1));
    if (dtype !== "f32" || shape.length < 2 || shape.length > 3) {
      refuse("logits, f32 [samples, classes] or [samples, tokens, classes]");
    }
    return {
      samples,
      predictions: (batch) => countTargets(batch, label),
      build(g, output) {
        const logits = g.reshape(output, [rows, classes]);
        const losses = g.crossEntropy(logits, g.batch(label, [rows], "i32"));
        return g.sum(g.reshape(losses, [samples, rows / samples]), [1]);
      },
    };
  }
  if (loss !== "mse") {
    throw new TypeError(
      `Cannot import the ONNX model: loss must be one of ${
        ONNX_LOSSES.join(", ")
      }, received ${loss}`,
    );
  }
  if (dtype !== "f32" || shape.length < 1) refuse("numbers, f32 [samples, ...]");
  return {
    samples,
    predictions: samples,
    build: (g, output) => meanSquaredError(g, output, g.batch(label, shape)),
  };
}
