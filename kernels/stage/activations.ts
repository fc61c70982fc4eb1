/**
 * Memory for the activations of a stage: kept for each micro-batch from F to B, or shared.
 *
 * [Note: memory of a backward] If the backward is split, W reads gradients and other values that I has
 * computed. They are in separate memory, which a micro-batch takes at its I and gives back at its W: with M micro-batches in flight and at most K between I and W there are M and K of each.
 *
 * [Note: recompute interval] With an interval `ac`, the layers of a stage form segments of `ac`, and
 * a micro-batch keeps only the input of each segment. Everything else that a backward reads is in
 * memory that all micro-batches and segments share: before the backward of a segment its forward runs
 * again, on the same inputs, so with the same bits. A split backward keeps the gradient of the
 * stage's output from I to W, and W runs forward and backward of each segment again. Keeping the
 * gradients between layers and the values that I passes to W would save that second backward, but
 * would take at least one tensor for each layer, which the interval is meant to avoid.
 *
 * Values that no layer of the stage reads, such as the output of the last one, are always shared: they
 * are read as soon as they are computed.
 *
 * @module
 */

import {
  isSkip,
  type LayerProgram,
  layersOf,
  type NamedProgram,
  type OutputSpec,
  PORTS,
  type StageProgram,
  type StageSkip,
  valuePorts,
} from "../compile/programs.ts";
import {
  type Allocator,
  type Device,
  type DType,
  DTYPE_BYTES,
  type KeyedArrays,
  type StageValues,
  type Tensor,
  type ValueArray,
} from "../devices/device.ts";
import { checkPositive } from "../errors.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Layer } from "../layers/layer.ts";
import { storageDtype } from "../precision.ts";
import { allocatorOf, sizesOf } from "./pool.ts";
import type { TensorSpec } from "../graph/value.ts";

/**
 * Returns the segments of a stage, first layer first; one without an interval. A segment is a run of
 * layers that are recomputed together, `to` exclusive. Consecutive layers of
 * one block count as one, so that the interval has the unit of `--layers`, wherever blocks are cut.
 */
export function segmentsOf(
  layers: readonly Pick<Layer, "block">[],
  interval = layers.length,
) {
  const begins = layers.flatMap(({ block }, i) =>
    block !== undefined && block === layers[i - 1]?.block ? [] : [i]
  );
  const starts = begins.filter((_, nth) => nth % interval === 0);
  return starts.map((from, i) => ({ from, to: starts[i + 1] ?? layers.length }));
}

/** Returns the number of layers as a user counts them: consecutive ones of one block are one. */
export const countBlocks = (layers: readonly Pick<Layer, "block">[]): number =>
  segmentsOf(layers, 1).length;

/**
 * Returns the interval of `recomputeInterval` that needs the least memory.
 *
 * AxoNN (section V-A) counts activations of a worker as G·(N/(G·ac) + 1 + ac) for N layers on G
 * workers, G micro-batches in flight and an interval ac, and chooses ac = √N. That is the minimum of
 * another formula: only one micro-batch is recomputed at a time, so ac counts once,
 * G·(N/(G·ac) + 1) + ac, with minimum √N (the printed formula has its minimum at √(N/G)). An interval
 * beyond a worker's N/G layers changes nothing, so the result is the integer from 1 to ⌈N/G⌉ with the
 * least value, the smaller of two equal ones.
 *
 * The formula assumes that a layer saves values of the size of its input. This holds for the policy `full`;
 * with `none` a layer of GPT-2 saves about twenty times its input, and a smaller interval needs
 * less memory: see `activationBytes`.
 *
 * @param layers of the model, N; a block counts as one.
 * @param workers of a pipeline, G.
 * @throws {RangeError} when one is not a positive integer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(bestRecomputeInterval(24, 2), 5);
 * assert.equal(bestRecomputeInterval(24, 8), 3); // a worker has no more than 3 layers
 * ```
 */
export function bestRecomputeInterval(layers: number, workers: number): number {
  checkPositive("choose a recompute interval", { layers, workers });
  const root = Math.floor(Math.sqrt(layers));
  // N/ac + ac is less at √N rounded up than at √N rounded down exactly when N > product of both.
  const nearest = layers > root * (root + 1) ? root + 1 : root;
  return Math.min(nearest, Math.ceil(layers / workers));
}

/** Throws unless the interval is undefined or a positive integer. */
export function checkInterval(interval: number | undefined): void {
  if (interval === undefined) return;
  checkPositive("recompute activations", { "the interval": interval });
}

/** A value that passes between layers, or across the border of the stage. */
interface ValuePath {
  /** Its type, with its key as name. */
  readonly spec: TensorSpec;
  /** The layer that computes it; undefined if it comes from another stage. */
  readonly maker: number | undefined;
  /** The layers that read it. */
  readonly users: readonly number[];
  /** True if it leaves for another stage, or is the loss. */
  readonly leaves: boolean;
  /** Index of the boundary between two layers that it crosses; undefined for skip values. */
  readonly boundary?: number;
  /** Its gradient, if it has one. */
  readonly gradient?: {
    readonly spec: TensorSpec;
    /** True if it, or the gradient of later uses, comes from another stage. */
    readonly arrives: boolean;
    /** True if it is sent to another stage. */
    readonly leaves: boolean;
  };
}

/** Returns the paths of a stage: values between layers in their order, then skip values. */
function valuePaths(
  programs: readonly LayerProgram[],
  skips: readonly StageSkip[] = [],
): ValuePath[] {
  return [...chainPaths(programs), ...skipPaths(programs, skips)];
}

/**
 * Returns the values and gradients that cross the border of a stage; with sliced sequences, those of
 * one slice.
 *
 * @param layers of another slice or length than the first.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, mlp } from "@troupe/troupe/kernels";
 * import { cutIntoStages } from "../compile/layout.ts";
 *
 * const model = mlp({ inputs: 4, hidden: 8, layers: 1, classes: 2 }, 3);
 * const [first] = cutIntoStages(compileModel(model, "none"), 2);
 * const { inputs, outputs } = stageBorder(first!);
 * assert.deepEqual(inputs, []);
 * assert.deepEqual(outputs, [{ name: "x", dtype: "f32", shape: [3, 8] }]);
 * ```
 */
export function stageBorder(
  stage: StageProgram,
  layers: readonly NamedProgram[] = layersOf(stage),
) {
  const paths = valuePaths(layers.map(({ program }) => program), stage.skips);
  const gradients = paths.flatMap(({ gradient }) => gradient ? [gradient] : []);
  return {
    inputs: paths.filter(({ maker }) => maker === undefined).map(({ spec }) => spec),
    /** Values for other stages, or the loss. */
    outputs: paths.filter(({ leaves }) => leaves).map(({ spec }) => spec),
    /** Gradients from other stages. */
    arriving: gradients.filter(({ arrives }) => arrives).map(({ spec }) => spec),
    /** Gradients for other stages. */
    leaving: gradients.filter(({ leaves }) => leaves).map(({ spec }) => spec),
  };
}

/** The values and gradients that cross the border of a stage, by key. */
export type StageBorder = ReturnType<typeof stageBorder>;

/** Returns the inputs of a layer as the outputs of others. */
const takenBy = ({ inputs }: LayerProgram): OutputSpec[] =>
  inputs.map(({ gradient, ...spec }) => ({ ...spec, hasGradient: gradient !== undefined }));

/** Returns a path, with its gradient if it has one, which the borders of the stage may cross. */
function pathOf(
  programs: readonly LayerProgram[],
  { hasGradient, ...spec }: OutputSpec,
  path: Omit<ValuePath, "spec" | "gradient">,
  crosses: Omit<NonNullable<ValuePath["gradient"]>, "spec"> | undefined,
): ValuePath {
  if (!hasGradient || !crosses) return { spec, ...path };
  const gradient = { spec: { ...spec, dtype: storageDtype(programs[0]!.precision) }, ...crosses };
  return { spec, ...path, gradient };
}

/** Returns the paths of values between consecutive layers. */
function chainPaths(programs: readonly LayerProgram[]): ValuePath[] {
  const end = programs.length, { isLoss } = programs.at(-1)!;
  const boundaries = [takenBy(programs[0]!), ...programs.map(({ outputs }) => outputs)];
  return boundaries.flatMap((specs, boundary) => {
    const arrives = boundary === 0, leaves = boundary === end;
    const maker = arrives ? undefined : boundary - 1, users = leaves ? [] : [boundary];
    const gradient = isLoss && leaves ? undefined : { arrives: leaves, leaves: arrives };
    return specs.filter(({ name }) => !isSkip(name))
      .map((spec) => pathOf(programs, spec, { maker, users, leaves, boundary }, gradient));
  });
}

function skipPaths(programs: readonly LayerProgram[], skips: readonly StageSkip[]): ValuePath[] {
  const usersOf = (key: string) =>
    programs.flatMap((program, i) => program.inputs.some(({ name }) => name === key) ? [i] : []);
  const made = programs.flatMap(({ outputs }, maker) => outputs.map((spec) => ({ spec, maker })));
  const isMade = new Set(made.map(({ spec }) => spec.name));
  const taken = programs.flatMap(takenBy).filter(({ name }) => !isMade.has(name));
  const first = new Map(taken.map((spec) => [spec.name, { spec, maker: undefined }]));
  const all = [...made, ...first.values()].filter(({ spec }) => isSkip(spec.name));
  return all.map(({ spec, maker }) => {
    const skip = skips.find(({ key }) => key === spec.name);
    const { to = [], gradientFrom, gradientTo } = skip ?? {};
    const gradient = { arrives: gradientFrom !== undefined, leaves: gradientTo !== undefined };
    const path = { maker, users: usersOf(spec.name), leaves: to.length > 0 };
    return pathOf(programs, spec, path, gradient);
  });
}

/** Options of a stage that decide its memory for activations. */
export interface ActivationOptions {
  /** The backward kernels that are compiled: whole, also split into I and W, or none. */
  readonly backward: "whole" | "split" | "never";
  /**
   * Activation checkpointing: a micro-batch keeps the input of every `recomputeInterval` layers (a
   * block, such as one of GPT-2, counts as one), and the backward recomputes the rest. By default it
   * keeps the values that the layers save.
   */
  readonly recomputeInterval?: number;
  /**
   * Micro-batches of the longest samples that fit in the memory of all that are in flight: shorter ones
   * then take memory of their size. Unless given, each takes that of the longest.
   */
  readonly longestSlots?: number;
}

/** Tensors by port, or by the key of a value. */
export type Ports = Readonly<Record<string, Tensor>>;

/** The layers and skip values of a stage, which determine its memory. */
export interface StageParts extends Pick<StageProgram, "skips" | "lengths"> {
  /** Layers of each slice or length of a sequence; one entry for a whole sequence. */
  readonly slices: readonly (readonly NamedProgram[])[];
}

/** Returns the shared gradients of a slice or length; slices have the same ones. */
export const gradientsOf = ({ lengths }: SharedActivations, index: number) =>
  lengths[index] ?? lengths[0]!;

/** Returns the values that the forward of a layer writes, by port. */
function computedBy(program: LayerProgram): TensorSpec[] {
  const made = program.outputs.map((spec) => ({ ...spec, name: valuePorts(spec.name).output }));
  return [...made, ...program.saved];
}

/** Returns the values that I leaves for W in a layer, except gradients between layers. */
const carriedBy = ({ carried }: LayerProgram, { backward }: ActivationOptions) =>
  backward === "split" ? carried : [];

/** Alignment of tensors in bytes, as of `alloc`. */
const ALIGNMENT = 64;

/**
 * Allocates the memory that all micro-batches and slices share: the memory of the largest segment. In
 * it are all values of a segment except the inputs of later segments and the values that leave the stage
 * before other segments run. Without an interval, only unread values are.
 */
export function allocateShared(
  device: Allocator,
  { slices, skips, lengths }: StageParts,
  options: ActivationOptions,
) {
  const all = slices.map((layers) => layers.map(({ program }) => program));
  const segments = slices.flatMap((layers, slice) => {
    const programs = all[slice]!, paths = valuePaths(programs, skips);
    return segmentsOf(layers, options.recomputeInterval).map(({ from, to }) =>
      programs.slice(from, to).flatMap((program, i) => {
        const layer = from + i, own = paths.filter(({ maker }) => maker === layer);
        const isShared = ({ name }: TensorSpec) => {
          const path = own.find(({ spec }) => valuePorts(spec.name).output === name);
          if (options.recomputeInterval === undefined) return path?.users.length === 0;
          const isRead = path?.users.some((user) => user >= to);
          return !isRead && (!path?.leaves || to === programs.length);
        };
        const computed = [...computedBy(program), ...carriedBy(program, options)];
        return computed.filter(isShared).map((spec) => ({ slice, layer, spec }));
      })
    );
  });
  const tensors = placeTogether(device, segments);
  const masks = all.flatMap((programs, slice) =>
    programs.map(({ masks = [] }, layer) => masks.map((spec) => ({ slice, layer, spec })))
  );
  const ports = all.map((programs) => programs.map((): Record<string, Tensor> => ({})));
  // Each mask of a layer has a tensor, which masks of other layers share.
  const masked = placeTogether(device, masks, false);
  for (const [{ slice, layer, spec }, tensor] of [...tensors, ...masked]) {
    ports[slice]![layer]![spec.name] = tensor;
  }
  const sets = (lengths ? all.map((one) => [one]) : [all]).map((set) => (own: Allocator) => ({
    /** Shared gradient of each path of {@linkcode valuePaths}, if it is shared. */
    gradients: sharedGradients(own, valuePaths(set[0]!, skips), set[0]!.length, options),
    /** Output, by port, for gradients that W recomputes with an interval but I has already added. */
    again: sumsAgain(own, set.flat(), options),
  }));
  return {
    /** For each slice or length and each layer, its values in shared memory, and its masks. */
    ports,
    /** For each length, the shared gradients. */
    lengths: overlay(device, sets),
  };
}

/** The activations that all micro-batches of a stage share. */
export type SharedActivations = ReturnType<typeof allocateShared>;

/** Calls functions that allocate, and lets their results share memory: only one is used at a time. */
function overlay<T>(device: Allocator, calls: readonly ((device: Allocator) => T)[]): T[] {
  if (calls.length === 1) return [calls[0]!(device)];
  const segments = calls.map((call) =>
    sizesOf(device.hasFreeViews, call)
      .map((size): SharedSpec => ({ slice: 0, layer: 0, spec: { name: "", ...size } }))
  );
  const tensors = placeTogether(device, segments);
  return calls.map((call, i) => {
    const left = segments[i]!.values();
    return call(allocatorOf(device, () => tensors.get(left.next().value!)!));
  });
}

function sumsAgain(
  device: Allocator,
  programs: readonly LayerProgram[],
  { backward, recomputeInterval }: ActivationOptions,
): Ports {
  if (backward !== "split" || recomputeInterval === undefined) return {};
  const sums: Record<string, Tensor> = {};
  for (const { contexts = [], inputs, precision } of programs) {
    for (const { name, dtype, shape } of contexts) {
      sums[PORTS.contextSum(name)] ??= device.alloc(dtype, shape);
    }
    for (const { name, shape } of inputs.filter((one) => isSkip(one.name) && one.gradient)) {
      sums[valuePorts(name).inputGradient] ??= device.alloc(storageDtype(precision), shape);
    }
  }
  return sums;
}

/** A value in shared memory. */
interface SharedSpec {
  readonly slice: number;
  readonly layer: number;
  readonly spec: TensorSpec;
}

/**
 * Allocates memory for the largest segment, and returns a tensor in it for each value. Values of one
 * dtype are side by side in one tensor; where views are not free, the k-th largest share a tensor.
 */
function placeTogether(
  device: Allocator,
  segments: readonly (readonly SharedSpec[])[],
  isSideBySide = device.hasFreeViews,
): Map<SharedSpec, Tensor> {
  const lengths = new Map<DType, number[]>();
  const places = segments.flatMap((segment) => {
    const used = new Map<DType, number>();
    const sizeOf = ({ spec }: SharedSpec) => elementCount(spec.shape);
    return segment.toSorted((a, b) => sizeOf(b) - sizeOf(a)).map((one) => {
      const { dtype } = one.spec, before = used.get(dtype) ?? 0, own = sizeOf(one);
      const unit = ALIGNMENT / DTYPE_BYTES[dtype], aligned = Math.ceil(own / unit) * unit;
      const [nth, offset, end] = isSideBySide ? [0, before, before + aligned] : [before, 0, own];
      used.set(dtype, isSideBySide ? end : before + 1);
      const all = lengths.getOrInsert(dtype, []);
      all[nth] = Math.max(all[nth] ?? 0, end);
      return { one, nth, offset };
    });
  });
  const tensors = new Map(
    [...lengths].map(([dtype, all]) => [dtype, all.map((length) => device.alloc(dtype, [length]))]),
  );
  return new Map(places.map(({ one, nth, offset }) => {
    const { dtype, shape } = one.spec;
    return [one, device.view(tensors.get(dtype)![nth]!, offset, shape)];
  }));
}

/** Allocates two tensors for each size of gradients between layers: one to read, one to write. */
function sharedGradients(
  device: Allocator,
  paths: readonly ValuePath[],
  layers: number,
  { backward, recomputeInterval }: ActivationOptions,
): (Tensor | undefined)[] {
  const pool = new Map<string, Tensor>();
  return paths.map(({ gradient, boundary, spec: { name, shape } }, i) => {
    if (!gradient || backward === "never") return undefined;
    // A gradient is kept for each micro-batch where W reads it after I. No W reads the gradient that
    // leaves the first layer. With an interval W recomputes the gradients between layers, but not the
    // sums of skip values.
    const isBetween = boundary !== undefined && boundary !== layers;
    const isComputedAgain = recomputeInterval !== undefined && isBetween;
    if (backward === "split" && boundary !== 0 && !isComputedAgain) return undefined;
    const nth = i - paths.findIndex((other) => other.boundary === boundary);
    const key = boundary === undefined ? name : `${boundary % 2} ${nth} ${shape}`;
    return pool.getOrInsertComputed(key, () => device.alloc(gradient.spec.dtype, shape));
  });
}

/** Parts of a stage that determine the memory of one micro-batch, or of one slice of it. */
export interface MemoryParts {
  readonly parts: StageParts;
  readonly options: ActivationOptions;
  readonly shared: SharedActivations;
}

/**
 * Allocates the memory of one micro-batch, or one slice of it, that is not shared: the same memory for
 * all lengths, one result each; with `longestSlots` that of one length.
 */
export function allocateActivations(device: Allocator, memory: MemoryParts, slice = 0) {
  const { lengths: _, ...one } = memory.parts, isOwn = memory.options.longestSlots !== undefined;
  const parts = isOwn ? one : memory.parts;
  return allocateLengths(device, { ...memory, parts }, slice, forwardValues);
}

/** Allocates the memory of one backward: the same for all lengths, one result each. */
export const allocateBackward = (device: Allocator, memory: MemoryParts, slice = 0) =>
  allocateLengths(device, memory, slice, backwardValues);

function allocateLengths<T>(
  device: Allocator,
  memory: MemoryParts,
  slice: number,
  valuesOf: (device: Allocator, memory: MemoryParts, index: number) => T,
): T[] {
  const { lengths, slices } = memory.parts, indices = lengths ? [...slices.keys()] : [slice];
  return overlay(device, indices.map((index) => (own: Allocator) => valuesOf(own, memory, index)));
}

/** Allocates the activations of one micro-batch in flight, except shared ones. */
function forwardValues(
  device: Allocator,
  { parts: { slices, skips }, shared }: MemoryParts,
  slice: number,
) {
  const programs = slices[slice]!.map(({ program }) => program);
  const allocate = ({ dtype, shape }: TensorSpec) => device.alloc(dtype, shape);
  const fields: Record<string, Tensor> = {};
  const ports = programs.map((program, i) => {
    const tensors: Record<string, Tensor> = { ...shared.ports[slice]![i] };
    for (const field of program.fields) {
      tensors[PORTS.field(field.name)] = fields[field.name] ??= allocate(field);
    }
    for (const spec of computedBy(program)) tensors[spec.name] ??= allocate(spec);
    return tensors;
  });
  const inputs: Record<string, Tensor> = {}, outputs: Record<string, Tensor> = {};
  for (const { spec, maker, users, leaves } of valuePaths(programs, skips)) {
    const key = spec.name, port = valuePorts(key);
    const tensor = maker === undefined ? inputs[key] = allocate(spec) : ports[maker]![port.output]!;
    for (const user of users) ports[user]![port.input] = tensor;
    if (leaves) outputs[key] = tensor;
  }
  return {
    /** Values from other stages, by key; empty on the first stage. */
    inputs,
    /** The fields of the micro-batch that the layers read. */
    fields,
    /** For each layer, its tensors, except parameters and those of a backward. */
    ports,
    /** Values for other stages, by key, or the loss. */
    outputs,
  };
}

/** The activations of one micro-batch in flight, including shared ones. */
export type Activations = ReturnType<typeof forwardValues>;

function backwardValues(
  device: Allocator,
  { parts: { slices, skips }, options, shared }: MemoryParts,
  slice: number,
) {
  const programs = slices[slice]!.map(({ program }) => program);
  const allocate = ({ dtype, shape }: TensorSpec) => device.alloc(dtype, shape);
  const ports = programs.map((program, i): Record<string, Tensor> => {
    const own = carriedBy(program, options).filter(({ name }) => !shared.ports[slice]![i]![name]);
    return Object.fromEntries(own.map((spec) => [spec.name, allocate(spec)]));
  });
  const arriving: Record<string, Tensor> = {}, leaving: Record<string, Tensor> = {};
  for (const [i, { spec, maker, users, gradient }] of valuePaths(programs, skips).entries()) {
    if (!gradient || options.backward === "never") continue;
    const key = spec.name, port = valuePorts(key);
    const sum = gradientsOf(shared, slice).gradients[i] ?? allocate(gradient.spec);
    if (maker !== undefined) ports[maker]![port.outputGradient] = sum;
    for (const user of users) {
      ports[user]![port.inputGradient] = sum;
      ports[user]![port.laterGradient] = sum;
    }
    if (gradient.arrives) arriving[key] = sum;
    if (gradient.leaves) leaving[key] = sum;
  }
  return {
    /** For each layer, gradients between layers, and what I leaves for W. */
    ports,
    /** Gradients from other stages, by key. */
    arriving,
    /** Gradients for other stages, by key. */
    leaving,
  };
}

/** The values of one backward, from B or I to B or W, including shared ones. */
export type BackwardValues = ReturnType<typeof backwardValues>;

/** Allocates the values that slices of one micro-batch share, by layer, and their gradients. */
export function allocateContext(
  device: Allocator,
  { slices }: StageParts,
  { backward }: ActivationOptions,
): Ports[] {
  return slices[0]!.map((_, layer) => {
    const specs = slices.flatMap((layers) => layers[layer]!.program.contexts ?? []);
    return Object.fromEntries(specs.flatMap(({ name, dtype, shape }) => {
      const kept = device.alloc(dtype, shape);
      if (backward === "never") return [[name, kept]];
      const gradient = device.alloc(dtype, shape);
      return [
        [name, kept],
        [PORTS.contextGradient(name), gradient],
        [PORTS.contextSum(name), gradient],
      ];
    }));
  });
}

/** Returns values by their keys; a single array has the key `x`. */
export const keyed = (passed: StageValues): KeyedArrays =>
  ArrayBuffer.isView(passed) ? { x: passed } : passed;

/** Returns values by their keys, or the array alone if the only key is `x`. */
export function stageValues(values: KeyedArrays): StageValues {
  const [key, ...more] = Object.keys(values), { x } = values;
  const isAlone = key === "x" && more.length === 0;
  return isAlone && (x instanceof Float32Array || x instanceof Float16Array) ? x : values;
}

/**
 * Writes values into the tensors of their keys; values with other keys are ignored.
 *
 * @throws {TypeError} when a value is missing.
 */
export function writeValues(device: Device, tensors: Ports, passed: StageValues | undefined): void {
  const values = passed && keyed(passed);
  for (const [key, tensor] of Object.entries(tensors)) {
    const array = values?.[key];
    if (!array) throw new TypeError(`Cannot run: the value "${key}" must have arrived`);
    device.write(tensor, array);
  }
}

/** Copies tensors to the host, into the arrays of `into` with the same keys if given. */
export async function readValues(
  device: Device,
  tensors: Ports,
  into?: StageValues,
): Promise<StageValues> {
  const arrays = into && keyed(into), values: Record<string, ValueArray> = {};
  for (const [key, tensor] of Object.entries(tensors)) {
    // The array may be that of samples of another length.
    const own = arrays?.[key], isFit = own?.length === elementCount(tensor.shape);
    values[key] = await device.read<ValueArray>(tensor, isFit ? own : undefined);
  }
  return stageValues(values);
}
