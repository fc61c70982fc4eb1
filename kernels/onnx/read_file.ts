/**
 * Reads an ONNX file as a graph of plain records, with nodes of the newest opset.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import type { DType, HostArray } from "../devices/device.ts";
import { refusal, resultOr } from "../errors.ts";
import { elementCount, ELEMENTS_MAX } from "../graph/shapes.ts";
import type { Attribute, ValueType } from "../graph/value.ts";
import {
  type AttributeProto,
  type GraphProto,
  type ModelProto,
  ModelProtoSchema,
  type NodeProto,
  type TensorProto,
  TensorProto_DataLocation,
  type ValueInfoProto,
} from "./onnx_pb.ts";
import { attributeOf } from "./signature.ts";

/** Returns an error of a refused file. */
export const importError = (must: string, received: unknown, Kind: ErrorConstructor = TypeError) =>
  refusal("import the ONNX model", must, received, Kind);

/** Throws {@linkcode importError} unless a condition holds. */
export function assertImport(
  holds: boolean,
  must: string,
  received: unknown,
  Kind?: ErrorConstructor,
): asserts holds {
  if (!holds) throw importError(must, received, Kind);
}

/** Names a node of a file in messages. */
export const nodeLabel = ({ op, name }: Pick<OnnxNode, "op" | "name">): string =>
  `${shown(op)} (node ${quoted(name)})`;

/** Largest number of characters of a name. */
const LENGTH_MAX = 500;

/** Characters that end a line, move the cursor or change the direction of writing. */
const UNSAFE = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/u;

/**
 * Refuses names that cannot be shown unchanged.
 *
 * @throws {TypeError} with the beginning of the first such name.
 */
function checkNames({ node, initializer, input, output }: GraphProto): void {
  for (const { name, opType, domain, input, output, attribute } of node) {
    check("the names of nodes", [name, opType, domain, ...input, ...output]);
    check("the names of attributes", attribute.map((one) => one.name));
  }
  check("the names of initializers", initializer.map(({ name }) => name));
  check("the names of inputs and outputs", [...input, ...output].map(({ name }) => name));
  const dims = input.flatMap(({ type }) =>
    type?.value.case === "tensorType" ? type.value.value.shape?.dim ?? [] : []
  );
  check(
    "the names of sizes",
    dims.map(({ value: one }) => one.case === "dimParam" ? one.value : ""),
  );
}

function check(what: string, names: readonly (string | undefined)[]): void {
  const bad = names.find((name = "") => name.length > LENGTH_MAX || UNSAFE.test(name));
  if (bad === undefined) return;
  const shown = bad.slice(0, 100).replace(new RegExp(UNSAFE, "gu"), "\ufffd");
  const must = `at most ${LENGTH_MAX} characters, and none that controls how text is shown`;
  throw importError(`${what} must have ${must}`, `"${shown}"`);
}

/** Largest number of characters of a text from a file in messages. */
const SHOWN_MAX = 120;

/** Largest number of names in messages. */
const NAMES_MAX = 20;

/** Formats a text from a file, in quotes. */
export const quoted = (text: string): string =>
  JSON.stringify(text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text);

/** Formats a text from a file, without quotes. */
const shown = (text: string): string => quoted(text).slice(1, -1);

/** Formats a list of names, without quotes. */
export const listed = (names: Iterable<string>): string =>
  Array.from(names, shown).slice(0, NAMES_MAX).join(", ");

/** A tensor whose elements are known before a run. */
export interface Constant extends ValueType {
  /** Its elements. */
  readonly data: HostArray;
}

/** Contents of the separate files of a model, by their names in the model. */
export type ExternalFiles = Readonly<Record<string, Uint8Array>>;

/** The representation of an element type of ONNX. */
interface ElementType {
  readonly dtype: DType;
  /** The array of the elements. */
  readonly Kind: {
    new (buffer: ArrayBuffer): Iterable<number | bigint>;
    readonly BYTES_PER_ELEMENT: number;
  };
  /** The field with the elements, if not in `raw_data`. */
  readonly field: "floatData" | "int32Data" | "int64Data" | "doubleData" | "uint64Data";
}

/**
 * Element types by their numbers in ONNX. Types that no device supports are widened; f64 is
 * rounded.
 */
export const ELEMENT_TYPES: Readonly<Record<number, ElementType>> = {
  1: { dtype: "f32", Kind: Float32Array, field: "floatData" },
  2: { dtype: "i32", Kind: Uint8Array, field: "int32Data" },
  3: { dtype: "i32", Kind: Int8Array, field: "int32Data" },
  4: { dtype: "i32", Kind: Uint16Array, field: "int32Data" },
  5: { dtype: "i32", Kind: Int16Array, field: "int32Data" },
  6: { dtype: "i32", Kind: Int32Array, field: "int32Data" },
  7: { dtype: "i64", Kind: BigInt64Array, field: "int64Data" },
  9: { dtype: "bool", Kind: Uint8Array, field: "int32Data" },
  11: { dtype: "f32", Kind: Float64Array, field: "doubleData" },
  12: { dtype: "i64", Kind: Uint32Array, field: "uint64Data" },
  13: { dtype: "i64", Kind: BigUint64Array, field: "uint64Data" },
};

/** Returns the device type for elements of an ONNX type; undefined if it is not supported. */
export const dtypeOf = (type: number | undefined): DType | undefined =>
  ELEMENT_TYPES[type ?? 0]?.dtype;

/** Converts numbers to an array for a type of a device. */
export function hostArray(dtype: DType, numbers: Iterable<number | bigint>): HostArray {
  if (dtype === "i64") return BigInt64Array.from(numbers, toInt64);
  const all = Array.isArray(numbers) ? numbers as number[] : Array.from(numbers, Number);
  if (dtype === "i32") return Int32Array.from(all);
  if (dtype === "bool") return Uint8Array.from(all, (one) => +(one !== 0));
  return Float32Array.from(all);
}

const INT64_MAX = 2n ** 63n - 1n;

/** Limits a number to int64: the ends of slices are often the largest int64, which f64 rounds up. */
function toInt64(value: number | bigint): bigint {
  const whole = typeof value === "bigint" ? value : BigInt(Math.trunc(value));
  return whole > INT64_MAX ? INT64_MAX : whole < -INT64_MAX ? -INT64_MAX : whole;
}

/**
 * Reads a tensor.
 *
 * @param what its name in messages.
 * @param external separate files of the model.
 * @throws {TypeError} when its type is unknown, or the file with its elements is not given.
 * @throws {RangeError} when its sizes and its bytes differ.
 */
function readTensor(tensor: TensorProto, what: string, external: ExternalFiles): Constant {
  const { dataType = 0 } = tensor, type = ELEMENT_TYPES[dataType];
  const types = "f32, f64, whole numbers or bool";
  if (!type) throw importError(`${what} must hold ${types}`, `ONNX type ${dataType}`);
  const shape = tensor.dims.map(Number), elements = elementCount(shape);
  const isPossible = shape.every((size) => size >= 0) && elements <= ELEMENTS_MAX;
  const possible = `${what} must have sizes from 0 whose product is at most ${ELEMENTS_MAX}`;
  assertImport(isPossible, possible, `[${shape}]`, RangeError);
  const raw = rawBytes(tensor, what, external), bytes = elements * type.Kind.BYTES_PER_ELEMENT;
  const listed = tensor[type.field];
  const isWhole = raw ? raw.length === bytes : listed.length === elements;
  const received = raw ? `${raw.length} bytes` : `${listed.length} elements`;
  const whole = `${what} must have the ${bytes} bytes of its sizes [${shape}]`;
  assertImport(isWhole, whole, received, RangeError);
  const values = raw ? new type.Kind(raw.slice().buffer) : listed;
  // Weights are most of a file: they are not copied again.
  const data = values instanceof Float32Array || values instanceof Int32Array ||
      values instanceof BigInt64Array
    ? values
    : hostArray(type.dtype, values);
  return { dtype: type.dtype, shape, data };
}

/** Returns the bytes of the elements; undefined if the tensor lists them. */
function rawBytes(
  { rawData, dataLocation, externalData }: TensorProto,
  what: string,
  external: ExternalFiles,
): Uint8Array | undefined {
  const isExternal = dataLocation === TensorProto_DataLocation.EXTERNAL || externalData.length > 0;
  if (!isExternal) return rawData;
  const said = new Map(externalData.map(({ key, value }) => [key ?? "", value ?? ""]));
  const location = said.get("location") ?? "", offset = Number(said.get("offset") ?? 0);
  const file = Object.hasOwn(external, location) ? external[location] : undefined;
  const given = `the file ${quoted(location)} of ${what} must be given as one of \`external\``;
  assertImport(file !== undefined, given, `[${listed(Object.keys(external))}]`);
  const length = Number(said.get("length") ?? file.length - offset);
  const isInside = offset >= 0 && length >= 0 && offset + length <= file.length;
  const must = `${what} must be within the ${file.length} bytes of ${quoted(location)}`;
  assertImport(isInside, must, `${length} bytes from offset ${offset}`, RangeError);
  return file.subarray(offset, offset + length);
}

/** A node of a file. */
export interface OnnxNode {
  /** Its name, or that of its first output. */
  readonly name: string;
  /** ONNX's name of the operation, with its domain if that is another than ONNX's. */
  readonly op: string;
  /** Names of its inputs; empty for those left out. */
  readonly inputs: readonly string[];
  /** Names of its outputs; empty for unused ones. */
  readonly outputs: readonly string[];
  /** Its attributes. */
  readonly attributes: Readonly<Record<string, Attribute>>;
  /** The tensor attribute `value` of Constant and ConstantOfShape. */
  readonly value?: Constant;
  /** Settings that were attributes in older opsets, by their place among the inputs. */
  readonly constants: ReadonlyMap<number, Constant>;
}

/** A change of an operation in an opset. */
interface Change {
  readonly before: number;
  readonly upgrade: (node: OnnxNode) => OnnxNode;
}

/** Upgrades attributes that became inputs, in order: lists of whole numbers, or scalars. */
const toInputs = (...names: readonly string[]) => (node: OnnxNode): OnnxNode => {
  const attributes = { ...node.attributes }, constants = new Map(node.constants);
  for (const [i, name] of names.entries()) {
    const value = attributes[name];
    delete attributes[name];
    if (value !== undefined) constants.set(i + 1, constantFrom(value));
  }
  return { ...node, attributes, constants };
};

function constantFrom(value: Attribute): Constant {
  if (Array.isArray(value)) return int64(value, [value.length]);
  const { float } = value as { float: number };
  return { dtype: "f32", shape: [], data: Float32Array.of(float) };
}

/** A constant of whole numbers. */
export const int64 = (
  numbers: readonly (number | bigint)[],
  shape: readonly number[],
): Constant => ({ dtype: "i64", shape, data: hostArray("i64", numbers) });

/** Upgrades a softmax over all axes from one to the last, together. */
const flattened = (node: OnnxNode): OnnxNode => ({
  ...node,
  attributes: { ...node.attributes, axis: node.attributes.axis ?? 1, flattened: 1 },
});

/** Upgrades a resize by factors, in which each pixel is the one at the floor of its place. */
const simpleResize = (node: OnnxNode): OnnxNode => ({
  ...node,
  op: "Resize",
  inputs: [node.inputs[0]!, "", node.inputs[1]!],
  attributes: {
    mode: node.attributes.mode ?? "nearest",
    coordinate_transformation_mode: "asymmetric",
    nearest_mode: "floor",
  },
});

const AXES_13 = ["Squeeze", "Unsqueeze", "ReduceSum"];
const AXES_18 = [
  ...["ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"],
  ...["ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"],
];

const each = (ops: readonly string[], change: Change) =>
  Object.fromEntries(ops.map((op) => [op, change]));

const CHANGES: Readonly<Record<string, Change>> = {
  ...each(AXES_13, { before: 13, upgrade: toInputs("axes") }),
  ...each(AXES_18, { before: 18, upgrade: toInputs("axes") }),
  ...each(["Softmax", "LogSoftmax"], { before: 13, upgrade: flattened }),
  Split: { before: 13, upgrade: toInputs("split") },
  Slice: { before: 10, upgrade: toInputs("starts", "ends", "axes") },
  Clip: { before: 11, upgrade: toInputs("min", "max") },
  Dropout: { before: 12, upgrade: toInputs("ratio") },
  Pad: { before: 11, upgrade: toInputs("pads", "value") },
  Upsample: { before: Infinity, upgrade: simpleResize },
  Resize: { before: 11, upgrade: simpleResize },
  GroupNormalization: {
    before: 21,
    upgrade: (node) => ({ ...node, attributes: { ...node.attributes, scale_of_groups: 1 } }),
  },
};

/** Converts a node to the newest opset. */
function upgradeNode(node: OnnxNode, version: number): OnnxNode {
  const change = Object.hasOwn(CHANGES, node.op) ? CHANGES[node.op] : undefined;
  return change && version < change.before ? change.upgrade(node) : node;
}

/** An input or output of a file; open sizes have names. */
export interface OnnxInput {
  /** Its name. */
  readonly name: string;
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its sizes, or their names; a size without a name is `input.axis`. */
  readonly shape: readonly (number | string)[];
}

/** The contents of a file. */
export interface OnnxGraph {
  readonly nodes: readonly OnnxNode[];
  readonly inputs: readonly OnnxInput[];
  /** The names of its outputs. */
  readonly outputs: readonly string[];
  /** Its initializers, by name. */
  readonly initializers: ReadonlyMap<string, Constant>;
  /** The names of initializers that are no weights, by the marks of PyTorch's exporter. */
  readonly constants: ReadonlySet<string>;
}

/** The supported opsets. */
const OPSETS = { least: 9, most: 23 } as const;

/**
 * Largest number of nodes: more would take minutes to compile, and the largest networks have a few
 * thousands.
 */
const NODES_MAX = 20_000;

/** Largest number of inputs and outputs of all nodes: a sum of n becomes n nodes. */
const OPERANDS_MAX = 4 * NODES_MAX;

/** Domain of ONNX's own operations, which may also be empty. */
export const ONNX_DOMAIN = "ai.onnx";

/**
 * Decodes a file.
 *
 * @throws {TypeError} when it is not an ONNX model, is truncated, or contains something unsupported.
 * @throws {RangeError} when the bytes of a tensor do not match its sizes.
 */
export function readOnnx(bytes: Uint8Array, external: ExternalFiles): OnnxGraph {
  const model = decodeModel(bytes), graph = model.graph!;
  const version = opsetOf(model);
  checkNames(graph);
  const [sparse] = graph.sparseInitializer, sparseName = quoted(sparse?.values?.name ?? "");
  assertImport(!sparse, "its initializers must be dense", `the sparse ${sparseName}`);
  const initializers = new Map<string, Constant>();
  for (const tensor of graph.initializer) {
    const { name = "" } = tensor, what = `the initializer ${quoted(name)}`;
    const isNew = !initializers.has(name), must = "its initializers must have different names";
    assertImport(isNew, must, `${quoted(name)} twice`);
    initializers.set(name, readTensor(tensor, what, external));
  }
  return {
    nodes: graph.node.map((node) => upgradeNode(readNode(node, external), version)),
    inputs: graph.input.filter(({ name }) => !initializers.has(name ?? "")).map(readInput),
    outputs: graph.output.map(({ name }) => name ?? ""),
    initializers,
    constants: constantsOf(graph),
  };
}

/** Marks of PyTorch's exporter: what an initializer is, and the names of which it was computed. */
const MARKS = {
  kind: "pkg.torch.export.graph_signature.InputSpec.kind",
  sources: "pkg.onnxscript.optimizer.folded_from",
} as const;

/**
 * Returns the initializers that are no parameters, such as a scale, an epsilon or a mask, if the file
 * says which are. Of others, a name with a dot is that of a parameter, or of one computed from it; a
 * source without a dot may be a parameter unless it is numbered or another value of the file.
 */
function constantsOf({ initializer, valueInfo, node }: GraphProto): ReadonlySet<string> {
  const marks = new Map(
    valueInfo.map(({ name, metadataProps }) =>
      [name, new Map(metadataProps.map(({ key, value = "" }) => [key, value]))] as const
    ),
  );
  const kindOf = (name: string | undefined) => marks.get(name)?.get(MARKS.kind);
  if (!initializer.some(({ name }) => kindOf(name) === "PARAMETER")) return new Set();
  const made = new Set(node.flatMap(({ output }) => output));
  const isWeight = ({ name = "", dims }: TensorProto): boolean => {
    const kind = kindOf(name), isOne = dims.every((size) => size === 1n);
    if (kind !== undefined) return kind === "PARAMETER";
    const sources = marks.get(name)?.get(MARKS.sources)?.match(/[^\s'[\],]+/g) ?? [];
    return [name, ...sources].some((source) => source.includes(".")) ||
      !isOne && sources.some((source) => !/^val_\d+$/.test(source) && !made.has(source));
  };
  return new Set(initializer.filter((one) => !isWeight(one)).map(({ name = "" }) => name));
}

/** Decodes a file, and checks the number of its nodes. */
export function decodeModel(bytes: Uint8Array): ModelProto & { graph: GraphProto } {
  // The reason of the decoder does not help if the file has another format.
  const model = resultOr(() => fromBinary(ModelProtoSchema, bytes), undefined);
  const { graph } = model ?? {};
  const nodes = graph?.node ?? [];
  const operands = nodes.reduce((sum, { input, output }) => sum + input.length + output.length, 0);
  const isSmall = nodes.length <= NODES_MAX && operands <= OPERANDS_MAX;
  const must = `it must have at most ${NODES_MAX} nodes with ${OPERANDS_MAX} inputs and outputs`;
  assertImport(isSmall, must, `${nodes.length} with ${operands}`);
  if (model && graph && graph.node.length > 0) return Object.assign(model, { graph });
  const what = model ? "without a graph with nodes" : "that are no complete message";
  throw importError("the file must be an ONNX model", `${bytes.length} bytes ${what}`);
}

function opsetOf({ opsetImport }: ModelProto): number {
  const own = opsetImport.find(({ domain = "" }) => domain === "" || domain === ONNX_DOMAIN);
  const version = Number(own?.version ?? 0);
  const isKnown = version >= OPSETS.least && version <= OPSETS.most;
  const received = version || "none, as in an incomplete file";
  assertImport(isKnown, `its opset must be from ${OPSETS.least} to ${OPSETS.most}`, received);
  return version;
}

function readInput({ name = "", type }: ValueInfoProto): OnnxInput {
  const what = `the input ${quoted(name)}`;
  const tensor = type?.value.case === "tensorType" ? type.value.value : undefined;
  const dtype = dtypeOf(tensor?.elemType), dims = tensor?.shape?.dim;
  if (!name || !dtype || !dims || ![1, 6, 7, 9].includes(tensor.elemType ?? 0)) {
    const must = `${what} must be a tensor of f32, i32, i64 or bool with a known number of axes`;
    throw importError(must, tensor ? `ONNX type ${tensor.elemType ?? 0}` : "no such tensor");
  }
  const shape = dims.map(({ value }, axis) => {
    const size = value.case === "dimValue" ? Number(value.value) : 0;
    const called = value.case === "dimParam" ? value.value : "";
    return size > 0 ? size : called || `${name}.${axis}`;
  });
  return { name, dtype, shape };
}

function readNode(node: NodeProto, external: ExternalFiles): OnnxNode {
  const { domain = "", opType = "", input, output } = node;
  const name = node.name || output[0] || opType;
  const settings = new Map<string, Attribute>();
  let value: Constant | undefined;
  for (const one of node.attribute) {
    const tensor = constantOf(one, name, external);
    if (tensor) value = tensor;
    else {
      const attribute = attributeOf(one), received = `another as ${quoted(one.name ?? "")} of`;
      const must = "attributes must be numbers, lists, text or tensors";
      if (attribute !== undefined) settings.set(one.name ?? "", attribute);
      else throw importError(must, `${received} ${nodeLabel({ op: opType, name })}`);
    }
  }
  const attributes = Object.fromEntries(settings);
  const op = domain === "" || domain === ONNX_DOMAIN ? opType : `${domain}.${opType}`;
  const read = { name, op, inputs: input, outputs: output, attributes, constants: new Map() };
  return value ? { ...read, value } : read;
}

/** Returns the tensor of an attribute: `value` of Constant and ConstantOfShape, in any form. */
function constantOf(
  { name, t, f, i, floats, ints }: AttributeProto,
  node: string,
  external: ExternalFiles,
): Constant | undefined {
  if (t) return readTensor(t, `a constant of the node ${quoted(node)}`, external);
  switch (name) {
    case "value_float":
      return { dtype: "f32", shape: [], data: Float32Array.of(f ?? 0) };
    case "value_int":
      return int64([i ?? 0n], []);
    case "value_floats":
      return { dtype: "f32", shape: [floats.length], data: Float32Array.from(floats) };
    case "value_ints":
      return int64(ints, [ints.length]);
  }
}
