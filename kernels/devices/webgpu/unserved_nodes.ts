/**
 * Which nodes of a model the provider has no kernel for: they would be computed on the host, so the
 * model is refused, and whoever wrote it is told why.
 *
 * @module
 */

import { created } from "../onnx_runtime/ort_library.ts";
import { type FunctionTable, type Handle, POINTER_BYTES } from "../onnx_runtime/function_table.ts";

/** Places in the table of functions that tell which provider each node of a session was given to. */
const SLOT = {
  subgraphsOfSession: 407,
  providerOfSubgraph: 408,
  nodesOfSubgraph: 409,
  nameOfNode: 410,
  operationOfNode: 412,
} as const;

/** Configuration of a session that remembers where its nodes are: lenient, to be asked and released. */
export const RECORDS_NODES: Readonly<Record<string, string>> = {
  "session.record_ep_graph_assignment_info": "1",
};

const CPU = "CPUExecutionProvider";

/** Whether a session was refused for the sake of a node without a kernel. */
export const isForNodes = (error: unknown): boolean =>
  /fallback to CPU EP has been explicitly disabled/.test((error as Error).message);

/** The nodes of a session that compute on the host, each as `operation (node "name")`. */
export function unservedNodes(api: FunctionTable, session: Handle): string[] {
  const text = (slot: number) => {
    const get = api.sync(slot, ["pointer", "buffer"]);
    return (of: Handle) => Deno.UnsafePointerView.getCString(created((out) => get(of, out)));
  };
  const list = (slot: number) => {
    const get = api.sync(slot, ["pointer", "buffer", "buffer"]);
    return (of: Handle) => {
      const place = new BigUint64Array(1), count = new BigUint64Array(1);
      get(of, new Uint8Array(place.buffer), new Uint8Array(count.buffer));
      if (count[0] === 0n) return [];
      const view = new Deno.UnsafePointerView(Deno.UnsafePointer.create(place[0]!)!);
      return Array.from(
        { length: Number(count[0]) },
        (_, i) => view.getPointer(i * POINTER_BYTES)!,
      );
    };
  };
  const providerOf = text(SLOT.providerOfSubgraph), nodesOf = list(SLOT.nodesOfSubgraph);
  const operationOf = text(SLOT.operationOfNode), nameOf = text(SLOT.nameOfNode);
  return list(SLOT.subgraphsOfSession)(session)
    .filter((subgraph) => providerOf(subgraph) === CPU)
    .flatMap(nodesOf)
    .map((node) => `${operationOf(node)} (node "${nameOf(node)}")`);
}
