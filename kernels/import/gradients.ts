/**
 * Whether an imported model can be trained: every op between a parameter and the loss has a gradient.
 *
 * @module
 */

import { dependentValues } from "../graph/autodiff.ts";
import { GRADIENTS, isFlat } from "../graph/gradient_rules.ts";
import { sliceNodes } from "../graph/slice.ts";
import type { Value } from "../graph/value.ts";
import type { Plan } from "./plan.ts";
import { quoted } from "./file/quoted.ts";

/**
 * The weights to which a gradient comes, by name.
 *
 * @param output whose loss is trained.
 * @throws {TypeError} naming the op and its node; or when no weight that is trained reaches the output.
 */
export function trainedWeights(
  { graph, steps }: Pick<Plan, "graph" | "steps">,
  output: Value,
): ReadonlySet<string> {
  const trained = graph.parameters.filter(({ spec }) => !spec.frozen);
  const dependent = dependentValues(graph, trained.map(({ value }) => value));
  const nodes = sliceNodes(graph, graph.inputs, [output]);
  if (!dependent.has(output)) {
    throw new TypeError(
      "Cannot train the ONNX model: its output must depend on a weight that is trained, received none to which a gradient comes",
    );
  }
  const wanted = new Set([output]);
  for (const node of nodes.toReversed()) {
    const isOnWay = node.outputs.some((one) => wanted.has(one)) &&
      node.inputs.some((input) => dependent.has(input));
    if (!isOnWay || isFlat(node.op)) continue;
    if (!Object.hasOwn(GRADIENTS, node.op)) {
      const step = steps.find(({ from, to }) => from <= node.id && node.id < to)!;
      throw new TypeError(
        `Cannot train the ONNX model: every op between parameters and loss must have a gradient, received ${step.node.op} (node ${
          quoted(step.node.name)
        })`,
      );
    }
    // No gradient flows through whole numbers and conditions.
    for (const input of node.inputs) if (input.dtype === "f32") wanted.add(input);
  }
  return new Set(trained.filter(({ value }) => wanted.has(value)).map(({ spec }) => spec.name));
}
