/**
 * Low-rank adapters of dense layers: LoRA (Hu et al. 2021), with the names and shapes of PEFT.
 *
 * A product x·W of a target gets the addend α/r·(x·Aᵀ)·Bᵀ, where A is [r, in] and B is [out, r]. Only A
 * and B are trained. A begins as in PEFT, uniform within ±1/√in, and B with zeros, so the first step
 * computes the base model.
 *
 * @module
 */

import { assertInput } from "../errors.ts";
import type { Value } from "../graph/value.ts";
import type { AnyLayer, Handed, LayerGraph, Model, ParameterSpec, Tie } from "./layer.ts";

/** Settings of an adapter. */
export interface LoraOptions {
  /** Columns of the update's factors, r. */
  readonly rank: number;
  /** The update is scaled by α/r. Default: the rank. */
  readonly alpha?: number | undefined;
  /** Names of dense layers, or their last parts: `c_attn`, `attn.c_proj`. */
  readonly target: readonly string[];
}

/** Factor of the update, α/r. */
export const loraScale = ({ rank, alpha = rank }: LoraOptions): number => alpha / rank;

/** Returns whether a parameter belongs to an adapter. */
export const isLora = (parameter: string): boolean => /(^|\.)lora_[AB]\.weight$/.test(parameter);

/** Returns the names of A and B of a weight. */
export function loraNames(weight: string): readonly [a: string, b: string] {
  const module = weight.replace(/weight$/, "");
  return [`${module}lora_A.weight`, `${module}lora_B.weight`];
}

/** Returns whether a weight is that of a target. */
const isTarget = (weight: string, { target }: LoraOptions): boolean =>
  target.some((one) => `.${weight}`.endsWith(`.${one}.weight`));

/** Returns the weights of a model that an adapter has targeted. */
export const loraTargets = <P extends Pick<ParameterSpec, "name" | "shape">>(
  parameters: readonly P[],
  lora: LoraOptions,
): P[] => parameters.filter(({ name, shape }) => shape.length === 2 && isTarget(name, lora));

/**
 * Adds an adapter to a model and freezes its other parameters.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, gpt2 } from "@troupe/troupe/kernels";
 *
 * const model = gpt2({ layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16 }, 1);
 * const adapted = withLora(model, { rank: 2, target: ["c_attn"] });
 * const { parameters } = compileModel(adapted, "none");
 * assert.deepEqual(parameters.filter((one) => !one.isFrozen).map(({ name, shape }) => [name, shape]), [
 *   ["transformer.h.0.attn.c_attn.lora_A.weight", [2, 8]],
 *   ["transformer.h.0.attn.c_attn.lora_B.weight", [24, 2]],
 * ]);
 * ```
 */
export function withLora(model: Model, lora: LoraOptions): Model {
  const { withSamples, withLength, withSlices } = model;
  const adapted = (layers: readonly AnyLayer[]) => layers.map((layer) => adaptLayer(layer, lora));
  return {
    ...model,
    layers: adapted(model.layers),
    ...withSamples && { withSamples: (samples) => withLora(withSamples(samples), lora) },
    ...withLength && { withLength: (length) => withLora(withLength(length), lora) },
    ...withSlices && { withSlices: (slices) => adapted(withSlices(slices)) },
  };
}

/** Returns a layer whose products with targets have an update. */
function adaptLayer(layer: AnyLayer, lora: LoraOptions): AnyLayer {
  const prefix = layer.prefix ?? `${layer.name}.`;
  return {
    ...layer,
    build(g, x) {
      const { gemm } = g, known = new Map<Value, Factors>();
      const adapted: typeof gemm = (a, b, c, options) => {
        const product = gemm.call(g, a, b, c, options);
        const weight = g.parameters.find(({ value }) => value === b)?.spec;
        if (!weight || !isTarget(prefix + weight.name, lora)) return product;
        const { transA = false, transB = false, alpha = 1 } = options ?? {};
        const declare = () => declareFactors(g, weight, lora.rank, transB);
        const factors = known.getOrInsertComputed(b, declare);
        // A weight that is used both ways has one update.
        const isSame = factors.isTransposed === transB, how = { transB: isSame };
        const [first, second] = isSame ? [factors.a, factors.b] : [factors.b, factors.a];
        const narrow = gemm.call(g, a, first, undefined, { transA, ...how });
        const scaled = g.mul(narrow, g.scalar(alpha * loraScale(lora)));
        return g.add(product, gemm.call(g, scaled, second, undefined, how));
      };
      Object.defineProperty(g, "gemm", { value: adapted, configurable: true });
      try {
        const y = layer.build(g, x);
        for (const weight of known.keys()) checkUses(g, y, weight);
        return y;
      } finally {
        Reflect.deleteProperty(g, "gemm");
        for (const [i, { spec, value }] of g.parameters.entries()) {
          if (!isLora(spec.name)) g.parameters[i] = { spec: { ...spec, frozen: true }, value };
        }
      }
    },
  };
}

/** Refuses a weight that has other uses than products, which would not see its adapter. */
function checkUses(g: LayerGraph, y: Handed, weight: Value): void {
  const isProduct = g.nodes.every(({ op, inputs }) =>
    inputs.every((one, i) => one !== weight || (op === "Gemm" && i === 1))
  );
  const passed = [y, ...Object.values(Object(y)), ...g.gives.values()];
  const must = "a target of lora must be only the second factor of g.gemm";
  const isOnly = isProduct && !passed.includes(weight);
  assertInput(isOnly, "adapt the model", must, `other uses of "${weight.name.slice(2)}"`);
}

/** A and B of a weight, and whether it is [out, in]. */
type Factors = ReturnType<typeof declareFactors>;

/** Declares A and B. A weight is [in, out], or [out, in] if it is transposed. */
function declareFactors(
  g: LayerGraph,
  { name, shape }: ParameterSpec,
  rank: number,
  isTransposed: boolean,
) {
  const [inputs, outputs] = (isTransposed ? shape.toReversed() : shape) as [number, number];
  const [a, b] = loraNames(name), bound = 1 / Math.sqrt(inputs);
  return {
    a: g.parameter(a, [rank, inputs], { kind: "uniform", low: -bound, high: bound }),
    b: g.parameter(b, [outputs, rank], { kind: "constant", value: 0 }),
    isTransposed,
  };
}

/**
 * Checks that each target of an adapter is a dense layer of the model, which no tie shares.
 *
 * @param parameters of the adapted model.
 * @throws {RangeError} with the first target that is not.
 */
export function checkLora(
  parameters: readonly Pick<ParameterSpec, "name" | "shape">[],
  ties: readonly Tie[],
  { target }: LoraOptions,
): void {
  const cannot = "adapt the model";
  const names = new Set([...parameters.map(({ name }) => name), ...ties.flat()]);
  for (const one of target) {
    const weights = [...names].filter((name) => isTarget(name, { rank: 1, target: [one] }));
    const isDense = weights.some((name) => names.has(loraNames(name)[0]));
    const must = "each target of lora must be the end of the name of a dense layer";
    assertInput(isDense, cannot, must, JSON.stringify(one.slice(0, 80)));
  }
  const tied = ties.flat().find((name) => names.has(loraNames(name)[0]));
  const must = "a target of lora must not be tied to another weight";
  assertInput(tied === undefined, cannot, must, JSON.stringify(tied));
}
