/**
 * Cuts a model at the nodes that other kernels than ONNX Runtime's compute, such as our SIMD kernels;
 * the other nodes become models in between.
 *
 * Nodes are scheduled as early as possible, in turns: all ready nodes of the engine, then all of ours.
 * This gives the smallest number of parts.
 *
 * @module
 */

import { create, toBinary } from "@bufbuild/protobuf";
import { elementCount } from "../../graph/shapes.ts";
import { TROUPE, type ValueType } from "../../graph/value.ts";
import { encodeValueInfo } from "../../onnx/encode.ts";
import { valueTypes } from "../../onnx/lower.ts";
import {
  GraphProtoSchema,
  type ModelProto,
  ModelProtoSchema,
  type NodeProto,
} from "../../onnx/onnx_pb.ts";
import { type ModelPort, signatureOf } from "../../onnx/signature.ts";
import { DTYPE_BYTES } from "../device.ts";
import { ALIGNMENT } from "./ort_library.ts";

/** The steps in which a value is needed, inclusive. */
interface Lifetime {
  readonly name: string;
  readonly byteLength: number;
  readonly from: number;
  to: number;
}

/** Gives each value, in order, the first place that is free during its lifetime. */
export function layoutValues(
  lifetimes: readonly Lifetime[],
): Pick<CutModel<PartCall>, "offsets" | "sharedBytes"> {
  const placed: (Lifetime & { readonly start: number; readonly end: number })[] = [];
  for (const value of lifetimes) {
    const size = Math.ceil(value.byteLength / ALIGNMENT) * ALIGNMENT;
    const others = placed.filter(({ from, to }) => from <= value.to && to >= value.from);
    let start = 0;
    for (const other of others.toSorted((a, b) => a.start - b.start)) {
      if (start + size <= other.start) break;
      start = Math.max(start, other.end);
    }
    placed.push({ ...value, start, end: start + size });
  }
  return {
    offsets: new Map(placed.map(({ name, start }) => [name, start])),
    sharedBytes: placed.reduce((most, { end }) => Math.max(most, end), 0),
  };
}

/** A call of a kernel, for one node. */
export interface PartCall {
  /** Bytes of its working memory. */
  readonly workBytes?: number;
  /** Bytes of its result, if only other calls read it, in a type of theirs. */
  readonly outputBytes?: number;
}

/** A part of a model: a model for the engine, or a call for one node. */
export type Part<Call extends PartCall> =
  & { readonly inputs: readonly ModelPort[]; readonly outputs: readonly ModelPort[] }
  & (
    | { readonly model: Uint8Array }
    | { readonly call: Call }
  );

/** A model in parts, in the order of computation. */
export interface CutModel<Call extends PartCall> {
  readonly parts: readonly Part<Call>[];
  /** Constants that calls read. */
  readonly constants: ReadonlyMap<string, Uint8Array>;
  /** Offsets of values between parts and of working memory, in memory that the parts share. */
  readonly offsets: ReadonlyMap<string, number>;
  /** Bytes of that memory. */
  readonly sharedBytes: number;
}

/**
 * Cuts a model; undefined if it has no calls, or the shape of a value between parts is unknown.
 *
 * @param callOf returns the call of a node, given the types of values; undefined if it has none.
 */
export function cutModel<Call extends PartCall>(
  model: ModelProto,
  callOf: (node: NodeProto, types: ReadonlyMap<string, ValueType>) => Call | undefined,
): CutModel<Call> | undefined {
  const { graph } = model;
  if (!graph) return undefined;
  const { inputs, outputs } = signatureOf(graph), types = valueTypes(graph);
  const constants = new Map(graph.initializer.map((one) => [one.name!, one.rawData]));
  const calls = new Map<NodeProto, Call>();
  for (const node of graph.node) {
    const isReadable = node.input.every((name) => !constants.has(name) || constants.get(name));
    const call = isReadable ? callOf(node, types) : undefined;
    if (call) calls.set(node, call);
    else if (node.domain === TROUPE) return undefined;
  }
  if (calls.size === 0) return undefined;
  const groups = groupNodes(graph.node, [...constants.keys(), ...inputs.map(nameOf)], calls);
  const results = new Set(outputs.map(nameOf));
  const names = groups.map((nodes, i) =>
    calls.has(nodes[0]!)
      ? { inputs: nodes[0]!.input, outputs: nodes[0]!.output }
      : borderNames(nodes, results.union(namesRead(groups.slice(i + 1).flat())), constants)
  );
  const known = (name: string) => name === "" || types.has(name);
  if (!names.every(({ inputs, outputs }) => [...inputs, ...outputs].every(known))) return undefined;
  const border = (name: string): ModelPort => ({ name, ...types.get(name) ?? NOTHING });
  const parts = groups.map((nodes, i): Part<Call> => {
    const call = calls.get(nodes[0]!);
    const borders = {
      inputs: names[i]!.inputs.map(border),
      outputs: names[i]!.outputs.map(border),
    };
    return { ...borders, ...call ? { call } : { model: partModel(model, nodes, borders) } };
  });
  const read = namesRead([...calls.keys()]);
  return {
    parts,
    constants: new Map(
      [...constants].flatMap(([name, bytes]) => bytes && read.has(name) ? [[name, bytes]] : []),
    ),
    ...layoutValues(lifetimesOf(parts, results)),
  };
}

/** The type of an absent input or output. */
const NOTHING = { dtype: "f32", shape: [0] } as const;

const namesRead = (nodes: readonly NodeProto[]) => new Set(nodes.flatMap(({ input }) => input));

/** Returns the values that some nodes read but do not compute, and their results in `wanted`. */
function borderNames(
  nodes: readonly NodeProto[],
  wanted: ReadonlySet<string>,
  constants: ReadonlyMap<string, unknown>,
): { inputs: string[]; outputs: string[] } {
  const made = new Set(nodes.flatMap(({ output }) => output).filter((name) => name !== ""));
  return {
    inputs: [...namesRead(nodes)].filter((name) =>
      name !== "" && !made.has(name) && !constants.has(name)
    ),
    outputs: [...made].filter((name) => wanted.has(name)),
  };
}

const nameOf = ({ name }: ModelPort) => name;

/** Groups nodes into parts; each call is a separate part. */
function groupNodes(
  nodes: readonly NodeProto[],
  given: readonly string[],
  calls: ReadonlyMap<NodeProto, PartCall>,
): NodeProto[][] {
  const known = new Set(["", ...given]), groups: NodeProto[][] = [];
  const take = (isOwn: boolean, rest: readonly NodeProto[]) =>
    Map.groupBy(rest, (node) => {
      const isReady = calls.has(node) === isOwn && node.input.every((name) => known.has(name));
      if (isReady) { for (const name of node.output) known.add(name); }
      return isReady;
    });
  for (let rest = nodes; rest.length > 0;) {
    const before = rest.length;
    for (const isOwn of [false, true]) {
      const taken = take(isOwn, rest), ready = taken.get(true) ?? [];
      rest = taken.get(false) ?? [];
      if (isOwn) groups.push(...ready.map((node) => [node]));
      else if (ready.length > 0) groups.push(ready);
    }
    if (rest.length === before) throw new Error("Cannot cut the model: its nodes must be in order");
  }
  return groups;
}

/** Encodes the model of some nodes. */
function partModel(
  model: ModelProto,
  nodes: NodeProto[],
  { inputs, outputs }: Pick<Part<PartCall>, "inputs" | "outputs">,
): Uint8Array {
  const read = namesRead(nodes);
  const encode = ({ name, dtype, shape }: ModelPort) => encodeValueInfo(name, dtype, shape);
  const graph = create(GraphProtoSchema, {
    name: model.graph!.name!,
    initializer: model.graph!.initializer.filter(({ name }) => read.has(name!)),
    input: inputs.map(encode),
    output: outputs.map(encode),
  });
  return toBinary(ModelProtoSchema, { ...model, graph: { ...graph, node: nodes } });
}

/** Returns the name of a part's working memory, among those of values. */
export const workOf = ({ outputs }: Part<PartCall>): string => `work of ${outputs[0]!.name}`;

/** Returns the lifetimes of values between parts. */
function lifetimesOf(
  parts: readonly Part<PartCall>[],
  results: ReadonlySet<string>,
): Lifetime[] {
  const lifetimes = new Map<string, Lifetime>();
  for (const [at, part] of parts.entries()) {
    const { inputs, outputs } = part, call = "call" in part ? part.call : {};
    const { workBytes: byteLength, outputBytes } = call;
    if (byteLength) {
      lifetimes.set(workOf(part), { name: workOf(part), byteLength, from: at, to: at });
    }
    for (const { name } of inputs) {
      const lifetime = lifetimes.get(name);
      if (lifetime) lifetime.to = at;
    }
    for (const { name, dtype, shape } of outputs) {
      const byteLength = outputBytes ?? elementCount(shape) * DTYPE_BYTES[dtype];
      if (name !== "" && !results.has(name)) {
        lifetimes.set(name, { name, byteLength, from: at, to: at });
      }
    }
  }
  return [...lifetimes.values()];
}
