/**
 * Cuts a graph: the nodes that compute some values from some others.
 *
 * @module
 */

import type { NodeGraph } from "./node_graph.ts";
import type { Node, Value } from "./value.ts";

/**
 * The nodes of `graph` that `outputs` need when `inputs` are given, in topological order.
 *
 * @throws {TypeError} when an output needs a graph input that `inputs` does not hold.
 */
export function sliceNodes(
  graph: NodeGraph,
  inputs: readonly Value[],
  outputs: readonly Value[],
): Node[] {
  const given = new Set(inputs);
  const needed = new Set<Node>();
  const pending = [...outputs];
  while (pending.length > 0) {
    const value = pending.pop()!;
    if (given.has(value) || value.data || (value.node && needed.has(value.node))) continue;
    if (!value.node) {
      throw new TypeError(`Cannot cut a model: the input "${value.name}" must be among its inputs`);
    }
    needed.add(value.node);
    pending.push(...value.node.inputs);
  }
  return graph.nodes.filter((node) => needed.has(node));
}
