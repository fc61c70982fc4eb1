/**
 * Trains the model of an ONNX file.
 *
 * @module
 */

import { type Batch, countTargets } from "../batch.ts";
import { assertInput, refusal } from "../errors.ts";
import { dependentValues, passesGradient, sourcesOf } from "../ops/autodiff.ts";
import { GRADIENTS } from "../ops/table.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Value } from "../graph/value.ts";
import { meanSquaredError } from "../layers/helpers.ts";
import type { LayerGraph, Model } from "../layers/layer.ts";
import {
  type Dimensions,
  type FoldedFile,
  foldFile,
  neededSteps,
  samplesDimension,
  staticInputs,
} from "./fold.ts";
import { type Cut, cutAlike, cutSteps, layersOf, PRODUCTS } from "./import_layers.ts";
import {
  assertImport,
  type ExternalFiles,
  importError,
  listed,
  nodeLabel,
  type OnnxGraph,
  quoted,
  readOnnx,
} from "./read_file.ts";

/** The operation in refusals of files without gradients. */
const TRAIN = "train the ONNX model";

/** The inputs, outputs and initializers of a file. */
export interface OnnxDescription extends Pick<OnnxGraph, "inputs" | "outputs"> {
  /** The names of its initializers. */
  readonly initializers: readonly string[];
}

/**
 * Describes a file.
 *
 * @param external separate files with weights, by their names in the file.
 * @throws {TypeError} {@linkcode RangeError} as `fromOnnx`.
 */
export function describeOnnx(bytes: Uint8Array, external: ExternalFiles = {}): OnnxDescription {
  const { inputs, outputs, initializers } = readOnnx(bytes, external);
  return { inputs, outputs, initializers: [...initializers.keys()] };
}

/**
 * Returns the names of the weights that have a gradient.
 *
 * @param output the value that the loss is computed from.
 * @throws {TypeError} with an operation without gradient, or when no trained weight reaches the
 * output.
 */
export function trainedWeights(
  { graph, steps }: Pick<FoldedFile, "graph" | "steps">,
  output: Value,
): ReadonlySet<string> {
  const trained = graph.parameters.filter(({ spec }) => !spec.frozen);
  const dependent = dependentValues(graph, trained.map(({ value }) => value));
  const must = "its output must depend on a trained weight";
  assertInput(dependent.has(output), TRAIN, must, "no weight that has a gradient", TypeError);
  const wanted = sourcesOf(graph, [output], (node) => {
    const isOnWay = node.inputs.some((input) => dependent.has(input));
    if (!isOnWay || !passesGradient(graph, node)) return false;
    if (Object.hasOwn(GRADIENTS, node.op)) return true;
    const step = steps.find(({ from, to }) => from <= node.id && node.id < to)!;
    const must = "every op between parameters and loss must have a gradient";
    throw refusal(TRAIN, must, nodeLabel(step.node), TypeError);
  });
  return new Set(trained.filter(({ value }) => wanted.has(value)).map(({ spec }) => spec.name));
}

/** The loss of an imported model. */
export type OnnxLoss = "cross-entropy" | "mse";

/** All losses of imported models. */
const ONNX_LOSSES: readonly OnnxLoss[] = ["cross-entropy", "mse"];

/**
 * Returns the loss for an output: the samples of a micro-batch, its predictions, and a function that
 * computes the loss of each sample.
 *
 * @param label the field of the micro-batch with the expected output.
 * @throws {TypeError} when the loss is not known.
 * @throws {RangeError} when the loss is not defined for the shape of the output.
 */
function lossOf(
  loss: OnnxLoss,
  { name, shape, dtype }: Pick<Value, "name" | "shape" | "dtype">,
  label: string,
) {
  const check = (rankMin: number, rankMax: number, what: string) => {
    const holds = dtype === "f32" && shape.length >= rankMin && shape.length <= rankMax;
    const must = `for ${loss} its output ${quoted(name)} must be ${what}`;
    assertImport(holds, must, `${dtype} [${shape}]`, RangeError);
  };
  const [samples = 0] = shape;
  if (loss === "cross-entropy") {
    const classes = shape.at(-1)!, rows = elementCount(shape.slice(0, -1));
    check(2, 3, "logits, f32 [samples, classes] or [samples, tokens, classes]");
    return {
      samples,
      predictions: (batch: Batch) => countTargets(batch, label),
      build(g: LayerGraph, output: Value) {
        const logits = g.reshape(output, [rows, classes]);
        const losses = g.crossEntropy(logits, g.batch(label, [rows], "i32"));
        return g.sum(g.reshape(losses, [samples, rows / samples]), [1]);
      },
    };
  }
  if (loss !== "mse") throw importError(`loss must be one of ${ONNX_LOSSES.join(", ")}`, loss);
  check(1, Infinity, "numbers, f32 [samples, ...]");
  return {
    samples,
    predictions: samples,
    build: (g: LayerGraph, output: Value) => meanSquaredError(g, output, g.batch(label, shape)),
  };
}

/** Options of {@linkcode fromOnnx}. */
export interface FromOnnxOptions {
  /** The loss that is added after the output. */
  readonly loss: OnnxLoss;
  /** The output to train. Default: the only one. */
  readonly output?: string | undefined;
  /**
   * The field of the micro-batch with the expected output: for cross-entropy an int32 for each row of
   * logits, −1 if nothing is predicted; for mse f32 in the shape of the output. Default `label`.
   */
  readonly label?: string | undefined;
  /** Open sizes of the file by name; a size without a name is `input.axis`. */
  readonly dimensions?: Dimensions | undefined;
  /** Weights that are not trained. */
  readonly frozen?: readonly string[] | ((weight: string) => boolean) | undefined;
  /**
   * Smallest number of layers, such as the stages of a schedule. Default: one for each cheap cut. A
   * model with fewer products with weights has fewer layers.
   */
  readonly layers?: number | undefined;
  /** Separate files with weights, by their names in the file. */
  readonly external?: ExternalFiles | undefined;
}

/**
 * Finds the part of a file that is trained, and its loss.
 *
 * @returns `folded`, the steps that the loss needs; `output`, the name of the value that it is computed
 * from; `loss`.
 * @throws {TypeError} {@linkcode RangeError} as `fromOnnx`.
 */
export function trainablePart(file: OnnxGraph, options: FromOnnxOptions) {
  const { label = "label", dimensions = {}, loss } = options;
  const inputs = staticInputs(file.inputs, dimensions);
  const isInput = inputs.some(({ name }) => name === label);
  assertImport(!isInput, "label must be a separate field", `${quoted(label)}, one of its inputs`);
  const name = outputOf(file, options.output), isFrozen = frozenOf(file, options.frozen);
  const foldWith = (isConstant?: (weight: string) => boolean) => {
    const folded = foldFile({ file, inputs, isFrozen, ...isConstant && { isConstant } });
    const output = logitsOf(folded, name, loss), value = folded.valueOf(output);
    if (value) return { folded: neededOf(folded, output), output, value };
    throw importError("its output must be made by a node", `${quoted(name)} from nowhere`);
  };
  const first = foldWith(), trained = trainedWeights(first.folded, first.value);
  // Such as masks of attention, from which only conditions are computed.
  const idle = (weight: string) =>
    !trained.has(weight) && !first.folded.weights.get(weight)?.isFrozen;
  const lost = first.folded.steps.filter(({ node }) => PRODUCTS.has(node.op))
    .flatMap(({ reads }) => reads).find((name) => first.folded.weights.has(name) && idle(name));
  if (lost !== undefined) {
    const why = "none through the roundings, whole numbers or bools between it and the loss";
    const received = `${why}; if that is intended, name it in frozen (--freeze)`;
    throw refusal(TRAIN, `the weight ${quoted(lost)} must have a gradient`, received, TypeError);
  }
  const { folded, output, value } = [...first.folded.weights.keys()].some(idle)
    ? foldWith(idle)
    : first;
  return { folded, output, loss: lossOf(loss, { ...value, name }, label) };
}

/** Returns the name of the output to train. */
function outputOf({ outputs }: OnnxGraph, asked: string | undefined): string {
  const [only] = outputs;
  if (asked === undefined && outputs.length === 1) return only!;
  if (asked !== undefined && outputs.includes(asked)) return asked;
  throw importError(`output must be one of its outputs, ${listed(outputs)}`, asked ?? "none");
}

/** Returns the input of a softmax for cross-entropy, which includes a softmax; otherwise the output. */
function logitsOf({ steps, canonical }: FoldedFile, output: string, loss: OnnxLoss): string {
  const name = canonical(output);
  const step = steps.find(({ makes }) => makes.some((made) => made.name === name));
  if (loss !== "cross-entropy" || step?.node.op !== "Softmax") return name;
  const rank = step.makes[0]!.shape.length, { axis = -1 } = step.node.attributes;
  return axis === -1 || axis === rank - 1 ? step.reads[0]! : name;
}

/** Returns a function that tests whether a weight is not trained. */
function frozenOf({ initializers }: OnnxGraph, frozen: FromOnnxOptions["frozen"] = []) {
  if (typeof frozen === "function") return frozen;
  const unknown = frozen.find((name) => !initializers.has(name));
  if (unknown === undefined) return (weight: string) => frozen.includes(weight);
  throw importError("frozen weights must be among its initializers", quoted(unknown));
}

/** Returns the steps and weights that an output needs. */
function neededOf(folded: FoldedFile, output: string): FoldedFile {
  const needed = new Set([output]);
  const steps = neededSteps(folded, needed, (_, isRead) => isRead);
  const weights = new Map([...folded.weights].filter(([name]) => needed.has(name)));
  return { ...folded, steps, weights };
}

/**
 * Returns a model that trains an ONNX file.
 *
 * Its parameters are the f32 initializers of the file, with their names. Statistics of batch
 * normalizations and weights in `frozen` are not trained. Initializers without a gradient, such as
 * masks of attention, are constants. If PyTorch's exporter has marked parameters, initializers that
 * are neither parameters nor computed from them are constants, too. Fields of a micro-batch have the
 * names of the file's inputs; int64 inputs have int32 fields. Dropout is that of the file: none if it
 * was exported for inference.
 *
 * @param bytes the file, of opset 9 to 23.
 * @throws {TypeError} when it is not an ONNX file, an open size is not given, or an operation is not
 * supported or has no gradient; the message names its node.
 * @throws {RangeError} when sizes of the file do not fit together.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { fromOnnx, type Layer, layersOnnx } from "@troupe/troupe/kernels";
 *
 * const line: Layer = {
 *   name: "line",
 *   build: (g) => g.mul(g.batch("x", [2, 1]), g.parameter("slope", [1])),
 * };
 * const weights = new Map([["line.slope", Float32Array.of(3)]]);
 * const pieces = layersOnnx([line]).pieces((name) => weights.get(name));
 * const model = fromOnnx(await new Blob([...pieces]).bytes(), { loss: "mse", label: "y" });
 * assert.deepEqual(model.weights, weights);
 * assert.equal(model.samples, 2);
 * ```
 */
export function fromOnnx(bytes: Uint8Array, options: FromOnnxOptions): Model {
  const { external = {}, layers = 1 } = options;
  const isCount = Number.isSafeInteger(layers) && layers >= 1;
  assertImport(isCount, "layers must be a whole number from 1", layers, RangeError);
  return importFile(readOnnx(bytes, external), options);
}

function importFile(file: OnnxGraph, options: FromOnnxOptions, like?: Cut): Model {
  const { folded, output, loss } = trainablePart(file, options), { dimensions = {} } = options;
  const cut = like ? cutAlike(folded, like) : cutSteps(folded, output, options.layers);
  const { layers, ties } = layersOf(folded, cut, output, loss.build);
  const open = samplesDimension(file.inputs);
  return {
    name: "onnx",
    layers,
    predictions: loss.predictions,
    samples: loss.samples,
    ...ties.length > 0 && { ties },
    weights: new Map([...folded.weights].map(([name, { data }]) => [name, data])),
    ...open !== undefined && {
      withSamples: (samples: number) =>
        importFile(file, { ...options, dimensions: { ...dimensions, [open]: samples } }, cut),
    },
  };
}
