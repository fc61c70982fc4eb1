/**
 * Weights and moments of several stages as one.
 *
 * @module
 */

import type { StageState } from "../../kernels/mod.ts";

/** All that some stages hold; of a name that several have, the last one's. */
export function joinStates(parts: readonly StageState[]): StageState {
  return {
    weights: new Map(parts.flatMap(({ weights }) => [...weights])),
    moments: new Map(parts.flatMap(({ moments }) => [...moments])),
  };
}

/** How a state travels: its arrays move. */
export function moved({ weights, moments }: StageState): { transfer: ArrayBuffer[] } {
  const arrays = [...weights.values(), ...moments.values()];
  return { transfer: arrays.map(({ buffer }) => buffer as ArrayBuffer) };
}
