/**
 * The layers of a stage as plain data, so that no code travels to the workers.
 *
 * @module
 */

import type { Slicing } from "../batch.ts";
import type { DType } from "../devices/device.ts";
import type { Graph } from "../graph/graph.ts";
import { elementCount, sameShape } from "../graph/shapes.ts";
import { type Node, sliceNodes, type Value } from "../graph/value.ts";
import { isDropout, type MaskSpec, type ParameterSpec, type TensorSpec } from "../layers/layer.ts";
import type { Port } from "../onnx/encode.ts";
import type { Precision } from "../precision.ts";

/** A value that a layer takes, by its key: `x`, `x.NAME` of a record, `skip.NAME` of a skip edge. */
export interface InputSpec extends TensorSpec {
  /**
   * Whether its backward writes the gradient of the value, or adds to that of later uses; absent
   * where the value has none.
   */
  readonly gradient?: "written" | "added";
}

/** A value that a layer makes, by its key. */
export interface OutputSpec extends TensorSpec {
  /** Whether its gradient comes back. */
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
  /** The tensor that the layer before hands to it; absent for the first layer. */
  readonly input?: TensorSpec;
  /** The tensor that it hands to the next layer, or the loss of each sample. */
  readonly output?: TensorSpec;
  /** In place of both what it takes and makes, where that is not one tensor: see {@linkcode inputsOf}. */
  readonly values?: {
    readonly inputs: readonly InputSpec[];
    readonly outputs: readonly OutputSpec[];
  };
  /** Whether the output is the loss of each sample. */
  readonly isLoss: boolean;
  /** In which type its models take and give weights, gradients and activations. */
  readonly precision: Precision;
  /** Activations that live from F to B (to W when the backward is split). */
  readonly saved: readonly TensorSpec[];
  /** Values that I hands to W. */
  readonly carried: readonly TensorSpec[];
  /** What it keeps for the later slices of the sequence, by the names of their ports. */
  readonly contexts?: readonly TensorSpec[];
  /**
   * ONNX models. `input` is absent where no input has a gradient, as for the first layer, whose W is
   * its whole backward, `weight` where no parameter is trained, `backward` where both are.
   */
  readonly models: {
    readonly forward: Uint8Array;
    readonly backward?: Uint8Array;
    readonly input?: Uint8Array;
    readonly weight?: Uint8Array;
  };
  /**
   * Models that run one after the other before B or I, and write over one of the saved activations:
   * what backward models read there is what the last one has left.
   */
  readonly overwrites?: readonly { readonly saved: string; readonly model: Uint8Array }[];
  /** Estimated work of a forward and a whole backward, in floating-point operations. */
  readonly cost: { readonly forward: number; readonly backward: number };
}

/** What a layer of a chain takes and makes, as its program says it; all others say it by keys. */
export function valuesForm(
  inputs: readonly InputSpec[],
  outputs: readonly OutputSpec[],
): Pick<LayerProgram, "input" | "output" | "values"> {
  const all = [...inputs, ...outputs], [output] = outputs, [input] = inputs;
  const isChain = outputs.length === 1 && inputs.length <= 1 &&
    all.every(({ name, dtype }) => name === "x" && isFloat(dtype));
  if (!isChain) return { values: { inputs, outputs } };
  const plain = ({ dtype, shape }: TensorSpec, name: string) => ({ name, dtype, shape });
  return { ...input && { input: plain(input, "x") }, output: plain(output!, "y") };
}

const isFloat = (dtype: DType) => dtype === "f32" || dtype === "f16";

/**
 * What a layer takes, by key: what the layer before hands to it, none for the first, and then what
 * others gave by name.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, inputsOf, mlp, outputsOf } from "@troupe/troupe/kernels";
 *
 * const { programs } = compileModel(mlp({ inputs: 4, hidden: 8, layers: 1, classes: 2 }, 3), "none");
 * assert.deepEqual(inputsOf(programs[0]!), []);
 * assert.deepEqual(outputsOf(programs[0]!), [
 *   { name: "x", dtype: "f32", shape: [3, 8], hasGradient: true },
 * ]);
 * ```
 */
export const inputsOf = ({ input, values }: LayerProgram): readonly InputSpec[] =>
  values?.inputs ?? (input ? [{ ...input, gradient: "written" }] : []);

/** What a layer makes, by key: what it hands to the next one, or the loss; then what it gives by name. */
export const outputsOf = ({ output, values }: LayerProgram): readonly OutputSpec[] =>
  values?.outputs ?? (output ? [{ ...output, name: "x", hasGradient: true }] : []);

/** The names under which models read and write a value and its gradients. */
export interface ValuePorts {
  /** Where a layer takes it: its key. */
  readonly input: string;
  /** Where a layer makes it. */
  readonly output: string;
  /** Where its maker reads its gradient. */
  readonly outputGradient: string;
  /** Where who takes it writes its gradient, with that of later uses. */
  readonly inputGradient: string;
  /** Where the gradient of later uses is read. */
  readonly laterGradient: string;
}

/**
 * The ports of a value by its key.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { valuePorts } from "@troupe/troupe/kernels";
 *
 * assert.equal(valuePorts("x").output, "y");
 * assert.equal(valuePorts("x.mask").outputGradient, "dy.mask");
 * assert.equal(valuePorts("skip.memory").inputGradient, "dskip.memory");
 * ```
 */
export function valuePorts(key: string): ValuePorts {
  const isHanded = !isSkip(key), name = key.slice(isHanded ? 1 : "skip".length);
  return {
    input: key,
    output: `${isHanded ? "y" : "give"}${name}`,
    outputGradient: `${isHanded ? "dy" : "dgive"}${name}`,
    inputGradient: `d${key}`,
    laterGradient: `later${name}`,
  };
}

/** Whether a key is that of a value given by name. */
export const isSkip = (key: string): boolean => key.startsWith("skip.");

/** Where models read and write: the names of their inputs and outputs. */
export const PORTS = {
  /** Factor of the loss: one over the number of predictions of the step. */
  lossScale: "scale",
  parameter: (name: string) => `p.${name}`,
  field: (name: string) => `batch.${name}`,
  accumulator: (name: string) => `acc.${name}`,
  /** What an overwriting model leaves in place of a saved activation. */
  overwritten: (saved: string) => `over.${saved}`,
  gradient: (name: string) => `d.${name}`,
  /** The gradient of what a slice keeps for later ones, and the same with what a later one adds. */
  contextGradient: (context: string) => `d.${context}`,
  contextSum: (context: string) => `sum.${context}`,
} as const;

/** Which activations are computed again in the backward pass instead of being saved. */
export type Recompute = "none" | "cheap" | "full";

/** The policies of {@linkcode Recompute}, for checks and help texts. */
export const RECOMPUTE_POLICIES: readonly Recompute[] = ["none", "cheap", "full"];

/** Outputs of these ops cost little to compute again. */
const CHEAP_OPS = new Set([
  ...["LayerNormalization", "SimplifiedLayerNormalization", "FastGelu", "Gelu", "QuickGelu"],
]);

/** Outputs of these ops have the elements of their inputs in another order: those are saved. */
const MOVES = new Set(["Reshape", "Concat", "Identity"]);

const sizeOf = (values: readonly Value[]) =>
  values.reduce((sum, { shape }) => sum + elementCount(shape), 0);

/** Whether a value was, step by step, made of something smaller, as scores of attention are. */
function isGrown({ node }: Value): boolean {
  while (node && (node.op === "Softmax" || node.op === "Add" || isDropout(node))) {
    node = node.inputs[0]!.node;
  }
  if (node?.op !== "FusedMatMul" && node?.op !== "MatMul") return false;
  return sizeOf(node.outputs) > sizeOf(node.inputs);
}

/**
 * The forward values at which the backward pass stops, under a recomputation policy.
 *
 * @param kept values that are kept anyway.
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
  return [...saved].sort((a, b) => a.node!.id - b.node!.id || a.name.localeCompare(b.name));
}

/** Operations whose result may take the place of their first operand, element by element. */
const OVERWRITING = new Set(["Softmax", "ScatterElements"]);

/**
 * What takes the place of saved activations before the backward, step by step.
 *
 * [Note: activations that are overwritten] The largest activation of a language model are its logits.
 * Their gradient is as large, and needs nothing else of them: it is computed over them, each step by
 * a model of its own, so that no third copy stands beside. A saved value qualifies where one
 * operation of the backward reads it, which is among {@linkcode OVERWRITING}.
 *
 * @returns for each saved value that qualifies the values that lie in its place, in order.
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

/** What I computes and W reads. */
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
 * A value given by name that crosses the border of a stage. Over a skip edge it goes from the stage
 * that makes it to each that uses it; its gradient goes from the last of them to the one before,
 * which adds its own, and so on to the maker.
 */
export interface StageSkip {
  /** Its key, `skip.NAME`. */
  readonly key: string;
  /** The stage that it comes from; absent where this stage makes it. */
  readonly from?: number;
  /** The stages that it goes to; none where another stage makes it. */
  readonly to: readonly number[];
  /** The stage that the gradient of later uses comes from; absent where there is none. */
  readonly gradientFrom?: number;
  /** The stage that the gradient goes to; absent where this stage makes it, or it has none. */
  readonly gradientTo?: number;
}

/** The layers of a stage as plain data: what a worker needs to compute it. */
export interface StageProgram {
  /** Distinct layer programs. */
  readonly programs: readonly LayerProgram[];
  /**
   * The layers in order: which program each runs, the prefix of its parameters' names, and the block
   * that it is a part of.
   */
  readonly layers: readonly {
    readonly name: string;
    readonly block?: string;
    readonly prefix: string;
    readonly program: number;
    /** Of a sequence in slices the program for each of them; `program` is that of the first. */
    readonly slices?: readonly number[];
  }[];
  /** How sequences are cut; absent where they are not. */
  readonly slicing?: Slicing;
  /** What crosses its border beside what it is handed by the stage before, and hands on. */
  readonly skips?: readonly StageSkip[];
}

/** A layer, the prefix of its parameters' names, and the block that it is a part of. */
export interface NamedProgram {
  /** What a reader sees, and what keys its dropout. */
  readonly name: string;
  /** The block that it is a part of. */
  readonly block?: string;
  /** Put before the names of its parameters. */
  readonly prefix: string;
  /** What it computes. */
  readonly program: LayerProgram;
}

/** A parameter by its full name. */
interface NamedParameter {
  readonly name: string;
  readonly shape: readonly number[];
  readonly frozen: boolean;
}

/** The parameters of some layers by full name. */
export function parametersOf(layers: readonly NamedProgram[]): readonly NamedParameter[] {
  return layers.flatMap(({ prefix, program: { parameters } }) =>
    parameters.map(({ name, shape, frozen = false }) => ({ name: prefix + name, shape, frozen }))
  );
}

/** The layers of a stage, each with its program; of a sequence in slices with that of the first. */
export const layersOf = (stage: StageProgram): NamedProgram[] => slicesOf(stage)[0]!;

/** For each slice of a sequence the layers of a stage; of a whole sequence once. */
export const slicesOf = ({ programs, layers, slicing }: StageProgram): NamedProgram[][] =>
  Array.from(
    { length: slicing?.slices ?? 1 },
    (_, slice) =>
      layers.map(({ program, slices, ...named }) => ({
        ...named,
        program: programs[slices?.[slice] ?? program]!,
      })),
  );

/** The type in which a stage stores. */
export const precisionOf = (layers: readonly NamedProgram[]): Precision =>
  layers[0]?.program.precision ?? "fp32";
