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

import { elementCount, ELEMENTS_MAX as SHAPES_ELEMENTS_MAX } from "../graph/shapes.ts";
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
import { assertInput, nameErrors } from "../errors.ts";
import type { TensorSpec, Value } from "../graph/value.ts";
import { LayerGraph } from "../layers/layer.ts";
import { type NdArray, ndArray } from "../ops/array.ts";
import { opOf } from "../ops/table.ts";

/** The match of a form: values by their names in forms, and the nodes that compute them. */
interface Match {
  readonly values: Readonly<Record<string, string>>;
  readonly nodes: readonly OnnxNode[];
}

/** Adds a value of a file to a match; undefined if it does not have the form. */
type Form = (value: string, match: Match, file: Surroundings) => Match | undefined;

/** The makers of the values of a file, their numbers of readers, and the numbers of constants. */
type Surroundings = ReturnType<typeof surroundingsOf>;

function surroundingsOf({ nodes, initializers, outputs }: OnnxGraph) {
  const makers = new Map(nodes.flatMap((node) => node.outputs.map((name) => [name, node])));
  const reads = Map.groupBy([...nodes.flatMap(({ inputs }) => inputs), ...outputs], (name) => name);
  const numberOf = (value: string) => {
    const maker = makers.get(value);
    const constant = maker?.op === "Constant" ? maker.value : initializers.get(value);
    return constant?.data.length === 1 ? Number(constant.data[0]) : NaN;
  };
  return { makers, reads, numberOf, initializers };
}

/** A form whose value is the same wherever it has this name. */
const named = (name: string, form: Form): Form => (value, match, file) => {
  const known = match.values[name];
  if (known !== undefined) return known === value ? match : undefined;
  return form(value, { ...match, values: { ...match.values, [name]: value } }, file);
};

/** Any value that fulfils a condition. */
const such = (is: (value: string, file: Surroundings) => boolean): Form => (value, match, file) =>
  is(value, file) ? match : undefined;

/** A constant scalar. */
const near = (wanted: number): Form =>
  such((value, { numberOf }) => Math.abs(numberOf(value) - wanted) <= 1e-6 * Math.abs(wanted));

/** The result of an operation whose operands have forms, which for Add and Mul are in any order. */
const result = (op: string, ...forms: readonly Form[]): Form => (value, match, file) => {
  const node = file.makers.get(value);
  if (node?.op !== op) return undefined;
  const first: Match = { ...match, nodes: [...match.nodes, node] };
  const orders = op === "Add" || op === "Mul" ? [forms, forms.toReversed()] : [forms];
  return orders.values().map((order) =>
    order.reduce<Match | undefined>(
      (found, form, i) => found && form(node.inputs[i] ?? "", found, file),
      first,
    )
  ).find((found) => found);
};

/** A mean over the last axis, which remains. */
const rowMean = (form: Form): Form => (value, match, file) => {
  const { constants, attributes } = file.makers.get(value) ?? {}, axes = constants?.get(1)?.data;
  const isOfRows = axes && `${axes}` === "-1" && (attributes?.keepdims ?? 1) === 1;
  return isOfRows ? result("ReduceMean", form)(value, match, file) : undefined;
};

const x = named("x", such(() => true));
const vector = (name: string) =>
  named(name, such((value, file) => file.initializers.get(value)?.shape.length === 1));
const centred = named("centred", result("Sub", x, rowMean(x)));
const epsilon = named("epsilon", such((value, { numberOf }) => !Number.isNaN(numberOf(value))));
const variance = rowMean(result("Pow", centred, near(2)));
const normal = result("Div", centred, result("Sqrt", result("Add", variance, epsilon)));
const cubes = result("Mul", result("Pow", x, near(3)), near(0.044715));
const scaled = result("Mul", result("Add", x, cubes), near(Math.sqrt(2 / Math.PI)));
const oneMore = (form: Form) => result("Add", form, near(1));

/** (x − mean) ÷ √(mean of its squares + ε) · weight + bias */
const NORM = result("Add", result("Mul", normal, vector("weight")), vector("bias"));

/** x · (1 + erf(x ÷ √2)) · ½ */
const erf = result("Erf", result("Div", x, near(Math.SQRT2)));
const GELU = result("Mul", result("Mul", x, oneMore(erf)), near(0.5));

/** (½ · x) · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) */
const TANH_GELU = result("Mul", result("Mul", x, near(0.5)), oneMore(result("Tanh", scaled)));

/** Operations that replace forms; their inputs have the names of values in the form. */
const FUSED: readonly (Pick<OnnxNode, "op" | "inputs" | "attributes"> & { form: Form })[] = [
  {
    form: NORM,
    op: "LayerNormalization",
    inputs: ["x", "weight", "bias"],
    attributes: { axis: -1 },
  },
  { form: GELU, op: "Gelu", inputs: ["x"], attributes: { approximate: "none" } },
  { form: TANH_GELU, op: "Gelu", inputs: ["x"], attributes: { approximate: "tanh" } },
];

/** Returns the match of a node's form, if no other nodes read its intermediate values. */
function matchOf(form: Form, node: OnnxNode, file: Surroundings): Match | undefined {
  const match = form(node.outputs[0] ?? "", { values: {}, nodes: [] }, file);
  const nodes = [...new Set(match?.nodes)], read = nodes.flatMap(({ inputs }) => inputs);
  const isInner = ({ outputs: [value = ""] }: OnnxNode) =>
    file.reads.get(value)?.length === read.filter((name) => name === value).length;
  return nodes.every((one) => one === node || isInner(one)) ? match : undefined;
}

/** Returns the nodes of a file with fused operations. */
export function fuseNodes(file: OnnxGraph): readonly OnnxNode[] {
  const around = surroundingsOf(file), gone = new Set<OnnxNode>();
  const nodes = file.nodes.map((node): OnnxNode => {
    for (const { form, op, ...fused } of FUSED) {
      const match = matchOf(form, node, around);
      if (!match) continue;
      match.nodes.filter((one) => one !== node).forEach((one) => gone.add(one));
      const { name, outputs } = node, { values: { epsilon, ...values } } = match;
      const inputs = fused.inputs.map((one) => values[one]!);
      const attributes = {
        ...fused.attributes,
        ...epsilon !== undefined && { epsilon: { float: around.numberOf(epsilon) } },
      };
      return { name, op, inputs, outputs, attributes, constants: new Map() };
    }
    return node;
  });
  return nodes.filter((node) => !gone.has(node));
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
  const cannot = `Cannot import ${op} of the ONNX model (node ${quoted(node.name)})`;
  return nameErrors(cannot, () => {
    const made = read({ g, inputs, attributes, outputs }), values = "shape" in made ? [made] : made;
    for (const { shape } of values) checkSizes(shape);
    return values;
  });
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
  const names = inputs.flatMap(({ shape }) => shape.filter((size) => typeof size === "string"));
  const known = new Set(names);
  for (const [name, size] of Object.entries(dimensions)) {
    const open = listed(known) || "of which it has none";
    const must = `dimensions must be among those that it leaves open, ${open}`;
    assertImport(known.has(name), must, quoted(name));
    const isSize = Number.isSafeInteger(size) && size >= 1;
    const whole = `the dimension ${quoted(name)} must be a whole number from 1`;
    assertImport(isSize, whole, size, RangeError);
  }
  return inputs.map(({ name, dtype, shape }) => {
    const sizes = shape.map((size) => {
      if (typeof size === "number") return size;
      const must = `the dimension ${quoted(size)} of its input ${quoted(name)} must be given`;
      const isGiven = Object.hasOwn(dimensions, size);
      assertImport(isGiven, must, listed(Object.keys(dimensions)) || "none");
      return dimensions[size]!;
    });
    const must = `the input ${quoted(name)} must have at most ${SHAPES_ELEMENTS_MAX} elements`;
    const holds = elementCount(sizes) <= SHAPES_ELEMENTS_MAX;
    assertImport(holds, must, `shape [${sizes}]`, RangeError);
    return { name, dtype, shape: sizes };
  });
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
) {
  const values = new Map<string, Value>();
  const make = (name: string): Value | undefined => {
    const constant = constants.get(name);
    if (constant) return g.constant(constant.data, constant.shape, constant.dtype);
    const weight = weights.get(name);
    if (weight) {
      const value = g.parameter(parameterOf(name), weight.shape), declared = g.parameters.at(-1)!;
      if (weight.isFrozen) declared.spec = { ...declared.spec, frozen: true };
      return value;
    }
    const field = inputs.get(name);
    if (!field) return undefined;
    const { dtype, shape } = field;
    return dtype === "i64"
      ? g.cast(g.batch(name, shape, "i32"), "i64")
      : g.batch(name, shape, dtype);
  };
  return {
    /** Returns a value; undefined if none has this name so far. */
    get(name: string): Value | undefined {
      const value = values.get(name) ?? make(name);
      if (value) values.set(name, value);
      return value;
    },
    set: (name: string, value: Value) => void values.set(name, value),
  };
}

/** Finds values by name, in one graph. */
export type Sources = ReturnType<typeof openSources>;

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
