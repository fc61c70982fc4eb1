/**
 * Weights, gradients and optimizer moments of a stage in flat arrays, with a view per parameter.
 *
 * In mixed precision, weights and gradients are FP16, and the optimizer has separate FP32 weights, the
 * *master*. State that only the optimizer uses, master and moments, may be *offloaded*: it is stored
 * on the host and copied to the device bucket by bucket (AxoNN, section V-B).
 *
 * Tensors with two or more dimensions come first: only they are subject to weight decay. The flat
 * arrays are cut into *buckets*, the units of the optimizer; no bucket holds tensors of both sorts.
 *
 * On a device whose views are not free each parameter has a separate tensor in each array, and a
 * bucket is one or more of them. This is also fast: a GPU processes the largest parameter in one run
 * of a dozen kernels, where pieces of 65,536 elements would be 1,900 such runs for GPT-2.
 *
 * @module
 */

import type { Allocator, Device, DType, HostArray, Tensor } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import type { ParameterSpec } from "../layers/layer.ts";
import { storageDtype } from "../precision.ts";
import type { ActivationOptions } from "./activations.ts";
import {
  groupOf,
  momentsOf,
  type OptimizerOptions,
  type StageOptions,
  stateCount,
} from "./options.ts";

/** A range of a flat array, in elements. */
export interface FlatRange {
  /** The first element. */
  readonly offset: number;
  /** Number of elements. */
  readonly length: number;
}

/** A range with the shape of its tensor. */
export interface ShapedRange extends FlatRange {
  /** The shape. */
  readonly shape: readonly number[];
}

/** A range with a separate tensor. */
export interface FlatPart extends FlatRange {
  /** The tensor. */
  readonly tensor: Tensor;
}

/** A flat array on a device. */
export interface FlatTensor {
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its tensors in order; together they cover it. */
  readonly parts: readonly FlatPart[];
}

/** Allocates a flat array, zeroed, with a tensor for each range. */
export const allocateFlat = (device: Allocator, dtype: DType, ranges: readonly FlatRange[]) => ({
  dtype,
  parts: ranges.map(({ offset, length }): FlatPart => (
    { offset, length, tensor: device.alloc(dtype, [length]) }
  )),
});

/** Returns the tensors of flat arrays; undefined ones have none. */
export const tensorsOf = (arrays: readonly (FlatTensor | undefined)[]): Tensor[] =>
  arrays.flatMap((array) => array?.parts.map(({ tensor }) => tensor) ?? []);

/** Returns a view of the elements that `values` cover from element `from`; by default the tensor. */
export const partOf = (device: Device, tensor: Tensor, { length }: HostArray, from?: number) =>
  from === undefined ? tensor : device.view(tensor, from, [length]);

/**
 * Returns a view of elements of a flat array, all in one tensor.
 *
 * @throws {RangeError} when they are not.
 */
export function viewFlat(
  device: Pick<Device, "view">,
  { parts }: FlatTensor,
  offset: number,
  shape: readonly number[],
): Tensor {
  const part = parts.findLast((one) => one.offset <= offset);
  if (!part) throw new RangeError(`Cannot view a flat array: it must not be empty`);
  return device.view(part.tensor, offset - part.offset, shape);
}

/** Cuts a range of a flat array at the borders of its tensors. */
const cutAtBorders = ({ parts }: FlatTensor, { offset, length }: FlatRange) =>
  parts.flatMap((part) => {
    const from = Math.max(offset, part.offset);
    const to = Math.min(offset + length, part.offset + part.length);
    return from < to ? [{ part, from, to }] : [];
  });

/** Returns the views that cover a range, with their places in the range, in order. */
const viewsOf = (device: Pick<Device, "view">, flat: FlatTensor, range: FlatRange) =>
  cutAtBorders(flat, range).map(({ part, from, to }) => ({
    tensor: device.view(part.tensor, from - part.offset, [to - from]),
    from: from - range.offset,
    to: to - range.offset,
  }));

/** Copies the elements from `offset` to the host. */
export async function readFlat(
  device: Device,
  flat: FlatState,
  offset: number,
  into: Float32Array | Float16Array,
): Promise<void> {
  if ("values" in flat) return into.set(flat.values.subarray(offset, offset + into.length));
  for (const { tensor, from, to } of viewsOf(device, flat, { offset, length: into.length })) {
    await device.read<HostArray>(tensor, into.subarray(from, to));
  }
}

/** Sets the elements from `offset`. */
export function writeFlat(
  device: Device,
  flat: FlatState,
  offset: number,
  values: Float32Array | Float16Array,
): void {
  if ("values" in flat) return flat.values.set(values, offset);
  for (const { tensor, from, to } of viewsOf(device, flat, { offset, length: values.length })) {
    device.write(tensor, values.subarray(from, to));
  }
}

/** A flat f32 array that only the optimizer uses: on the device, or offloaded to the host. */
export type FlatState = FlatTensor | ReturnType<typeof hostState>;

/** Creates a state on the host, all zero; its memory is allocated on first use, for plans without memory. */
function hostState(length: number) {
  let values: Float32Array<ArrayBuffer> | undefined;
  return {
    length,
    get values(): Float32Array<ArrayBuffer> {
      return values ??= new Float32Array(length);
    },
  };
}

/** The unit of an optimizer step. */
export interface Bucket extends FlatRange {
  /** True if weight decay applies. */
  readonly isDecayed: boolean;
  /** Index of the group of its parameters; absent if they are in none. */
  readonly group?: number | undefined;
  /** The parameter that it is, where the optimizer steps each as a whole. */
  readonly whole?: WholeParameter | undefined;
}

/** Shape of a parameter, and the places of its moments in their states. */
interface WholeParameter {
  readonly shape: readonly number[];
  readonly moments: readonly (ShapedRange | undefined)[];
}

/** Full names and shapes of parameters. */
export type NamedShapes = readonly Pick<ParameterSpec, "name" | "shape">[];

/** Default number of elements of a bucket: the fastest piece for AdamW on a CPU. */
export const BUCKET_SIZE = 65_536;

/** Alignment of parameters in elements: 64 bytes of f32. */
const ALIGNMENT = 16;

const aligned = (elements: number) => Math.ceil(elements / ALIGNMENT) * ALIGNMENT;

/**
 * Returns the elements of flat arrays of parameters with these shapes, each aligned to 16 elements.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(flatLength([{ shape: [8, 10] }, { shape: [10] }]), 80 + 16);
 * ```
 */
export function flatLength(specs: readonly { shape: readonly number[] }[]): number {
  return specs.reduce((sum, { shape }) => sum + aligned(elementCount(shape)), 0);
}

/**
 * Lays out parameters on a device, initialized to zero.
 *
 * @param specs full names and shapes.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS, openReference } from "@troupe/troupe/kernels";
 *
 * const device = await openReference();
 * const { buckets } = createParameters(
 *   device,
 *   [{ name: "w", shape: [8, 10] }, { name: "b", shape: [10] }],
 *   { optimizer: ADAMW_DEFAULTS, bucketSize: 64 },
 * );
 * assert.deepEqual(
 *   buckets.map(({ offset, length, isDecayed }) => [offset, length, isDecayed]),
 *   [[0, 64, true], [64, 16, true], [80, 16, false]],
 * );
 * device.close();
 * ```
 */
export function createParameters(
  device: Allocator,
  specs: NamedShapes,
  options: Omit<StageOptions, keyof ActivationOptions>,
) {
  const { optimizer, bucketSize = BUCKET_SIZE, precision = "fp32", offload = false } = options;
  const sections = sectionsOf(specs, optimizer), total = flatLength(specs);
  const places = placesOf(sections.flatMap((section) => section.specs));
  const ranges = device.hasFreeViews ? [{ offset: 0, length: total }] : places;
  const dtype = storageDtype(precision), allocate = () => allocateFlat(device, dtype, ranges);
  const versions = Array.from({ length: options.versions ?? 1 }, allocate);
  const average = options.average ? allocate() : undefined;
  const gradients = allocate();
  const state = (of: readonly FlatRange[] = ranges): FlatState =>
    offload ? hostState(lengthOf(of)) : allocateFlat(device, "f32", of);
  const isWhole = optimizer.kind === "adafactor";
  const wholes = isWhole ? wholeParameters(places, optimizer) : undefined;
  const bucketsOf = isWhole || !device.hasFreeViews ? groupBuckets(places, isWhole) : cutRange;
  const momentStates = wholes?.states.map((all) => {
    const own = all.filter(({ length }) => length > 0);
    const isOne = device.hasFreeViews && own.length > 0;
    return state(isOne ? [{ offset: 0, length: lengthOf(own) }] : own);
  });
  return {
    /** The parameters in the order of their places, with their full names. */
    parameters: places.map(({ name, shape, offset }) => {
      const view = (array: FlatTensor) => viewFlat(device, array, offset, shape);
      /** Its values, in each version of the weights. */
      const weights = [...versions, ...average ? [average] : []].map(view);
      /** Places of its moments, where they have other shapes: it is stepped as a whole. */
      const { moments } = wholes?.parameters.get(offset) ?? {};
      // The gradient is the sum of its gradients in this step.
      return { name, shape, weights, gradient: view(gradients), ...moments && { moments } };
    }),
    /** The range of each parameter in the flat arrays, in elements, by full name. */
    ranges: new Map<string, FlatRange>(
      places.map(({ name, shape, offset }) => [name, { offset, length: elementCount(shape) }]),
    ),
    /** The buckets in order; together they cover the arrays. */
    buckets: sections.flatMap(({ from, to, kind }) =>
      bucketsOf(from, to, bucketSize).map((range): Bucket => {
        const whole = wholes?.parameters.get(range.offset);
        return { ...range, ...kind, ...whole && { whole } };
      })
    ),
    /** Weights that evaluations read in place of the newest ones. */
    ...average && { average },
    /** The versions of all weights, as the models read them. */
    versions,
    /** All gradients, in the type of the weights. */
    gradients,
    /** FP32 weights, if the stored ones are FP16. */
    ...precision === "fp16" && { master: state() },
    /** All moments of the optimizer. */
    moments: momentStates ?? Array.from({ length: stateCount(optimizer) }, () => state()),
  };
}

/** The flat arrays of a stage. */
export type ParameterStore = ReturnType<typeof createParameters>;

/** Returns the end of ranges that follow each other. */
const lengthOf = (ranges: readonly FlatRange[]): number =>
  ranges.reduce((end, { offset, length }) => Math.max(end, offset + length), 0);

/** Lays out the moments of parameters in states, for steps of whole parameters. */
function wholeParameters(places: ReturnType<typeof placesOf>, optimizer: OptimizerOptions) {
  const count = stateCount(optimizer);
  const shapes = places.map(({ shape }) => {
    const own = momentsOf(optimizer, shape);
    return Array.from({ length: count }, (_, i) => own.find(({ index }) => index === i)?.shape);
  });
  const states = Array.from(
    { length: places.length && count },
    (_, i) => placesOf(places.map(({ name }, p) => ({ name, shape: shapes[p]![i] ?? [0] }))),
  );
  const parameters = new Map(
    places.map(({ offset, shape }, p): [number, WholeParameter] => {
      const moments = states.map((own, i) => {
        const { offset, shape } = own[p]!;
        return shapes[p]![i] && { offset, length: elementCount(shape), shape };
      });
      return [offset, { shape, moments }];
    }),
  );
  return { parameters, states };
}

/** Cuts parameters into sections with equal settings: by group, and those with decay first. */
function sectionsOf(specs: NamedShapes, optimizer: OptimizerOptions) {
  const place = ({ name, shape }: NamedShapes[number]) => {
    const group = groupOf(optimizer, name), own = optimizer.groups?.[group ?? -1];
    const isDecayed = own?.weightDecay !== undefined || shape.length >= 2;
    return { isDecayed, ...group !== undefined && { group } };
  };
  const byKind = Map.groupBy(specs, (spec) => {
    const { group = -1, isDecayed } = place(spec);
    return 2 * group + (isDecayed ? 0 : 1);
  });
  let to = 0;
  return [...byKind].sort(([a], [b]) => a - b).map(([, own]) => {
    const from = to;
    to += flatLength(own);
    return { from, to, kind: place(own[0]!), specs: own };
  });
}

/** Returns the offset and the aligned length of each parameter. */
function placesOf(specs: NamedShapes) {
  let offset = 0;
  return specs.map(({ name, shape }) => {
    const place = { name, shape, offset, length: aligned(elementCount(shape)) };
    offset += place.length;
    return place;
  });
}

type Buckets = (from: number, to: number, size: number) => FlatRange[];

/** Cuts a range into pieces of at most one size; the last may be smaller. */
export const cutRange: Buckets = (from, to, size) => {
  const most = Math.min(size, to - from);
  return Array.from({ length: Math.ceil((to - from) / most) }, (_, i) => {
    const offset = from + i * most;
    return { offset, length: Math.min(most, to - offset) };
  });
};

/** Groups whole parameters into buckets: one, or more if they fit and may be stepped together. */
const groupBuckets = (own: readonly FlatRange[], isWhole: boolean): Buckets => (from, to, size) => {
  const buckets: FlatRange[] = [];
  for (const { offset, length } of own.filter(({ offset }) => offset >= from && offset < to)) {
    const last = buckets.at(-1);
    if (last && !isWhole && last.length + length <= size) {
      buckets[buckets.length - 1] = { ...last, length: last.length + length };
    } else buckets.push({ offset, length });
  }
  return buckets;
};

/** Splits a range of the flat arrays at the borders of its tensors: one run steps one piece. */
export const piecesOf = ({ gradients }: ParameterStore, range: FlatRange): FlatRange[] =>
  cutAtBorders(gradients, range).map(({ from, to }) => ({ offset: from, length: to - from }));
