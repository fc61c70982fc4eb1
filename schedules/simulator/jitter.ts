/** Draws that depend on what they are for, never on when they are made. */

import type { Action } from "../actions/action.ts";
import { KIND } from "../actions/action_list.ts";
import type { Jitter } from "./step_model.ts";

/** A factor for what an action takes, and one for the message after it. */
export interface Draws {
  readonly duration: (action: Action) => number;
  readonly latency: (action: Action) => number;
}

/** The draws of a law; 1 where nothing varies. */
export function drawsOf(jitter: Jitter | undefined): Draws {
  const one = () => 1;
  if (jitter === undefined) return { duration: one, latency: one };
  const { law, amount, latencyAmount = 0, seed } = jitter;
  const factor = (stream: number, most: number) => {
    if (most === 0) return one;
    return (action: Action) => {
      const draw = uniform(seed, stream, action);
      if (typeof law !== "string") return 1 + most * (quantile(law, draw) - 1);
      return law === "above" ? 1 + most * draw : 1 + most * (2 * draw - 1);
    };
  };
  return { duration: factor(0, amount), latency: factor(1, latencyAmount) };
}

/** The factor at a rank from 0 to 1, between two that are known what lies between. */
function quantile(factors: readonly number[], rank: number): number {
  const place = rank * (factors.length - 1), low = Math.floor(place), share = place - low;
  return factors[low]! + share * (factors[Math.min(low + 1, factors.length - 1)]! - factors[low]!);
}

/** From 0 to 1, the same for the same seed, stream and action. */
function uniform(seed: number, stream: number, action: Action): number {
  const { kind, stage, microBatch, half, slice = 0 } = action;
  let hash = mix(seed ^ 0x9e3779b9);
  hash = mix(hash ^ (KIND[kind] * 8 + stream * 4 + (half === undefined ? 0 : half + 1)));
  hash = mix(hash ^ stage);
  hash = mix(hash ^ microBatch);
  if (slice > 0) hash = mix(hash ^ slice);
  return (hash >>> 0) / 2 ** 32;
}

/** Spreads 32 bits: each bit of the input changes about half of those of the output. */
function mix(bits: number): number {
  let hash = bits | 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x7feb352d);
  hash = Math.imul(hash ^ (hash >>> 15), 0x846ca68b);
  return (hash ^ (hash >>> 16)) + 0x9e3779b9 | 0;
}
