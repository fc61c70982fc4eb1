/**
 * What of a file is trained: the part that its loss needs, its weights, and the loss.
 *
 * @module
 */

import { PRODUCTS } from "./cut.ts";
import { type Dimensions, staticInputs } from "./dimensions.ts";
import type { OnnxGraph } from "./file/onnx_graph.ts";
import type { ExternalFiles } from "./file/onnx_tensor.ts";
import { listed, quoted } from "./file/quoted.ts";
import { trainedWeights } from "./gradients.ts";
import { lossOf, type LossPlan, type OnnxLoss } from "./loss.ts";
import { type Plan, planFile } from "./plan.ts";

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
export interface TrainingPlan {
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
  if (inputs.some(({ name }) => name === label)) {
    throw new TypeError(
      `Cannot import the ONNX model: label must be a field of its own, received ${
        quoted(label)
      }, which is one of its inputs`,
    );
  }
  const name = outputOf(file, options.output), isFrozen = frozenOf(file, options.frozen);
  const planned = (isConstant?: (weight: string) => boolean) => {
    const plan = planFile({ file, inputs, isFrozen, ...isConstant && { isConstant } });
    const output = logitsOf(plan, name, loss), value = plan.valueOf(output);
    if (value) return { plan: neededOf(plan, output), output, value };
    throw new TypeError(
      `Cannot import the ONNX model: its output must be made by a node, received ${
        quoted(name)
      } from nowhere`,
    );
  };
  const first = planned(), trained = trainedWeights(first.plan, first.value);
  // Masks of attention are such: nothing but conditions follows from them.
  const idle = (weight: string) =>
    !trained.has(weight) && !first.plan.weights.get(weight)?.isFrozen;
  const lost = first.plan.steps.filter(({ node }) => PRODUCTS.has(node.op))
    .flatMap(({ reads }) => reads).find((name) => first.plan.weights.has(name) && idle(name));
  if (lost !== undefined) {
    throw new TypeError(
      `Cannot train the ONNX model: a gradient must come to the weight ${
        quoted(lost)
      }, received none through the steps, whole numbers or truths between it and the loss; where that is wanted, name it in frozen (--freeze)`,
    );
  }
  const { plan, output, value } = [...first.plan.weights.keys()].some(idle) ? planned(idle) : first;
  return { plan, output, loss: lossOf(loss, { ...value, name }, label) };
}

/** The output that is trained. */
function outputOf({ outputs }: OnnxGraph, asked: string | undefined): string {
  const [only] = outputs;
  if (asked === undefined && outputs.length === 1) return only!;
  if (asked !== undefined && outputs.includes(asked)) return asked;
  throw new TypeError(
    `Cannot import the ONNX model: output must be one of its outputs, ${
      listed(outputs)
    }, received ${asked ?? "none"}`,
  );
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
  throw new TypeError(
    `Cannot import the ONNX model: frozen weights must be among its initializers, received ${
      quoted(unknown)
    }`,
  );
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
