/**
 * Compiles a layer to ONNX models: forward, and backward whole (B) or split into the gradient of
 * the input (I) and of the weights (W).
 *
 * The forward model also returns the activations that the backward models read (they are *saved*,
 * stashed from F to B); gradients of parameters are added to accumulators inside the graph.
 *
 * @module
 */

import { nameError } from "../name_error.ts";
import { addGradients } from "../graph/autodiff.ts";
import { isZeros, zeros } from "../graph/gradient_rules.ts";
import type { Graph } from "../graph/graph.ts";
import type { Node, Value } from "../graph/value.ts";
import { sliceNodes } from "../graph/slice.ts";
import { encodeModel, type Port } from "../onnx/encode_model.ts";
import { type AnyLayer, contextPort, type LayerGraph, type TensorSpec } from "../layers/layer.ts";
import { checkPrecision } from "../layers/precision.ts";
import {
  buildForward,
  type ForwardGraph,
  type LayerInput,
  type LayerOptions,
} from "./forward_graph.ts";
import {
  isSkip,
  type LayerProgram,
  type OutputSpec,
  PORTS,
  valuePorts,
  valuesForm,
} from "./layer_program.ts";
import { carriedValues, overwrittenValues, savedValues } from "./saved_values.ts";
import { workOf } from "./work.ts";

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
