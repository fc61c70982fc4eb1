/**
 * Models that train what an ONNX file computes.
 *
 * @module
 */

import { countTargets } from "../batch.ts";
import { assertInput, refusal } from "../errors.ts";
import { dependentValues } from "../ops/autodiff.ts";
import { GRADIENTS, isFlat } from "../ops/table.ts";
import { elementCount } from "../graph/shapes.ts";
import { sliceNodes, type Value } from "../graph/value.ts";
import { meanSquaredError } from "../layers/helpers.ts";
import type { LayerGraph, Model } from "../layers/layer.ts";
import { type Dimensions, type Plan, planFile, samplesDimension, staticInputs } from "./fold.ts";
import { type Cut, cutAlike, cutPlan, layersOf, PRODUCTS } from "./import_layers.ts";
import {
  assertImport,
  type ExternalFiles,
  importError,
  listed,
  nodeLabel,
  type OnnxGraph,
  type OnnxInput,
  quoted,
  readOnnx,
} from "./read_file.ts";

/** The operation in refusals of files without gradients. */
const TRAIN = "train the ONNX model";

/** What a file says of itself. */
export interface OnnxDescription {
  /** Its inputs; sizes that a run chooses have names. */
  readonly inputs: readonly OnnxInput[];
  /** The names of its outputs. */
  readonly outputs: readonly string[];
  /** The names of its initializers. */
  readonly initializers: readonly string[];
}

/**
 * Describes a file.
 *
 * @param external files beside it that hold weights, by the names by which it knows them.
 * @throws {TypeError} {@linkcode RangeError} as `fromOnnx`.
 */
export function describeOnnx(bytes: Uint8Array, external: ExternalFiles = {}): OnnxDescription {
  const { inputs, outputs, initializers } = readOnnx(bytes, external);
  return { inputs, outputs, initializers: [...initializers.keys()] };
}

/**
 * The weights to which a gradient comes, by name.
 *
 * @param output whose loss is trained.
 * @throws {TypeError} naming the op and its node; or when no weight that is trained reaches the output.
 */
export function trainedWeights(
  { graph, steps }: Pick<Plan, "graph" | "steps">,
  output: Value,
): ReadonlySet<string> {
  const trained = graph.parameters.filter(({ spec }) => !spec.frozen);
  const dependent = dependentValues(graph, trained.map(({ value }) => value));
  const nodes = sliceNodes(graph, graph.inputs, [output]);
  const must = "its output must depend on a trained weight";
  assertInput(dependent.has(output), TRAIN, must, "no weight that has a gradient", TypeError);
  const wanted = new Set([output]);
  for (const node of nodes.toReversed()) {
    const isOnWay = node.outputs.some((one) => wanted.has(one)) &&
      node.inputs.some((input) => dependent.has(input));
    if (!isOnWay || isFlat(node.op)) continue;
    if (!Object.hasOwn(GRADIENTS, node.op)) {
      const step = steps.find(({ from, to }) => from <= node.id && node.id < to)!;
      const must = "every op between parameters and loss must have a gradient";
      throw refusal(TRAIN, must, nodeLabel(step.node), TypeError);
    }
    // No gradient flows through whole numbers and conditions.
    for (const input of node.inputs) if (input.dtype === "f32") wanted.add(input);
  }
  return new Set(trained.filter(({ value }) => wanted.has(value)).map(({ spec }) => spec.name));
}

/** What an imported model is trained by. */
export type OnnxLoss = "cross-entropy" | "mse";

/** The losses that there are. */
export const ONNX_LOSSES: readonly OnnxLoss[] = ["cross-entropy", "mse"];

/** A loss, for an output of one shape. */
interface LossPlan {
  /** Samples of a micro-batch. */
  readonly samples: number;
  readonly predictions: Model["predictions"];
  /** The loss of each sample. */
  build(g: LayerGraph, output: Value): Value;
}

/**
 * What a loss is for an output.
 *
 * @param label the field of the micro-batch that says what the output should be.
 * @throws {TypeError} when there is no such loss.
 * @throws {RangeError} when an output of that shape has none.
 */
function lossOf(
  loss: OnnxLoss,
  { name, shape, dtype }: Pick<Value, "name" | "shape" | "dtype">,
  label: string,
): LossPlan {
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
      predictions: (batch) => countTargets(batch, label),
      build(g, output) {
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
    build: (g, output) => meanSquaredError(g, output, g.batch(label, shape)),
  };
}

/** How a file is trained. */
export interface FromOnnxOptions {
  /** What is put behind its output. */
  readonly loss: OnnxLoss;
  /** The output that is trained; the only one where not given. */
  readonly output?: string | undefined;
  /**
   * The field of the micro-batch that says what the output should be: for cross-entropy an int32 for
   * each row of logits, −1 where nothing is predicted; for mse f32 as the output. `label` where not
   * given.
   */
  readonly label?: string | undefined;
  /** Sizes that the file leaves open, by its names; one without a name is called `input.axis`. */
  readonly dimensions?: Dimensions | undefined;
  /** Which weights are not trained. */
  readonly frozen?: readonly string[] | ((weight: string) => boolean) | undefined;
  /**
   * Layers at least, such as the stages of a schedule; as many as there are cheap cuts where not given.
   * It has fewer where it has not so many products with weights.
   */
  readonly layers?: number | undefined;
  /** Files beside it that hold weights, by the names by which it knows them. */
  readonly external?: ExternalFiles | undefined;
}

/** A file that can be trained. */
interface TrainingPlan {
  /** The steps that the loss needs. */
  readonly plan: Plan;
  /** What the loss is taken of. */
  readonly output: string;
  readonly loss: LossPlan;
}

/**
 * Plans the training of a file.
 *
 * @throws {TypeError} {@linkcode RangeError} as `fromOnnx`.
 */
export function planTraining(file: OnnxGraph, options: FromOnnxOptions): TrainingPlan {
  const { label = "label", dimensions = {}, loss } = options;
  const inputs = staticInputs(file.inputs, dimensions);
  const isInput = inputs.some(({ name }) => name === label);
  assertImport(!isInput, "label must be a separate field", `${quoted(label)}, one of its inputs`);
  const name = outputOf(file, options.output), isFrozen = frozenOf(file, options.frozen);
  const planned = (isConstant?: (weight: string) => boolean) => {
    const plan = planFile({ file, inputs, isFrozen, ...isConstant && { isConstant } });
    const output = logitsOf(plan, name, loss), value = plan.valueOf(output);
    if (value) return { plan: neededOf(plan, output), output, value };
    throw importError("its output must be made by a node", `${quoted(name)} from nowhere`);
  };
  const first = planned(), trained = trainedWeights(first.plan, first.value);
  // Masks of attention are such: nothing but conditions follows from them.
  const idle = (weight: string) =>
    !trained.has(weight) && !first.plan.weights.get(weight)?.isFrozen;
  const lost = first.plan.steps.filter(({ node }) => PRODUCTS.has(node.op))
    .flatMap(({ reads }) => reads).find((name) => first.plan.weights.has(name) && idle(name));
  if (lost !== undefined) {
    const why = "none through the roundings, whole numbers or bools between it and the loss";
    const received = `${why}; if that is intended, name it in frozen (--freeze)`;
    throw refusal(TRAIN, `the weight ${quoted(lost)} must have a gradient`, received, TypeError);
  }
  const { plan, output, value } = [...first.plan.weights.keys()].some(idle) ? planned(idle) : first;
  return { plan, output, loss: lossOf(loss, { ...value, name }, label) };
}

/** The output that is trained. */
function outputOf({ outputs }: OnnxGraph, asked: string | undefined): string {
  const [only] = outputs;
  if (asked === undefined && outputs.length === 1) return only!;
  if (asked !== undefined && outputs.includes(asked)) return asked;
  throw importError(`output must be one of its outputs, ${listed(outputs)}`, asked ?? "none");
}

/** Of an output that is a softmax, what it is taken of: cross-entropy takes its own. */
function logitsOf({ steps, canonical }: Plan, output: string, loss: OnnxLoss): string {
  const name = canonical(output);
  const step = steps.find(({ makes }) => makes.some((made) => made.name === name));
  if (loss !== "cross-entropy" || step?.node.op !== "Softmax") return name;
  const rank = step.makes[0]!.shape.length, { axis = -1 } = step.node.attributes;
  return axis === -1 || axis === rank - 1 ? step.reads[0]! : name;
}

/** Says of weights whether they are not trained. */
function frozenOf(
  { initializers }: OnnxGraph,
  frozen: FromOnnxOptions["frozen"] = [],
): (weight: string) => boolean {
  if (typeof frozen === "function") return frozen;
  const unknown = frozen.find((name) => !initializers.has(name));
  if (unknown === undefined) return (weight) => frozen.includes(weight);
  throw importError("frozen weights must be among its initializers", quoted(unknown));
}

/** The part of a plan that an output needs. */
function neededOf(plan: Plan, output: string): Plan {
  const needed = new Set([output]);
  const steps = plan.steps.toReversed().filter(({ makes, reads }) => {
    const isNeeded = makes.some(({ name }) => needed.has(name));
    if (isNeeded) reads.forEach((name) => needed.add(name));
    return isNeeded;
  }).reverse();
  const weights = new Map([...plan.weights].filter(([name]) => needed.has(name)));
  return { ...plan, steps, weights };
}

/**
 * A model that trains what an ONNX file computes.
 *
 * Its f32 initializers are the parameters, by their names; statistics of batch normalisations, and
 * what `frozen` says, are not trained, and those through which no gradient flows, such as masks of
 * attention, are constants. Fields of a micro-batch have the names of the file's inputs,
 * those of int64 are int32. Dropout is what the file says: none where it was exported for use.
 *
 * @param bytes the file, of opset 9 to 23.
 * @throws {TypeError} when it is no ONNX file, when a dimension is open, or naming the node whose
 * operation is not understood or has no gradient.
 * @throws {RangeError} when sizes in it do not fit together.
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
  const { plan, output, loss } = planTraining(file, options), { dimensions = {} } = options;
  const cut = like ? cutAlike(plan, like) : cutPlan(plan, output, options.layers);
  const { layers, ties } = layersOf(plan, cut, output, loss.build);
  const open = samplesDimension(file.inputs);
  return {
    name: "onnx",
    layers,
    predictions: loss.predictions,
    samples: loss.samples,
    ...ties.length > 0 && { ties },
    weights: new Map([...plan.weights].map(([name, { data }]) => [name, data])),
    ...open !== undefined && {
      withSamples: (samples: number) =>
        importFile(file, { ...options, dimensions: { ...dimensions, [open]: samples } }, cut),
    },
  };
}
