/**
 * The layers of a stage as plain data, so that workers receive no code.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import type { Slicing } from "../batch.ts";
import type { HostArray } from "../devices/device.ts";
import type { Graph } from "../ops/graph.ts";
import { elementCount, sameShape } from "../graph/shapes.ts";
import { type Node, sliceNodes, type TensorSpec, TROUPE, type Value } from "../graph/value.ts";
import { isDropout, type MaskSpec, type ParameterSpec } from "../layers/layer.ts";
import type { Port } from "../onnx/encode.ts";
import { valueTypes } from "../onnx/lower.ts";
import { ModelProtoSchema } from "../onnx/onnx_pb.ts";
import { intOf } from "../onnx/signature.ts";
import type { Precision } from "../precision.ts";

/** An input of a layer, by its key: `x`, `x.NAME` of a record, `skip.NAME` of a skip edge. */
export interface InputSpec extends TensorSpec {
  /**
   * Defines whether its backward writes the gradient of the value, or adds to that of later uses;
   * undefined if the value has none.
   */
  readonly gradient?: "written" | "added";
}

/** An output of a layer, by its key. */
export interface OutputSpec extends TensorSpec {
  /** True if its gradient is sent back. */
  readonly hasGradient: boolean;
}

/** A layer as plain data. Equal layers of a model share one program. */
export interface LayerProgram {
  /** Its parameters in the order of their declaration. */
  readonly parameters: readonly ParameterSpec[];
  /** Fields of the micro-batch that the layer reads. */
  readonly fields: readonly TensorSpec[];
  /** Masks of its dropouts, by the names of their ports. */
  readonly masks?: readonly MaskSpec[];
  /** Outputs of the layer before, none for the first, and then values that other layers give. */
  readonly inputs: readonly InputSpec[];
  /** Outputs for the next layer, or the loss of each sample; then values that it gives. */
  readonly outputs: readonly OutputSpec[];
  /** True if the output is the loss of each sample. */
  readonly isLoss: boolean;
  /** Type in which its models read and write weights, gradients and activations. */
  readonly precision: Precision;
  /** Activations that are kept from F to B (to W when the backward is split). */
  readonly saved: readonly TensorSpec[];
  /** Values that I passes to W. */
  readonly carried: readonly TensorSpec[];
  /** Values for later slices of the sequence, by the names of their ports. */
  readonly contexts?: readonly TensorSpec[];
  /**
   * ONNX models. `input` is undefined if no input has a gradient, as for the first layer, whose W is
   * its whole backward; `weight` if no parameter is trained; `backward` if both.
   */
  readonly models: {
    readonly forward: Uint8Array;
    readonly backward?: Uint8Array;
    readonly input?: Uint8Array;
    readonly weight?: Uint8Array;
  };
  /**
   * Models that run one after the other before B or I, and overwrite one of the saved activations:
   * backward models read the result of the last one there.
   */
  readonly overwrites?: readonly { readonly saved: string; readonly model: Uint8Array }[];
  /** Estimated work of a forward and a whole backward, in floating-point operations. */
  readonly cost: { readonly forward: number; readonly backward: number };
}

/**
 * Returns the names by which models read and write a value and its gradients, by its key.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(valuePorts("x").output, "y");
 * assert.equal(valuePorts("x.mask").outputGradient, "dy.mask");
 * assert.equal(valuePorts("skip.memory").inputGradient, "dskip.memory");
 * ```
 */
export function valuePorts(key: string) {
  const isHanded = !isSkip(key), name = key.slice(isHanded ? 1 : "skip".length);
  return {
    /** Input of a layer that takes it. */
    input: key,
    /** Output of the layer that makes it. */
    output: `${isHanded ? "y" : "give"}${name}`,
    /** Input of its maker for its gradient. */
    outputGradient: `${isHanded ? "dy" : "dgive"}${name}`,
    /** Output for its gradient of a layer that takes it, including later uses. */
    inputGradient: `d${key}`,
    /** Input for the gradient of later uses. */
    laterGradient: `later${name}`,
  };
}

/** Returns whether a key is that of a value given by name. */
export const isSkip = (key: string): boolean => key.startsWith("skip.");

/** Names of the inputs and outputs of models. */
export const PORTS = {
  /** Factor of the loss: one over the number of predictions of the step. */
  lossScale: "scale",
  parameter: (name: string) => `p.${name}`,
  field: (name: string) => `batch.${name}`,
  accumulator: (name: string) => `acc.${name}`,
  /** The result of an overwriting model in place of a saved activation. */
  overwritten: (saved: string) => `over.${saved}`,
  gradient: (name: string) => `d.${name}`,
  /** The gradient of a value for later slices, and its sum with that of a later one. */
  contextGradient: (context: string) => `d.${context}`,
  contextSum: (context: string) => `sum.${context}`,
} as const;

/** Policy for the activations that are recomputed in the backward instead of saved. */
export type Recompute = "none" | "cheap" | "full";

/** The policies of {@linkcode Recompute}, for checks and help texts. */
export const RECOMPUTE_POLICIES: readonly Recompute[] = ["none", "cheap", "full"];

/** Operations whose outputs are cheap to recompute. */
const CHEAP_OPS = new Set([
  ...["LayerNormalization", "SimplifiedLayerNormalization", "FastGelu", "Gelu", "QuickGelu"],
]);

/** Operations that only move elements: their inputs are saved instead of their outputs. */
const MOVES = new Set(["Reshape", "Concat", "Identity"]);

const sizeOf = (values: readonly Value[]) =>
  values.reduce((sum, { shape }) => sum + elementCount(shape), 0);

/** Returns whether a value was computed from something smaller, as scores of attention are. */
function isGrown({ node }: Value): boolean {
  while (node && (node.op === "Softmax" || node.op === "Add" || isDropout(node))) {
    node = node.inputs[0]!.node;
  }
  if (node?.op !== "FusedMatMul" && node?.op !== "MatMul") return false;
  return sizeOf(node.outputs) > sizeOf(node.inputs);
}

/**
 * Returns the forward values at which the backward pass stops, under a recomputation policy.
 *
 * @param kept values that are kept in any case.
 */
export function savedValues(
  outputs: readonly Value[],
  forwardNodes: ReadonlySet<Node>,
  recompute: Recompute,
  kept: readonly Value[] = [],
): Value[] {
  const saved = new Set<Value>(), seen = new Set<Value>(kept);
  const pending = [...outputs];
  while (pending.length > 0) {
    const value = pending.pop()!;
    if (seen.has(value) || !value.node) continue;
    seen.add(value);
    const again = !forwardNodes.has(value.node) || recompute === "full" ||
      MOVES.has(value.node.op) ||
      (recompute === "cheap" &&
        (CHEAP_OPS.has(value.node.op) || isDropout(value.node) || isGrown(value)));
    if (again) pending.push(...value.node.inputs);
    else saved.add(value);
  }
  return [...saved].sort((a, b) => a.node!.id - b.node!.id || (a.name < b.name ? -1 : 1));
}

/** Operations whose result may overwrite their first operand, element by element. */
const OVERWRITING = new Set(["Softmax", "ScatterElements"]);

/**
 * Returns the values that overwrite saved activations before the backward, step by step.
 *
 * [Note: activations that are overwritten] The largest activations of a language model are its logits.
 * Their gradient is as large, and needs no other value of that size: it is computed in place, each step
 * by a separate model, so that there is no third copy. A saved value qualifies if one operation of the
 * backward reads it, and that operation is in {@linkcode OVERWRITING}.
 *
 * @returns for each saved value that qualifies the values that overwrite it, in order.
 */
export function overwrittenValues(
  g: Graph,
  saved: readonly Value[],
  ends: readonly Value[],
  kept: readonly Value[] = [],
): Map<Value, Value[]> {
  const nodes = sliceNodes(g, [...g.inputs, ...kept, ...saved], ends);
  const readings = nodes.flatMap((node) =>
    [...new Set(node.inputs)].map((value) => ({ value, node }))
  );
  const readers = Map.groupBy(readings, ({ value }) => value);
  const isEnd = new Set(ends);
  const next = (value: Value) => {
    const [reader, ...others] = readers.get(value) ?? [];
    if (!reader || others.length > 0 || isEnd.has(value)) return undefined;
    const { op, inputs, outputs: [result] } = reader.node;
    const isInPlace = OVERWRITING.has(op) && inputs.lastIndexOf(value) === 0 &&
      sameShape(result!.shape, value.shape);
    return isInPlace ? result : undefined;
  };
  return new Map(saved.flatMap((value) => {
    const steps: Value[] = [];
    for (let step = next(value); step; step = next(step)) steps.push(step);
    return steps.length > 0 ? [[value, steps]] : [];
  }));
}

/** Returns the values that I computes and W reads. */
export function carriedValues(
  g: Graph,
  known: readonly Port[],
  forInput: readonly Port[],
  gradients: readonly Port[],
): Value[] {
  const values = known.map((port) => port.value), given = new Set(values);
  const inputNodes = new Set(sliceNodes(g, values, forInput.map((port) => port.value)));
  const weightNodes = sliceNodes(g, values, gradients.map((port) => port.value));
  const isCarried = (value: Value) =>
    value.node !== undefined && inputNodes.has(value.node) && !given.has(value);
  const read = weightNodes.filter((node) => !inputNodes.has(node)).flatMap((node) => node.inputs);
  const wanted = [...read, ...gradients.map((port) => port.value)];
  return [...new Set(wanted.filter(isCarried))].sort((a, b) => a.node!.id - b.node!.id);
}

/**
 * A value given by name that crosses the border of a stage. On a skip edge it is sent from the stage
 * that makes it to each stage that uses it; its gradient is sent from the last of them to the one
 * before, which adds its part, and so on to the maker.
 */
export interface StageSkip {
  /** Its key, `skip.NAME`. */
  readonly key: string;
  /** The stage that it comes from; undefined if this stage makes it. */
  readonly from?: number;
  /** The stages that it is sent to; empty if another stage makes it. */
  readonly to: readonly number[];
  /** The stage that the gradient of later uses comes from; undefined if there is none. */
  readonly gradientFrom?: number;
  /** The stage that the gradient is sent to; undefined if this stage makes it, or it has none. */
  readonly gradientTo?: number;
}

/** The layers of a stage as plain data, complete for a worker. */
export interface StageProgram {
  /** Distinct layer programs. */
  readonly programs: readonly LayerProgram[];
  /**
   * The layers in order: the index of its program, the prefix of its parameters' names, and its block.
   */
  readonly layers: readonly {
    /** Name shown to users, and key of its dropout. */
    readonly name: string;
    readonly block?: string;
    readonly prefix: string;
    readonly program: number;
    /** Programs of the slices of a sequence; `program` is that of the first. */
    readonly slices?: readonly number[];
    /** Programs of the lengths of a sample; `program` is that of the longest. */
    readonly lengths?: readonly number[];
  }[];
  /** Slicing of sequences; undefined if they are not cut. */
  readonly slicing?: Slicing;
  /** Lengths of samples in tokens, the longest first; undefined if all samples have one. */
  readonly lengths?: readonly number[];
  /** Values that cross its border besides the outputs of consecutive stages. */
  readonly skips?: readonly StageSkip[];
  /** Jobs whose adapters share its frozen weights; the program itself is then the first variant. */
  readonly jobs?: {
    /** Names of the jobs. */
    readonly names: readonly string[];
    /** For each job, its program. */
    readonly variantOf: readonly number[];
    /** Programs with different adapters. */
    readonly variants: readonly StageProgram[];
  };
}

/** A layer, the prefix of its parameters' names, and its block. */
export interface NamedProgram
  extends Pick<StageProgram["layers"][number], "name" | "block" | "prefix"> {
  /** Its program. */
  readonly program: LayerProgram;
}

/** Returns the parameters of some layers by full name. */
export function parametersOf(layers: readonly NamedProgram[]) {
  return layers.flatMap(({ prefix, program: { parameters } }) =>
    parameters.map(({ name, shape, frozen = false }) => ({ name: prefix + name, shape, frozen }))
  );
}

/** Returns the layers of a stage with their programs: for the first slice, or the longest samples. */
export const layersOf = (stage: StageProgram): NamedProgram[] => slicesOf(stage)[0]!;

/** Returns the layers of a stage for each slice or length of a sequence; one list if it has one. */
export const slicesOf = ({ programs, layers, slicing, lengths }: StageProgram): NamedProgram[][] =>
  Array.from(
    { length: slicing?.slices ?? lengths?.length ?? 1 },
    (_, i) =>
      layers.map(({ program, slices, lengths: own = slices, ...named }) => ({
        ...named,
        program: programs[own?.[i] ?? program]!,
      })),
  );

/** Returns whether arrays have the lengths of the tensors of their names, `parts` times. */
export const haveLengths = (
  specs: readonly TensorSpec[],
  arrays: Readonly<Record<string, { readonly length: number }>>,
  parts = 1,
): boolean =>
  specs.every(({ name, shape }) => arrays[name]?.length === parts * elementCount(shape));

/** Returns the storage type of a stage. */
export const precisionOf = (layers: readonly NamedProgram[]): Precision =>
  layers[0]?.program.precision ?? "fp32";

/**
 * The smallest and the largest integer that a field may hold. Devices treat others differently: some refuse
 * them, a GPU reads another row silently.
 */
export type Bounds = readonly [least: number, most: number];

/**
 * Returns the bounds of a layer's fields by name, derived from its operations: rows of a table,
 * negative ones counted from its end, and classes, with −1 for none.
 */
export function fieldBounds({ fields, models }: LayerProgram): Map<string, Bounds> {
  const bounds = new Map<string, Bounds>();
  // Most layers read no such field, and decoding a model takes time.
  const whole = fields.filter(({ dtype }) => dtype === "i32" || dtype === "i64");
  if (whole.length === 0) return bounds;
  const graph = fromBinary(ModelProtoSchema, models.forward).graph!;
  const types = valueTypes(graph);
  const names = new Map(whole.map(({ name }) => [PORTS.field(name), name]));
  for (const node of graph.node) {
    const isSame = node.opType === "Reshape" || node.opType === "Cast";
    const same = isSame ? names.get(node.input[0]!) : undefined;
    if (same !== undefined) names.set(node.output[0]!, same);
    const field = names.get(node.input[1] ?? ""), shape = types.get(node.input[0] ?? "")?.shape;
    if (field === undefined || !shape) continue;
    if (node.opType === "Gather") {
      const rows = shape[intOf(node, "axis", 0)]!;
      bounds.set(field, [-rows, rows - 1]);
    } else if (node.domain === TROUPE && node.opType === "CrossEntropy") {
      bounds.set(field, [-1, shape[1]! - 1]);
    }
  }
  return bounds;
}

/** Returns the problem of a field with a value out of bounds; undefined if all are within. */
export function boundsProblem(
  name: string,
  values: HostArray,
  [least, most]: Bounds,
): string | undefined {
  for (let i = 0; i < values.length; i++) {
    if (values[i]! >= least && values[i]! <= most) continue;
    const must = `the field "${name}" must hold whole numbers from ${least} to ${most}`;
    return `${must}, received ${values[i]} at position ${i}`;
  }
}
