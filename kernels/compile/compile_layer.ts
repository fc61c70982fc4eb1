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
import { buildLayer } from "../layers/build_layer.ts";
import {
  contextPort,
  type Layer,
  LayerGraph,
  type Slice,
  type TensorSpec,
} from "../layers/layer.ts";
import { type LayerProgram, PORTS } from "./layer_program.ts";
import { checkPrecision, type Precision } from "../layers/precision.ts";
import { carriedValues, overwrittenValues, type Recompute, savedValues } from "./saved_values.ts";
import { workOf } from "./work.ts";

/** Options of {@linkcode compileLayer}. */
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
}

/**
 * Compiles one layer.
 *
 * @param layer its last use in a model decides `isLoss`.
 * @param input the output of the layer before; absent for the first layer.
 * @throws {TypeError} when an op has no gradient, or a parameter does not reach the output.
 * @throws {RangeError} when a loss is not one f32 number for each sample, or the precision unknown.
 */
export function compileLayer(
  layer: Layer,
  input: TensorSpec | undefined,
  options: LayerOptions,
): LayerProgram {
  const { isLoss, recompute, precision = "fp32" } = options;
  checkPrecision(precision);
  const joint = buildGraph(layer, input, options);
  const { g, y, parameters, seed, forwardNodes, gradients, dx, contexts } = joint;
  const trained = parameters.filter(({ spec }) => !spec.frozen);
  const forInput = dx ? [dx, ...contexts.sums] : [];
  const forWeights = dx ? gradients : [...gradients, ...contexts.sums];
  const outputs = dx ? [...gradients, ...forInput] : forWeights;
  const ends = outputs.map((port) => port.value), kept = contexts.own.map((port) => port.value);
  const saved = savedValues(ends, forwardNodes, recompute, kept);
  const accumulators = trained.map(({ spec }): Port => ({
    name: PORTS.accumulator(spec.name),
    value: g.inputs.find((value) => value.name === PORTS.accumulator(spec.name))!,
  }));
  const savedPorts = saved.map((value, i) => ({ name: `saved.${i}`, value }));
  const given = g.inputs.map((value) => ({ name: value.name, value }))
    .filter(({ value }) => !accumulators.some((port) => port.value === value));
  const over = overwrittenValues(g, saved, ends, kept);
  const overwritten = savedPorts.map(({ name, value }) => ({
    name,
    value: over.get(value)?.at(-1) ?? value,
  }));
  const known = [...given, ...contexts.own, ...overwritten, ...accumulators];
  const carried = dx ? carriedValues(g, known, forInput, gradients) : [];
  const carriedPorts = carried.map((value, i) => ({ name: `carried.${i}`, value }));
  const outputPort = { name: PORTS.output, value: y };
  const borders = isLoss ? [...ends, ...kept] : [...ends, ...kept, y, seed];
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
    ...input && { input },
    output: specOf(outputPort),
    isLoss,
    precision,
    saved: savedPorts.map(specOf),
    carried: carriedPorts.map(specOf),
    ...contexts.own.length > 0 && { contexts: contexts.own.map(specOf) },
    models: {
      forward: encode(given, [outputPort, ...savedPorts, ...contexts.own]),
      ...outputs.length > 0 && { backward: encode(known, outputs) },
      ...dx && { input: encode(known, [...forInput, ...carriedPorts]) },
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
    cost: { forward: work(g, given, [outputPort]), backward: work(g, known, outputs) },
  };
}

/** The work of what computes some values from some others. */
function work(g: LayerGraph, from: readonly Port[], to: readonly Port[]): number {
  const values = (ports: readonly Port[]) => ports.map((port) => port.value);
  return workOf(sliceNodes(g, values(from), values(to)));
}

/** The graph of a layer's forward and backward. */
interface JointGraph {
  readonly g: LayerGraph;
  readonly y: Value;
  readonly parameters: LayerGraph["parameters"];
  /** The gradient of the output, or the factor of the loss. */
  readonly seed: Value;
  readonly forwardNodes: ReadonlySet<Node>;
  readonly gradients: readonly Port[];
  readonly dx?: Port;
  readonly contexts: ContextPorts;
}

/** What passes between slices of a sequence. */
interface ContextPorts {
  /** What the slice keeps for later ones. */
  readonly own: readonly Port[];
  /** The gradients of what earlier ones kept, with those of this slice. */
  readonly sums: readonly Port[];
}

function buildGraph(
  layer: Layer,
  input: TensorSpec | undefined,
  { isLoss, frozen, precision, slice }: LayerOptions,
): JointGraph {
  const g = new LayerGraph(slice);
  const isStored = precision === "fp16" && input?.dtype === "f16";
  const x = input && g.input(PORTS.input, input.shape, isStored ? "f32" : input.dtype);
  const y = buildLayer(layer, g, x);
  if (isLoss && (y.shape.length !== 1 || y.dtype !== "f32")) {
    throw new RangeError(
      `Cannot compile the last layer "${layer.name}": it must return the loss of each sample, f32 [samples], received ${y.dtype} [${y.shape}]`,
    );
  }
  const parameters = g.parameters.map(({ spec, value }) => ({
    spec: frozen?.(spec.name) ? { ...spec, frozen: true as const } : spec,
    value,
  }));
  const trained = parameters.filter(({ spec }) => !spec.frozen);
  const forwardNodes = new Set(g.nodes);
  const seed = isLoss ? g.input(PORTS.lossScale, []) : g.input(PORTS.outputGradient, y.shape);
  const found = differentiate(
    g,
    layer.name,
    trained,
    [y, isLoss ? g.expand(seed, y.shape) : seed],
    x,
  );
  return { g, y, parameters, seed, forwardNodes, ...found };
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

/**
 * Adds the gradients of the parameters and of what earlier slices kept, each summed onto its
 * accumulator, and of the input.
 *
 * [Note: gradients of a context] What slice s keeps is read by itself and by all later ones. Backwards
 * run from the last slice to the first: each adds what it finds for slice j < s to one tensor of j,
 * in place, the last slice, which comes first, by writing it. When the backward of j runs, the sum is
 * complete, and one more gradient of a value that it computes.
 */
function differentiate(
  g: LayerGraph,
  layer: string,
  parameters: LayerGraph["parameters"],
  output: readonly [y: Value, dy: Value],
  x: Value | undefined,
): Pick<JointGraph, "gradients" | "dx" | "contexts"> {
  const { index, count } = g.slice, isLastSlice = index === count - 1;
  const kept = isLastSlice ? [] : g.contexts.map(({ name, value }): Port => ({
    name: contextPort(name, index),
    value,
  }));
  const fromLater = kept.map(({ name, value }) =>
    [value, g.input(PORTS.contextGradient(name), value.shape)] as const
  );
  const past = g.contexts.flatMap((context) => context.past);
  const wanted = [...parameters.map(({ value }) => value), ...past];
  const found = gradientsOf(g, layer, [output, ...fromLater], x ? [...wanted, x] : wanted);
  const gradients = parameters.map(({ spec }, i) => {
    const gradient = found[i];
    if (!gradient) {
      throw new TypeError(
        `Cannot train layer "${layer}": its output must depend on every parameter, received "${spec.name}" unused`,
      );
    }
    const accumulator = g.input(PORTS.accumulator(spec.name), spec.shape);
    return { name: PORTS.gradient(spec.name), value: addInPlace(g, gradient, accumulator) };
  });
  const sums = past.map(({ name, shape }, i): Port => {
    const gradient = found[parameters.length + i] ?? zeros(g, shape);
    const value = isLastSlice
      ? gradient
      : g.add(g.input(PORTS.contextGradient(name), shape), gradient);
    return { name: PORTS.contextSum(name), value };
  });
  const contexts = { own: kept, sums };
  const dx = x && (found.at(-1) ?? zeros(g, x.shape));
  if (!dx) return { gradients, contexts };
  return { gradients, contexts, dx: { name: PORTS.inputGradient, value: dx } };
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
function addInPlace(g: Graph, gradient: Value, accumulator: Value): Value {
  const node = gradient.node;
  const isShared = g.nodes.some((other) => other.inputs.includes(gradient));
  if (node && !isShared) {
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
