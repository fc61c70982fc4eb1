/**
 * The skip edges of a model: which stages make and use the values that layers give by name.
 *
 * @module
 */

import { isSkip } from "./layer_program.ts";
import { layersOf, type StageProgram, type StageSkip } from "./stage_program.ts";
import { elementCount } from "../graph/shapes.ts";
import { DTYPE_BYTES } from "../devices/device.ts";

/** A value given by name: the stage that makes it, and those others that use it, in order. */
export interface SkipEdge {
  /** Its key, `skip.NAME`. */
  readonly key: string;
  /** The stage that makes it. */
  readonly from: number;
  /** Other stages that use it, in order. */
  readonly to: readonly number[];
  /** Whether its gradient comes back. */
  readonly hasGradient: boolean;
  /** What it takes on its way. */
  readonly bytes: number;
}

/**
 * The values of a model that travel between stages beside what each stage hands to the next.
 *
 * @param starts for each stage the index of its first layer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, type Layer, skipEdges } from "@troupe/troupe/kernels";
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
 *   { key: "skip.early", from: 0, to: [2], hasGradient: true, bytes: 8 },
 * ]);
 * assert.deepEqual(skipEdges(program, [0]), []); // within a stage nothing travels
 * ```
 */
export function skipEdges(model: StageProgram, starts: readonly number[]): SkipEdge[] {
  const stageOf = (layer: number) => starts.findLastIndex((start) => start <= layer);
  const edges = new Map<string, { -readonly [K in keyof SkipEdge]: SkipEdge[K] }>();
  for (const [i, { program: { inputs, outputs } }] of layersOf(model).entries()) {
    for (const { name } of inputs.filter((one) => isSkip(one.name))) {
      const edge = edges.get(name)!, to = stageOf(i);
      if (to !== edge.from && !edge.to.includes(to)) edge.to = [...edge.to, to];
    }
    for (const { name, hasGradient, dtype, shape } of outputs.filter((one) => isSkip(one.name))) {
      const bytes = elementCount(shape) * DTYPE_BYTES[dtype];
      edges.set(name, { key: name, from: stageOf(i), to: [], hasGradient, bytes });
    }
  }
  return [...edges.values()].filter(({ to }) => to.length > 0);
}

/** For each stage what crosses its border by name. */
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
