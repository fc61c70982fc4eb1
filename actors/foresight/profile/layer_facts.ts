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
  isSkip,
  type LayerProgram,
  outputsOf,
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

/**
 * Returns the facts of each layer of a model or stage, in order, once for each slice of a sequence.
 */
export function slicedFacts(
  { programs, layers, slicing }: StageProgram,
  options: Pick<StageOptions, "optimizer">,
): LayerFacts[][] {
  const known = new Map<LayerProgram, Omit<LayerFacts, "kind">>();
  return Array.from(
    { length: slicing?.slices ?? 1 },
    (_, slice) =>
      layers.map(({ slices, ...named }) => {
        const program = programs[slices?.[slice] ?? named.program]!;
        const facts = known.get(program) ?? programFacts(program, named, options);
        known.set(program, facts);
        return { kind: kindOf(named), ...facts };
      }),
  );
}

function programFacts(
  program: LayerProgram,
  named: StageProgram["layers"][number],
  options: Pick<StageOptions, "optimizer">,
): Omit<LayerFacts, "kind"> {
  const alone = { programs: [program], layers: [{ ...named, program: 0 }] };
  const trained = program.parameters.filter(({ frozen }) => !frozen);
  const { forward, backward } = program.cost;
  return {
    precision: program.precision,
    parameters: trained.reduce((sum, { shape }) => sum + elementCount(shape), 0),
    activationBytes: activationBytes(alone, { ...options, backward: "whole" }).perMicroBatch,
    outputBytes: outputsOf(program).filter(({ name }) => !isSkip(name))
      .reduce((sum, { dtype, shape }) => sum + elementCount(shape) * DTYPE_BYTES[dtype], 0),
    forwardFlops: forward,
    backwardFlops: backward,
  };
}

/** `attention` of `block 3 attention`, `hidden` of `hidden 1`. */
function kindOf({ name, block }: { readonly name: string; readonly block?: string }): string {
  const own = block !== undefined && name.startsWith(block) ? name.slice(block.length) : name;
  return own.replaceAll(/\d+/g, "").trim() || name;
}

/** What layers that cost the same have in common. */
export const factsKey = ({ kind, parameters, forwardFlops, backwardFlops }: LayerFacts): string =>
  JSON.stringify([kind, parameters, forwardFlops, backwardFlops]);
