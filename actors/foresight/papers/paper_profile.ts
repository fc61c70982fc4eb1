/**
 * A profile out of what is known of a machine that nobody here can measure: operations over an
 * assumed share of the peak.
 *
 * @module
 */

import {
  type LayerCost,
  type Profile,
  PROFILE_FORMAT,
  PROFILE_VERSION,
} from "../profile/profile.ts";
import type { PaperMachine, Sourced } from "./machines/paper_machine.ts";
import {
  edgeBytes,
  headFlops,
  inputParameters,
  layerBytes,
  layerFlops,
  layerParameters,
  type PaperModel,
} from "./transformer.ts";

/** Milliseconds of so many operations on a micro-batch of so many tokens. */
export function computeMs(machine: PaperMachine, flops: number, tokens: number): number {
  const { peakFlops, topShare, halfTokens } = machine;
  const share = topShare.value * tokens / (tokens + halfTokens.value);
  return 1000 * flops / (peakFlops.value * share);
}

/**
 * The profile of a machine for a model: a `block` for each layer, the `embedding` and the `head`, for
 * micro-batches of these sizes. A backward takes two forwards, as in Chimera's section 3.4; where it
 * computes one half of a micro-batch after the other, with the efficiency of a half.
 */
export function statedProfile(
  machine: PaperMachine,
  model: PaperModel,
  microBatches: readonly number[],
  halvesBackward = false,
): Profile {
  const { name, gpus, memoryBytes, link, local, reduceLink, hostLink, dispatchMs } = machine;
  const links = { network: link, node: local, reduce: reduceLink, host: hostLink };
  const known = Object.entries(links).filter(([, one]) => one !== undefined) as [
    string,
    Sourced<{ latencyMs: number; bytesPerMs?: number }>,
  ][];
  const facts: [string, Sourced<unknown>][] = [
    ["machine.memoryBytes", memoryBytes],
    ["layers[].forwardMs: peak", machine.peakFlops],
    ["layers[].forwardMs: share of it", machine.topShare],
    ["layers[].forwardMs: tokens for half of it", machine.halfTokens],
    ["layers[].activationBytes: factor", machine.activationFactor],
    ["dispatchMs", dispatchMs],
    ...known.map(([key, one]): [string, Sourced<unknown>] => [`links.${key}`, one]),
  ];
  const nothing = { ms: 0, msPerMillion: 0 };
  return {
    format: PROFILE_FORMAT,
    version: PROFILE_VERSION,
    source: "stated",
    machine: { name, cores: gpus, memoryBytes: memoryBytes.value },
    layers: microBatches.flatMap((samples) => layersOf(machine, model, samples, halvesBackward)),
    optimizer: nothing,
    reduce: nothing,
    links: Object.fromEntries(known.map(([key, one]) => [key, one.value])),
    dispatchMs: dispatchMs.value,
    closing: { vote: nothing, norm: nothing, end: nothing, stepMs: 0 },
    sources: {
      "layers": model.source,
      ...Object.fromEntries(facts.map(([key, { by, source }]) => [key, `${by}: ${source}`])),
    },
    notes: ["built from figures that a paper states; nothing here was measured by Troupe"],
  };
}

function layersOf(
  machine: PaperMachine,
  model: PaperModel,
  samples: number,
  halvesBackward: boolean,
): LayerCost[] {
  const { hidden, heads, sequence, vocabulary, bytes } = model;
  const tokens = samples * sequence;
  const cost = (kind: string, flops: number, parameters: number, kept: number): LayerCost => ({
    kind,
    sizes: { hidden, heads, sequence, vocabulary },
    microBatch: samples,
    device: machine.name,
    precision: bytes === 4 ? "fp32" : "fp16",
    recompute: "none",
    atOnce: machine.gpus,
    forwardMs: computeMs(machine, flops, tokens),
    backwardMs: 2 * computeMs(machine, flops, halvesBackward ? tokens / 2 : tokens),
    recomputeMs: computeMs(machine, flops, tokens),
    parameters,
    activationBytes: kept,
    outputBytes: edgeBytes(model, samples),
    forwardFlops: flops,
    backwardFlops: 2 * flops,
  });
  const kept = machine.activationFactor.value * layerBytes(model, samples);
  return [
    cost("embedding", 0, inputParameters(model), 0),
    cost("block", layerFlops(model, samples), layerParameters(model), kept),
    cost("head", headFlops(model, samples), model.output, 2 * tokens * vocabulary * bytes),
  ];
}
