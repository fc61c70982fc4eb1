/**
 * Layers and models: a layer is a name and a function that builds its forward graph.
 *
 * A model is a list of layers. The first reads the micro-batch's fields, each of the others reads
 * the output of the one before, one value or a record of named ones, and the last returns the loss
 * of every sample. For other layers than the next, a layer gives values by name, and those layers
 * take them: a skip edge, on which a value is sent directly from its stage to the stages that use
 * it. Layers are compiled to plain data ({@linkcode LayerProgram}), so workers receive no code.
 *
 * @module
 */

import type { Batch } from "../batch.ts";
import { RANDOM_MAX, RANDOM_VALUES, randomKernels } from "../devices/cpu/simd.ts";
import { type DType, HOST_ARRAYS } from "../devices/device.ts";
import { assertInput, nameErrors } from "../errors.ts";
import { checkCalls, GIVE_AND_TAKE, Graph, signaturesOf } from "../ops/graph.ts";
import { elementCount, sameShape } from "../graph/shapes.ts";
import type { Node, TensorSpec, Value } from "../graph/value.ts";
import { type RandomGenerator, substream } from "../random.ts";

/** Initial values of a parameter, drawn from (seed, parameter name), independent of order. */
export type Initializer =
  | { readonly kind: "normal"; readonly deviation: number }
  /** From `low` to `high`. */
  | { readonly kind: "uniform"; readonly low: number; readonly high: number }
  | { readonly kind: "constant"; readonly value: number };

/** A parameter of a layer. */
export interface ParameterSpec {
  /** Its name within the layer. */
  readonly name: string;
  /** Its shape. */
  readonly shape: readonly number[];
  /** Its initial values. */
  readonly initializer: Initializer;
  /** True if it is not trained: it has no gradient, no moments and no step. */
  readonly frozen?: true;
}

/** The factor of a tensor in dropout, element by element: 0, or 1 ÷ (1 − probability). */
export interface MaskSpec extends TensorSpec {
  /** Share of its elements that are 0. */
  readonly probability: number;
  /** Mask of the whole sequence that it is a part of, if it has another name. */
  readonly of?: string;
  /** Its part of that mask. Default: the slice's part of the elements of each sample. */
  readonly box?: MaskBox;
}

/** A part of a mask. */
export interface MaskBox {
  /** Shape of the mask. */
  readonly whole: readonly number[];
  /** The first element on each axis. */
  readonly from: readonly number[];
  /** Elements on each axis. */
  readonly size: readonly number[];
}

/** Place of a slice's dropout mask in a mask of the whole sequence. */
export interface MaskPlace {
  /** Number of the dropout in the layer of the whole sequence. */
  readonly number: number;
  /** The part. Default: the slice's part of the elements of each sample. */
  readonly box?: MaskBox;
}

/** One of the equal parts into which the tokens of each sample are cut. */
export interface Slice {
  /** Index, from 0. */
  readonly index: number;
  /** Number of slices. */
  readonly count: number;
}

/** Values by name: the output of a layer that is not a single tensor. */
export type Values = Readonly<Record<string, Value>>;

/** The input or output of a layer. */
export type Handed = Value | Values;

/** Types and shapes of the values that earlier layers give. */
export type GivenValues = ReadonlyMap<string, Pick<TensorSpec, "dtype" | "shape">>;

/** A value of a slice for later slices of the same micro-batch. */
export interface SliceContext {
  /** Its name in the layer, such as `keys`. */
  readonly name: string;
  /** Values of the slices before, in order. */
  readonly past: readonly Value[];
  /** Value of this slice. */
  readonly value: Value;
}

/**
 * The graph of one layer: {@linkcode Graph} with parameters, fields of the micro-batch and dropout.
 */
export class LayerGraph extends Graph {
  /** The parameters in the order in which they were declared. */
  readonly parameters: { spec: ParameterSpec; value: Value }[] = [];
  /** The fields of the micro-batch that the layer reads. */
  readonly fields: { spec: TensorSpec; value: Value }[] = [];
  /** The masks of its dropouts. */
  readonly masks: { spec: MaskSpec; value: Value }[] = [];
  /** Values for later slices, with those of earlier ones. */
  readonly contexts: SliceContext[] = [];
  /** Values for later layers, by name. */
  readonly gives: Map<string, Value> = new Map();
  /** Values from earlier layers, by name. */
  readonly takes: Map<string, Value> = new Map();
  /** The slice of the sequence that it computes. */
  readonly part: Slice;
  readonly #given: GivenValues;

  /**
   * Creates a graph for the whole sequence, or for a slice of it.
   *
   * @param given values that earlier layers give.
   */
  constructor(slice: Slice = { index: 0, count: 1 }, given: GivenValues = new Map()) {
    super();
    this.part = slice;
    this.#given = given;
  }

  /**
   * Gives a value to later layers, which {@linkcode LayerGraph.take} it by its name: the memory of
   * an encoder, a skip connection of a U-Net, a mask, a table of positions. It is a skip edge of
   * the model.
   *
   * It may be of any type. If it is f32 and depends on trained parameters, its gradient is the sum of
   * the gradients of all its uses, the last one first, and then that of the layer itself.
   *
   * @throws {TypeError} when the name is already given.
   *
   * @example
   * ```ts
   * import assert from "node:assert/strict";
   * import { LayerGraph } from "@troupe/troupe/kernels";
   *
   * const g = new LayerGraph(undefined, new Map([["memory", { dtype: "f32", shape: [2, 8] }]]));
   * const memory = g.take("memory");
   * g.give("doubled", g.add(memory, memory));
   * assert.deepEqual([...g.gives.keys()], ["doubled"]);
   * assert.throws(() => g.give("doubled", memory), /"doubled" must be given once/);
   * ```
   */
  give(name: string, value: Value): void {
    const isNew = !this.gives.has(name) && !this.#given.has(name);
    assertInput(isNew, "give a value", `"${name}" must be given once`, "it twice", TypeError);
    this.gives.set(name, value);
  }

  /**
   * Returns the value that an earlier layer gives by this name.
   *
   * @throws {RangeError} when none does; the message lists the known names.
   */
  take(name: string): Value {
    const known = this.takes.get(name);
    if (known) return known;
    const spec = this.#given.get(name);
    if (!spec) throw new NotGivenError(name, [...this.#given.keys()]);
    const value = this.input(skipKey(name), spec.shape, spec.dtype);
    this.takes.set(name, value);
    return value;
  }

  /** Declares a trained f32 tensor. Default: normal with deviation 0.02, as in GPT-2. */
  parameter(
    name: string,
    shape: readonly number[],
    initializer: Initializer = { kind: "normal", deviation: 0.02 },
  ): Value {
    const value = this.input(`p.${name}`, shape);
    this.parameters.push({ spec: { name, shape, initializer }, value });
    return value;
  }

  /** Declares a field of the micro-batch, such as token ids or targets; it may be read again. */
  batch(name: string, shape: readonly number[], dtype: DType = "f32"): Value {
    const known = this.fields.find(({ spec }) => spec.name === name);
    if (known?.spec.dtype === dtype && sameShape(known.spec.shape, shape)) return known.value;
    const value = this.input(`batch.${name}`, shape, dtype);
    this.fields.push({ spec: { name, shape, dtype }, value });
    return value;
  }

  /**
   * Dropout (Srivastava et al. 2014): in training each element is 0 with a probability and
   * otherwise divided by 1 − probability, so that its mean is unchanged. In evaluation and
   * generation it is `x`.
   *
   * The mask is a function of the run's seed, the step, the micro-batch, the layer's name and the
   * place in the layer, so every computation of it is equal. The first axis of `x` must be that of
   * samples, or of rows in the order of samples.
   *
   * @param place of its mask in those of the whole sequence, for a slice with another number of
   * dropouts, or with other axes between samples and tokens.
   * @throws {RangeError} when the probability is not from 0 to below 1.
   *
   * @example
   * ```ts
   * import assert from "node:assert/strict";
   * import { LayerGraph } from "@troupe/troupe/kernels";
   *
   * const g = new LayerGraph(), x = g.input("x", [2, 4]);
   * assert.equal(g.dropout(x, 0), x);
   * assert.deepEqual(g.dropout(x, 0.1).shape, [2, 4]);
   * assert.throws(() => g.dropout(x, 1), /from 0 and below 1, received 1/);
   * ```
   */
  dropout(x: Value, probability: number, place?: MaskPlace): Value {
    checkDropout("drop out", probability);
    if (probability === 0) return x;
    const nameOf = (number: number) => `${MASK_PREFIX}${number}`;
    const name = nameOf(this.masks.length), { shape } = x;
    const value = this.input(name, shape);
    const whole = this.part.count > 1 && place
      ? { of: nameOf(place.number), ...place.box && { box: place.box } }
      : {};
    this.masks.push({ spec: { name, dtype: "f32", shape, probability, ...whole }, value });
    return this.mul(x, value);
  }

  /**
   * Keeps a value that later slices of the sequence read, such as keys and values of an attention,
   * and returns the values of all slices so far. Without slices it returns only this one.
   *
   * Gradients from later slices are added to its own; values may pass from token to token only in
   * this way.
   *
   * @param value of the same shape in all slices.
   *
   * @example
   * ```ts
   * import assert from "node:assert/strict";
   * import { LayerGraph } from "@troupe/troupe/kernels";
   *
   * const g = new LayerGraph({ index: 2, count: 4 });
   * const keys = g.context("keys", g.input("k", [1, 8]));
   * assert.deepEqual(keys.map(({ name }) => name), ["context.keys.0", "context.keys.1", "k"]);
   * const whole = new LayerGraph();
   * assert.equal(whole.context("keys", whole.input("k", [1, 8])).length, 1);
   * ```
   */
  context(name: string, value: Value): readonly Value[] {
    const { index, count } = this.part;
    if (count === 1) return [value];
    const past = Array.from(
      { length: index },
      (_, j) => this.input(contextPort(name, j), value.shape, value.dtype),
    );
    this.contexts.push({ name, past, value });
    return [...past, value];
  }
}

checkCalls(
  LayerGraph.prototype,
  signaturesOf(`
    parameter(name, shape, initializer?)  batch(name, shape, dtype?)  dropout(x, probability)
    give(name, value)  take(name)  context(name, value)
  `),
);

/** A layer takes a value that no earlier layer gives. */
export class NotGivenError extends RangeError {
  /**
   * Creates an error whose message lists the known names.
   *
   * @param value the name of the value.
   */
  constructor(readonly value: string, given: readonly string[]) {
    const known = given.map((one) => JSON.stringify(one)).join(", ").slice(0, 300) || "none";
    super(`Cannot take ${JSON.stringify(value)}: a layer before must give it, received ${known}`);
    this.name = "RangeError";
  }
}

/** Returns the key of a value that is given by name. */
export const skipKey = (name: string): string => `skip.${name}`;

/** Returns the port of a value that a slice keeps for later ones. */
export const contextPort = (name: string, slice: number): string => `context.${name}.${slice}`;

/** Throws unless a dropout probability is from 0 to below 1. */
export function checkDropout(what: string, probability: number): void {
  const isProbability = probability >= 0 && probability < 1;
  assertInput(isProbability, what, "dropout must be a number from 0 and below 1", probability);
}

/** Prefix of the names of masks. */
const MASK_PREFIX = "mask.";

/** Returns whether a node is a dropout, which is cheap to recompute. */
export const isDropout = ({ op, inputs }: Node): boolean =>
  op === "Mul" && inputs[1]!.node === undefined && inputs[1]!.name.startsWith(MASK_PREFIX);

/**
 * One layer of a model.
 *
 * @example A dense layer with ReLU
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Layer, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const dense = (name: string, inputs: number, outputs: number): Layer => ({
 *   name,
 *   build: (g, x) =>
 *     g.relu(g.gemm(
 *       x!,
 *       g.parameter("weight", [inputs, outputs]),
 *       g.parameter("bias", [outputs], { kind: "constant", value: 0 }),
 *     )),
 * });
 *
 * const g = new LayerGraph();
 * const y = dense("hidden", 4, 8).build(g, g.input("x", [2, 4]));
 * assert.deepEqual(y.shape, [2, 8]);
 * assert.deepEqual(g.parameters.map(({ spec }) => spec.name), ["weight", "bias"]);
 * ```
 *
 * @example A layer that returns a record, and a layer that reads it
 * ```ts
 * import assert from "node:assert/strict";
 * import { type Layer, LayerGraph, type Value, type Values } from "@troupe/troupe/kernels";
 *
 * const split: Layer<Value, Values> = {
 *   name: "split",
 *   build(g, x) {
 *     const [left, right] = g.split(x!, 1, 2);
 *     return { left: left!, right: right! };
 *   },
 * };
 * const join: Layer<{ left: Value; right: Value }> = {
 *   name: "join",
 *   build: (g, x) => g.add(x!.left, x!.right),
 * };
 * const g = new LayerGraph();
 * const halves = split.build(g, g.input("x", [2, 8])) as { left: Value; right: Value };
 * assert.deepEqual(join.build(g, halves).shape, [2, 4]);
 * ```
 *
 * @typeParam X output of the layer before.
 * @typeParam Y output for the next layer: a value, or a record of named ones; `{}` for nothing.
 */
export interface Layer<X extends Handed = Value, Y extends Handed = Value> {
  /** Name shown to users: "block 3 attention". */
  readonly name: string;
  /**
   * Its block: consecutive layers of a block count as one where users count layers, as in a recompute
   * interval, but a stage may start within a block.
   */
  readonly block?: string;
  /** Prefix of the names of its parameters. Default `${name}.`. */
  readonly prefix?: string;
  /**
   * Builds the forward graph. `x` is the output of the layer before, undefined for the first. The
   * last layer returns the loss of each sample, f32 [samples], summed over its predictions.
   */
  build(g: LayerGraph, x: X | undefined): Y;
}

/** A layer with any input and output. */
export type AnyLayer = Layer<Handed, Handed>;

/** Two parameters that share one value: the full names of the trained one and of its alias. */
export type Tie = readonly [canonical: string, alias: string];

/** A metric: sums over all samples, and the value that follows from them. */
export interface Metric {
  /**
   * Terms that are summed over all samples, by name: finite numbers of each sample, f32 [samples],
   * from the output of the model.
   */
  readonly terms: { readonly [name: string]: (g: LayerGraph, output: Value) => Value };
  /** Returns its value from the sums of the terms and the number of predictions. */
  value(sums: Readonly<Record<string, number>>, predictions: number): number;
}

/** A model to train: layers in order, and the number of predictions of a micro-batch. */
export interface Model {
  /** The model's name: `gpt`, `mlp`, or your own. */
  readonly name: string;
  /** The layers; the first reads the micro-batch, the last returns the loss. */
  readonly layers: readonly AnyLayer[];
  /**
   * Predicted tokens (or labels) of one micro-batch, by which the loss is divided; a function if
   * micro-batches differ.
   */
  readonly predictions: number | ((batch: Batch) => number);
  /** Parameters that share one value, such as the tables of the embedding and the head. */
  readonly ties?: readonly Tie[];
  /** Initial values of parameters by full name, without aliases of ties; by default drawn. */
  readonly weights?: ReadonlyMap<string, Float32Array>;
  /** Samples of a micro-batch, B. */
  readonly samples?: number;
  /** Returns the model, with the same parameters, for micro-batches of another size. */
  readonly withSamples?: (samples: number) => Model;
  /** Tokens of a sample, if samples are sequences. */
  readonly length?: number;
  /** The same model, parameters included, for shorter samples; fields that are sequences shrink alike. */
  readonly withLength?: (length: number) => Model;
  /**
   * The same layers, parameters included, for one of `slices` equal parts of the tokens of each
   * sample, selected by {@linkcode LayerGraph.slice}. Every field has the same part of each sample's
   * numbers, rows of layer outputs are in the order of samples, and a loss is that of the slice.
   * Undefined if samples are not sequences.
   *
   * @throws {RangeError} when the tokens are not divisible by `slices`.
   */
  readonly withSlices?: (slices: number) => readonly AnyLayer[];
  /** Metrics whose terms the last layer returns after the loss of each sample. */
  readonly metrics?: Readonly<Record<string, Metric | Metric["terms"][string]>> | undefined;
}

/**
 * Builds a layer in a graph and returns its output.
 *
 * @param x the output of the layer before, undefined for the first.
 * @throws the error of `build`, of the same built-in class, with the layer's name before it.
 * @throws {TypeError} when it returns or gives anything but a value of its graph or a record of such
 * values.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { buildLayer, type Layer, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const dense: Layer = {
 *   name: "dense 2",
 *   build: (g, x) => g.gemm(x!, g.parameter("weight", [16, 2])),
 * };
 * const g = new LayerGraph();
 * assert.throws(() => buildLayer(dense, g, g.input("x", [8, 4])), {
 *   name: "RangeError",
 *   message: 'Cannot build the layer "dense 2": cannot multiply matrices: ' +
 *     "inner sizes must be equal, received [8,4] and [16,2]",
 * });
 * ```
 */
export function buildLayer(layer: AnyLayer, g: LayerGraph, x: Handed | undefined): Handed {
  const cannot = `Cannot build the layer ${JSON.stringify(layer.name)}`;
  const y = nameErrors(cannot, () => layer.build(g, x), (message) =>
    // Only the first has no input.
    x === undefined && message.includes("undefined")
      ? `${message}; the first layer gets no input, and reads the micro-batch with g.batch`
      : message);
  const unnamed = [...g.gives.keys()].map(nameProblem).find((one) => one !== undefined);
  const problem = handedProblem(y) ?? (unnamed && `names of given values ${unnamed}`);
  if (problem) throw new TypeError(`${cannot}: ${problem}`);
  const made = [...handedValues(y).map(([, value]) => value), ...g.gives.values()];
  const foreign = made.find((value) => !g.owns(value));
  if (!foreign) return y;
  const received = `"${foreign.name}" of another${GIVE_AND_TAKE}`;
  throw new TypeError(`${cannot}: its values must belong to its graph, received ${received}`);
}

/** Returns the problem of a layer's output, if any. */
function handedProblem(y: unknown): string | undefined {
  if (isValue(y)) return undefined;
  const must = "build must return a value of its graph or a record of them, received";
  const kind = y === null ? "null" : typeof y !== "object" ? typeof y : y?.constructor?.name;
  if (kind !== "Object" && kind !== undefined) return `${must} ${kind}`;
  for (const [name, value] of Object.entries(y as object)) {
    if (!isValue(value)) return `${must} ${JSON.stringify(name)} of ${typeof value}`;
    const problem = nameProblem(name);
    if (problem) return `names of a record ${problem}`;
  }
}

/** Names are parts of names in ONNX models. */
const nameProblem = (name: string): string | undefined =>
  name !== "" && name.isWellFormed() && !name.includes("\0")
    ? undefined
    : `must be text without NUL, received ${JSON.stringify(name)}`;

/** Returns whether `one` is a value of a graph. */
export const isValue = (one: unknown): one is Value =>
  typeof one === "object" && one !== null && "shape" in one && Array.isArray(one.shape) &&
  "dtype" in one && typeof one.dtype === "string";

/** Returns the values of an output by key: one value is `x`, an entry of a record `x.NAME`. */
export const handedValues = (handed: Handed): (readonly [key: string, value: Value])[] =>
  isValue(handed)
    ? [["x", handed]]
    : Object.entries(handed).map(([name, value]) => [`x.${name}`, value]);

/** Creates the inputs of a graph for the output of the layer before. */
export function inputsLike(g: LayerGraph, specs: readonly TensorSpec[]): Handed {
  const inputs = specs.map(({ name, shape, dtype }) =>
    [name, g.input(name, shape, dtype)] as const
  );
  const [first] = inputs;
  if (first?.[0] === "x") return first[1];
  return Object.fromEntries(inputs.map(([key, value]) => [key.slice("x.".length), value]));
}

/** Returns the name of a parameter in the layer: PyTorch's name with that of its module, if any. */
export const parameterName = (module: string | undefined, name: string): string =>
  module === undefined ? name : `${module}.${name}`;

/**
 * Returns the initial values of a parameter.
 *
 * @param name the parameter's full name, the key of its draws.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const normal = { name: "w", shape: [4, 4], initializer: { kind: "normal", deviation: 0.02 } } as
 * const; assert.deepEqual(initialValues(normal, "h.0.w", 1), initialValues(normal, "h.0.w", 1));
 * assert.notDeepEqual(initialValues(normal, "h.0.w", 1), initialValues(normal, "h.1.w", 1));
 * ```
 */
export function initialValues(spec: ParameterSpec, name: string, seed: number): Float32Array {
  const values = new Float32Array(elementCount(spec.shape));
  openDraws(spec, name, seed)(values);
  return values;
}

/** Fills an array with values that follow those of the last call. */
export type Draws = (into: Float32Array) => void;

/**
 * Draws the initial values of a parameter in pieces, from the first to the last.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const normal = { name: "w", shape: [5], initializer: { kind: "normal", deviation: 0.02 } } as
 * const; const draws = openDraws(normal, "h.0.w", 1), first = new Float32Array(3), rest = new
 * Float32Array(2); draws(first); draws(rest); assert.deepEqual([...first, ...rest],
 * [...initialValues(normal, "h.0.w", 1)]);
 * ```
 */
export function openDraws({ initializer }: ParameterSpec, name: string, seed: number): Draws {
  if (initializer.kind === "constant") return (into) => void into.fill(initializer.value);
  const generator = substream(seed, name);
  if (initializer.kind === "normal") return openNormals(initializer.deviation, generator);
  const { low, high } = initializer;
  // Numbers between the bounds have 24 bits each, the precision of f32.
  return (into) => {
    for (let i = 0; i < into.length; i++) {
      into[i] = low + (high - low) * ((generator.next() >>> 8) / 2 ** 24);
    }
  };
}

/** Offset of the generator's state in the memory of the kernel. */
const STATE = 0;

/** Draws normal numbers, with bits that do not depend on the engine's logarithm. */
function openNormals(deviation: number, generator: RandomGenerator): Draws {
  const [high0, low0, high1, low1] = generator.getState() as [number, number, number, number];
  const state = Int32Array.of(low0, high0, low1, high1);
  /** The second number of a pair whose first was the last of a piece. */
  let left: number | undefined;
  return (into) => {
    const { memory, kernels } = randomKernels();
    const used = new Int32Array(memory.buffer, STATE, 4);
    used.set(state);
    let at = 0;
    if (left !== undefined && into.length > 0) [into[at++], left] = [left, undefined];
    while (at < into.length) {
      const count = Math.min(RANDOM_MAX, into.length - at), even = count + count % 2;
      kernels.normals(STATE, RANDOM_VALUES, even, deviation);
      const drawn = new Float32Array(memory.buffer, RANDOM_VALUES, even);
      into.set(drawn.subarray(0, count), at);
      if (even > count) left = drawn[count];
      at += count;
    }
    state.set(used);
  };
}

/**
 * Returns the fields that the layers of a model read, each once.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { mlp } from "@troupe/troupe/kernels";
 *
 * const model = mlp({ inputs: 4, hidden: 8, layers: 1, classes: 2 }, 3);
 * assert.deepEqual(modelFields(model), [
 *   { name: "features", shape: [3, 4], dtype: "f32" },
 *   { name: "labels", shape: [3], dtype: "i32" },
 * ]);
 * ```
 */
export function modelFields(model: Pick<Model, "layers">): readonly TensorSpec[] {
  const fields = graphsOf(model).flatMap((g) => g.fields);
  return [...new Map(fields.map(({ spec }) => [spec.name, spec])).values()];
}

/** Returns whether a model has dropout. */
export const hasDropout = (model: Pick<Model, "layers">): boolean =>
  graphsOf(model).some((g) => g.masks.length > 0);

/** Builds the graphs of a model's layers. */
function graphsOf({ layers }: Pick<Model, "layers">): LayerGraph[] {
  const given = new Map<string, Value>();
  let handed: readonly TensorSpec[] | undefined;
  return layers.map((layer) => {
    const g = new LayerGraph(undefined, given);
    const y = buildLayer(layer, g, handed && inputsLike(g, handed));
    handed = handedValues(y).map(([name, { dtype, shape }]) => ({ name, dtype, shape }));
    for (const [name, value] of g.gives) given.set(name, value);
    return g;
  });
}

/**
 * Describes the problem of a field in a micro-batch: expected and received.
 *
 * @returns undefined if there is none.
 */
export function fieldProblem({ name, dtype, shape }: TensorSpec, batch: Batch): string | undefined {
  const array = HOST_ARRAYS[dtype], elements = elementCount(shape), values: unknown = batch[name];
  const must = `must have the field "${name}", ${array.name} of [${shape}] (${elements} elements)`;
  if (values === undefined) {
    const names = Object.keys(batch).slice(0, 20);
    return `${must}, received ${names.join(", ").slice(0, 200) || "no field"}`;
  }
  if (values instanceof array && values.length === elements) return undefined;
  return `${must}, received ${kindOf(values)}`;
}

/** Describes any value in one or two words. */
function kindOf(value: unknown): string {
  if (typeof value !== "object" || value === null) return String(value).slice(0, 100);
  const { length } = value as { length?: unknown };
  const kind = Object.prototype.toString.call(value).slice("[object ".length, -1);
  return typeof length === "number" ? `${kind} of ${length}` : kind;
}

/** The shape of a parameter. */
type Shape = Pick<TensorSpec, "shape">;

/**
 * Checks the ties of a model.
 *
 * @throws {TypeError} when a tie names no parameter, or a tied one.
 * @throws {RangeError} when tied parameters differ in shape.
 */
export function checkTies(ties: readonly Tie[], parameters: ReadonlyMap<string, Shape>): void {
  const aliases = new Set<string>();
  const cannot = ([canonical, alias]: Tie) => `tie "${canonical}" and "${alias}"`;
  for (const tie of ties) {
    const [canonical, alias] = tie, missing = tie.find((name) => !parameters.has(name));
    const known = "both must be parameters of the model";
    assertInput(missing === undefined, cannot(tie), known, `no "${missing}"`, TypeError);
    if (canonical === alias || aliases.has(alias)) {
      throw new TypeError(
        `Cannot ${cannot(tie)}: an alias must be tied once, to another parameter`,
      );
    }
    const [first, second] = [canonical, alias].map((name) => parameters.get(name)!.shape);
    const received = `[${first}] and [${second}]`;
    assertInput(sameShape(first!, second!), cannot(tie), "their shapes must be equal", received);
    aliases.add(alias);
  }
  const chained = ties.find(([canonical]) => aliases.has(canonical));
  if (!chained) return;
  throw new TypeError(`Cannot ${cannot(chained)}: the first must not be an alias itself`);
}
