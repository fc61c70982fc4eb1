/** A profile of layers whose times are stated. */

import type { LayerCost, Profile } from "../../../actors/foresight/mod.ts";
import { layerFacts } from "../../../actors/foresight/profile/layer_facts.ts";
import { ADAMW_DEFAULTS, compileModel, gpt2 } from "../../../kernels/mod.ts";

const nothing = { ms: 0, msPerMillion: 0 };

/** Milliseconds of a forward by kind; a backward takes twice as long, two thirds of it for the input. */
const FORWARD_MS: Readonly<Record<string, number>> = {
  embedding: 1,
  attention: 4,
  mlp: 6,
  head: 3,
};

/** The sizes of a GPT. */
type Sizes = Readonly<Record<"layers" | "hidden" | "heads" | "seq" | "vocab", number>>;

/** A profile of a model's layers, in which so many workers at once take `factor` times as long. */
export function profileOf(
  sizes: Sizes,
  loads: Readonly<Record<number, number>> = { 1: 1 },
): Profile {
  const program = compileModel(gpt2(sizes, 2), "none");
  const facts = layerFacts(program, { optimizer: ADAMW_DEFAULTS });
  const kinds = [facts[0]!, facts[1]!, facts[2]!, facts.at(-1)!];
  return {
    format: "troupe-profile",
    version: 1,
    source: "stated",
    machine: { name: "paper", cores: 4 },
    layers: Object.entries(loads).flatMap(([atOnce, factor]) =>
      kinds.map((one): LayerCost => {
        const forwardMs = factor * FORWARD_MS[one.kind]!, backwardMs = 2 * forwardMs;
        return {
          ...one,
          ...{ sizes, microBatch: 2, device: "native", recompute: "none" },
          ...{ atOnce: Number(atOnce), forwardMs, backwardMs },
          ...{ inputMs: backwardMs * 2 / 3, weightMs: backwardMs / 3 },
        };
      })
    ),
    optimizer: nothing,
    reduce: nothing,
    links: { worker: { latencyMs: 0 } },
    dispatchMs: 0,
    closing: { vote: nothing, norm: nothing, end: nothing, stepMs: 0 },
    notes: [],
  };
}
