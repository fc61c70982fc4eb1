/**
 * Operations on windows: convolutions, summed in f64, pooling and padding.
 *
 * @module
 */

import { elementCount } from "../../graph/shapes.ts";
import {
  transposedSizes,
  windowCounts,
  type WindowOptions,
  type Windows,
  windowsOf,
} from "../../graph/windows.ts";
import {
  type Attributes,
  type NdArray,
  ndArray,
  type Operation,
  positions,
  stridesOf,
  take,
} from "./array.ts";

function readWindows(
  attributes: Attributes,
  sizes: readonly number[],
  kernel = attributes.numbers("kernel_shape") ?? [],
): Windows {
  const autoPad = attributes.string("auto_pad", "NOTSET");
  return windowsOf(sizes, kernel, {
    strides: attributes.numbers("strides") ?? 1,
    dilations: attributes.numbers("dilations") ?? 1,
    pads: autoPad === "NOTSET"
      ? attributes.numbers("pads") ?? 0
      : autoPad as NonNullable<WindowOptions["pads"]>,
  });
}

/** The place in an image of each element of each window, row by row; −1 in the padding. */
function placesOf(
  sizes: readonly number[],
  counts: readonly number[],
  { kernel, strides, pads, dilations }: Windows,
): Int32Array {
  const steps = stridesOf(sizes);
  let places = Int32Array.of(0);
  // By axis: what was found, times windows, times elements; then windows are brought before elements.
  counts.forEach((count, axis) => {
    const along = Array.from({ length: count * kernel[axis]! }, (_, i) => {
      const window = Math.floor(i / kernel[axis]!), element = i % kernel[axis]!;
      const at = window * strides[axis]! + element * dilations[axis]! - pads[axis]!;
      return at < 0 || at >= sizes[axis]! ? -1 : at * steps[axis]!;
    });
    places = Int32Array.from(
      { length: places.length * along.length },
      (_, i) => {
        const before = places[Math.floor(i / along.length)]!, own = along[i % along.length]!;
        return before < 0 || own < 0 ? -1 : before + own;
      },
    );
  });
  const shape = counts.flatMap((count, axis) => [count, kernel[axis]!]), apart = stridesOf(shape);
  const evens = counts.map((_, axis) => 2 * axis), odds = evens.map((axis) => axis + 1);
  const order = [...evens, ...odds];
  const from = positions(order.map((axis) => shape[axis]!), order.map((axis) => apart[axis]!));
  return from.map((place) => places[place]!);
}

/**
 * Visits all that a convolution multiplies: an element of a wide image, one of a narrow image, and
 * one of the weight [channels of narrow, channels of wide ÷ groups, ...kernel].
 */
function visitProducts(
  wide: readonly number[],
  narrow: readonly number[],
  windows: Windows,
  groups: number,
  visit: (wide: number, narrow: number, weight: number) => void,
): void {
  const [n = 0, channels = 0, ...sizes] = wide, [, outputs = 0, ...counts] = narrow;
  const places = placesOf(sizes, counts, windows), elements = elementCount(windows.kernel);
  const size = elementCount(sizes), count = elementCount(counts), per = channels / groups;
  for (let image = 0; image < n; image++) {
    for (let m = 0; m < outputs; m++) {
      const group = Math.floor(m / (outputs / groups));
      for (let c = 0; c < per; c++) {
        const from = (image * channels + group * per + c) * size;
        const to = (image * outputs + m) * count, weight = (m * per + c) * elements;
        for (let i = 0; i < places.length; i++) {
          if (places[i]! < 0) continue;
          visit(from + places[i]!, to + Math.floor(i / elements), weight + i % elements);
        }
      }
    }
  }
}

/** Sums that begin with the bias of their channel. */
function biased(shape: readonly number[], bias: NdArray | undefined): Float64Array {
  const [, channels = 0, ...sizes] = shape, size = elementCount(sizes);
  const sums = new Float64Array(elementCount(shape));
  return bias ? sums.map((_, i) => bias.values[Math.floor(i / size) % channels]!) : sums;
}

const conv: Operation = ([x, weight, bias], attributes) => {
  const [n = 0, , ...sizes] = x!.shape, [outputs = 0, , ...kernel] = weight!.shape;
  const windows = readWindows(attributes, sizes, kernel);
  const shape = [n, outputs, ...windowCounts(sizes, windows)], sums = biased(shape, bias);
  visitProducts(x!.shape, shape, windows, attributes.number("group", 1), (from, to, by) => {
    sums[to]! += x!.values[from]! * weight!.values[by]!;
  });
  return ndArray(x!.dtype, shape, sums);
};

const convTranspose: Operation = ([x, weight, bias], attributes) => {
  const [n = 0, , ...counts] = x!.shape, [, perGroup = 0, ...kernel] = weight!.shape;
  const strides = attributes.numbers("strides") ?? counts.map(() => 1);
  const full = counts.map((count, axis) => count * strides[axis]!);
  const groups = attributes.number("group", 1), windows = readWindows(attributes, full, kernel);
  const extra = attributes.numbers("output_padding") ?? counts.map(() => 0);
  const shape = [n, perGroup * groups, ...transposedSizes(counts, windows, extra)];
  const sums = biased(shape, bias);
  visitProducts(shape, x!.shape, windows, groups, (to, from, by) => {
    sums[to]! += x!.values[from]! * weight!.values[by]!;
  });
  return ndArray(x!.dtype, shape, sums);
};

/** Folds each window of each channel; `numbers` are those in the image, and their places in it. */
function pool(
  { shape }: NdArray,
  windows: Windows,
  fold: (places: readonly number[], start: number, window: number) => void,
): readonly number[] {
  const [n = 0, channels = 0, ...sizes] = shape, counts = windowCounts(sizes, windows);
  const places = placesOf(sizes, counts, windows), elements = elementCount(windows.kernel);
  const each = Array.from(
    { length: elementCount(counts) },
    (_, i) => [...places.subarray(i * elements, (i + 1) * elements)].filter((place) => place >= 0),
  );
  for (let image = 0; image < n * channels; image++) {
    each.forEach((inside, i) => fold(inside, image * elementCount(sizes), image * each.length + i));
  }
  return [n, channels, ...counts];
}

const maxPool: Operation = ([x], attributes) => {
  const windows = readWindows(attributes, x!.shape.slice(2)), values: number[] = [];
  const found: number[] = [];
  const shape = pool(x!, windows, (places, start, window) => {
    let best = start + places[0]!;
    for (const place of places) {
      if (x!.values[start + place]! > x!.values[best]!) best = start + place;
    }
    values[window] = x!.values[best]!;
    found[window] = best;
  });
  return [ndArray(x!.dtype, shape, values), ndArray("i64", shape, found)];
};

const averagePool: Operation = ([x], attributes) => {
  const windows = readWindows(attributes, x!.shape.slice(2)), means: number[] = [];
  const isPadded = attributes.number("count_include_pad", 0) === 1;
  const shape = pool(x!, windows, (places, start, window) => {
    const sum = places.reduce((sum, place) => sum + x!.values[start + place]!, 0);
    means[window] = sum / (isPadded ? elementCount(windows.kernel) : places.length);
  });
  return ndArray(x!.dtype, shape, means);
};

const pad: Operation = ([x, pads, value], attributes) => {
  const mode = attributes.string("mode", "constant"), rank = x!.shape.length;
  if (mode !== "constant") {
    throw new TypeError(`Cannot pad: the mode must be constant, received ${mode}`);
  }
  const shape = x!.shape.map((size, axis) =>
    pads!.values[axis]! + size + pads!.values[rank + axis]!
  );
  const result = ndArray(x!.dtype, shape), strides = stridesOf(shape);
  result.values.fill(value?.values[0] ?? 0);
  const start = strides.reduce((sum, stride, axis) => sum + stride * pads!.values[axis]!, 0);
  positions(x!.shape, strides, start).forEach((place, i) => result.values[place] = x!.values[i]!);
  return result;
};

/** What graphs ask for: every element as many times as it goes into the sizes. */
const resize: Operation = ([x, , , sizes], attributes) => {
  const shape = [...sizes?.values ?? []], strides = stridesOf(x!.shape);
  const isRepeated = shape.length === x!.shape.length &&
    shape.every((size, axis) => size % x!.shape[axis]! === 0);
  const isFloor = attributes.string("nearest_mode", "round_prefer_floor") === "floor" &&
    attributes.string("coordinate_transformation_mode", "half_pixel") === "asymmetric";
  if (!isRepeated || !isFloor || attributes.string("mode", "nearest") !== "nearest") {
    throw new TypeError(
      `Cannot resize: sizes must be given, multiples of [${
        x!.shape
      }], and elements be repeated (nearest, asymmetric, floor)`,
    );
  }
  const places = positions(shape, stridesOf(shape)).map((_, i) => {
    let rest = i, place = 0;
    shape.toReversed().forEach((size, back) => {
      const axis = shape.length - 1 - back;
      place += Math.floor(rest % size / (size / x!.shape[axis]!)) * strides[axis]!;
      rest = Math.floor(rest / size);
    });
    return place;
  });
  return take(x!, shape, places);
};

/** Operations on windows by name. */
export const WINDOWS: Readonly<Record<string, Operation>> = {
  Conv: conv,
  ConvTranspose: convTranspose,
  MaxPool: maxPool,
  AveragePool: averagePool,
  Pad: pad,
  Resize: resize,
};
