/** A stated profile: costs by floating-point operations. */

import { slicedFacts } from "../../../actors/planner/profile.ts";
import { type Profile, PROFILE_FORMAT, PROFILE_VERSION } from "../../../actors/planner/profile.ts";
import { compileModel, gpt2, type Gpt2Config } from "../../../kernels/mod.ts";

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

/** Returns the costs of a GPT-2 on a machine with this number of devices. */
export function statedProfile(config: Gpt2Config, devices: number): Profile {
  const program = compileModel(gpt2(config, 1), "none");
  const facts = slicedFacts(program)[0]!;
  const { layers, hidden, heads, seq, vocab } = config, linear = { ms: 0.01, msPerMillion: 1 };
  return {
    format: PROFILE_FORMAT,
    version: PROFILE_VERSION,
    source: "stated",
    machine: { name: "a made-up cluster", cores: devices },
    layers: facts.filter(({ kind }, i) => facts.findIndex((one) => one.kind === kind) === i)
      .map((one) => ({
        ...one,
        sizes: { layers, hidden, heads, seq, vocab },
        microBatch: 1,
        device: "reference",
        recompute: "none",
        atOnce: 1,
        forwardMs: LAYER_MS + one.forwardFlops / FLOPS_A_MS,
        backwardMs: LAYER_MS + one.backwardFlops / FLOPS_A_MS,
      })),
    optimizer: linear,
    reduce: linear,
    links: { worker: { latencyMs: 0.05, bytesPerMs: 1e6 } },
    dispatchMs: 0.02,
    closing: { vote: linear, norm: linear, end: linear, stepMs: 0.5 },
    notes: [],
  };
}
