/**
 * Reads a file into a graph: operations that exporters write as several steps are fused, values known
 * before a run are computed, others get their types.
 *
 * [Note: fused steps] PyTorch writes a layer norm as nine operations in opsets before 17, and a
 * GELU as five or eight. Trained in this form, most of their results would be kept until the
 * backward pass: four times the activations of a norm, and a pass over memory for each.
 * Intermediate results must have no other readers.
 *
 * @module
 */

import { elementCount, ELEMENTS_MAX as SHAPES_ELEMENTS_MAX, sameShape } from "../graph/shapes.ts";
import {
  assertImport,
  type Constant,
  hostArray,
  importError,
  int64,
  listed,
  nodeLabel,
  type OnnxGraph,
  type OnnxInput,
  type OnnxNode,
  quoted,
} from "./read_file.ts";
import { workOf } from "../compile/compile_layer.ts";
import type { HostArray } from "../devices/device.ts";
import { assertInput, nameError } from "../errors.ts";
import type { Value } from "../graph/value.ts";
import { LayerGraph, type TensorSpec } from "../layers/layer.ts";
import { type NdArray, ndArray } from "../ops/array.ts";
import { opOf } from "../ops/table.ts";

/** A fused operation, and the steps before its last one. */
interface Found {
  readonly fused: OnnxNode;
  readonly steps: readonly OnnxNode[];
}

/** Returns the nodes of a file with fused operations. */
export function fuseNodes(file: OnnxGraph): readonly OnnxNode[] {
  const around = contextOf(file), gone = new Set<OnnxNode>();
  const fused = new Map<OnnxNode, OnnxNode>();
  for (const node of file.nodes) {
    const found = layerNorm(node, around) ?? gelu(node, around) ?? tanhGelu(node, around);
    if (!found) continue;
    fused.set(node, found.fused);
    found.steps.forEach((step) => gone.add(step));
  }
  return file.nodes.filter((node) => !gone.has(node)).map((node) => fused.get(node) ?? node);
}

/** Returns functions that find the nodes and constants next to a node of a file. */
function contextOf({ nodes, initializers, outputs }: OnnxGraph) {
  const makers = new Map(nodes.flatMap((node) => node.outputs.map((name) => [name, node])));
  const reads = new Map<string, number>();
  for (const name of [...nodes.flatMap(({ inputs }) => inputs), ...outputs]) {
    reads.set(name, (reads.get(name) ?? 0) + 1);
  }
  const constantOf = (name: string): Constant | undefined => {
    const maker = makers.get(name);
    return maker?.op === "Constant" ? maker.value : initializers.get(name);
  };
  return {
    /** Returns the node that computes a value, if it has this operation and number of readers. */
    made(value = "", op: string, readers = 1) {
      const maker = makers.get(value);
      return maker?.op === op && reads.get(value) === readers ? maker : undefined;
    },
    /** Returns the number of a constant scalar. */
    numberOf(value = "") {
      const data = constantOf(value)?.data;
      return data?.length === 1 ? Number(data[0]) : undefined;
    },
    /** Returns whether a value is a weight with one axis. */
    isVector: (value: string) => initializers.get(value)?.shape.length === 1,
  };
}

type NodeContext = ReturnType<typeof contextOf>;

const isNear = (value: number | undefined, wanted: number) =>
  value !== undefined && Math.abs(value - wanted) <= 1e-6 * Math.abs(wanted);

/** Returns the other operand of a commutative operation. */
function beside(
  { inputs: [a = "", b = ""] }: OnnxNode,
  is: (value: string) => unknown,
): string | undefined {
  return is(a) ? b : is(b) ? a : undefined;
}

const alike = (node: OnnxNode, change: Partial<OnnxNode>): OnnxNode => ({
  name: node.name,
  op: node.op,
  inputs: node.inputs,
  outputs: node.outputs,
  attributes: {},
  constants: new Map(),
  ...change,
});

/** Returns whether a mean is taken over the last axis, which remains. */
function isRowMean(mean: OnnxNode): boolean {
  const axes = mean.constants.get(1);
  return axes !== undefined && sameShape(Array.from(axes.data, Number), [-1]) &&
    (mean.attributes.keepdims ?? 1) === 1;
}

/** (x − mean) ÷ √(mean of its squares + ε) · weight + bias */
function layerNorm(sum: OnnxNode, { made, numberOf, isVector }: NodeContext): Found | undefined {
  const scaledName = sum.op === "Add" ? beside(sum, isVector) : undefined;
  const scaled = made(scaledName, "Mul"), normalName = scaled && beside(scaled, isVector);
  const normal = made(normalName, "Div"), [centredName, rootName] = normal?.inputs ?? [];
  const centred = made(centredName, "Sub", 2), root = made(rootName, "Sqrt");
  const above = made(root?.inputs[0], "Add");
  const varianceName = above && beside(above, (value) => numberOf(value) !== undefined);
  const variance = made(varianceName, "ReduceMean"), square = made(variance?.inputs[0], "Pow");
  const mean = made(centred?.inputs[1], "ReduceMean"), [x] = mean?.inputs ?? [];
  const isNorm = square?.inputs[0] === centredName && numberOf(square?.inputs[1]) === 2 &&
    x !== undefined && centred?.inputs[0] === x && isRowMean(mean!) && isRowMean(variance!);
  if (!isNorm || !scaled || !normal || !centred || !root || !above || !variance || !mean) {
    return undefined;
  }
  const epsilon = numberOf(beside(above, (value) => value === varianceName))!;
  const [weight, bias] = [
    beside(scaled, (value) => value === normalName)!,
    beside(sum, (value) => value === scaledName)!,
  ];
  return {
    fused: alike(sum, {
      op: "LayerNormalization",
      inputs: [x, weight, bias],
      attributes: { axis: -1, epsilon: { float: epsilon } },
    }),
    steps: [scaled, normal, centred, root, above, variance, square!, mean],
  };
}

/** x · (1 + erf(x ÷ √2)) · ½ */
function gelu(whole: OnnxNode, { made, numberOf }: NodeContext): Found | undefined {
  const is = (wanted: number) => (value: string) => isNear(numberOf(value), wanted);
  const product = made(whole.op === "Mul" ? beside(whole, is(0.5)) : undefined, "Mul");
  const above = product && product.inputs.map((name) => made(name, "Add")).find((one) => one);
  const erf = made(above && beside(above, is(1)), "Erf"), scaled = made(erf?.inputs[0], "Div");
  const [x, root] = scaled?.inputs ?? [];
  if (!product || !above || !erf || !scaled || x === undefined) return undefined;
  if (!isNear(numberOf(root), Math.SQRT2) || !product.inputs.includes(x)) return undefined;
  const fused = alike(whole, { op: "Gelu", inputs: [x], attributes: { approximate: "none" } });
  return { fused, steps: [product, above, erf, scaled] };
}

/** (½ · x) · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) */
function tanhGelu(whole: OnnxNode, { made, numberOf }: NodeContext): Found | undefined {
  if (whole.op !== "Mul") return undefined;
  const is = (wanted: number) => (value: string) => isNear(numberOf(value), wanted);
  const above = whole.inputs.map((name) => made(name, "Add")).find((one) => one);
  const half = whole.inputs.map((name) => made(name, "Mul")).find((one) => one);
  const tanh = made(above && beside(above, is(1)), "Tanh"), scaled = made(tanh?.inputs[0], "Mul");
  const sum = made(scaled && beside(scaled, is(Math.sqrt(2 / Math.PI))), "Add");
  const cubes = sum?.inputs.map((name) => made(name, "Mul")).find((one) => one);
  const cube = made(cubes && beside(cubes, is(0.044715)), "Pow"), [x, three] = cube?.inputs ?? [];
  if (!above || !half || !tanh || !scaled || !sum || !cubes || !cube || x === undefined) {
    return undefined;
  }
  const isGelu = numberOf(three) === 3 && sum.inputs.includes(x) && beside(half, is(0.5)) === x;
  if (!isGelu) return undefined;
  const fused = alike(whole, { op: "Gelu", inputs: [x], attributes: { approximate: "tanh" } });
  return { fused, steps: [above, half, tanh, scaled, sum, cubes, cube] };
}

/**
 * Adds a node of a file to a graph, and returns its outputs.
 *
 * @param inputs its inputs; undefined for those left out.
 * @throws {TypeError} when its operation or an attribute is not supported.
 * @throws {RangeError} when its inputs do not fit together.
 */
export function addNode(g: LayerGraph, node: OnnxNode, inputs: Operands): readonly Value[] {
  const { op, attributes, outputs } = node, read = opOf(op)?.read;
  if (!read) throw importError("its operations must be known", nodeLabel(node));
  try {
    const made = read({ g, inputs, attributes, outputs }), values = "shape" in made ? [made] : made;
    for (const { shape } of values) checkSizes(shape);
    return values;
  } catch (cause) {
    throw nameError(`Cannot import ${op} of the ONNX model (node ${quoted(node.name)})`, cause);
  }
}

/** Inputs of a node; undefined for those left out. */
type Operands = readonly (Value | undefined)[];

/** Refuses sizes that a run could not allocate. */
function checkSizes(shape: readonly number[]): void {
  const holds = shape.every((size) => size >= 0) && elementCount(shape) <= SHAPES_ELEMENTS_MAX;
  const must = `sizes must be from 0 and their product at most ${SHAPES_ELEMENTS_MAX}`;
  assertInput(holds, "compute its outputs", must, `[${shape}]`);
}

/** Largest number of elements of a computed constant, and of all of them in a file. */
const ELEMENTS_MAX = { one: 2 ** 24, all: 2 ** 27 } as const;

/** Work of {@linkcode workOf} that takes the time of one element. */
const ELEMENT_WORK = 20;

/**
 * Computes the outputs of a node that reads only constants or sizes.
 *
 * @returns undefined if the node needs a run.
 * @throws {RangeError} when all constants of the file together cost too much.
 */
type Fold = (node: OnnxNode, inputs: Operands) => readonly Constant[] | undefined;

/** Starts to fold one file, with a budget for all its constants. */
function openFolding(): Fold {
  let all = 0;
  const spend = (elements: number, node: OnnxNode) => {
    all += elements;
    const holds = elements <= ELEMENTS_MAX.one && all <= ELEMENTS_MAX.all;
    const most = `at most ${ELEMENTS_MAX.one} elements, and ${ELEMENTS_MAX.all} in all`;
    const must = `the results that it computes from constants must have ${most}`;
    assertImport(holds, must, `more at ${nodeLabel(node)}`, RangeError);
  };
  return (node, inputs) => {
    const own = Object.hasOwn(OWN_OPS, node.op) ? OWN_OPS[node.op] : undefined;
    const isKnown = inputs.every((input) => !input || input.data);
    if (own && (isKnown || SHAPE_OPS.has(node.op))) {
      return [own(node, inputs, (elements) => spend(elements, node))];
    }
    if (!isKnown) return undefined;
    const g = new LayerGraph();
    const operands = inputs.map((one) => one && g.constant(one.data!, one.shape, one.dtype));
    const outputs = addNode(g, node, operands);
    const elements = g.nodes.flatMap((one) => one.outputs)
      .reduce((sum, { shape }) => sum + elementCount(shape), 0);
    spend(Math.max(elements, workOf(g.nodes) / ELEMENT_WORK), node);
    return evaluate(g, outputs);
  };
}

const toNumbers = (value: Value | undefined): number[] =>
  value?.data ? Array.from(value.data, Number) : [];

/** Operations that read only the shape of their input. */
const SHAPE_OPS = new Set(["Shape", "Size"]);

/** Computes a constant, after it reports the number of its elements. */
type OwnOp = (node: OnnxNode, inputs: Operands, spend: (elements: number) => void) => Constant;

/** Operations whose results are always known, so that no graph contains them. */
const OWN_OPS: Readonly<Record<string, OwnOp>> = {
  Constant(node) {
    if (node.value) return node.value;
    const must = "a Constant must have a value that is a tensor or numbers";
    throw importError(must, `none (node ${quoted(node.name)})`);
  },
  Shape({ attributes: { start, end } }, [x]) {
    const sizes = x!.shape.slice(Number(start ?? 0), end === undefined ? undefined : Number(end));
    return int64(sizes, [sizes.length]);
  },
  Size: (_, [x]) => int64([elementCount(x!.shape)], []),
  ConstantOfShape(node, [sizes], spend) {
    const { value } = node, shape = toNumbers(sizes), dtype = value?.dtype ?? "f32";
    const isShape = shape.every((size) => size >= 0);
    const received = `[${shape}] (node ${quoted(node.name)})`;
    assertImport(isShape, "a ConstantOfShape must have sizes from 0", received, RangeError);
    spend(elementCount(shape));
    const data = hostArray(dtype, Array(elementCount(shape)).fill(value?.data[0] ?? 0));
    return { dtype, shape, data };
  },
  Range(_, inputs, spend) {
    const [start = 0, limit = 0, delta = 1] = inputs.map((one) => toNumbers(one)[0]);
    const length = Math.max(0, Math.ceil((limit - start) / delta));
    spend(length);
    const dtype = inputs[0]!.dtype;
    const numbers = Array.from({ length }, (_, i) => start + i * delta);
    return { dtype, shape: [length], data: hostArray(dtype, numbers) };
  },
};

/** Names of the operations that no graph contains. */
export const KNOWN_OPS: readonly string[] = Object.keys(OWN_OPS);

/** Computes values of a graph without inputs. */
function evaluate(g: LayerGraph, outputs: readonly Value[]): Constant[] {
  const arrays = new Map<Value, NdArray>();
  const arrayOf = (value: Value) =>
    arrays.getOrInsertComputed(value, () => ndArray(value, numbersOf(value.data!)));
  for (const node of g.nodes) {
    const operation = opOf(node.op, node.domain)?.reference;
    const must = "operations on constants must be known to the reference device";
    if (!operation) throw importError(must, node.op);
    const inputs = node.inputs.map(arrayOf) as [NdArray, ...NdArray[]];
    const results = operation(inputs, node, node.outputs as [Value, ...Value[]]);
    [results].flat().forEach((array, i) => arrays.set(node.outputs[i]!, array));
  }
  return outputs.map((value) => {
    if (value.data) return { dtype: value.dtype, shape: value.shape, data: value.data };
    const { dtype, shape, values } = arrayOf(value);
    return { dtype, shape, data: hostArray(dtype, values) };
  });
}

const numbersOf = (data: HostArray): ArrayLike<number> =>
  data instanceof BigInt64Array ? Float64Array.from(data, Number) : data;

/** Sizes by their names in the file; a size without a name is `input.axis`. */
export type Dimensions = Readonly<Record<string, number>>;

/**
 * Returns the inputs with a number for every size.
 *
 * @throws {TypeError} when an open size is not given, or the file has no size of a given name.
 * @throws {RangeError} when a size is not a whole number from 1, or an input is too large.
 */
export function staticInputs(
  inputs: readonly OnnxInput[],
  dimensions: Dimensions,
): readonly TensorSpec[] {
  const known = new Set(inputs.flatMap(({ shape }) => shape.filter(isName)));
  for (const [name, size] of Object.entries(dimensions)) {
    const open = listed(known) || "of which it has none";
    const must = `dimensions must be among those that it leaves open, ${open}`;
    assertImport(known.has(name), must, quoted(name));
    const isSize = Number.isSafeInteger(size) && size >= 1;
    const whole = `the dimension ${quoted(name)} must be a whole number from 1`;
    assertImport(isSize, whole, size, RangeError);
  }
  return inputs.map(({ name, dtype, shape }) => {
    const sizes = shape.map((size) =>
      typeof size === "number" ? size : given(dimensions, size, name)
    );
    const must = `the input ${quoted(name)} must have at most ${SHAPES_ELEMENTS_MAX} elements`;
    const holds = elementCount(sizes) <= SHAPES_ELEMENTS_MAX;
    assertImport(holds, must, `shape [${sizes}]`, RangeError);
    return { name, dtype, shape: sizes };
  });
}

const isName = (size: number | string): size is string => typeof size === "string";

function given(dimensions: Dimensions, size: string, input: string): number {
  const must = `the dimension ${quoted(size)} of its input ${quoted(input)} must be given`;
  const isGiven = Object.hasOwn(dimensions, size);
  assertImport(isGiven, must, listed(Object.keys(dimensions)) || "none");
  return dimensions[size]!;
}

/** Returns the name of the first axis of all inputs, that of samples; undefined if they differ. */
export function samplesDimension(inputs: readonly OnnxInput[]): string | undefined {
  const names = new Set(inputs.map(({ shape }) => shape[0]));
  const [first] = names;
  return names.size === 1 && typeof first === "string" ? first : undefined;
}

/** A weight of a file. */
interface Weight {
  readonly shape: readonly number[];
  /** Its initial values. */
  readonly data: Float32Array;
  /** True if it is not trained. */
  readonly isFrozen: boolean;
}

/** Inputs, weights and constants of a file, by name. */
interface SourceTables {
  readonly inputs: ReadonlyMap<string, TensorSpec>;
  readonly weights: ReadonlyMap<string, Weight>;
  readonly constants: ReadonlyMap<string, Constant>;
}

/** Finds values by name, in one graph. */
export interface Sources {
  /** Returns a value; undefined if none has this name so far. */
  get(name: string): Value | undefined;
  set(name: string, value: Value): void;
}

/**
 * Opens the sources of a graph. Each is added to the graph on first use.
 *
 * [Note: whole numbers] Exporters write ids as int64. Their fields are int32, as everywhere in
 * Troupe, and are widened when they are read.
 *
 * @param parameterOf returns the name of a weight's parameter in the graph.
 */
export function openSources(
  g: LayerGraph,
  { inputs, weights, constants }: SourceTables,
  parameterOf: (weight: string) => string = (weight) => weight,
): Sources {
  const values = new Map<string, Value>();
  const make = (name: string): Value | undefined => {
    const constant = constants.get(name);
    if (constant) return g.constant(constant.data, constant.shape, constant.dtype);
    const weight = weights.get(name);
    if (weight) return parameter(g, parameterOf(name), weight);
    const field = inputs.get(name);
    if (!field) return undefined;
    const { dtype, shape } = field;
    return dtype === "i64"
      ? g.cast(g.batch(name, shape, "i32"), "i64")
      : g.batch(name, shape, dtype);
  };
  return {
    get(name) {
      const value = values.get(name) ?? make(name);
      if (value) values.set(name, value);
      return value;
    },
    set: (name, value) => void values.set(name, value),
  };
}

function parameter(g: LayerGraph, name: string, { shape, isFrozen }: Weight): Value {
  const value = g.parameter(name, shape);
  const declared = g.parameters.at(-1)!;
  if (isFrozen) declared.spec = { ...declared.spec, frozen: true };
  return value;
}

/** A node that a run computes. */
export interface FoldedNode {
  readonly node: OnnxNode;
  /** Names of its inputs, unique for each value; empty for those left out. */
  readonly reads: readonly string[];
  /** Its outputs. */
  readonly makes: readonly TensorSpec[];
  /** Its work, by which models are cut into layers. */
  readonly work: number;
  /** The range of its nodes in {@linkcode FoldedFile.graph}. */
  readonly from: number;
  readonly to: number;
}

/** A file as steps. */
export interface FoldedFile extends SourceTables {
  readonly steps: readonly FoldedNode[];
  /** All steps in one graph. */
  readonly graph: LayerGraph;
  /** Returns a value of the graph by its name in the file. */
  readonly valueOf: (name: string) => Value | undefined;
  /** Returns the unique name of a value that has several names in the file. */
  readonly canonical: (name: string) => string;
}

/** Arguments of {@linkcode foldFile}. */
interface FoldOptions {
  readonly file: OnnxGraph;
  /** The inputs, with a number for every size. */
  readonly inputs: readonly TensorSpec[];
  /** Returns whether a weight is not trained. */
  readonly isFrozen: (weight: string) => boolean;
  /** Returns whether a weight is a constant, such as a mask of attention. */
  readonly isConstant?: (weight: string) => boolean;
}

/**
 * Folds a file.
 *
 * @throws {TypeError} with the node whose operation, attributes or inputs are not supported.
 */
export function foldFile({ file, inputs, ...kinds }: FoldOptions): FoldedFile {
  const { weights, constants } = sortInitializers(file, kinds);
  const tables = { inputs: new Map(inputs.map((spec) => [spec.name, spec])), weights, constants };
  const graph = new LayerGraph(), sources = openSources(graph, tables), fold = openFolding();
  const steps: FoldedNode[] = [],
    names = new Map<Value, string>(),
    same = new Map<string, string>();
  const canonical = (name: string) => same.get(name) ?? name;
  const made = new Set<string>([...tables.inputs.keys(), ...file.initializers.keys()]);
  for (const node of fuseNodes(file)) {
    const reads = node.inputs.map(canonical);
    for (const [place, constant] of node.constants) {
      while (reads.length <= place) reads.push("");
      reads[place] = `${node.outputs[0]}.setting.${place}`;
      constants.set(reads[place], constant);
    }
    const values = reads.map((name) => name === "" ? undefined : readOf(name, node));
    for (const name of node.outputs) declare(name, node);
    const folded = fold(node, values);
    if (folded) {
      node.outputs.forEach((name, i) => name && folded[i] && constants.set(name, folded[i]));
      continue;
    }
    const from = graph.nodes.length, outputs = addNode(graph, node, values);
    const to = graph.nodes.length;
    reads.forEach((name, i) => values[i] && names.set(values[i], name));
    const makes = node.outputs.flatMap((name, i): TensorSpec[] => {
      const value = outputs[i];
      if (!name || !value) return [];
      sources.set(name, value);
      const known = names.get(value);
      if (known !== undefined) {
        same.set(name, known);
        return [];
      }
      names.set(value, name);
      return [{ name, dtype: value.dtype, shape: value.shape }];
    });
    const work = workOf(graph.nodes.slice(from, to));
    if (makes.length > 0) steps.push({ node, reads, makes, work, from, to });
  }
  return { ...tables, steps, graph, valueOf: (name) => sources.get(canonical(name)), canonical };

  function readOf(name: string, node: OnnxNode): Value {
    const value = sources.get(name);
    if (value) return value;
    const received = `${quoted(name)} as an input of ${nodeLabel(node)}`;
    throw importError("the inputs of a node must be computed before it", received);
  }

  function declare(name: string, node: OnnxNode): void {
    if (name === "") return;
    const received = `${quoted(name)} again from ${nodeLabel(node)}`;
    assertImport(!made.has(name), "each value must be computed once", received);
    made.add(name);
  }
}

/** Divides initializers: f32 tensors are weights, unless they are settings; others are constants. */
function sortInitializers(
  { initializers, constants: known, nodes }: OnnxGraph,
  { isFrozen, isConstant = () => false }: Pick<FoldOptions, "isFrozen" | "isConstant">,
) {
  const settings = new Set(
    nodes.flatMap(({ op, inputs }) =>
      (opOf(op)?.settings ?? []).map((place) => inputs[place] ?? "")
    ),
  );
  const weights = new Map<string, Weight>(), constants = new Map<string, Constant>();
  const statistics = new Set(
    nodes.filter(({ op }) => op === "BatchNormalization").flatMap(({ inputs }) => inputs.slice(3)),
  );
  for (const [name, constant] of initializers) {
    const { shape, data } = constant;
    const isWeight = !settings.has(name) && !known.has(name) && !isConstant(name);
    if (data instanceof Float32Array && isWeight) {
      weights.set(name, { shape, data, isFrozen: statistics.has(name) || isFrozen(name) });
    } else constants.set(name, constant);
  }
  return { weights, constants };
}

/**
 * Returns the accepted steps of a file.
 *
 * @param read names of values that later steps read; those of the accepted steps are added.
 * @param accepts called from the last step to the first, with whether its outputs are read.
 */
export const neededSteps = (
  { steps }: FoldedFile,
  read: Set<string>,
  accepts: (step: FoldedNode, isRead: boolean) => boolean,
): readonly FoldedNode[] =>
  steps.toReversed().filter((step) => {
    const isNeeded = accepts(step, step.makes.some(({ name }) => read.has(name)));
    if (isNeeded) step.reads.forEach((name) => read.add(name));
    return isNeeded;
  }).reverse();
