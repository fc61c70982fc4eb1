/**
 * The dtypes and shapes of every value of a model, where its operations are known.
 *
 * Models have the types of their inputs and outputs only; rewrites need others.
 *
 * @module
 */

import { dtypeNumbered, type ValueType } from "../graph/value.ts";
import type { GraphProto } from "../onnx/onnx_pb.ts";
import { attributesOf, signatureOf, wholeNumbers } from "../onnx/signature.ts";
import { opOf } from "./table.ts";

/** The types of the values of a graph, by name. */
export function valueTypes(graph: GraphProto): Map<string, ValueType> {
  const types = new Map<string, ValueType>(
    signatureOf(graph).inputs.map(({ name, dtype, shape }) => [name, { dtype, shape }]),
  );
  const constants = new Map(graph.initializer.map((one) => [one.name ?? "", one]));
  for (const [name, { dataType, dims }] of constants) {
    const dtype = dtypeNumbered(dataType);
    if (dtype) types.set(name, { dtype, shape: dims.map(Number) });
  }
  for (const node of graph.node) {
    if (node.input.some((name) => name !== "" && !types.has(name))) continue;
    const numbers = (input: number) => {
      const constant = constants.get(node.input[input] ?? "");
      return constant && wholeNumbers(constant);
    };
    const found = opOf(node.opType, node.domain)?.shape?.({
      attributes: attributesOf(node),
      inputs: node.input.map((name) => types.get(name)!) as [ValueType, ...ValueType[]],
      numbers,
      outputs: node.output.length,
    });
    found?.forEach((type, i) => {
      if (node.output[i]) types.set(node.output[i], type);
    });
  }
  return types;
}
