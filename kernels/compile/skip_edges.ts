/**
 * The skip edges of a model: values given by name, with the stages that make and use them.
 *
 * @module
 */

import { DTYPE_BYTES } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import {
  inputsOf,
  isSkip,
  layersOf,
  outputsOf,
  type StageProgram,
  type StageSkip,
} from "./programs.ts";

/** A value given by name that is used in other stages than its own. */
export interface SkipEdge {
  /** Its key, `skip.NAME`. */
  readonly key: string;
  /** The stage that makes it. */
  readonly from: number;
  /** Other stages that use it, in order. */
  readonly to: readonly number[];
  /** True if its gradient is sent back. */
  readonly hasGradient: boolean;
  /** Bytes of the value. */
  readonly bytes: number;
}

/**
 * Returns the values of a model that are sent between stages by name.
 *
 * @param starts for each stage the index of its first layer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, type Layer } from "@troupe/troupe/kernels";
 *
 * const layers: Layer[] = [
 *   {
 *     name: "first",
 *     build(g) {
 *       const x = g.mul(g.batch("x", [2]), g.parameter("a", [1]));
 *       g.give("early", x);
 *       return x;
 *     },
 *   },
 *   { name: "second", build: (g, x) => g.tanh(g.mul(x!, g.parameter("a", [1]))) },
 *   { name: "last", build: (g, x) => g.add(x!, g.take("early")) },
 * ];
 * const program = compileModel({ name: "three", layers, predictions: 2 }, "none");
 * assert.deepEqual(skipEdges(program, [0, 1, 2]), [
 *   { key: "skip.early", hasGradient: true, bytes: 8, from: 0, to: [2] },
 * ]);
 * assert.deepEqual(skipEdges(program, [0]), []); // within a stage nothing travels
 * ```
 */
export function skipEdges(model: StageProgram, starts: readonly number[]): SkipEdge[] {
  const stageOf = (layer: number) => starts.findLastIndex((start) => start <= layer);
  return skipValues(model).flatMap(({ maker, users, travels: _, ...value }): SkipEdge[] => {
    const from = stageOf(maker),
      to = [...new Set(users.map(stageOf))].filter((one) => one !== from);
    return to.length > 0 ? [{ ...value, from, to }] : [];
  });
}

/**
 * Returns the values that layers of a model give by name, with the layer that makes each, the layers
 * that take it, in order, and the bytes that are sent over one edge in both directions (`travels`).
 */
export function skipValues(model: StageProgram) {
  const layers = layersOf(model);
  return layers.flatMap(({ program }, maker) =>
    outputsOf(program).filter(({ name }) => isSkip(name)).map(
      ({ name: key, hasGradient, dtype, shape }) => {
        const bytes = elementCount(shape) * DTYPE_BYTES[dtype];
        const users = layers.flatMap(({ program }, user) =>
          inputsOf(program).some(({ name }) => name === key) ? [user] : []
        );
        return { key, maker, users, hasGradient, bytes, travels: hasGradient ? 2 * bytes : bytes };
      },
    )
  );
}

/** Returns, by stage, the values that cross its border by name. */
export function skipsOf(model: StageProgram, starts: readonly number[]): StageSkip[][] {
  const edges = skipEdges(model, starts);
  return starts.map((_, stage) =>
    edges.flatMap(({ key, from, to, hasGradient }): StageSkip[] => {
      if (stage !== from && !to.includes(stage)) return [];
      const isMaker = stage === from;
      const next = to.find((user) => user > stage);
      const before = to.findLast((user) => user < stage) ?? from;
      return [{
        key,
        ...!isMaker && { from },
        to: isMaker ? to : [],
        ...hasGradient && next !== undefined && { gradientFrom: next },
        ...hasGradient && !isMaker && { gradientTo: before },
      }];
    })
  );
}
