/** What the layers of a model take, and with it the stages of any cut. */

import type { Costs } from "../execution/costs.ts";
import { checkSkips, type LayerSkip } from "./edges_of_cut.ts";

/** What each layer of a model takes, in any one unit of time. */
export interface LayerTimes {
  /** A forward of each layer. */
  readonly forward: readonly number[];
  /** A full backward of each. */
  readonly backward: readonly number[];
  /** The backward for the input; half of the full one unless given. */
  readonly input?: readonly number[] | undefined;
  /** A recomputation; a forward unless given. */
  readonly recompute?: readonly number[] | undefined;
  /** A message of what each layer gives to another worker; 0 unless given. */
  readonly send?: readonly number[] | undefined;
  /** Values that go beyond the next layer; none unless given. */
  readonly skips?: readonly LayerSkip[] | undefined;
}

/** The times of layers added up, so that those of any run of layers are a difference. */
export interface LayerSums {
  /** Layers. */
  readonly count: number;
  /** For each kind of action (F, B, I, W, R) what the first n layers take. */
  readonly sums: readonly Float64Array[];
  /** The message after each layer. */
  readonly send: Float64Array;
  /** Values that go beyond the next layer. */
  readonly skips: readonly LayerSkip[];
}

/**
 * Adds the times of layers up.
 *
 * @throws {RangeError} if they are not of the same layers, or one is negative or not finite.
 */
export function layerSums(times: LayerTimes): LayerSums {
  const { forward, backward, input = backward.map((time) => time / 2) } = times;
  const weight = backward.map((time, i) => time - input[i]!);
  const kinds = { forward, backward, input, weight, recompute: times.recompute ?? forward };
  const send = times.send ?? forward.map(() => 0);
  for (const [name, values] of Object.entries({ ...kinds, send })) {
    if (values.length !== forward.length) {
      throw new RangeError(
        `Cannot cut the model: ${name} must be of ${forward.length} layers, received ${values.length}`,
      );
    }
    for (const value of values) {
      if (value >= 0 && value < Infinity) continue;
      throw new RangeError(
        `Cannot cut the model: ${name} must be finite numbers from 0, received ${value}`,
      );
    }
  }
  const sums = Object.values(kinds).map((values) => {
    const prefix = new Float64Array(values.length + 1);
    values.forEach((value, i) => prefix[i + 1] = prefix[i]! + value);
    return prefix;
  });
  const { skips = [] } = times;
  checkSkips(skips, forward.length);
  return { count: forward.length, sums, send: Float64Array.from(send), skips };
}

/** What the stages of a cut cost. */
export function costsOfCut({ count, sums, send }: LayerSums, starts: readonly number[]): Costs {
  const ends = starts.map((_, stage) => starts[stage + 1] ?? count);
  const [forward, backward, input, weight, recompute] = sums.map((prefix) =>
    starts.map((start, stage) => Math.max(0, prefix[ends[stage]!]! - prefix[start]!))
  );
  // Parts of a backward must add up to it, whatever the rounding.
  const whole = input!.map((time, stage) => time + weight![stage]!);
  return {
    forward: forward!,
    backward: backward!.some((time, stage) => Math.abs(time - whole[stage]!) > 1e-9 * time)
      ? backward!
      : whole,
    input: input!,
    weight: weight!,
    recompute: recompute!,
    send: ends.map((end) => send[end - 1]!),
  };
}
