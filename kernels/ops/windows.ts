/**
 * Operations on windows of images: convolutions and pooling.
 *
 * @module
 */

import { assertInput } from "../errors.ts";
import {
  elementCount,
  type Ints,
  type PerAxis,
  sameShape,
  transposedSizes,
  unreadBehind,
  windowAttributes,
  windowCounts,
  type WindowOptions,
  type Windows,
  windowsOf,
  withLastWindows,
} from "../graph/shapes.ts";
import {
  type Node,
  numberOf,
  numbersOf,
  type Settings,
  TROUPE,
  type Value,
  type ValueType,
} from "../graph/value.ts";
import type { NodeProto } from "../onnx/onnx_pb.ts";
import { arithmetic, type Rewrite, type Writer } from "../onnx/rewrite.ts";
import { attributesOf, intOf } from "../onnx/signature.ts";
import { mapIndices, type NdArray, ndArray, stridesOf } from "./array.ts";
import type { Builder, PoolOptions } from "./builder.ts";
import {
  type Call,
  checkMade,
  type GradientRule,
  intsOf,
  isSet,
  type Known,
  like,
  type Methods,
  mustBe,
  one,
  type Op,
  operand,
  operands,
  type Ops,
  type Read,
  shaped,
  slope,
} from "./op.ts";

/** Returns how the windows of a node move, with the defaults of ONNX. */
function movesOf(node: Settings): WindowOptions {
  const pads = intsOf(node, "pads"), strides = intsOf(node, "strides");
  const dilations = intsOf(node, "dilations");
  const auto = mustBe(node, "auto_pad", "NOTSET", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]);
  return {
    ...strides && { strides },
    ...dilations && { dilations },
    ...auto === "NOTSET" ? pads && { pads } : { pads: auto },
  };
}

/** Returns the windows of a node over `sizes`. */
const windowsOfNode = (
  node: Settings,
  sizes: Ints,
  kernel = numbersOf(node, "kernel_shape") ?? [],
): Windows => windowsOf(sizes, kernel, movesOf(node));

/** Returns the windows of a node of a model; see {@linkcode windowsOfNode}. */
export const windowsOfProto = (
  node: NodeProto,
  sizes: Ints,
  kernel?: Ints,
): Windows => windowsOfNode({ attributes: attributesOf(node) }, sizes, kernel);

/** Returns the groups and windows of a convolution, as options of the transposed one. */
function optionsOf(node: Node, sizes: Ints) {
  const { kernel: _, ...moves } = windowsOfNode(node, sizes);
  return { ...moves, groups: numberOf(node, "group", 1) };
}

/** Returns the windows and groups of a convolution in a file, as options of a method. */
const readOptions = (call: Call) => ({ ...movesOf(call), groups: numberOf(call, "group", 1) });

/** Refuses a convolution of a file with another size of its windows than that of its weight. */
function checkKernel(call: Call): void {
  const own = operand(call, 1).shape.slice(2), kernel = intsOf(call, "kernel_shape") ?? own;
  if (sameShape(kernel, own)) return;
  throw new RangeError(`kernel_shape must be that of the weight, [${own}], received [${kernel}]`);
}

/** Returns the place in an image of each element of each window, row by row; −1 in the padding. */
function placesOf(sizes: Ints, counts: Ints, { kernel, strides, pads, dilations }: Windows) {
  const steps = stridesOf(sizes), rank = sizes.length;
  return mapIndices([...counts, ...kernel], (index) => {
    const at = sizes.map((_, axis) =>
      index[axis]! * strides[axis]! + index[rank + axis]! * dilations[axis]! - pads[axis]!
    );
    const isInside = at.every((place, axis) => place >= 0 && place < sizes[axis]!);
    return isInside ? at.reduce((sum, place, axis) => sum + place * steps[axis]!, 0) : -1;
  });
}

/**
 * Visits all products of a convolution: elements of a wide image, of a narrow image, and of the
 * weight [channels of narrow, channels of wide ÷ groups, ...kernel].
 */
function visitProducts(
  wide: Ints,
  narrow: Ints,
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

/** Returns sums that start with the bias of their channel. */
function biased(shape: Ints, bias: NdArray | undefined): Float64Array {
  const [, channels = 0, ...sizes] = shape, size = elementCount(sizes);
  const sums = new Float64Array(elementCount(shape));
  return bias ? sums.map((_, i) => bias.values[Math.floor(i / size) % channels]!) : sums;
}

/** Computes the windows of a convolution and the shape of its result. */
function convolved(node: Settings, { shape: x }: ValueType, { shape: weight }: ValueType) {
  const [n = 0, , ...sizes] = x, [outputs = 0, , ...kernel] = weight;
  const windows = windowsOfNode(node, sizes, kernel);
  return { windows, shape: [n, outputs, ...windowCounts(sizes, windows)] };
}

/** Computes the windows of a transposed convolution and the shape of its result. */
function transposed(node: Settings, { shape: x }: ValueType, { shape: weight }: ValueType) {
  const [n = 0, , ...counts] = x, [, perGroup = 0, ...kernel] = weight;
  const strides = numbersOf(node, "strides") ?? counts.map(() => 1);
  const full = counts.map((count, axis) => count * strides[axis]!);
  const extra = numbersOf(node, "output_padding") ?? counts.map(() => 0);
  const windows = windowsOfNode(node, full, kernel);
  const outputs = perGroup * numberOf(node, "group", 1);
  return { windows, shape: [n, outputs, ...transposedSizes(counts, windows, extra)] };
}

/** Sums over all axes except channels. */
const channelSums = (g: Builder, dy: Value): Value =>
  g.sum(dy, dy.shape.flatMap((_, axis) => axis === 1 ? [] : [axis]));

/**
 * Adds the gradient of a weight between images: windows move over `wide`, and each element of
 * `narrow` belongs to a window.
 */
function weightGradient(g: Builder, node: Node, narrow: Value, wide: Value): Value {
  const windows = windowAttributes(windowsOfNode(node, wide.shape.slice(2)));
  const attributes = { ...windows, group: node.attributes.group! };
  return one(g, WINDOWS, `${TROUPE}.ConvWeightGrad`, [narrow, wide], attributes);
}

/** Number of channels of a group from which each element of a window is a separate product. */
const WIDE_CHANNELS = 64;

/**
 * d weight[m][c][k] = Σ over samples and windows of narrow[m]·wide[c at element k of the window]:
 * products of matrices whose columns are all windows of all samples. The elements k of all windows
 * are a slice of the padded image; with few channels, all slices form one matrix.
 */
const lowerWeightGradient: Rewrite = (write, node) => {
  const [narrow, wide] = node.input as [string, string], groups = intOf(node, "group", 1);
  const [n = 0, channels = 0, ...sizes] = write.typeOf(wide).shape, [dWeight] = node.output;
  const [, outputs = 0, ...counts] = write.typeOf(narrow).shape, per = channels / groups;
  const windows = windowsOfProto(node, sizes), columns = n * elementCount(counts);
  const turned = (of: string) =>
    write.node("Transpose", [of], { perm: [1, 0, ...sizes.map((_, axis) => axis + 2)] });
  const slices = slicesOf(write, turned(wide), [channels, n, ...sizes], windows, counts);
  const count = slices.length, result = [outputs, per, ...windows.kernel], rows = turned(narrow);
  const { reshape } = arithmetic(write);
  const joined = (all: readonly string[]) =>
    count === 1 ? all[0]! : write.node("Concat", all, { axis: 2 });
  const product = (right: string, size: number) => {
    const matrices = [reshape(rows, [outputs, columns]), reshape(right, [size, columns])];
    return write.node("Gemm", matrices, { transB: 1 });
  };
  if (groups === 1 && per >= WIDE_CHANNELS) {
    const products = slices.map((slice) =>
      reshape(product(slice, channels), [outputs, channels, 1])
    );
    return void reshape(joined(products), result, dWeight);
  }
  const all = joined(slices.map((slice) => reshape(slice, [groups, per, 1, columns])));
  if (groups === 1) return void reshape(product(all, per * count), result, dWeight);
  const turn = { perm: [0, 2, 1] };
  const right = write.node("Transpose", [reshape(all, [groups, per * count, columns])], turn);
  const left = reshape(rows, [groups, outputs / groups, columns]);
  reshape(write.node("MatMul", [left, right]), result, dWeight);
};

/** Returns, for each element of a window, the image of these elements of all windows. */
function slicesOf(write: Writer, images: string, shape: Ints, windows: Windows, counts: Ints) {
  const { kernel, strides, pads, dilations } = windows, rank = counts.length;
  const padded = pads.every((pad) => pad === 0) ? images : write.node("Pad", [
    images,
    write.constant("i64", [0, 0, ...pads.slice(0, rank), 0, 0, ...pads.slice(rank)]),
  ]);
  const isWhole = padded === images && sameShape(counts, shape.slice(2));
  if (isWhole && elementCount(kernel) === 1) return [images];
  const lists = (...all: (Ints)[]) => all.map((one) => write.constant("i64", one));
  return Array.from({ length: elementCount(kernel) }, (_, element) => {
    const starts = kernel.map((size, axis) =>
      Math.floor(element / elementCount(kernel.slice(axis + 1))) % size * dilations[axis]!
    );
    const ends = starts.map((start, axis) => start + (counts[axis]! - 1) * strides[axis]! + 1);
    const axes = kernel.map((_, axis) => axis + 2);
    return write.node("Slice", [padded, ...lists(starts, ends, axes, strides)]);
  });
}

/** Returns a convolution, or a transposed one: the same products, with exchanged images. */
const convolution = (resultOf: typeof convolved, isTransposed: boolean): Op => ({
  shape: (known) =>
    numbersOf(known, "output_shape")
      ? undefined
      : shaped(known, resultOf(known, known.inputs[0], known.inputs[1]!).shape),
  // dx is the other kind of convolution of dy.
  gradient: (g, node, [dy]) => {
    const [x, weight] = node.inputs as [Value, Value], sizes = x.shape.slice(2);
    const dx = () => {
      if (isTransposed) return g.conv(dy!, weight, undefined, optionsOf(node, dy!.shape.slice(2)));
      const outputPadding = unreadBehind(sizes, windowsOfNode(node, sizes));
      const options = { ...optionsOf(node, sizes), outputPadding };
      return g.convTranspose(dy!, weight, undefined, options);
    };
    const [narrow, wide] = isTransposed ? [x, dy!] : [dy!, x];
    return [dx, () => weightGradient(g, node, narrow, wide), () => channelSums(g, dy!)];
  },
  reference: ([x, weight, bias], node) => {
    const { windows, shape } = resultOf(node, x, weight!), sums = biased(shape, bias);
    const [wide, narrow] = isTransposed ? [shape, x.shape] : [x.shape, shape];
    visitProducts(wide, narrow, windows, numberOf(node, "group", 1), (inWide, inNarrow, by) => {
      const from = isTransposed ? inNarrow : inWide, to = isTransposed ? inWide : inNarrow;
      sums[to]! += x.values[from]! * weight!.values[by]!;
    });
    return ndArray({ dtype: x.dtype, shape }, sums);
  },
});

const CONVOLUTIONS: Ops = {
  Conv: {
    ...convolution(convolved, false),
    read: (call) => {
      checkKernel(call);
      return call.g.conv(...operands(call, 2), call.inputs[2], readOptions(call));
    },
  },
  ConvTranspose: {
    ...convolution(transposed, true),
    read: (call) => {
      checkKernel(call);
      const outputPadding = intsOf(call, "output_padding");
      if (intsOf(call, "output_shape")) {
        throw new TypeError("the size of its output must follow from pads, received output_shape");
      }
      return call.g.convTranspose(...operands(call, 2), call.inputs[2], {
        ...readOptions(call),
        ...outputPadding && { outputPadding },
      });
    },
  },
  [`${TROUPE}.ConvWeightGrad`]: {
    shape: (known) => {
      const [narrow, wide] = known.inputs, kernel = numbersOf(known, "kernel_shape")!;
      const channels = wide!.shape[1]! / numberOf(known, "group", 1);
      return shaped(known, [narrow!.shape[1]!, channels, ...kernel]);
    },
    lower: lowerWeightGradient,
  },
};

/** Visits each window of each channel, with its places counted from the start of the image. */
function fold(
  { shape }: NdArray,
  windows: Windows,
  visit: (places: Ints, start: number, window: number) => void,
): void {
  const [n = 0, channels = 0, ...sizes] = shape, counts = windowCounts(sizes, windows);
  const places = placesOf(sizes, counts, windows), elements = elementCount(windows.kernel);
  const each = Array.from(
    { length: elementCount(counts) },
    (_, i) => [...places.subarray(i * elements, (i + 1) * elements)].filter((place) => place >= 0),
  );
  for (let image = 0; image < n * channels; image++) {
    each.forEach((inside, i) =>
      visit(inside, image * elementCount(sizes), image * each.length + i)
    );
  }
}

/** Returns the types of the values of a pool, and of the places of maxima. */
function pooled(known: Known): ValueType[] | undefined {
  const [{ dtype, shape: [n = 0, channels = 0, ...sizes] }] = known.inputs as [ValueType];
  if (isSet(known, "ceil_mode")) return undefined;
  const shape = [n, channels, ...windowCounts(sizes, windowsOfNode(known, sizes))];
  return [{ dtype, shape }, { dtype: "i64", shape }];
}

/** The gradient of an element is the sum of its shares of the windows that contain it. */
const averagePoolGradient: GradientRule = slope((g, dy, x, _, node) => {
  const [n = 0, channels = 0, ...sizes] = x.shape, counts = dy.shape.slice(2);
  const { kernel, ...moves } = windowsOfNode(node, sizes), { strides, pads } = moves;
  const share = g.mul(dy, g.scalar(1 / elementCount(kernel)));
  const areApart = kernel.every((size, axis) =>
    size === strides[axis] && size * counts[axis]! === sizes[axis]
  ) && pads.every((pad) => pad === 0);
  if (areApart) return g.upsample(share, kernel);
  const ones = g.constant(new Float32Array(elementCount(kernel)).fill(1), [1, 1, ...kernel]);
  const spread = g.convTranspose(g.reshape(share, [n * channels, 1, ...counts]), ones, undefined, {
    ...moves,
    outputPadding: unreadBehind(sizes, { kernel, ...moves }),
  });
  return g.reshape(spread, x.shape);
});

const readPool = (method: "maxPool" | "averagePool"): Read => (call) => {
  if (call.outputs[1]) {
    throw new TypeError("it must have one output, received one for the places of maxima, too");
  }
  const kernel = intsOf(call, "kernel_shape") ?? [];
  checkMade("windows", elementCount(kernel));
  const x = operand(call, 0), isMean = method === "averagePool";
  if (isMean) checkMade("an image", elementCount(x.shape.slice(2)));
  const countIncludePad = isMean && isSet(call, "count_include_pad");
  const options = { ...movesOf(call), ceilMode: isSet(call, "ceil_mode"), countIncludePad };
  return call.g[method](x, kernel, options);
};

const maxPool: Op = {
  shape: pooled,
  gradient: (g, node, [dy]) => {
    const [x] = node.inputs as [Value], windows = windowsOfNode(node, x.shape.slice(2));
    return [one(g, WINDOWS, `${TROUPE}.MaxPoolGrad`, [dy!, x], windowAttributes(windows))];
  },
  reference: ([x], node, [type]) => {
    const values: number[] = [], found: number[] = [];
    fold(x, windowsOfNode(node, x.shape.slice(2)), (places, start, window) => {
      let best = start + places[0]!;
      for (const place of places) {
        if (x.values[start + place]! > x.values[best]!) best = start + place;
      }
      values[window] = x.values[best]!;
      found[window] = best;
    });
    return [ndArray(type, values), ndArray({ dtype: "i64", shape: type.shape }, found)];
  },
  read: readPool("maxPool"),
};

const POOLS: Ops = {
  MaxPool: maxPool,
  // The gradient of each window goes to the place of its largest element.
  [`${TROUPE}.MaxPoolGrad`]: {
    shape: like(1),
    lower: (write, node) => {
      const [dy, x] = node.input as [string, string], { shape } = write.typeOf(x);
      const windows = windowsOfProto(node, shape.slice(2));
      const [, places] = write.nodes("MaxPool", [x], windowAttributes(windows), 2);
      const { reshape } = arithmetic(write), flat = (of: string) => reshape(of, [-1]);
      const zero = write.constant("f32", [0]), all = write.constant("i64", [elementCount(shape)]);
      const zeros = write.node("Expand", [zero, all]);
      const attributes = { axis: 0, reduction: "add" };
      const sums = write.node("ScatterElements", [zeros, flat(places!), flat(dy)], attributes);
      reshape(sums, shape, node.output[0]);
    },
  },
  AveragePool: {
    shape: pooled,
    gradient: averagePoolGradient,
    reference: ([x], node, [type]) => {
      const windows = windowsOfNode(node, x.shape.slice(2)), means: number[] = [];
      const isPadded = isSet(node, "count_include_pad");
      fold(x, windows, (places, start, window) => {
        const sum = places.reduce((sum, place) => sum + x.values[start + place]!, 0);
        means[window] = sum / (isPadded ? elementCount(windows.kernel) : places.length);
      });
      return ndArray(type, means);
    },
    read: readPool("averagePool"),
  },
  GlobalAveragePool: { read: (call) => call.g.globalAveragePool(operand(call, 0)) },
  GlobalMaxPool: { read: (call) => call.g.globalMaxPool(operand(call, 0)) },
};

/** Operations on windows. */
export const WINDOWS: Ops = { ...CONVOLUTIONS, ...POOLS };

const IMAGES = "[n, channels, width] or [n, channels, height, width]";

/** Returns whether a shape is that of images with one or two spatial axes. */
const isImageShape = ({ length }: Ints) => length === 3 || length === 4;

/** Refuses operands of a convolution that do not fit. */
function checkConvolution(
  what: string,
  [x, weight, bias]: readonly [Value, Value, Value | undefined],
  { groups, fits, outputs }: { groups: number; fits: boolean; outputs: number },
): void {
  const shapes = `[${x.shape}] and [${weight.shape}]`;
  const isImage = isImageShape(x.shape) && weight.shape.length === x.shape.length;
  const axes = `x must be ${IMAGES} and the weight must have an equal number of axes`;
  assertInput(isImage, what, axes, shapes);
  const must = "channels must be those of the weight in each of the groups";
  assertInput(groups >= 1 && fits, what, must, `${shapes} in ${groups} groups`);
  const fitsBias = !bias || sameShape(bias.shape, [outputs]);
  assertInput(fitsBias, what, `bias must be [${outputs}]`, `[${bias?.shape}]`);
}

function poolWindows(
  { shape }: Value,
  kernel: PerAxis,
  { ceilMode = false, ...options }: PoolOptions,
): Windows {
  const sizes = shape.slice(2), rank = sizes.length;
  assertInput(isImageShape(shape), "pool", `x must be ${IMAGES}`, `[${shape}]`);
  const size = typeof kernel === "number" ? sizes.map(() => kernel) : kernel;
  const given = windowsOf(sizes, size, options);
  const windows = ceilMode ? withLastWindows(sizes, given) : given;
  const areSmall = windows.pads.every((pad, i) => pad < windows.kernel[i % rank]!);
  const must = `pads must be smaller than the window [${windows.kernel}]`;
  assertInput(areSmall, "pool", must, `[${windows.pads}]`);
  return windows;
}

/** Returns the share of each window inside an image with padding `pads`, row by row. */
function sharesInside(sizes: Ints, windows: Windows, pads: Ints): number[] {
  const rank = sizes.length, counts = windowCounts(sizes, windows);
  return counts.reduce((shares, count, axis) => {
    const size = windows.kernel[axis]!;
    const low = -pads[axis]!, high = sizes[axis]! + pads[rank + axis]!;
    const along = Array.from({ length: count }, (_, i) => {
      const from = i * windows.strides[axis]! - windows.pads[axis]!;
      return (Math.min(from + size, high) - Math.max(from, low)) / size;
    });
    return shares.flatMap((share) => along.map((one) => share * one));
  }, [1]);
}

/** Methods that add operations on windows. */
export const WINDOW_METHODS: Methods = {
  conv: (g, x, weight, bias, options = {}) => {
    const { groups = 1 } = options, [, channels = 0, ...sizes] = x.shape;
    const [outputs = 0, perGroup = 0, ...kernel] = weight.shape;
    const fits = channels === perGroup * groups && outputs % groups === 0;
    checkConvolution("convolve", [x, weight, bias], { groups, fits, outputs });
    return one(g, WINDOWS, "Conv", bias ? [x, weight, bias] : [x, weight], {
      ...windowAttributes(windowsOf(sizes, kernel, options)),
      group: groups,
    });
  },
  convTranspose: (g, x, weight, bias, options = {}) => {
    const { groups = 1, outputPadding = 0 } = options, [, channels = 0, ...counts] = x.shape;
    const [inputs = 0, perGroup = 0, ...kernel] = weight.shape, outputs = perGroup * groups;
    const fits = channels === inputs && channels % groups === 0, what = "convolve (transposed)";
    checkConvolution(what, [x, weight, bias], { groups, fits, outputs });
    const { strides } = windowsOf(counts, kernel, { ...options, pads: 0 });
    const windows = windowsOf(counts.map((count, axis) => count * strides[axis]!), kernel, options);
    const output_padding = strides.map((stride, axis) => {
      const extra = typeof outputPadding === "number" ? outputPadding : outputPadding[axis]!;
      const must = `output padding must be whole numbers below the strides [${strides}]`;
      assertInput(extra >= 0 && extra < stride, what, must, `[${outputPadding}]`);
      return extra;
    });
    const attributes = { ...windowAttributes(windows), output_padding, group: groups };
    return one(g, WINDOWS, "ConvTranspose", bias ? [x, weight, bias] : [x, weight], attributes);
  },
  maxPool: (g, x, kernel, options = {}) =>
    one(g, WINDOWS, "MaxPool", [x], windowAttributes(poolWindows(x, kernel, options))),
  averagePool: (g, x, kernel, options = {}) => {
    const windows = poolWindows(x, kernel, options), sizes = x.shape.slice(2);
    const { dilations: _, ...attributes } = windowAttributes(windows);
    const means = one(g, WINDOWS, "AveragePool", [x], { ...attributes, count_include_pad: 1 });
    const padded = options.countIncludePad
      ? poolWindows(x, kernel, { ...options, ceilMode: false })
      : { pads: windows.pads.map(() => 0) };
    const shares = sharesInside(sizes, windows, padded.pads);
    if (shares.every((share) => share === 1)) return means;
    const factors = Float32Array.from(shares, (share) => 1 / share);
    return g.mul(means, g.constant(factors, [1, 1, ...means.shape.slice(2)]));
  },
  globalAveragePool: (g, x) => g.mean(x, x.shape.slice(2).map((_, axis) => axis + 2), true),
  globalMaxPool: (g, x) => g.maxPool(x, x.shape.slice(2)),
};
