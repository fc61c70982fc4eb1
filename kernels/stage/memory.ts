/**
 * Memory of a stage in bytes: allocated, counted and planned by the same functions.
 *
 * With φ trained numbers and b elements in a bucket, AdamW takes on the device
 *
 * | precision | all on the device | offloaded |
 * |---|---|---|
 * | fp32 | 4φ + 4φ + 8φ = 16φ | 4φ + 4φ + 8b |
 * | fp16 | 2φ + 2φ + 4φ + 8φ + 4b = 16φ + 4b | 2φ + 2φ + 16b |
 *
 * for weights, gradients, master weights, moments, and buckets: those of the offloaded states, and in
 * FP16 one of widened gradients. AxoNN (section V-B) counts 20φ where we need 16φ + 4b: it widens all
 * gradients at the same time. On the native and the reference device, which use host memory, offload
 * moves bytes from one column to the other and saves none. ONNX Runtime's own memory is planned by
 * {@linkcode planLibrary}. Not counted: its WebGPU provider rounds buffers up to certain sizes (9 MiB
 * take 12) and keeps some freed buffers for later ones of their size.
 *
 * @module
 */

import { layersOf, slicesOf, type StageProgram } from "../compile/programs.ts";
import { type Allocator, DTYPE_BYTES, type Tensor } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import { storageDtype } from "../precision.ts";
import {
  type ActivationOptions,
  allocateActivations,
  allocateBackward,
  allocateContext,
  allocateShared,
  checkInterval,
  type MemoryParts,
} from "./activations.ts";
import type { StageOptions } from "./options.ts";
import { type FlatState, tensorsOf } from "./parameters.ts";
import { describer, divideSizes, type PerSlice, type Sizes, sizesOf } from "./pool.ts";
import { allocateResident, checkStageOptions, type Resident } from "./state.ts";

/** Bytes of a stage on its device. */
export interface DeviceBytes {
  /** Weights as the models read them, in all versions, including frozen ones. */
  readonly weights: number;
  /** Gradients. */
  readonly gradients: number;
  /** FP32 weights of the optimizer, where the weights are FP16. */
  readonly master: number;
  /** Moments of the optimizer. */
  readonly moments: number;
  /** Activations and gradients between layers, of all slots and shared. */
  readonly activations: number;
  /** Temporary copies: offloaded states and widened gradients of a bucket, terms of gradient sums. */
  readonly buckets: number;
  /** Scalars, and one or two numbers for each parameter. */
  readonly other: number;
}

/** Bytes that a stage holds. It frees none before it is closed, so this is also the peak. */
export interface StageMemory {
  /** On the device. */
  readonly device: DeviceBytes;
  /** On the host: offloaded states, and FP32 values of frozen FP16 weights. */
  readonly host: { readonly master: number; readonly moments: number };
}

/** Returns the bytes of tensors; undefined ones are not allocated. */
const bytesOf = (tensors: readonly (Tensor | undefined)[]) =>
  tensors.filter((tensor) => tensor !== undefined)
    .reduce((sum, { dtype, shape }) => sum + elementCount(shape) * DTYPE_BYTES[dtype], 0);

/** Counts the bytes of a stage; those of its activations are given. */
export function countMemory(resident: Resident, activations: number): StageMemory {
  const { precision, store, optimizer: { scalars, visitors, gradient, rest }, norms, sums } =
    resident;
  const frozen = resident.frozen.reduce((sum, { shape }) => sum + elementCount(shape), 0);
  const masters = store.master ? [store.master] : [];
  const onDevice = (states: readonly FlatState[]) =>
    bytesOf(tensorsOf(states.filter((state) => "parts" in state)));
  const onHost = (states: readonly FlatState[]) =>
    states.reduce((sum, state) => "values" in state ? sum + 4 * state.length : sum, 0);
  return {
    device: {
      weights: bytesOf(tensorsOf([...store.versions, store.average])) +
        frozen * DTYPE_BYTES[storageDtype(precision)],
      gradients: bytesOf(tensorsOf([store.gradients])),
      master: onDevice(masters),
      moments: onDevice(store.moments),
      activations,
      buckets: bytesOf([...visitors, gradient, sums?.term, ...tensorsOf([sums?.sums])]),
      other: bytesOf([
        ...scalars.flatMap(({ tensors }) => Object.values(tensors)),
        ...[rest, norms.sums.all, norms.tops?.all, resident.lossScale],
      ]),
    },
    host: {
      master: onHost(masters) + (precision === "fp16" ? 4 * frozen : 0),
      moments: onHost(store.moments),
    },
  };
}

/** The properties of a device that a plan depends on. Free views are the default: only webgpu has none. */
type PlannedDevice = Partial<Pick<Allocator, "hasFreeViews">>;

/** Returns the bytes of the activations of a micro-batch of each length. */
export const bytesOfLengths = (hasFreeViews: boolean, memory: MemoryParts): number[] =>
  memory.parts.slices.map((_, length) =>
    bytesOf(sizesOf(hasFreeViews, (device) => allocateActivations(device, memory, length)))
  );

/** A stage, and its options. */
interface PlannedStage {
  readonly program: StageProgram;
  readonly options: ActivationOptions;
}

/** Returns the sizes of the activations of a stage: shared by all, and of each slice in flight. */
function sizesInFlight({ program, options }: PlannedStage, hasFreeViews: boolean) {
  const parts = { ...program, slices: slicesOf(program) }, { slices, lengths } = parts;
  const of = (allocate: (device: Allocator) => unknown) => sizesOf(hasFreeViews, allocate);
  const shared: Tensor[] = [];
  const memory = {
    ...{ parts, options },
    shared: allocateShared(describer(hasFreeViews, shared), parts, options),
  };
  const indices = lengths ? [0] : [...slices.keys()];
  return {
    ...{ memory, shared },
    slices: indices.map((slice) => of((device) => allocateActivations(device, memory, slice))),
    backwards: indices.map((slice) => of((device) => allocateBackward(device, memory, slice))),
    context: of((device) => allocateContext(device, parts, options)),
  };
}

/**
 * Returns the bytes of the activations of a stage as {@linkcode openStage} allocates them: fields of
 * the micro-batch, activations, and gradients between layers.
 *
 * @throws {RangeError} when the interval is not a positive integer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, gpt2 } from "@troupe/troupe/kernels";
 *
 * const model = gpt2({ layers: 8, hidden: 32, heads: 4, seq: 16, vocab: 64 }, 2);
 * const program = compileModel(model, "none");
 * const all = activationBytes(program, { backward: "whole" });
 * const few = activationBytes(program, { backward: "whole", recomputeInterval: 3 });
 * // Fields of 2 · 16 ids and targets, and the inputs of layers 3, 6 and 9.
 * assert.equal(few.perMicroBatch, 2 * 32 * 4 + 3 * 32 * 32 * 4);
 * assert.ok(few.perMicroBatch < all.perMicroBatch / 20);
 * ```
 */
export function activationBytes(
  program: StageProgram,
  { hasFreeViews = true, ...options }: ActivationOptions & PlannedDevice,
) {
  checkInterval(options.recomputeInterval);
  const { memory, ...sizes } = sizesInFlight({ program, options }, hasFreeViews);
  const perSlice = sizes.slices.map((slice, i) => ({
    perMicroBatch: bytesOf(slice),
    perBackward: bytesOf(sizes.backwards[i]!),
  }));
  const perContext = bytesOf(sizes.context);
  const hasLengths = program.lengths !== undefined && options.longestSlots !== undefined;
  return {
    /** Kept for each micro-batch in flight from F to B (to W where the backward is split). */
    perMicroBatch: bytesOf(sizes.slices.flat()) + perContext,
    /** Kept for each micro-batch from I to W, and while B runs, where the backward is split. */
    perBackward: bytesOf(sizes.backwards.flat()),
    /** Shared by all micro-batches. */
    shared: bytesOf(sizes.shared),
    /** With sliced sequences, both of each slice, and bytes that the slices of a micro-batch share. */
    ...program.slicing && { perSlice, perContext },
    /** With `longestSlots`, `perMicroBatch` of each length. */
    ...hasLengths && !program.slicing && { perLength: bytesOfLengths(hasFreeViews, memory) },
  };
}

/** Largest numbers of slices in flight; a whole sequence is one slice. */
export interface SliceSlots extends PerSlice<number> {
  /** For each slice, those from I to W, with one whose B runs. */
  readonly backwards: readonly number[];
  /** Micro-batches with a slice in flight. */
  readonly contexts: number;
}

/** Bytes of all activations in flight. */
function bytesInFlight(
  { perSlice, perContext = 0, ...whole }: ReturnType<typeof activationBytes>,
  slots: number | SliceSlots,
): number {
  if (typeof slots === "number") return slots * (whole.perMicroBatch + whole.perBackward);
  const { slices, backwards, contexts } = slots;
  return (perSlice ?? [whole]).reduce(
    (sum, { perMicroBatch, perBackward }, slice) =>
      sum + slices[slice]! * perMicroBatch + backwards[slice]! * perBackward,
    contexts * perContext,
  );
}

/**
 * Returns the bytes that a stage holds once `slots` micro-batches have been in flight at a time, all
 * between I and W if a number is given: {@linkcode Stage.memory} in advance. Pure: nothing is
 * allocated.
 *
 * @throws {RangeError} {@linkcode TypeError} as {@linkcode openStage}.
 *
 * @example FP16 with offload: 2φ for weights, 2φ for gradients, 16 bytes for each element of a bucket
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS, compileModel, gpt2 } from "@troupe/troupe/kernels";
 *
 * const model = gpt2({ layers: 2, hidden: 64, heads: 4, seq: 16, vocab: 256 }, 1);
 * const program = compileModel(model, "none", { precision: "fp16" });
 * const { device, host } = planMemory(program, {
 *   optimizer: ADAMW_DEFAULTS,
 *   backward: "whole",
 *   offload: true,
 *   bucketSize: 1024,
 *   slots: 2,
 * });
 * assert.equal(device.weights + device.gradients, host.master); // 2φ + 2φ, and 4φ
 * assert.equal(device.master + device.moments, 0);
 * assert.equal(device.buckets, 16 * 1024);
 * ```
 */
export function planMemory(
  program: StageProgram,
  { slots, hasFreeViews = true, ...options }: StageOptions & PlannedDevice & {
    readonly slots: number | SliceSlots;
  },
): StageMemory {
  const { jobs: { variants, variantOf } = { variants: [program], variantOf: [0] } } = program;
  const plans = variants.map((variant) => {
    checkStageOptions(variant, options);
    const bytes = activationBytes(variant, { ...options, hasFreeViews });
    const resident = allocateResident(describer(hasFreeViews), layersOf(variant), options);
    return { resident, activations: bytes.shared + bytesInFlight(bytes, slots) };
  });
  return sumMemory(variantOf.map((variant, job) => {
    const { resident, activations } = plans[variant]!;
    // Jobs of one program share activations, and all share frozen weights.
    const isFirst = variantOf.indexOf(variant) === job;
    const counted = job === 0 ? resident : { ...resident, frozen: [] };
    return countMemory(counted, isFirst ? activations : 0);
  }));
}

/** Returns the sizes that several stages on one device share. */
export function commonSizes(
  stages: readonly PlannedStage[],
  hasFreeViews: boolean,
): PerSlice<Sizes> {
  const isFixed = ({ program: { jobs, lengths }, options: { longestSlots } }: PlannedStage) =>
    !jobs && !(lengths && longestSlots !== undefined);
  if (stages.length < 2 || !stages.every(isFixed)) return { slices: [], backwards: [] };
  const all = stages.map((stage) => sizesInFlight(stage, hasFreeViews));
  const commonOf = (key: keyof PerSlice<Sizes>) =>
    all.map((stage) => stage[key]).reduce((some, others) =>
      some.map((sizes, slice) => divideSizes(sizes, others[slice]!).common)
    );
  return { slices: commonOf("slices"), backwards: commonOf("backwards") };
}

/**
 * Returns the bytes that stages save because they share memory.
 *
 * @param own the slots of each stage.
 * @param together the most slots of all stages at a time.
 */
export function savedBytes(
  common: PerSlice<Sizes>,
  own: readonly SliceSlots[],
  together: SliceSlots,
): number {
  const savedOf = (key: keyof PerSlice<Sizes>) =>
    common[key].reduce((sum, sizes, slice) => {
      const all = own.reduce((count, slots) => count + slots[key][slice]!, 0);
      return sum + (all - together[key][slice]!) * bytesOf(sizes);
    }, 0);
  return savedOf("slices") + savedOf("backwards");
}

/** Adds the memory of several stages. */
export function sumMemory(stages: readonly StageMemory[]): StageMemory {
  const add = <T extends object>(parts: readonly T[]): T =>
    Object.fromEntries(
      Object.keys(parts[0]!).map((key) => [
        key,
        parts.reduce((sum, part) => sum + (part as Record<string, number>)[key]!, 0),
      ]),
    ) as T;
  return {
    device: add(stages.map(({ device }) => device)),
    host: add(stages.map(({ host }) => host)),
  };
}

/**
 * Returns the sum of the device or host bytes of {@linkcode StageMemory}.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(totalBytes({ master: 400, moments: 800 }), 1200);
 * ```
 */
export function totalBytes(parts: DeviceBytes | StageMemory["host"]): number {
  return Object.values(parts).reduce((sum: number, bytes: number) => sum + bytes, 0);
}
