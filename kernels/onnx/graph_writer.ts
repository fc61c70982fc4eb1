/**
 * Rewrites the nodes of an ONNX graph one by one.
 *
 * @module
 */

import { create } from "@bufbuild/protobuf";
import { type Attribute, ONNX_DTYPE } from "../graph/value.ts";
import { encodeAttribute } from "./encode_model.ts";
import {
  type GraphProto,
  type NodeProto,
  NodeProtoSchema,
  type TensorProto,
  TensorProtoSchema,
} from "./onnx_pb.ts";
import type { ValueType } from "./value_types.ts";

/** What a rewrite writes with. */
export interface Writer {
  /**
   * The dtype and shape of a value of the graph as it was.
   *
   * @throws {Error} when it is not known.
   */
  typeOf(name: string): ValueType;
  /** Adds a node with one output, which gets a name unless given, and returns the name. */
  node(
    op: string,
    inputs: readonly string[],
    attributes?: Readonly<Record<string, Attribute>>,
    output?: string,
  ): string;
  /** Adds the node that is rewritten with other inputs and outputs; one, as above, unless given. */
  again(inputs: readonly string[], output?: string, ...others: readonly string[]): string;
  /** Adds a constant. */
  constant(dtype: ConstantDType, values: readonly number[], shape?: readonly number[]): string;
}

/** Writes what takes the place of a node. */
export type Rewrite = (write: Writer, node: NodeProto) => void;

const ARRAYS = {
  f32: Float32Array,
  f16: Float16Array,
  i32: Int32Array,
  i64: { from: (values: readonly number[]) => BigInt64Array.from(values, BigInt) },
} as const;

/** The dtypes of constants that rewrites add. */
export type ConstantDType = keyof typeof ARRAYS;

function encodeConstant(
  name: string,
  dtype: ConstantDType,
  values: readonly number[],
  dims: readonly number[],
): TensorProto {
  const { buffer } = ARRAYS[dtype].from(values);
  return create(TensorProtoSchema, {
    name,
    dataType: ONNX_DTYPE[dtype],
    dims: dims.map(BigInt),
    rawData: new Uint8Array(buffer),
  });
}

/**
 * Rewrites the nodes of a graph in place.
 *
 * @param prefix of new names; another for each time that a graph is rewritten.
 * @param rewriteOf what takes the place of a node; it stays where there is none.
 */
export function rewriteNodes(
  graph: GraphProto,
  types: ReadonlyMap<string, ValueType>,
  prefix: string,
  rewriteOf: (node: NodeProto) => Rewrite | undefined,
): void {
  let names = 0;
  const constants = new Map<string, string>(), nodes: NodeProto[] = [];
  const newName = () => `${prefix}.${names++}`;
  const writerOf = (old: NodeProto): Writer => ({
    typeOf(name) {
      const type = types.get(name);
      if (type) return type;
      throw new Error(
        `${old.opType} needs the shape of "${name}", which follows from an operation that is not known here`,
      );
    },
    node(op, inputs, attributes = {}, output = newName()) {
      nodes.push(create(NodeProtoSchema, {
        opType: op,
        name: `${old.name}.${names++}`,
        input: [...inputs],
        output: [output],
        attribute: Object.entries(attributes).map(([name, value]) => encodeAttribute(name, value)),
      }));
      return output;
    },
    again(inputs, output = newName(), ...others) {
      const name = `${old.name}.${names++}`;
      nodes.push({ ...old, name, input: [...inputs], output: [output, ...others] });
      return output;
    },
    constant(dtype, values, shape = [values.length]) {
      const key = `${dtype} ${values} [${shape}]`, known = constants.get(key);
      if (known) return known;
      const made = newName();
      graph.initializer.push(encodeConstant(made, dtype, values, shape));
      constants.set(key, made);
      return made;
    },
  });
  for (const node of graph.node) {
    const rewrite = rewriteOf(node);
    if (rewrite) rewrite(writerOf(node), node);
    else nodes.push(node);
  }
  graph.node = nodes;
}

/** Removes the nodes of which nothing is read. */
export function removeUnread(graph: GraphProto): void {
  const read = new Set(graph.output.map(({ name }) => name));
  graph.node = graph.node.toReversed().filter(({ input, output }) => {
    const isRead = output.some((name) => read.has(name));
    if (isRead) { for (const name of input) read.add(name); }
    return isRead;
  }).reverse();
}
