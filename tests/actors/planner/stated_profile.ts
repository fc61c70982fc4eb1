/** A stated profile: costs by floating-point operations. */

import {
  type LayerCost,
  type LayerFacts,
  type Profile,
  PROFILE_FORMAT,
  PROFILE_VERSION,
  slicedFacts,
} from "../../../actors/planner/profile.ts";
import { compileModel, gpt2, type Gpt2Config, type ModelProgram } from "../../../kernels/mod.ts";

/** Operations of a millisecond, and what each layer takes beside them. */
const FLOPS_A_MS = 1e8, LAYER_MS = 0.05;

/** Returns a profile in which heads take `factor` times as long. */
export const withDearHead = (profile: Profile, factor: number): Profile => ({
  ...profile,
  layers: profile.layers.map((one) =>
    one.kind === "head"
      ? { ...one, forwardMs: factor * one.forwardMs, backwardMs: factor * one.backwardMs }
      : one
  ),
});

/** Returns a profile of programs, with costs of each kind of layer, in which nothing else takes time. */
export function stated(
  program: ModelProgram,
  costsOf: (facts: LayerFacts) => Partial<LayerCost>[],
  more: Partial<Profile> = {},
): Profile {
  const facts = slicedFacts(program)[0]!, none = { ms: 0, msPerMillion: 0 };
  return {
    ...{ format: PROFILE_FORMAT, version: PROFILE_VERSION, source: "stated", notes: [] },
    machine: { name: "paper", cores: 4 },
    layers: facts.filter(({ kind }, i) => facts.findIndex((one) => one.kind === kind) === i)
      .flatMap((one) => {
        const about = { sizes: {}, microBatch: 2, device: "native", recompute: "none" } as const;
        return costsOf(one).map((cost) => ({ ...one, ...about, ...cost }) as LayerCost);
      }),
    ...{ optimizer: none, reduce: none, dispatchMs: 0 },
    links: { worker: { latencyMs: 0 } },
    closing: { vote: none, norm: none, end: none, stepMs: 0 },
    ...more,
  };
}

/** Returns the costs of a GPT-2 on a machine with this number of devices. */
export function statedProfile(config: Gpt2Config, devices: number): Profile {
  const { layers, hidden, heads, seq, vocab } = config, linear = { ms: 0.01, msPerMillion: 1 };
  const about = { sizes: { layers, hidden, heads, seq, vocab }, microBatch: 1, atOnce: 1 };
  const costsOf = ({ forwardFlops, backwardFlops }: LayerFacts) => [{
    ...{ ...about, device: "reference" },
    forwardMs: LAYER_MS + forwardFlops / FLOPS_A_MS,
    backwardMs: LAYER_MS + backwardFlops / FLOPS_A_MS,
  }];
  return stated(compileModel(gpt2(config, 1), "none"), costsOf, {
    machine: { name: "a made-up cluster", cores: devices },
    ...{ optimizer: linear, reduce: linear, dispatchMs: 0.02 },
    links: { worker: { latencyMs: 0.05, bytesPerMs: 1e6 } },
    closing: { vote: linear, norm: linear, end: linear, stepMs: 0.5 },
  });
}
