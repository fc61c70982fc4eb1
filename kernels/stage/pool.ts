/**
 * Memory that micro-batches in flight take and give back.
 *
 * [Note: shared slots] The first stage also holds ids and the last one logits, but most tensors have
 * sizes that all stages have. So the memory of a micro-batch has two parts: tensors of the sizes that
 * all stages of a worker need, which belong to any of them, and the others, which belong to its stage.
 * A worker has one set of the first part for each micro-batch in flight in all its stages together, and
 * one set of the second part for each micro-batch in flight in the stage. A single stage shares nothing.
 *
 * @module
 */

import type { Allocator, Tensor } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";

/** Descriptions of tensors: only dtype and number of elements count. */
export type Sizes = readonly Tensor[];

/** An allocator of descriptions, which are added to `sizes`. */
export const describer = (hasFreeViews: boolean, sizes: Tensor[] = []): Allocator => ({
  hasFreeViews,
  view: ({ dtype }, _offset, shape) => ({ dtype, shape }),
  alloc(dtype, shape) {
    sizes.push({ dtype, shape });
    return { dtype, shape };
  },
});

/** Returns the sizes of the tensors that a function allocates. */
export function sizesOf(hasFreeViews: boolean, allocate: (device: Allocator) => unknown): Sizes {
  const sizes: Tensor[] = [];
  allocate(describer(hasFreeViews, sizes));
  return sizes;
}

/** The views of a device with another way to allocate. */
export const allocatorOf = (device: Allocator, alloc: Allocator["alloc"]): Allocator => ({
  hasFreeViews: device.hasFreeViews,
  view: (...range) => device.view(...range),
  alloc,
});

/** Removes and returns the first tensor of a size; undefined if no tensor has that size. */
function takeSize(tensors: Tensor[], size: Tensor): Tensor | undefined {
  const length = elementCount(size.shape);
  const index = tensors.findIndex(({ dtype, shape }) =>
    dtype === size.dtype && elementCount(shape) === length
  );
  return index < 0 ? undefined : tensors.splice(index, 1)[0];
}

/** Divides sizes into common ones, which `others` also has, and the rest. */
export function divideSizes(all: Sizes, others: Sizes): { common: Sizes; rest: Sizes } {
  const left = [...others];
  const { common = [], rest = [] } = Object.groupBy(
    all,
    (size) => takeSize(left, size) ? "common" : "rest",
  );
  return { common, rest };
}

/** Something for each slice of a sequence: of a slot, and of a backward. */
export interface PerSlice<T> {
  /** Of the slots. */
  readonly slices: readonly T[];
  /** Of the backwards. */
  readonly backwards: readonly T[];
}

/** Sets of tensors that stages share. */
interface SharedSets {
  readonly sizes: Sizes;
  readonly free: (readonly Tensor[])[];
}

/** The memory that the stages of a worker share. */
export type SlotPool = PerSlice<SharedSets>;

/** Makes a pool of some sizes, in which nothing is allocated. */
export function openPool({ slices, backwards }: PerSlice<Sizes>): SlotPool {
  const open = (sizes: Sizes): SharedSets => ({ sizes, free: [] });
  return { slices: slices.map(open), backwards: backwards.map(open) };
}

/** Tensors of a stage, and what was made of them and of each shared set. */
interface OwnSet<T> {
  readonly tensors: readonly Tensor[];
  readonly made: Map<readonly Tensor[], T>;
}

/** Memory that is in use. */
export interface Taken<T> {
  readonly value: T;
  readonly shared: readonly Tensor[];
  readonly own: OwnSet<T>;
}

/**
 * Opens memory for values that a function makes. It makes one value for each pair of a shared set and
 * an own set, when they are first taken together.
 */
export function openMemory<T>(
  device: Allocator,
  make: (device: Allocator) => T,
  pool: SharedSets = { sizes: [], free: [] },
) {
  const { rest } = divideSizes(sizesOf(device.hasFreeViews, make), pool.sizes);
  const allocate = (sizes: Sizes) => sizes.map(({ dtype, shape }) => device.alloc(dtype, shape));
  const newSet = (): OwnSet<T> => ({ tensors: allocate(rest), made: new Map() });
  // A set without tensors may be in use several times.
  const isEmpty = rest.length === 0, free = isEmpty ? [newSet()] : [];
  const hold = (shared: readonly Tensor[], own: OwnSet<T>): Taken<T> => {
    if (pool.free.includes(shared)) pool.free.splice(pool.free.indexOf(shared), 1);
    if (!isEmpty && free.includes(own)) free.splice(free.indexOf(own), 1);
    const value = own.made.getOrInsertComputed(shared, () => {
      const left = [...shared, ...own.tensors];
      return make(allocatorOf(
        device,
        (dtype, shape) => device.view(takeSize(left, { dtype, shape })!, 0, shape),
      ));
    });
    return { value, shared, own };
  };
  return {
    /** Number of own sets that are free. */
    get free(): number {
      return free.length;
    },
    /** Takes memory. If possible, its value is already made and preferred. */
    take(isPreferred: (value: T) => boolean = () => true): Taken<T> {
      for (const own of free.toReversed()) {
        const shared = pool.free.findLast((one) =>
          own.made.has(one) && isPreferred(own.made.get(one)!)
        );
        if (shared) return hold(shared, own);
      }
      return hold(pool.free.at(-1) ?? allocate(pool.sizes), free.at(-1) ?? newSet());
    },
    give({ shared, own }: Taken<T>): void {
      pool.free.push(shared);
      if (!isEmpty) free.push(own);
    },
    /** Removes an own set that is free, and returns its tensors. */
    drop: (): readonly Tensor[] => free.pop()?.tensors ?? [],
  };
}
