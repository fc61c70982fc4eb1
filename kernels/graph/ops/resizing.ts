/**
 * Operations that make images larger or smaller.
 *
 * @module
 */

import { one, type Value } from "../value.ts";
import { elementCount } from "../shapes.ts";
import { type InterpolationOptions, interpolationWeights, paddingWeights } from "./along_axis.ts";
import { PoolingGraph } from "./pooling.ts";

/** A graph to which operations are added that make images larger or smaller. */
export class ResizingGraph extends PoolingGraph {
  /**
   * Repeats every element `factors` times along the spatial axes of [n, channels, ...sizes]: what
   * Resize and Upsample call nearest.
   */
  upsample(x: Value, factors: number | readonly number[]): Value {
    const [n = 0, channels = 0, ...sizes] = x.shape;
    const times = sizes.map((_, axis) => typeof factors === "number" ? factors : factors[axis]!);
    if (!times.every((factor) => Number.isInteger(factor) && factor >= 1)) {
      throw new RangeError(
        `Cannot repeat elements: factors must be whole numbers from 1, received [${factors}]`,
      );
    }
    const shape = [n, channels, ...sizes.map((size, axis) => size * times[axis]!)];
    const none = this.constant(new Float32Array(0), [0]);
    return one(this, "Resize", [x, none, none, this.int64(shape)], shape, {
      mode: "nearest",
      coordinate_transformation_mode: "asymmetric",
      nearest_mode: "floor",
    });
  }

  /**
   * Images [n, channels, ...] in other sizes, by the elements near each place of the old ones.
   *
   * @param sizes of the spatial axes
   */
  resize(x: Value, sizes: readonly number[], options: InterpolationOptions = {}): Value {
    const from = x.shape.slice(2);
    if (sizes.length !== from.length || !sizes.every((to) => Number.isInteger(to) && to >= 1)) {
      throw new RangeError(
        `Cannot resize [${x.shape}]: sizes must be ${from.length} whole numbers from 1, received [${sizes}]`,
      );
    }
    return sizes.reduce(
      (y, to, axis) =>
        this.#combined(y, axis + 2, interpolationWeights(from[axis]!, to, options), to),
      x,
    );
  }

  /**
   * Puts `value` around a tensor, or the elements on its edge, or those that it reflects.
   *
   * @param pads elements in front of every axis, then behind every axis
   */
  pad(
    x: Value,
    pads: readonly number[],
    value: number | "edge" | "reflect" = 0,
  ): Value {
    const rank = x.shape.length;
    if (pads.length !== 2 * rank || !pads.every((pad) => Number.isInteger(pad) && pad >= 0)) {
      throw new RangeError(
        `Cannot pad [${x.shape}]: pads must be ${
          2 * rank
        } whole numbers from 0, received [${pads}]`,
      );
    }
    const shape = x.shape.map((size, axis) => pads[axis]! + size + pads[rank + axis]!);
    if (typeof value === "number") {
      return one(this, "Pad", [x, this.int64(pads), this.scalar(value)], shape);
    }
    return x.shape.reduce((y, size, axis) => {
      const around = [pads[axis]!, pads[rank + axis]!] as const;
      return this.#combined(y, axis, paddingWeights(size, around, value), shape[axis]!);
    }, x);
  }

  /** Each element along an axis a sum of those of before: weights are [to, from], or none where nothing changes. */
  #combined(x: Value, axis: number, weights: Float32Array | undefined, to: number): Value {
    if (!weights) return x;
    const { shape } = x, from = shape[axis]!, behind = shape.slice(axis + 1);
    const result = [...shape.slice(0, axis), to, ...behind];
    const matrix = this.constant(weights, [to, from]);
    if (behind.length === 0) return this.matmul(x, matrix, { transB: true });
    const before = elementCount(shape.slice(0, axis));
    const matrices = this.reshape(x, [before, from, elementCount(behind)]);
    return this.reshape(this.matmul(matrix, matrices), result);
  }
}
