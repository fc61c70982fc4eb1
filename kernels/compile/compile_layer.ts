/**
 * Compiles a layer to ONNX models: forward, and backward whole (B) or split into the gradient of
 * the input (I) and of the weights (W).
 *
 * The forward model also returns the activations that the backward models read (they are *saved*,
 * stashed from F to B); gradients of parameters are added to accumulators inside the graph.
 *
 * @module
 */

import type { DType } from "../devices/device.ts";
import { nameError } from "../errors.ts";
import { addGradients, dependentValues } from "../graph/autodiff.ts";
import { isZeros, zeros } from "../graph/gradient_rules.ts";
import type { Graph } from "../graph/graph.ts";
import { type Node, sliceNodes, type Value } from "../graph/value.ts";
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
  type TensorSpec,
} from "../layers/layer.ts";
import { encodeModel, type Port } from "../onnx/encode.ts";
import { checkPrecision, type Precision } from "../precision.ts";
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
  valuesForm,
} from "./programs.ts";
import { workOf } from "./work.ts";

/** Options of `compileLayer`. */
export interface LayerOptions {
  /** Whether it is the last layer, which returns the loss of each sample. */
  readonly isLoss: boolean;
  /** Which activations its backward computes again. */
  readonly recompute: Recompute;
  /** Says of a parameter's name within the layer whether it is not trained. */
  readonly frozen?: (parameter: string) => boolean;
  /** In which type it stores; fp32 where not given. */
  readonly precision?: Precision | undefined;
  /** Which slice of the sequence it computes; all of it where not given. */
  readonly slice?: Slice;
  /** What layers before have given by name. */
  readonly given?: ReadonlyMap<string, OutputSpec>;
}

/** A value that a layer takes, in its graph. */
interface LayerInput {
  readonly spec: InputSpec;
  readonly value: Value;
}

/** A value that it makes. */
interface LayerOutput {
  readonly spec: OutputSpec;
  readonly value: Value;
}

/** The graph of a layer's forward. */
export interface ForwardGraph {
  readonly g: LayerGraph;
  readonly inputs: readonly LayerInput[];
  readonly outputs: readonly LayerOutput[];
  readonly parameters: LayerGraph["parameters"];
  readonly forwardNodes: ReadonlySet<Node>;
}

/** Builds the forward of a layer.
 *
 * @throws {RangeError} when a loss is not one f32 number for each sample.
 * @throws {TypeError} when the layer does not use what it takes.
 */
function buildForward(
  layer: AnyLayer,
  handed: readonly OutputSpec[] | undefined,
  { isLoss, frozen, precision, slice, given = new Map() }: LayerOptions,
): ForwardGraph {
  // Nodes compute in f32, whatever is stored.
  const computed = <Spec extends TensorSpec>(spec: Spec): Spec =>
    precision === "fp16" && spec.dtype === "f16" ? { ...spec, dtype: "f32" } : spec;
  const stored = (dtype: DType) =>
    precision === "fp16" && dtype === "f32" && !isLoss ? "f16" : dtype;
  const g = new LayerGraph(slice, new Map([...given].map(([name, one]) => [name, computed(one)])));
  const y = buildLayer(layer, g, handed && inputsLike(g, handed.map(computed)));
  if (isLoss && !(isValue(y) && y.shape.length === 1 && y.dtype === "f32")) {
    const received = isValue(y) ? `${y.dtype} [${y.shape}]` : "a record";
    throw new RangeError(
      `Cannot compile the last layer "${layer.name}": it must return the loss of each sample, f32 [samples], received ${received}`,
    );
  }
  const parameters = g.parameters.map(({ spec, value }) => ({
    spec: frozen?.(spec.name) ? { ...spec, frozen: true as const } : spec,
    value,
  }));
  const taken = [...g.takes.keys()].map((name) => given.get(name)!);
  const inputs = [...handed ?? [], ...taken].map(({ hasGradient, ...spec }): LayerInput => ({
    spec: { ...spec, ...hasGradient && { gradient: "written" } },
    value: g.inputs.find(({ name }) => name === spec.name)!,
  }));
  const gives = [...g.gives].map(([name, value]) => [skipKey(name), value] as const);
  // Fields are never stored in FP16: what is handed on is a copy.
  const isField = (value: Value) => g.fields.some((field) => field.value === value);
  const made = [...handedValues(y), ...gives].map(([key, value]) =>
    [
      key,
      precision === "fp16" && value.dtype === "f32" && isField(value)
        ? g.mul(value, g.scalar(1))
        : value,
    ] as const
  );
  if (made.length === 0) {
    throw new TypeError(
      `Cannot compile the layer ${
        JSON.stringify(layer.name)
      }: it must hand on a value or give one, received neither`,
    );
  }
  checkUse(layer, g, inputs, made.map(([, value]) => value));
  const dependent = dependentValues(
    g,
    [
      ...parameters.filter(({ spec }) => !spec.frozen),
      ...inputs.filter(({ spec }) => spec.gradient),
    ].map(({ value }) => value),
  );
  const outputs = made.map(([name, value]): LayerOutput => ({
    spec: {
      name,
      dtype: stored(value.dtype),
      shape: value.shape,
      // One tensor is what layers of a chain hand on: it has a gradient, whatever it depends on.
      hasGradient: value.dtype === "f32" && (name === "x" || dependent.has(value)),
    },
    value,
  }));
  return { g, inputs, outputs, parameters, forwardNodes: new Set(g.nodes) };
}

/** Refuses an entry of a record, or a value that was taken, that the layer does not use. */
function checkUse(
  { name }: AnyLayer,
  g: LayerGraph,
  inputs: readonly LayerInput[],
  made: readonly Value[],
): void {
  const read = new Set([...made, ...g.nodes.flatMap((node) => node.inputs)]);
  const unused = inputs.find(({ spec, value }) => spec.name !== "x" && !read.has(value));
  if (!unused) return;
  const value = JSON.stringify(unused.spec.name.slice(unused.spec.name.indexOf(".") + 1));
  throw new TypeError(
    `Cannot compile the layer ${JSON.stringify(name)}: it must use ${value}, which it ${
      isSkip(unused.spec.name) ? "takes" : "is handed"
    }, received no use of it`,
  );
}

/** A layer whose forward graph is built. */
export interface OpenLayer {
  /** What it hands to the next layer, by key. */
  readonly handed: readonly OutputSpec[];
  /** What it gives to later ones, by name. */
  readonly gives: ReadonlyMap<string, OutputSpec>;
  /** The names that it takes. */
  readonly takes: readonly string[];
  readonly forward: ForwardGraph;
  /**
   * Derives its backward and writes its models.
   *
   * @param isLastUse says of what it takes whether no later layer does.
   */
  compile(isLastUse: (name: string) => boolean): LayerProgram;
}

/** Builds the forward graph of a layer. */
export function openLayer(
  layer: AnyLayer,
  handed: readonly OutputSpec[] | undefined,
  options: LayerOptions,
): OpenLayer {
  checkPrecision(options.precision ?? "fp32");
  const forward = buildForward(layer, handed, options);
  const { outputs, inputs } = forward, skips = outputs.filter(({ spec }) => isSkip(spec.name));
  return {
    handed: outputs.filter((one) => !skips.includes(one)).map(({ spec }) => spec),
    gives: new Map(skips.map(({ spec }) => [spec.name.slice("skip.".length), spec])),
    takes: [...forward.g.takes.keys()],
    forward,
    compile: (isLastUse) =>
      writeModels(
        { ...forward, inputs: inputs.map((one) => withUse(one, isLastUse)) },
        layer,
        options,
      ),
  };
}

/** An input as its use is the last one or not. */
function withUse({ spec, value }: LayerInput, isLastUse: (name: string) => boolean): LayerInput {
  const isAdded = spec.gradient && isSkip(spec.name) && !isLastUse(spec.name.slice("skip.".length));
  return { spec: isAdded ? { ...spec, gradient: "added" } : spec, value };
}

function writeModels(
  forward: ForwardGraph,
  layer: AnyLayer,
  { isLoss, recompute, precision = "fp32" }: LayerOptions,
): LayerProgram {
  const { g, inputs, parameters, forwardNodes } = forward;
  const { gradients, inputGradients, contexts, seeds } = differentiate(forward, layer, isLoss);
  const trained = parameters.filter(({ spec }) => !spec.frozen),
    hasInput = inputGradients.length > 0;
  const forInput = hasInput ? [...inputGradients, ...contexts.sums] : [];
  const forWeights = hasInput ? gradients : [...gradients, ...contexts.sums];
  const outputs = hasInput ? [...gradients, ...forInput] : forWeights;
  const ends = outputs.map((port) => port.value), kept = contexts.own.map((port) => port.value);
  const saved = savedValues(ends, forwardNodes, recompute, kept);
  const ports = g.inputs.map((value): Port => ({ name: value.name, value }));
  const sums = new Set(trained.map(({ spec }) => PORTS.accumulator(spec.name)));
  const [given, accumulators] = [false, true].map((isSum) =>
    ports.filter(({ name }) => sums.has(name) === isSum)
  ) as [Port[], Port[]];
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
    encodeModel(g, inputs, outputs, stored);
  return {
    parameters: parameters.map(({ spec }) => spec),
    fields: g.fields.map(({ spec }) => spec),
    ...g.masks.length > 0 && { masks: g.masks.map(({ spec }) => spec) },
    ...valuesForm(inputs.map(({ spec }) => spec), forward.outputs.map(({ spec }) => spec)),
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
      overwrites: savedPorts.flatMap((port) =>
        overwriting(port, over.get(port.value) ?? [], given, encode)
      ),
    },
    cost: { forward: work(g, given, outputPorts), backward: work(g, known, outputs) },
  };
}

/** The models that write over a saved activation, one step after the other. */
function overwriting(
  { name, value }: Port,
  steps: readonly Value[],
  given: readonly Port[],
  encode: (inputs: readonly Port[], outputs: readonly Port[]) => Uint8Array,
): NonNullable<LayerProgram["overwrites"]> {
  return steps.map((step, i) => ({
    saved: name,
    model: encode([...given, { name, value: steps[i - 1] ?? value }], [
      { name: PORTS.overwritten(name), value: step },
    ]),
  }));
}

/** The work of what computes some values from some others. */
function work(g: LayerGraph, from: readonly Port[], to: readonly Port[]): number {
  const values = (ports: readonly Port[]) => ports.map((port) => port.value);
  return workOf(sliceNodes(g, values(from), values(to)));
}

/** What passes between slices of a sequence. */
interface ContextPorts {
  /** What the slice keeps for later ones. */
  readonly own: readonly Port[];
  /** The gradients of what earlier ones kept, with those of this slice. */
  readonly sums: readonly Port[];
}

/**
 * What is stored in FP16: parameters and their accumulators, the input, what the layer hands to
 * others, and whatever a recomputation policy may save, or write over that.
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

/** What a layer's backward computes. */
interface BackwardGraph {
  /** The sums of the parameters' gradients. */
  readonly gradients: readonly Port[];
  readonly inputGradients: readonly Port[];
  readonly contexts: ContextPorts;
  /** The gradients of what it makes, or the factor of the loss. */
  readonly seeds: readonly Value[];
}

/**
 * Adds the gradients of the parameters and of what earlier slices kept, each summed onto its
 * accumulator, and of what the layer takes.
 *
 * [Note: gradients of a context] What slice s keeps is read by itself and by all later ones. Backwards
 * run from the last slice to the first: each adds what it finds for slice j < s to one tensor of j,
 * in place, the last slice, which comes first, by writing it. When the backward of j runs, the sum is
 * complete, and one more gradient of a value that it computes.
 *
 * [Note: gradients of a skip edge] So it is with a value that several layers take. Backwards run from
 * the last layer to the first: the last one that takes it writes its gradient, each one before adds
 * its own, and the sum goes from stage to stage of those that use it until it reaches the maker. The
 * order of the sum is that of the layers, wherever they are cut, and no stage between sees it.
 */
function differentiate(
  { g, inputs, outputs, parameters }: ForwardGraph,
  layer: AnyLayer,
  isLoss: boolean,
): BackwardGraph {
  const { index, count } = g.slice, isLastSlice = index === count - 1;
  const ends = outputs.filter(({ spec }) => spec.hasGradient).map(({ spec: { name }, value }) => {
    if (isLoss) {
      const seed = g.input(PORTS.lossScale, []);
      return { value, seed, gradient: g.expand(seed, value.shape) };
    }
    const gradient = g.input(valuePorts(name).outputGradient, value.shape);
    return { value, seed: gradient, gradient };
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
  const found = gradientsOf(
    g,
    layer.name,
    [...ends.map(({ value, gradient }) => [value, gradient] as const), ...fromLater],
    [...[...trained, ...differentiable].map(({ value }) => value), ...past],
  );
  const read = new Set(g.nodes.flatMap(({ inputs }) => inputs));
  const gradients = trained.map(({ spec }, i) => {
    // What it is tied to may have one where this use has none.
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

function gradientsOf(
  g: Graph,
  layer: string,
  outputs: readonly (readonly [y: Value, dy: Value])[],
  wanted: readonly Value[],
): (Value | undefined)[] {
  try {
    return addGradients(g, outputs, wanted);
  } catch (cause) {
    throw nameError(`Cannot train layer "${layer}"`, cause);
  }
}

/**
 * gradient + accumulator, where possible as an operand of the op that makes the gradient: then the
 * sum costs nothing (Gemm's C) or touches only the rows that change (ScatterND).
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
  /** Whether the last layer returns the loss; true unless told otherwise. */
  readonly endsWithLoss?: boolean;
  /**
   * Which parameters are not trained, by full name. An alias is as frozen as what it is tied to.
   */
  readonly frozen?: ((name: string) => boolean) | undefined;
  /** In which type stages store weights, gradients and activations; fp32 unless told otherwise. */
  readonly precision?: Precision | undefined;
  /**
   * The most elements of a parameter, and of all of them; any number unless given, as a plan can be
   * made for a model that no machine holds.
   */
  readonly elementsMax?: number | undefined;
  /** Equal parts into which the tokens of each sample are cut; 1 unless given. */
  readonly slices?: number | undefined;
}
