/**
 * The step of an optimizer as an ONNX model, and the scalars that it reads.
 *
 * @module
 */

import { Graph } from "../graph/graph.ts";
import { TROUPE, type Value } from "../graph/value.ts";
import { encodeModel } from "../onnx/encode_model.ts";
import {
  type AdamWOptions,
  MOMENTS,
  type OptimizerOptions,
  type SgdOptions,
} from "./optimizer_options.ts";

/** What a step starts from: weights, gradients and their factor, moments of a bucket, and scalars. */
interface StepInputs {
  readonly w: Value;
  readonly d: Value;
  readonly scale: Value;
  readonly moments: readonly Value[];
  readonly scalar: (name: string) => Value;
}

/** The weights and moments after a step. */
type StepRule = (g: Graph, inputs: StepInputs) => { weight: Value; moments: readonly Value[] };

/**
 * p ← p·decay − lrT·m/(√v + epsT), with the corrections of the moments' bias folded into the
 * scalars: lrT = η·√(1−β₂ᵗ)/(1−β₁ᵗ), epsT = ε·√(1−β₂ᵗ), decay = 1 − η·λ.
 */
const adamw = ({ beta1, beta2 }: AdamWOptions): StepRule => (g, inputs) => {
  const { w, d, scale, moments, scalar } = inputs;
  const scalars = [scale, ...["decay", "rate", "epsilon"].map(scalar)];
  // An attribute is rounded to f32: 1 − β of what was rounded would be another number.
  const attributes = {
    beta1: { float: beta1 },
    rest1: { float: 1 - beta1 },
    beta2: { float: beta2 },
    rest2: { float: 1 - beta2 },
  };
  const shapes = [w, ...moments].map(({ shape }) => shape);
  const next = g.node("AdamW", [w, d, ...moments, ...scalars], shapes, attributes, TROUPE);
  const [weight, ...own] = next as [Value, Value, Value];
  return { weight, moments: own };
};

const sgd = ({ momentum }: SgdOptions): StepRule => (g, { w, d, scale, moments: [v], scalar }) => {
  const gradient = g.add(g.mul(d, scale), g.mul(w, scalar("decay")));
  const velocity = g.add(g.mul(v!, g.scalar(momentum)), gradient);
  return { weight: g.sub(w, g.mul(velocity, scalar("rate"))), moments: [velocity] };
};

/**
 * The step of a bucket. With FP16 gradients it also returns the FP16 weights, and the gradients
 * widened and scaled: so these lie in memory of ours, where they are counted.
 */
export function stepModel(length: number, options: OptimizerOptions, isMixed: boolean): Uint8Array {
  const g = new Graph(), rule = options.kind === "adamw" ? adamw(options) : sgd(options);
  const w = g.input("w", [length]);
  const sum = g.input("d", [length], isMixed ? "f16" : "f32");
  const states = MOMENTS[options.kind].map((_, i) => g.input(`m${i}`, [length]));
  const scalars = new Map(
    Object.keys(scalarValues(options, 1, 0, 1, true)).map((name) => [name, g.input(name, [])]),
  );
  const scalar = (name: string) => scalars.get(name)!;
  const own = isMixed
    ? { d: g.mul(g.cast(sum, "f32"), scalar("scale")), scale: g.scalar(1) }
    : { d: sum, scale: scalar("scale") };
  const { weight, moments } = rule(g, { w, ...own, moments: states, scalar });
  return encodeModel(g, g.inputs.map((value) => ({ name: value.name, value })), [
    { name: "w'", value: weight },
    ...moments.map((value, i) => ({ name: `m${i}'`, value })),
    ...isMixed ? [{ name: "d'", value: own.d }, { name: "h'", value: g.cast(weight, "f16") }] : [],
  ]);
}

/** The values of the scalars at a step. */
export function scalarValues(
  options: OptimizerOptions,
  step: number,
  learningRate: number,
  gradientScale: number,
  isDecayed: boolean,
): Record<string, number> {
  const decay = isDecayed ? options.weightDecay : 0, scale = gradientScale;
  if (options.kind === "sgd") return { scale, decay, rate: learningRate };
  const correction = Math.sqrt(1 - options.beta2 ** step);
  return {
    scale,
    decay: 1 - learningRate * decay,
    rate: learningRate * correction / (1 - options.beta1 ** step),
    epsilon: options.epsilon * correction,
  };
}
