/**
 * What tells one kind of layer from another, wherever it is in a model: by it costs are kept and
 * found.
 *
 * @module
 */

import {
  activationBytes,
  DTYPE_BYTES,
  elementCount,
  type StageOptions,
  type StageProgram,
} from "../../../kernels/mod.ts";
import type { LayerCost } from "./profile.ts";

/** What of a layer follows from its program alone. */
export type LayerFacts = Pick<
  LayerCost,
  | "kind"
  | "precision"
  | "parameters"
  | "activationBytes"
  | "outputBytes"
  | "forwardFlops"
  | "backwardFlops"
>;

/** The facts of each layer of a model or stage, in order. */
export function layerFacts(
  { programs, layers }: StageProgram,
  options: Pick<StageOptions, "optimizer">,
): LayerFacts[] {
  const facts = programs.map((program, index): Omit<LayerFacts, "kind"> => {
    const named = layers.find((layer) => layer.program === index)!;
    const alone = { programs: [program], layers: [{ ...named, program: 0 }] };
    const trained = program.parameters.filter(({ frozen }) => !frozen);
    const { forward, backward } = program.cost;
    return {
      precision: program.precision,
      parameters: trained.reduce((sum, { shape }) => sum + elementCount(shape), 0),
      activationBytes: activationBytes(alone, { ...options, backward: "whole" }).perMicroBatch,
      outputBytes: elementCount(program.output.shape) * DTYPE_BYTES[program.output.dtype],
      forwardFlops: forward,
      backwardFlops: backward,
    };
  });
  return layers.map(({ program, ...named }) => ({ kind: kindOf(named), ...facts[program]! }));
}

/** `attention` of `block 3 attention`, `hidden` of `hidden 1`. */
function kindOf({ name, block }: { readonly name: string; readonly block?: string }): string {
  const own = block !== undefined && name.startsWith(block) ? name.slice(block.length) : name;
  return own.replaceAll(/\d+/g, "").trim() || name;
}

/** What layers that cost the same have in common. */
export const factsKey = ({ kind, parameters, forwardFlops, backwardFlops }: LayerFacts): string =>
  JSON.stringify([kind, parameters, forwardFlops, backwardFlops]);
