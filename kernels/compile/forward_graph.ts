/**
 * The forward graph of a layer: what it takes, by key, and what it makes.
 *
 * @module
 */

import type { DType } from "../devices/device.ts";
import { dependentValues } from "../graph/autodiff.ts";
import type { Node, Value } from "../graph/value.ts";
import { buildLayer, handedValues, inputsLike, isValue } from "../layers/build_layer.ts";
import {
  type AnyLayer,
  LayerGraph,
  skipKey,
  type Slice,
  type TensorSpec,
} from "../layers/layer.ts";
import type { Precision } from "../layers/precision.ts";
import { type InputSpec, isSkip, type OutputSpec } from "./layer_program.ts";
import type { Recompute } from "./saved_values.ts";

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
export interface LayerInput {
  readonly spec: InputSpec;
  readonly value: Value;
}

/** A value that it makes. */
export interface LayerOutput {
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
export function buildForward(
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
