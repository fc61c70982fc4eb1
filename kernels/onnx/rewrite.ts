/**
 * Rewrites the nodes of an ONNX graph one by one.
 *
 * @module
 */

import { create, toJsonString } from "@bufbuild/protobuf";
import { type DType, DTYPE_BYTES } from "../devices/device.ts";
import { ndArray, toBytes } from "../ops/array.ts";
import { type Attribute, ONNX_DTYPE, type ValueType } from "../graph/value.ts";
import { encodeAttribute } from "./encode.ts";
import {
  AttributeProtoSchema,
  type GraphProto,
  type NodeProto,
  NodeProtoSchema,
  TensorProtoSchema,
} from "./onnx_pb.ts";

/** Writes the replacement of a node. */
export type Rewrite = (write: Writer, node: NodeProto) => void;

/** Returns short functions that add element-wise operations, constants and reshapes. */
export function arithmetic(write: Writer) {
  const binary = (op: string) => (a: string, b: string, output?: string) =>
    write.node(op, [a, b], {}, output);
  return {
    add: binary("Add"),
    sub: binary("Sub"),
    mul: binary("Mul"),
    div: binary("Div"),
    scalar: (value: number) => write.constant("f32", [value], []),
    reshape: (of: string, shape: readonly number[], output?: string) =>
      write.node(
        "Reshape",
        [of, write.constant("i64", shape)],
        shape.includes(0) ? { allowzero: 1 } : {},
        output,
      ),
  };
}

type Attributes = Readonly<Record<string, Attribute>>;

/** Opens the writing of nodes: `writerOf` returns what adds the nodes of a rewrite to `nodes`. */
function openWriters(graph: GraphProto, types: ReadonlyMap<string, ValueType>, prefix: string) {
  let names = 0;
  const constants = new Map<string, string>(), nodes: NodeProto[] = [];
  const newName = () => `${prefix}.${names++}`;
  const writerOf = (old: NodeProto) => {
    const push = (
      opType: string,
      inputs: readonly string[],
      given: Attributes,
      output: string[],
    ) => {
      const name = `${old.name}.${names++}`, input = [...inputs];
      const attribute = Object.entries(given).map(([key, value]) => encodeAttribute(key, value));
      nodes.push(create(NodeProtoSchema, { opType, name, input, output, attribute }));
    };
    return {
      /**
       * Returns the dtype and shape of a value of the original graph.
       *
       * @throws {Error} when they are not known.
       */
      typeOf(name: string): ValueType {
        const type = types.get(name);
        if (type) return type;
        const origin = "which follows from an operation that is not known here";
        throw new Error(`${old.opType} needs the shape of "${name}", ${origin}`);
      },
      /** Adds a node with one output, and returns its name. Default: a new name. */
      node(op: string, inputs: readonly string[], attributes: Attributes = {}, output = newName()) {
        push(op, inputs, attributes, [output]);
        return output;
      },
      /** Adds a node with several outputs, given by their names or number, and returns the names. */
      nodes(
        op: string,
        inputs: readonly string[],
        attributes: Attributes,
        outputs: number | readonly string[],
      ): string[] {
        const all = typeof outputs === "number"
          ? Array.from({ length: outputs }, newName)
          : [...outputs];
        push(op, inputs, attributes, all);
        return all;
      },
      /** Adds the original node with other inputs and outputs; by default one with a new name. */
      again(inputs: readonly string[], output = newName(), ...others: readonly string[]): string {
        const name = `${old.name}.${names++}`;
        nodes.push({ ...old, name, input: [...inputs], output: [output, ...others] });
        return output;
      },
      /** Adds a constant. */
      constant(
        dtype: DType,
        values: readonly number[],
        shape: readonly number[] = [values.length],
      ): string {
        return constants.getOrInsertComputed(`${dtype} ${values} [${shape}]`, () => {
          const name = newName(), dataType = ONNX_DTYPE[dtype], dims = shape.map(BigInt);
          const rawData = new Uint8Array(values.length * DTYPE_BYTES[dtype]);
          toBytes(ndArray({ dtype, shape }, values), rawData);
          graph.initializer.push(create(TensorProtoSchema, { name, dataType, dims, rawData }));
          return name;
        });
      },
    };
  };
  return { nodes, writerOf };
}

/** Adds the nodes of a rewrite. */
export type Writer = ReturnType<ReturnType<typeof openWriters>["writerOf"]>;

/**
 * Rewrites the nodes of a graph in place.
 *
 * @param prefix of new names, unique for each rewrite of a graph.
 * @param rewriteOf returns the rewrite of a node, or undefined to keep it.
 */
export function rewriteNodes(
  graph: GraphProto,
  types: ReadonlyMap<string, ValueType>,
  prefix: string,
  rewriteOf: (node: NodeProto) => Rewrite | undefined,
): void {
  const { nodes, writerOf } = openWriters(graph, types, prefix);
  for (const node of graph.node) {
    const rewrite = rewriteOf(node);
    if (rewrite) rewrite(writerOf(node), node);
    else nodes.push(node);
  }
  graph.node = nodes;
}

/** Removes the nodes whose outputs are not read. */
export function removeUnread(graph: GraphProto): void {
  const read = new Set(graph.output.map(({ name }) => name));
  graph.node = graph.node.toReversed().filter(({ input, output }) => {
    const isRead = output.some((name) => read.has(name));
    if (isRead) { for (const name of input) read.add(name); }
    return isRead;
  }).reverse();
}

/** Merges equal nodes, in place, except those that compute outputs of the graph. */
export function shareEqual(graph: GraphProto): void {
  const outputs = new Set(graph.output.map(({ name }) => name));
  const first = new Map<string, NodeProto>(), names = new Map<string, string>();
  graph.node = graph.node.filter((node) => {
    node.input = node.input.map((name) => names.get(name) ?? name);
    const { opType, domain, input, output } = node;
    const attributes = node.attribute.map((one) => toJsonString(AttributeProtoSchema, one)).sort();
    const key = JSON.stringify([opType, domain, input, attributes, output.map(Boolean)]);
    const known = first.get(key);
    if (!known || output.some((name) => outputs.has(name))) {
      if (!known) first.set(key, node);
      return true;
    }
    output.forEach((name, i) => names.set(name, known.output[i]!));
    return false;
  });
}
