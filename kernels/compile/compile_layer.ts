/**
 * Compiles a layer to ONNX models: forward, and backward whole (B) or split into the gradient of
 * the input (I) and of the weights (W).
 *
 * The forward model also returns the activations that the backward models read (they are *saved*
 * from F to B); gradients of parameters are added to accumulators inside the graph. The work of a
 * layer is estimated for cuts of models into stages.
 *
 * [Note: one estimate for all devices] A cut must not depend on the machine, since plans of memory and
 * the shards of checkpoints follow it. Relative to their products, devices differ in the time of
 * element-wise ops (wasm computes a GELU in the time of 45 operations of a product, native in that of
 * 80), but these ops take at most a sixth of the time: numbers between the two give cuts within a few
 * percent of the best for each. A test compares them with measured times.
 *
 * @module
 */

import { elementCount } from "../graph/shapes.ts";
import {
  type Attribute,
  type FusedOp,
  type Node,
  sliceNodes,
  type TensorSpec,
  type Value,
} from "../graph/value.ts";
import { builtin } from "../builtin.ts";
import type { DType, HostArray } from "../devices/device.ts";
import { assertInput, nameErrors, refusal } from "../errors.ts";
import { addGradients, dependentValues } from "../ops/autodiff.ts";
import { isZeros, zeros } from "../ops/op.ts";
import type { Graph } from "../ops/graph.ts";
import {
  type AnyLayer,
  buildLayer,
  contextPort,
  handedValues,
  inputsLike,
  isValue,
  LayerGraph,
  skipKey,
  type Slice,
} from "../layers/layer.ts";
import { encodeModel, type Port } from "../onnx/encode.ts";
import { type Precision, PRECISIONS } from "../precision.ts";
import {
  carriedValues,
  type InputSpec,
  isSkip,
  type LayerProgram,
  type OutputSpec,
  overwrittenValues,
  PORTS,
  type Recompute,
  savedValues,
  valuePorts,
} from "./programs.ts";

/** The cost of most ops: one pass over memory. */
const PASS_COST = 20;

/** Operations of a large matrix product in the time that an op takes for one element. */
const ELEMENT_COSTS: Readonly<Record<string, number>> = {
  Gather: 150,
  ScatterND: 150,
  LayerNormalization: 40,
  SimplifiedLayerNormalization: 40,
  FastGelu: 65,
  Gelu: 65,
  QuickGelu: 65,
  Softmax: 65,
  AveragePool: 130,
  ...{
    FastGeluGrad: 90,
    SoftmaxGrad: 50,
    LayerNormInputGrad: 90,
    LayerNormWeightGrad: 40,
    ConvWeightGrad: 0, // a product, see below
    MaxPoolGrad: 300,
    CrossEntropy: 40,
    RoundBf16: PASS_COST,
    AdamW: 100,
  } satisfies Record<FusedOp, number>,
};
/** Operations without cost: they change nothing, or are removed on compilation. */
const FREE_OPS = new Set(["Reshape", "Expand", "Identity"]);

/** Operations that touch only the rows named by their other inputs. */
const ROW_OPS = new Set(["Gather", "GatherElements", "ScatterND", "ScatterElements"]);

/** Factor of products of many small matrices, as in attention, relative to one of large ones. */
const SMALL_PRODUCTS = 1.15;

/** Factor of the gradient of a convolution's weight, whose windows are copied side by side. */
const WINDOW_PRODUCTS = 1.5;

/** Returns the estimated work of nodes, in floating-point operations of a large matrix product. */
export function workOf(nodes: readonly Node[]): number {
  return nodes.reduce((sum, node) => sum + workOfNode(node), 0);
}

function workOfNode({ op, inputs, outputs, attributes }: Node): number {
  if (FREE_OPS.has(op)) return 0;
  if (op === "Gemm" || op === "MatMul" || op === "FusedMatMul") {
    const inner = inputs[0]!.shape.at(attributes.transA === 1 ? -2 : -1)!;
    const operations = 2 * elementCount(outputs[0]!.shape) * inner;
    return outputs[0]!.shape.length > 2 ? SMALL_PRODUCTS * operations : operations;
  }
  const products = convolutionWork(op, inputs, outputs);
  if (products !== undefined) return products;
  const touched = op.startsWith("Gather") ? [...inputs.slice(1), ...outputs] : inputs.slice(1);
  const tensors = ROW_OPS.has(op) ? touched : [...inputs, ...outputs];
  const largest = Math.max(...tensors.map(({ shape }) => elementCount(shape)));
  return (ELEMENT_COSTS[op] ?? PASS_COST) * largest;
}

/** Returns the work of a convolution or its gradients: the products of the weight and each window. */
function convolutionWork(
  op: string,
  [first, second]: readonly Value[],
  [output]: readonly Value[],
): number | undefined {
  const operations = (weight: Value, narrow: Value) =>
    2 * elementCount(weight.shape) * elementCount(narrow.shape) / narrow.shape[1]!;
  if (op === "Conv") return operations(second!, output!);
  if (op === "ConvTranspose") return operations(second!, first!);
  return op === "ConvWeightGrad" ? WINDOW_PRODUCTS * operations(output!, first!) : undefined;
}

/** Options of `openLayer`. */
export interface LayerOptions {
  /** True for the last layer, which returns the loss of each sample. */
  readonly isLoss: boolean;
  /** The activations that its backward recomputes. */
  readonly recompute: Recompute;
  /** Returns whether a parameter, by its name within the layer, is not trained. */
  readonly frozen?: (parameter: string) => boolean;
  /** Storage type. Default fp32. */
  readonly precision?: Precision | undefined;
  /** The slice of the sequence that it computes. Default: the whole sequence. */
  readonly slice?: Slice;
  /** Values that earlier layers give, by name. */
  readonly given?: ReadonlyMap<string, OutputSpec>;
}

/** An input or output of a layer and its value in the graph. */
interface Bound<Spec> {
  readonly spec: Spec;
  readonly value: Value;
}

/**
 * Builds the forward of a layer.
 *
 * @throws {RangeError} when a loss is not one f32 number for each sample.
 * @throws {TypeError} when the layer does not use one of its inputs.
 */
function buildForward(
  layer: AnyLayer,
  handed: readonly OutputSpec[] | undefined,
  { isLoss, frozen, precision, slice, given = new Map() }: LayerOptions,
) {
  // Nodes compute in f32, also where storage is FP16.
  const computed = <Spec extends TensorSpec>(spec: Spec): Spec =>
    precision === "fp16" && spec.dtype === "f16" ? { ...spec, dtype: "f32" } : spec;
  const stored = (dtype: DType) =>
    precision === "fp16" && dtype === "f32" && !isLoss ? "f16" : dtype;
  const g = new LayerGraph(slice, new Map([...given].map(([name, one]) => [name, computed(one)])));
  const y = buildLayer(layer, g, handed && inputsLike(g, handed.map(computed)));
  if (isLoss && !(isValue(y) && y.shape.length === 1 && y.dtype === "f32")) {
    const received = isValue(y) ? `${y.dtype} [${y.shape}]` : "a record";
    const must = "it must return the loss of each sample, f32 [samples]";
    throw refusal(`compile the last layer "${layer.name}"`, must, received);
  }
  const parameters = g.parameters.map(({ spec, value }) => ({
    spec: frozen?.(spec.name) ? { ...spec, frozen: true as const } : spec,
    value,
  }));
  const taken = [...g.takes.keys()].map((name) => given.get(name)!);
  const inputs = [...handed ?? [], ...taken].map(({ hasGradient, ...spec }): Bound<InputSpec> => ({
    spec: { ...spec, ...hasGradient && { gradient: "written" } },
    value: g.inputs.find(({ name }) => name === spec.name)!,
  }));
  const gives = [...g.gives].map(([name, value]) => [skipKey(name), value] as const);
  // Fields are never stored in FP16, so an output that is a field is copied.
  const isCopied = (value: Value) =>
    precision === "fp16" && value.dtype === "f32" &&
    g.fields.some((field) => field.value === value);
  const made = [...handedValues(y), ...gives].map(([key, value]) =>
    [key, isCopied(value) ? g.mul(value, g.scalar(1)) : value] as const
  );
  const cannot = `compile the layer ${JSON.stringify(layer.name)}`;
  const hands = "it must hand on a value or give one";
  assertInput(made.length > 0, cannot, hands, "neither", TypeError);
  checkUse(layer, g, inputs, made.map(([, value]) => value));
  const trained = parameters.filter(({ spec }) => !spec.frozen);
  const sources = [...trained, ...inputs.filter(({ spec }) => spec.gradient)];
  const dependent = dependentValues(g, sources.map(({ value }) => value));
  const outputs = made.map(([name, value]): Bound<OutputSpec> => ({
    spec: {
      name,
      dtype: stored(value.dtype),
      shape: value.shape,
      // The single tensor of a chain always has a gradient.
      hasGradient: value.dtype === "f32" && (name === "x" || dependent.has(value)),
    },
    value,
  }));
  return { g, inputs, outputs, parameters, forwardNodes: new Set(g.nodes) };
}

/** The graph of a layer's forward. */
export type ForwardGraph = ReturnType<typeof buildForward>;

/** Throws if the layer does not use an entry of a record or a value that it takes. */
function checkUse(
  { name }: AnyLayer,
  g: LayerGraph,
  inputs: readonly Bound<InputSpec>[],
  made: readonly Value[],
): void {
  const read = new Set([...made, ...g.nodes.flatMap((node) => node.inputs)]);
  const unused = inputs.find(({ spec, value }) => spec.name !== "x" && !read.has(value));
  if (!unused) return;
  const key = unused.spec.name, value = JSON.stringify(key.slice(key.indexOf(".") + 1));
  const must = `it must use ${value}, which it ${isSkip(key) ? "takes" : "is handed"}`;
  throw refusal(`compile the layer ${JSON.stringify(name)}`, must, "no use of it", TypeError);
}

/**
 * Builds the forward graph of a layer.
 *
 * @param layer the layer; with `isLoss` it is the last one of a model.
 * @param handed outputs of the layer before, by key; undefined for the first layer.
 * @throws {RangeError} when a loss is not one f32 number for each sample, or the precision is unknown.
 */
export function openLayer(
  layer: AnyLayer,
  handed: readonly OutputSpec[] | undefined,
  options: LayerOptions,
) {
  const { precision = "fp32" } = options, must = `precision must be ${PRECISIONS.join(" or ")}`;
  assertInput(PRECISIONS.includes(precision), "compile", must, precision);
  const forward = buildForward(layer, handed, options);
  const { outputs, inputs } = forward, skips = outputs.filter(({ spec }) => isSkip(spec.name));
  return {
    /** Its outputs for the next layer, by key. */
    handed: outputs.filter((one) => !skips.includes(one)).map(({ spec }) => spec),
    /** Values for later layers, by name. */
    gives: new Map(skips.map(({ spec }) => [spec.name.slice("skip.".length), spec])),
    /** Names of the values that it takes. */
    takes: [...forward.g.takes.keys()],
    forward,
    /**
     * Derives its backward and encodes its models.
     *
     * @param isLastUse returns whether no later layer takes a value that it takes.
     * @param known programs by the form of their layers; equal layers share one, which is compiled once.
     */
    compile(
      isLastUse: (name: string) => boolean,
      known = new Map<string, LayerProgram>(),
    ): LayerProgram {
      const used = { ...forward, inputs: inputs.map((one) => withUse(one, isLastUse)) };
      const write = () => writeModels(used, layer, options);
      return known.getOrInsertComputed(formOf(used, options), write);
    },
  };
}

/** A layer whose forward graph is built. */
export type OpenLayer = ReturnType<typeof openLayer>;

/** Returns an input whose gradient is written by its last use, and added to by others. */
function withUse(
  { spec, value }: Bound<InputSpec>,
  isLastUse: (name: string) => boolean,
): Bound<InputSpec> {
  const isAdded = spec.gradient && isSkip(spec.name) && !isLastUse(spec.name.slice("skip.".length));
  return { spec: isAdded ? { ...spec, gradient: "added" } : spec, value };
}

/**
 * Returns a text that determines the program of a layer: its forward, of which the backward is a function,
 * and the options. Names of values are unique in their graph.
 */
function formOf(
  { g, inputs, outputs, parameters }: ForwardGraph,
  { isLoss, recompute, precision }: LayerOptions,
): string {
  const constants = new Set<Value>();
  const named = (value: Value) => {
    if (value.data) constants.add(value);
    return value.name;
  };
  const typed = ({ name, dtype, shape }: Value) => [name, dtype, shape];
  const bound = (all: readonly Bound<unknown>[]) =>
    all.map(({ spec, value }) => [spec, named(value)]);
  const form = [
    [isLoss, recompute, precision, g.contexts.length > 0 && g.part, g.inputs.map(typed)],
    [inputs, outputs, parameters, g.fields, g.masks].map(bound),
    g.contexts.map(({ name, past, value }) => [name, past.map(named), named(value)]),
    g.nodes.map((node) => [
      ...[node.op, node.domain, node.inputs.map(named), node.outputs.map(typed)],
      ...[Object.entries(node.attributes).map(attributeText), g.stops.has(node)],
    ]),
  ];
  const data = Array.from(constants, ({ data, ...value }) => [typed(value), hashOf(data!)]);
  return JSON.stringify([form, data]);
}

/** JSON has neither −0 nor numbers that are not finite. */
const attributeText = ([name, value]: readonly [string, Attribute]): string =>
  typeof value === "object" && "float" in value
    ? `${name} float ${Object.is(value.float, -0) ? "-0" : value.float}`
    : `${name} ${typeof value} ${value}`;

/** Returns the hash of a constant; a page, which has no synchronous hash, takes its bytes. */
function hashOf(data: HostArray): string {
  const { createHash } = builtin("node:crypto");
  if (createHash === undefined) return new TextDecoder("latin1").decode(data);
  return createHash("sha256").update(data).digest("base64");
}

function writeModels(
  forward: ForwardGraph,
  layer: AnyLayer,
  { isLoss, recompute, precision = "fp32" }: LayerOptions,
): LayerProgram {
  const { g, inputs, parameters, forwardNodes } = forward;
  const { gradients, inputGradients, contexts, seeds } = differentiate(forward, layer, isLoss);
  const hasInput = inputGradients.length > 0;
  const forInput = hasInput ? [...inputGradients, ...contexts.sums] : [];
  const forWeights = hasInput ? gradients : [...gradients, ...contexts.sums];
  const outputs = hasInput ? [...gradients, ...forInput] : forWeights;
  const ends = outputs.map((port) => port.value), kept = contexts.own.map((port) => port.value);
  const saved = savedValues(ends, forwardNodes, recompute, kept);
  const ports = g.inputs.map((value): Port => ({ name: value.name, value }));
  const sums = new Set(parameters.map(({ spec }) => PORTS.accumulator(spec.name)));
  const isSum = ({ name }: Port) => sums.has(name), accumulators = ports.filter(isSum);
  const given = ports.filter((port) => !isSum(port));
  const savedPorts = saved.map((value, i) => ({ name: `saved.${i}`, value }));
  const over = overwrittenValues(g, saved, ends, kept);
  const overwritten = savedPorts.map(({ name, value }) => ({
    name,
    value: over.get(value)?.at(-1) ?? value,
  }));
  const known = [...given, ...contexts.own, ...overwritten, ...accumulators];
  const carried = hasInput ? carriedValues(g, known, forInput, gradients) : [];
  const carriedPorts = carried.map((value, i) => ({ name: `carried.${i}`, value }));
  const outputPorts = forward.outputs.map(({ spec: { name }, value }) => ({
    name: valuePorts(name).output,
    value,
  }));
  const made = forward.outputs.map(({ value }) => value);
  const borders = isLoss ? [...ends, ...kept] : [...ends, ...kept, ...made, ...seeds];
  const stored = precision === "fp16" ? storedValues(g, borders, forwardNodes) : new Set<Value>();
  const specOf = ({ name, value }: Port): TensorSpec => ({
    name,
    dtype: stored.has(value) ? "f16" : value.dtype,
    shape: value.shape,
  });
  const encode = (inputs: readonly Port[], outputs: readonly Port[]) =>
    encodeModel(g, inputs, outputs, stored, precision === "bf16");
  return {
    parameters: parameters.map(({ spec }) => spec),
    fields: g.fields.map(({ spec }) => spec),
    ...g.masks.length > 0 && { masks: g.masks.map(({ spec }) => spec) },
    inputs: inputs.map(({ spec }) => spec),
    outputs: forward.outputs.map(({ spec }) => spec),
    isLoss,
    precision,
    saved: savedPorts.map(specOf),
    carried: carriedPorts.map(specOf),
    ...contexts.own.length > 0 && { contexts: contexts.own.map(specOf) },
    models: {
      forward: encode(given, [...outputPorts, ...savedPorts, ...contexts.own]),
      ...outputs.length > 0 && { backward: encode(known, outputs) },
      ...hasInput && { input: encode(known, [...forInput, ...carriedPorts]) },
      ...forWeights.length > 0 && { weight: encode([...carriedPorts, ...known], forWeights) },
    },
    ...over.size > 0 && {
      overwrites: savedPorts.flatMap(({ name, value }) =>
        (over.get(value) ?? []).map((step, i, steps) => ({
          saved: name,
          model: encode([...given, { name, value: steps[i - 1] ?? value }], [
            { name: PORTS.overwritten(name), value: step },
          ]),
        }))
      ),
    },
    cost: { forward: work(g, given, outputPorts), backward: work(g, known, outputs) },
  };
}

/** Returns the work of computing some values from others. */
function work(g: LayerGraph, from: readonly Port[], to: readonly Port[]): number {
  const values = (ports: readonly Port[]) => ports.map((port) => port.value);
  return workOf(sliceNodes(g, values(from), values(to)));
}

/**
 * Returns the values that are stored in FP16: parameters and their accumulators, the input, the outputs
 * for other layers, and all values that a recomputation policy may save, or that overwrite those.
 */
function storedValues(
  g: LayerGraph,
  borders: readonly Value[],
  forwardNodes: ReadonlySet<Node>,
): Set<Value> {
  const isStatistic = (value: Value) =>
    value.node?.op === "LayerNormalization" && value !== value.node.outputs[0];
  const isOwn = (input: Value) =>
    input.name !== PORTS.lossScale &&
    ![...g.fields, ...g.masks].some(({ value }) => value === input);
  const saved = savedValues(borders, forwardNodes, "none");
  const values = [
    ...g.inputs.filter(isOwn),
    ...borders,
    ...saved,
    ...[...overwrittenValues(g, saved, borders).values()].flat(),
    ...savedValues(borders, forwardNodes, "cheap"),
  ];
  return new Set(values.filter((value) => value.dtype === "f32" && !isStatistic(value)));
}

/**
 * Adds the gradients of the parameters and of the values of earlier slices, each summed onto its
 * accumulator, and of the layer's inputs.
 *
 * [Note: gradients of a context] A value that slice s keeps is read by s and by all later slices.
 * Backwards run from the last slice to the first: each adds its gradient for slice j < s to one tensor
 * of j, in place; the last slice, which runs first, writes it. When the backward of j runs, the sum is
 * complete and is one more gradient of a value that j computes.
 *
 * [Note: gradients of a skip edge] A value that several layers take is handled in the same way.
 * Backwards run from the last layer to the first: the last layer that takes it writes its gradient,
 * earlier ones add theirs, and the sum is sent from stage to stage of its users until it reaches the
 * maker. The order of the sum is that of the layers, wherever they are cut, and no other stage has it.
 *
 * @returns `gradients`, the sums of the parameters' gradients; `inputGradients`; `contexts`, the values
 * of this slice for later ones (`own`) and the `sums` of gradients of earlier slices' values; `seeds`,
 * the gradients of its outputs or the factor of the loss.
 */
function differentiate(
  { g, inputs, outputs, parameters }: ForwardGraph,
  layer: AnyLayer,
  isLoss: boolean,
) {
  const { index, count } = g.part, isLastSlice = index === count - 1;
  const ends = outputs.filter(({ spec }) => spec.hasGradient).map(({ spec: { name }, value }) => {
    const port = isLoss ? PORTS.lossScale : valuePorts(name).outputGradient;
    const seed = g.input(port, isLoss ? [] : value.shape);
    return { value, seed, gradient: g.expand(seed, value.shape) };
  });
  const kept = isLastSlice ? [] : g.contexts.map(({ name, value }): Port => ({
    name: contextPort(name, index),
    value,
  }));
  const fromLater = kept.map(({ name, value }) =>
    [value, g.input(PORTS.contextGradient(name), value.shape)] as const
  );
  const past = g.contexts.flatMap((context) => context.past);
  const trained = parameters.filter(({ spec }) => !spec.frozen);
  const differentiable = inputs.filter(({ spec }) => spec.gradient);
  const made = [...ends.map(({ value, gradient }) => [value, gradient] as const), ...fromLater];
  const wanted = [...[...trained, ...differentiable].map(({ value }) => value), ...past];
  const cannot = `Cannot train layer "${layer.name}"`;
  const found = nameErrors(cannot, () => addGradients(g, made, wanted));
  const read = new Set(g.nodes.flatMap(({ inputs }) => inputs));
  const gradients = trained.map(({ spec }, i) => {
    // An alias of it may have a gradient where this use has none.
    const gradient = found[i] ?? zeros(g, spec.shape);
    const accumulator = g.input(PORTS.accumulator(spec.name), spec.shape);
    return { name: PORTS.gradient(spec.name), value: addInPlace(g, gradient, accumulator, read) };
  });
  const rest = found.slice(trained.length);
  const inputGradients = differentiable.map(({ spec, value: { shape } }, i): Port => {
    const ports = valuePorts(spec.name), own = rest[i] ?? zeros(g, shape);
    const isAdded = spec.gradient === "added";
    const value = isAdded ? g.add(g.input(ports.laterGradient, shape), own) : own;
    return { name: ports.inputGradient, value };
  });
  const sums = past.map(({ name, shape }, i): Port => {
    const gradient = rest[differentiable.length + i] ?? zeros(g, shape);
    const value = isLastSlice
      ? gradient
      : g.add(g.input(PORTS.contextGradient(name), shape), gradient);
    return { name: PORTS.contextSum(name), value };
  });
  const contexts = { own: kept, sums };
  return { gradients, inputGradients, contexts, seeds: ends.map(({ seed }) => seed) };
}

/**
 * Returns gradient + accumulator, if possible as an operand of the op that computes the gradient: then
 * the sum is free (Gemm's C) or touches only the rows that change (ScatterND).
 */
function addInPlace(
  g: Graph,
  gradient: Value,
  accumulator: Value,
  read: ReadonlySet<Value>,
): Value {
  const node = gradient.node;
  if (node && !read.has(gradient)) {
    const { op, inputs, attributes } = node;
    if (op === "Gemm" && inputs.length === 2) {
      return g.node(op, [...inputs, accumulator], [gradient.shape], attributes)[0]!;
    }
    if (op === "ScatterND" && isZeros(inputs[0]!)) {
      return g.node(op, [accumulator, ...inputs.slice(1)], [gradient.shape], attributes)[0]!;
    }
  }
  return g.add(gradient, accumulator);
}

/** Options of `compileModel`. */
export interface CompileOptions {
  /** True if the last layer returns the loss. Default true. */
  readonly endsWithLoss?: boolean;
  /**
   * Returns whether a parameter, by full name, is not trained; an alias follows its canonical one.
   */
  readonly frozen?: ((name: string) => boolean) | undefined;
  /** Type in which stages store weights, gradients and activations. Default fp32. */
  readonly precision?: Precision | undefined;
  /**
   * Largest number of elements of a parameter, and of all of them. Default: unlimited, as a plan may
   * be for a model that no machine can hold.
   */
  readonly elementsMax?: number | undefined;
  /** Equal parts into which the tokens of each sample are cut. Default 1. */
  readonly slices?: number | undefined;
  /** True to compile all lengths of samples; not with slices. Default false. */
  readonly lengths?: boolean | undefined;
}
