/**
 * Operations that make images larger or smaller.
 *
 * @module
 */

import { one } from "../node_graph.ts";
import type { Value } from "../value.ts";
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
    const apart = (by: readonly number[]) => [
      n,
      channels,
      ...sizes.flatMap((size, axis) => [size, by[axis]!]),
    ];
    const repeated = this.expand(this.reshape(x, apart(sizes.map(() => 1))), apart(times));
    return this.reshape(repeated, [n, channels, ...sizes.map((size, axis) => size * times[axis]!)]);
  }

  /**
   * Puts `value` around a tensor.
   *
   * @param pads elements in front of every axis, then behind every axis
   */
  pad(x: Value, pads: readonly number[], value = 0): Value {
    const rank = x.shape.length;
    if (pads.length !== 2 * rank || !pads.every((pad) => Number.isInteger(pad) && pad >= 0)) {
      throw new RangeError(
        `Cannot pad [${x.shape}]: pads must be ${
          2 * rank
        } whole numbers from 0, received [${pads}]`,
      );
    }
    const shape = x.shape.map((size, axis) => pads[axis]! + size + pads[rank + axis]!);
    return one(this, "Pad", [x, this.int64(pads), this.scalar(value)], shape);
  }
}
