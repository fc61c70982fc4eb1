/**
 * Which elements along an axis are added, and how much of each, where it gets another size: weights
 * [to, from], row by row.
 *
 * @module
 */

/** Options of {@linkcode Graph.resize}, with the names of ONNX's Resize. */
export interface InterpolationOptions {
  /** The nearest element, or what lies on the line between two; nearest unless given. */
  readonly mode?: "nearest" | "linear";
  /** Where an element of the result lies in the image; "half_pixel" unless given. */
  readonly coordinates?: "half_pixel" | "pytorch_half_pixel" | "align_corners" | "asymmetric";
  /** Which element is the nearest; "round_prefer_floor" unless given. */
  readonly nearest?: "round_prefer_floor" | "round_prefer_ceil" | "floor" | "ceil";
}

const COORDINATES: Readonly<
  Record<
    NonNullable<InterpolationOptions["coordinates"]>,
    (i: number, from: number, to: number) => number
  >
> = {
  half_pixel: (i, from, to) => (i + 0.5) * from / to - 0.5,
  pytorch_half_pixel: (i, from, to) => to > 1 ? (i + 0.5) * from / to - 0.5 : 0,
  align_corners: (i, from, to) => to > 1 ? i * (from - 1) / (to - 1) : 0,
  asymmetric: (i, from, to) => i * from / to,
};

const NEAREST: Readonly<
  Record<NonNullable<InterpolationOptions["nearest"]>, (at: number) => number>
> = {
  round_prefer_floor: (at) => Math.ceil(at - 0.5),
  round_prefer_ceil: (at) => Math.floor(at + 0.5),
  floor: Math.floor,
  ceil: Math.ceil,
};

/** The weights of an interpolation; undefined where nothing changes. */
export function interpolationWeights(
  from: number,
  to: number,
  { mode = "nearest", coordinates = "half_pixel", nearest = "round_prefer_floor" }:
    InterpolationOptions,
): Float32Array | undefined {
  if (from === to) return undefined;
  const weights = new Float32Array(to * from);
  const give = (row: number, at: number, share: number) => {
    weights[row * from + Math.min(Math.max(at, 0), from - 1)]! += share;
  };
  for (let row = 0; row < to; row++) {
    const at = COORDINATES[coordinates](row, from, to), below = Math.floor(at);
    if (mode === "nearest") give(row, NEAREST[nearest](at), 1);
    else {
      give(row, below, 1 - (at - below));
      give(row, below + 1, at - below);
    }
  }
  return weights;
}

/**
 * The weights of padding by elements of the axis itself; undefined where nothing is padded.
 *
 * @throws {RangeError} when more is to be reflected than there is.
 */
export function paddingWeights(
  from: number,
  [before, behind]: readonly [number, number],
  how: "edge" | "reflect",
): Float32Array | undefined {
  if (before === 0 && behind === 0) return undefined;
  if (how === "reflect" && Math.max(before, behind) >= from) {
    throw new RangeError(
      `Cannot reflect: pads must be smaller than the axis, ${from}, received ${before} and ${behind}`,
    );
  }
  const to = before + from + behind, weights = new Float32Array(to * from);
  for (let row = 0; row < to; row++) {
    const at = row - before, last = from - 1;
    const inside = Math.min(Math.max(at, 0), last);
    const reflected = at < 0 ? -at : at > last ? 2 * last - at : at;
    weights[row * from + (how === "edge" ? inside : reflected)] = 1;
  }
  return weights;
}
