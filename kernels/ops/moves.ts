/**
 * Operations that move elements without computing.
 *
 * @module
 */

import { assertInput } from "../errors.ts";
import {
  broadcastShape,
  type Cut,
  cutOf,
  elementCount,
  endOf,
  type Ints,
  positiveAxis,
  sameShape,
} from "../graph/shapes.ts";
import { numberOf, numbersOf, operandsOf, type Value } from "../graph/value.ts";
import { broadcastStrides, ndArray, positions, put, stridesOf, take } from "./array.ts";
import type { Builder } from "./builder.ts";
import {
  axisOf,
  checkMade,
  constantNumbers,
  intsOf,
  isSet,
  like,
  type Methods,
  mustBe,
  neededNumbers,
  nodes,
  one,
  type Op,
  operand,
  type Ops,
  padded,
  shaped,
  slope,
  zeros,
} from "./op.ts";

const reversed = (shape: Ints) => shape.map((_, i) => shape.length - 1 - i);

/** Returns elements that were cut from an axis of `size` to their places, with zeros elsewhere. */
function putBack(
  g: Builder,
  dy: Value,
  axis: number,
  { start, step, size }: { start: number; step: number; size: number },
): Value {
  const count = dy.shape[axis]!;
  if (count === 0) return zeros(g, dy.shape.with(axis, size));
  if (step < 0) {
    const backwards = g.slice(dy, [-1], [-Infinity], [axis], [-1]);
    return putBack(g, backwards, axis, { start: start + (count - 1) * step, step: -step, size });
  }
  const spread = () =>
    padded(g, g.reshape(dy, dy.shape.toSpliced(axis + 1, 0, 1)), axis + 1, 0, step);
  const whole = step === 1 ? dy : g.reshape(spread(), dy.shape.with(axis, count * step));
  const fitting = g.slice(whole, [0], [size - start], [axis]);
  return padded(g, fitting, axis, start, size);
}

const slice: Op = {
  shape: (known) => {
    const [x] = known.inputs, [starts, ends] = [known.numbers(1), known.numbers(2)];
    const axes = known.inputs[3] ? known.numbers(3) : starts?.map((_, axis) => axis);
    const steps = known.inputs[4] ? known.numbers(4) : starts?.map(() => 1);
    if (!starts || !ends || !axes || !steps) return undefined;
    const cuts = new Map(axes.map((axis, i) => {
      const at = positiveAxis(axis, x.shape.length);
      return [at, cutOf(x.shape[at]!, starts[i]!, ends[i]!, steps[i]!)];
    }));
    return shaped(known, x.shape.map((size, axis) => cuts.get(axis)?.count ?? size));
  },
  gradient: (g, node, [dy]) => {
    const [x, ...numbers] = node.inputs as [Value, ...Value[]];
    const [starts, , axes, steps] = numbers.map(({ data }) => Array.from(data!, Number));
    return [starts!.reduce((rest, start, i) => {
      const axis = axes![i]!;
      return putBack(g, rest, axis, { start, step: steps?.[i] ?? 1, size: x.shape[axis]! });
    }, dy!)];
  },
  reference: ([x, starts, ends, axes, steps], _, [{ shape }]) => {
    const strides = stridesOf(x.shape);
    let first = 0;
    starts!.values.forEach((from, i) => {
      const axis = positiveAxis(axes?.values[i] ?? i, shape.length), step = steps?.values[i] ?? 1;
      first += cutOf(x.shape[axis]!, from, ends!.values[i]!, step).start * strides[axis]!;
      strides[axis]! *= step;
    });
    return take(x, shape, positions(shape, strides, first));
  },
  read: (call) => {
    const starts = neededNumbers(call, 1), ends = neededNumbers(call, 2);
    const axes = constantNumbers(call, 3), steps = constantNumbers(call, 4);
    return call.g.slice(operand(call, 0), starts, ends, axes, steps);
  },
};

/** Returns the sizes of parts of an axis, which are equal except for the last ones. */
function equalSizes(size: number, length: number): number[] {
  const equal = Math.ceil(size / length);
  return Array.from({ length }, (_, i) => Math.max(0, Math.min(equal, size - i * equal)));
}

const split: Op = {
  shape: (known) => {
    const [{ dtype, shape }] = known.inputs, axis = axisOf(known, shape);
    const sizes = known.numbers(1) ?? equalSizes(shape[axis]!, known.outputs);
    return sizes.map((size) => ({ dtype, shape: shape.with(axis, size) }));
  },
  gradient: (g, node, cotangents) => {
    const parts = cotangents.map((dy, i) => dy ?? zeros(g, node.outputs[i]!.shape));
    return [g.concat(parts, node.attributes.axis as number)];
  },
  reference: ([x], node, types) => {
    const axis = axisOf(node, x.shape), strides = stridesOf(x.shape);
    let start = 0;
    return types.map(({ shape }) => {
      const part = take(x, shape, positions(shape, strides, start * strides[axis]!));
      start += shape[axis]!;
      return part;
    });
  },
  read: (call) => {
    const x = operand(call, 0), axis = axisOf(call, x.shape);
    const sizes = constantNumbers(call, 1) ?? equalSizes(x.shape[axis]!, call.outputs.length);
    const isEqual = sizes.every((one) => one === sizes[0]);
    return call.g.split(x, axis, isEqual ? sizes.length : sizes);
  },
};

const concat: Op = {
  shape: (known) => {
    const [{ shape }] = known.inputs, axis = axisOf(known, shape);
    for (const other of known.inputs) {
      const sizes = other.shape.map((size, i) => i === axis ? shape[axis]! : size);
      const received = `[${shape}] and [${other.shape}]`;
      const must = `sizes except for axis ${axis} must be equal`;
      assertInput(sameShape(sizes, shape), "join tensors", must, received);
    }
    const size = known.inputs.reduce((sum, x) => sum + x.shape[axis]!, 0);
    return shaped(known, shape.with(axis, size));
  },
  gradient: (g, node, [dy]) => {
    const axis = node.attributes.axis as number, sizes = node.inputs.map((x) => x.shape[axis]!);
    if (sizes.length === 1) return [dy];
    return g.split(dy!, axis, sizes.every((size) => size === sizes[0]) ? sizes.length : sizes);
  },
  reference: (parts, node, [type]) => {
    const axis = axisOf(node, type.shape), result = ndArray(type), strides = stridesOf(type.shape);
    let start = 0;
    for (const part of parts) {
      put(result, part, start * strides[axis]!);
      start += part.shape[axis]!;
    }
    return result;
  },
  read: (call) =>
    call.inputs.length === 1
      ? operand(call, 0)
      : call.g.concat(call.inputs as readonly Value[], numberOf(call, "axis", 0)),
};

/** Operations that move elements. */
export const MOVES: Ops = {
  Reshape: {
    shape: (known) => {
      const [x] = known.inputs, wanted = known.numbers(1);
      if (!wanted) return undefined;
      const keepsZero = isSet(known, "allowzero");
      const sizes = wanted.map((size, i) => size === 0 && !keepsZero ? x.shape[i]! : size);
      const rest = elementCount(x.shape) / elementCount(sizes.filter((size) => size > 0));
      return shaped(known, sizes.map((size) => size < 0 ? rest : size));
    },
    gradient: slope((g, dy, x) => g.reshape(dy, x.shape)),
    reference: ([x], _, [y]) => ({ ...x, shape: y.shape }),
    read: (call) => {
      const x = operand(call, 0), keepsZero = isSet(call, "allowzero");
      const shape = neededNumbers(call, 1).map((size, i) =>
        size === 0 && !keepsZero ? x.shape[i] ?? 0 : size
      );
      return call.g.reshape(x, shape);
    },
  },
  Flatten: { read: (call) => call.g.flatten(operand(call, 0), numberOf(call, "axis", 1)) },
  Squeeze: {
    shape: (known) => shaped(known, withoutAxes(known.inputs[0].shape, known.numbers(1))),
    read: (call) => {
      const x = operand(call, 0);
      return call.g.reshape(x, withoutAxes(x.shape, constantNumbers(call, 1)));
    },
  },
  Unsqueeze: {
    shape: (known) => {
      const axes = known.numbers(1);
      return axes && shaped(known, withAxes(known.inputs[0].shape, axes));
    },
    read: (call) => {
      const x = operand(call, 0);
      return call.g.reshape(x, withAxes(x.shape, neededNumbers(call, 1)));
    },
  },
  Transpose: {
    shape: (known) => {
      const [{ shape }] = known.inputs, permutation = numbersOf(known, "perm") ?? reversed(shape);
      const isWhole = sameShape([...permutation].sort((x, y) => x - y), [...shape.keys()]);
      const must = `the permutation must name every axis of [${shape}] once`;
      assertInput(isWhole, "transpose", must, `[${permutation}]`);
      return shaped(known, permutation.map((axis) => shape[axis]!));
    },
    gradient: slope((g, dy, _x, _y, node) => {
      const permutation = node.attributes.perm as Ints;
      return g.transpose(dy, permutation.map((_, axis) => permutation.indexOf(axis)));
    }),
    reference: ([x], node, [{ shape }]) => {
      const axes = numbersOf(node, "perm") ?? reversed(shape), strides = stridesOf(x.shape);
      return take(x, shape, positions(shape, axes.map((axis) => strides[axis]!)));
    },
    read: (call) => {
      const x = operand(call, 0);
      return call.g.transpose(x, intsOf(call, "perm") ?? reversed(x.shape));
    },
  },
  Expand: {
    shape: (known) => {
      const wanted = known.numbers(1);
      return wanted && shaped(known, broadcastShape(known.inputs[0].shape, wanted));
    },
    gradient: (_g, _node, [dy]) => [dy],
    reference: ([x], _, [{ shape }]) =>
      take(x, shape, positions(shape, broadcastStrides(x.shape, shape))),
    // A size of 1 keeps the size of the operand.
    read: (call) => {
      const x = operand(call, 0), asked = neededNumbers(call, 1);
      const rank = Math.max(asked.length, x.shape.length);
      const at = (shape: Ints, i: number) => shape[i - rank + shape.length] ?? 1;
      const shape = Array.from({ length: rank }, (_, i) => {
        const [own, other] = [at(x.shape, i), at(asked, i)];
        return other === 1 ? own : other;
      });
      return call.g.expand(x, shape);
    },
  },
  Split: split,
  Concat: concat,
  Slice: slice,
  Tile: { read: (call) => call.g.tile(operand(call, 0), neededNumbers(call, 1)) },
  Trilu: {
    shape: like(0),
    read: (call) => {
      const which = numberOf(call, "upper", 1) === 1 ? "upper" : "lower", x = operand(call, 0);
      checkMade("a matrix", elementCount(x.shape.slice(-2)));
      return call.g.trilu(x, which, constantNumbers(call, 1)?.[0] ?? 0);
    },
  },
  DepthToSpace: {
    read: (call) => {
      const mode = mustBe(call, "mode", "DCR", ["DCR", "CRD"]);
      return call.g.depthToSpace(operand(call, 0), numberOf(call, "blocksize", 1), mode);
    },
  },
  // [n, c, h·b, w·b] as [n, b²·c, h, w]: the blocks of each channel become channels.
  SpaceToDepth: {
    read: (call) => {
      const x = operand(call, 0), block = numberOf(call, "blocksize", 1), { g } = call;
      const [n = 0, c = 0, height = 0, width = 0] = x.shape;
      const [h, w] = [height / block, width / block];
      const turned = g.transpose(g.reshape(x, [n, c, h, block, w, block]), [0, 3, 5, 1, 2, 4]);
      return g.reshape(turned, [n, c * block ** 2, h, w]);
    },
  },
};

/** Removes axes of size 1 from a shape: the given ones, or all. */
function withoutAxes(shape: Ints, axes: Ints | undefined): number[] {
  const gone = axes?.map((axis) => positiveAxis(axis, shape.length));
  return shape.filter((size, i) => gone ? !gone.includes(i) : size !== 1);
}

/** Adds axes of size 1 to a shape, at places in the result. */
function withAxes(shape: Ints, axes: Ints): number[] {
  const rank = shape.length + axes.length, rest = [...shape];
  const added = new Set(axes.map((axis) => positiveAxis(axis, rank)));
  return Array.from({ length: rank }, (_, i) => added.has(i) ? 1 : rest.shift()!);
}

/** Methods that add operations that move elements. */
export const MOVE_METHODS: Methods = {
  reshape: (g, a, shape) => {
    const free = shape.indexOf(-1), others = -elementCount(shape);
    const sizes = free < 0 ? shape : shape.with(free, elementCount(a.shape) / others);
    if (sameShape(a.shape, sizes)) return a;
    const isShape = sizes.every((size) => Number.isInteger(size) && size >= 0) &&
      elementCount(sizes) === elementCount(a.shape);
    const must = "the number of elements must stay, and at most one size be -1";
    assertInput(isShape, "reshape", must, `[${a.shape}] and [${shape}]`);
    const attributes = sizes.includes(0) ? { allowzero: 1 } : undefined;
    return g.node("Reshape", [a, g.int64(sizes)], [sizes], attributes)[0]!;
  },
  flatten: (g, a, axis = 1) => {
    const at = axis === a.shape.length ? axis : positiveAxis(axis, a.shape.length);
    return g.reshape(a, [a.shape.slice(0, at), a.shape.slice(at)].map(elementCount));
  },
  stopGradient: (g, a) => {
    const [copy] = g.node("Identity", [a], [a.shape]) as [Value];
    g.stops.add(copy.node!);
    return copy;
  },
  transpose: (g, a, permutation) => one(g, MOVES, "Transpose", [a], { perm: permutation }),
  expand: (g, a, shape) => {
    if (sameShape(a.shape, shape)) return a;
    const isWider = sameShape(broadcastShape(a.shape, shape), shape);
    assertInput(isWider, "expand", `a shape must broadcast to [${shape}]`, `[${a.shape}]`);
    return one(g, MOVES, "Expand", [a, g.int64(shape)]);
  },
  split: (g, a, axis, parts) => {
    const at = positiveAxis(axis, a.shape.length), size = a.shape[at]!;
    const axisOfShape = `axis ${at} of [${a.shape}]`;
    if (typeof parts === "number") {
      const divides = parts >= 1 && size % parts === 0;
      assertInput(divides, "split", `${axisOfShape} must divide by ${parts}`, size);
      return nodes(g, MOVES, "Split", [a], { axis: at, num_outputs: parts }, parts);
    }
    const isWhole = parts.reduce((sum, part) => sum + part, 0) === size;
    assertInput(isWhole, "split", `the sizes must add up to ${axisOfShape}`, `[${parts}]`);
    return nodes(g, MOVES, "Split", [a, g.int64(parts)], { axis: at }, parts.length);
  },
  concat: (g, values, axis) =>
    one(g, MOVES, "Concat", operandsOf(g, "Concat", ...values), {
      axis: positiveAxis(axis, values[0]!.shape.length),
    }),
  slice: (g, a, starts, ends, axes = starts.map((_, i) => i), steps = starts.map(() => 1)) => {
    const isWhole = [starts, ends, steps].every(({ length }) => length === axes.length);
    const must = `each of ${axes.length} axes must have a start, an end and a step other than 0`;
    const received = `[${starts}], [${ends}] and [${steps}]`;
    assertInput(isWhole && !steps.includes(0), "cut a tensor", must, received);
    const cuts = axes.map((axis, i): Cut => {
      const at = positiveAxis(axis, a.shape.length);
      return { axis: at, ...cutOf(a.shape[at]!, starts[i]!, ends[i]!, steps[i]!) };
    }).filter(({ axis, start, count, step }) =>
      start !== 0 || step !== 1 || count !== a.shape[axis]!
    );
    if (cuts.length === 0) return a;
    const numbers = (of: (cut: Cut) => number) => g.int64(cuts.map(of));
    const isForwards = cuts.every(({ step }) => step === 1);
    return one(g, MOVES, "Slice", [
      a,
      numbers(({ start }) => start),
      numbers((cut) => endOf(cut, a.shape[cut.axis]!)),
      numbers(({ axis }) => axis),
      ...isForwards ? [] : [numbers(({ step }) => step)],
    ]);
  },
  tile: (g, a, repeats) => {
    const pairs = (of: (i: number) => Ints) => a.shape.flatMap((_, i) => of(i));
    const apart = g.reshape(a, pairs((i) => [1, a.shape[i]!]));
    const repeated = g.expand(apart, pairs((i) => [repeats[i]!, a.shape[i]!]));
    return g.reshape(repeated, a.shape.map((size, i) => size * repeats[i]!));
  },
  trilu: (g, a, which, diagonal = 0) => {
    const [rows, columns] = a.shape.slice(-2) as [number, number];
    const isKept = Uint8Array.from({ length: rows * columns }, (_, i) => {
      const right = i % columns - Math.floor(i / columns);
      return +(which === "lower" ? right <= diagonal : right >= diagonal);
    });
    const zero = g.cast(g.scalar(0), a.dtype);
    return g.where(g.constant(isKept, [rows, columns], "bool"), a, zero);
  },
  depthToSpace: (g, a, block, mode = "CRD") => {
    const [n, c, h, w] = a.shape as [number, number, number, number], rest = c / block ** 2;
    const isNear = mode === "CRD", channels = isNear ? [rest, block, block] : [block, block, rest];
    const apart = g.reshape(a, [n, ...channels, h, w]);
    const turned = g.transpose(apart, isNear ? [0, 1, 4, 2, 5, 3] : [0, 3, 4, 1, 5, 2]);
    return g.reshape(turned, [n, rest, h * block, w * block]);
  },
};
