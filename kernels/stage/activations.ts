/**
 * Where the activations of a stage live: what each micro-batch keeps from F to B, and what all of
 * them share.
 *
 * [Note: recompute interval] With an interval `ac`, the layers of a stage form segments of `ac`, and
 * a micro-batch keeps the input of each segment only. All else that a backward reads lies in memory
 * that every micro-batch and every segment shares: before the backward of a segment its forward runs
 * again, on the same inputs, so with the same bits. A split backward keeps the gradient of the
 * stage's output from I to W, and W runs forward and backward of each segment again. It could keep
 * the gradients between layers and what I hands to W instead and save that second backward, but
 * those are one tensor for each layer and more: no longer what the interval is asked for.
 *
 * The output of the last layer is always shared: it is read as soon as it is there.
 *
 * @module
 */

import { type Device, type DType, DTYPE_BYTES, type Tensor } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import type { TensorSpec } from "../layers/layer.ts";
import { storageDtype } from "../layers/precision.ts";
import { type LayerProgram, PORTS } from "../compile/layer_program.ts";
import type { NamedProgram } from "../compile/stage_program.ts";
import { type Segment, segmentsOf } from "./recompute_interval.ts";

/** What decides where activations live. */
export interface ActivationOptions {
  /** Whether the backward will be asked for whole, also split into I and W, or never. */
  readonly backward: "whole" | "split" | "never";
  /**
   * Activation checkpointing: a micro-batch keeps the input of every so many layers (a block, such as
   * one of GPT-2, counts as one), and the backward computes the rest again. By default it keeps what the layers save.
   */
  readonly recomputeInterval?: number;
}

/** The gradient of each layer's input, and last that of the stage's output. */
export type BoundaryGradients = readonly (Tensor | undefined)[];

/** Tensors of a layer by port. */
export type Ports = Readonly<Record<string, Tensor>>;

/** The activations that all micro-batches of a stage share. */
export interface SharedActivations {
  /** For each slice of a sequence, for each layer what it computes into shared memory, and its masks. */
  readonly ports: readonly (readonly Ports[])[];
  readonly gradients: BoundaryGradients;
  /** Where gradients of a context go that W computes again with an interval: I has added them. */
  readonly again: Ports;
}

/** The activations of one micro-batch in flight, with those that it shares. */
export interface Activations {
  /** What the stage before sent; absent on the first stage. */
  readonly input?: Tensor;
  /** The fields of the micro-batch that the layers read. */
  readonly fields: Ports;
  /** For each layer what its models read and write, but for parameters. */
  readonly ports: readonly Ports[];
  /** What the last layer returns. */
  readonly output: Tensor;
  readonly gradients: BoundaryGradients;
}

/** What takes memory: a device, or a counter of bytes. */
export type Allocator = Pick<Device, "alloc" | "view" | "hasFreeViews">;

/** What the models of a layer write, apart from gradients. */
function computedBy({ output, saved, carried }: LayerProgram, options: ActivationOptions) {
  return [output, ...saved, ...options.backward === "split" ? carried : []];
}

/** What a segment computes into shared memory: all but its output, where that starts another. */
function sharedBy(
  { from, to }: Segment,
  programs: readonly LayerProgram[],
  options: ActivationOptions,
  slice: number,
): SharedSpec[] {
  const isLast = (layer: number) => layer === programs.length - 1;
  return programs.slice(from, to).flatMap((program, i) => {
    const layer = from + i;
    const isShared = (spec: TensorSpec) =>
      options.recomputeInterval === undefined
        ? isLast(layer) && spec === program.output
        : spec !== program.output || layer < to - 1 || isLast(layer);
    return computedBy(program, options).filter(isShared).map((spec) => ({ slice, layer, spec }));
  });
}

/** Tensors start at multiples of this many bytes, as those of `alloc` do. */
const ALIGNMENT = 64;

/**
 * Allocates what all micro-batches share, and all slices of their sequences: as much as the largest
 * segment needs.
 *
 * @param slices for each slice the layers; of a whole sequence once.
 */
export function allocateShared(
  device: Allocator,
  slices: readonly (readonly NamedProgram[])[],
  options: ActivationOptions,
): SharedActivations {
  const all = slices.map((layers) => layers.map(({ program }) => program));
  const segments = slices.flatMap((layers, slice) =>
    segmentsOf(layers, options.recomputeInterval)
      .map((segment) => sharedBy(segment, all[slice]!, options, slice))
  );
  const tensors = (device.hasFreeViews ? placeSideBySide : placeEach)(device, segments);
  const masks = all.flatMap((programs, slice) =>
    programs.map(({ masks = [] }, layer) => masks.map((spec) => ({ slice, layer, spec })))
  );
  const ports = all.map((programs) => programs.map((): Record<string, Tensor> => ({})));
  for (const [{ slice, layer, spec }, tensor] of [...tensors, ...placeEach(device, masks)]) {
    ports[slice]![layer]![spec.name] = tensor;
  }
  return {
    ports,
    gradients: sharedGradients(device, all[0]!, options),
    again: sumsAgain(device, all.flat(), options),
  };
}

function sumsAgain(
  device: Allocator,
  programs: readonly LayerProgram[],
  { backward, recomputeInterval }: ActivationOptions,
): Ports {
  if (backward !== "split" || recomputeInterval === undefined) return {};
  const sums = new Map(
    programs.flatMap(({ contexts = [] }) =>
      contexts.map((spec) => [PORTS.contextSum(spec.name), spec] as const)
    ),
  );
  return Object.fromEntries(
    [...sums].map(([name, { dtype, shape }]) => [name, device.alloc(dtype, shape)]),
  );
}

/** A value that a layer computes into shared memory. */
interface SharedSpec {
  readonly slice: number;
  readonly layer: number;
  readonly spec: TensorSpec;
}

/** What the layers of a segment compute into shared memory. */
type SharedSpecs = readonly SharedSpec[];

/** Where it lies. */
type SharedTensors = Map<SharedSpec, Tensor>;

/** One tensor for each dtype, in which the values of a segment lie side by side. */
function placeSideBySide(device: Allocator, segments: readonly SharedSpecs[]): SharedTensors {
  const lengths = new Map<DType, number>();
  const places = segments.flatMap((segment) => {
    const used = new Map<DType, number>();
    return segment.map((one) => {
      const { dtype, shape } = one.spec;
      const offset = used.get(dtype) ?? 0, unit = ALIGNMENT / DTYPE_BYTES[dtype];
      const end = offset + Math.ceil(elementCount(shape) / unit) * unit;
      used.set(dtype, end);
      lengths.set(dtype, Math.max(lengths.get(dtype) ?? 0, end));
      return { one, offset };
    });
  });
  const flat = new Map(
    [...lengths].map(([dtype, length]) => [dtype, device.alloc(dtype, [length])]),
  );
  return new Map(places.map(({ one, offset }) => {
    const { dtype, shape } = one.spec;
    return [one, device.view(flat.get(dtype)!, offset, shape)];
  }));
}

/**
 * A tensor for each value of a segment, where views are not free, or for each mask of a layer: the
 * k-th largest of one dtype has the same one in all of them.
 */
function placeEach(device: Allocator, segments: readonly SharedSpecs[]): SharedTensors {
  const sizes = new Map<DType, number[]>();
  const places = segments.flatMap((segment) => {
    const used = new Map<DType, number>();
    const largestFirst = segment.toSorted((a, b) =>
      elementCount(b.spec.shape) - elementCount(a.spec.shape)
    );
    return largestFirst.map((one) => {
      const { dtype, shape } = one.spec, place = used.get(dtype) ?? 0;
      const lengths = sizes.get(dtype) ?? [];
      lengths[place] = Math.max(lengths[place] ?? 0, elementCount(shape));
      sizes.set(dtype, lengths);
      used.set(dtype, place + 1);
      return { one, place };
    });
  });
  const pool = new Map(
    [...sizes].map(([dtype, lengths]) => [
      dtype,
      lengths.map((length) => device.alloc(dtype, [length])),
    ]),
  );
  return new Map(places.map(({ one, place }) => {
    const { dtype, shape } = one.spec;
    return [one, device.view(pool.get(dtype)![place]!, 0, shape)];
  }));
}

/** The specs of {@linkcode BoundaryGradients}: floats, whatever passes forward. */
function gradientSpecs(
  programs: readonly LayerProgram[],
  { backward }: ActivationOptions,
): (TensorSpec | undefined)[] {
  if (backward === "never") return [];
  const { isLoss, output, precision } = programs.at(-1)!, dtype = storageDtype(precision);
  const boundaries = [...programs.map(({ input }) => input), isLoss ? undefined : output];
  return boundaries.map((spec) => spec && { ...spec, dtype });
}

/** Whether W reads the gradient at boundary `i` when I has left it: then it is each micro-batch's. */
function isOwnGradient(i: number, layers: number, options: ActivationOptions): boolean {
  return options.backward === "split" && (options.recomputeInterval === undefined || i === layers);
}

/** Two tensors for each size: one is read while the other is written. */
function sharedGradients(
  device: Allocator,
  programs: readonly LayerProgram[],
  options: ActivationOptions,
): BoundaryGradients {
  const pool = new Map<string, Tensor>();
  return gradientSpecs(programs, options).map((spec, i) => {
    if (!spec || isOwnGradient(i, programs.length, options)) return undefined;
    const key = `${i % 2} ${spec.shape}`;
    if (!pool.has(key)) pool.set(key, device.alloc(spec.dtype, spec.shape));
    return pool.get(key)!;
  });
}

/**
 * Allocates what one micro-batch, or one slice of its sequences, needs beside what it shares.
 *
 * @param layers those of the slice.
 */
export function allocateActivations(
  device: Allocator,
  layers: readonly NamedProgram[],
  options: ActivationOptions,
  shared: SharedActivations,
  slice = 0,
): Activations {
  const programs = layers.map(({ program }) => program);
  const allocate = ({ dtype, shape }: TensorSpec) => device.alloc(dtype, shape);
  const first = programs[0]!.input, input = first && allocate(first);
  const gradients = gradientSpecs(programs, options).map((spec, i) =>
    shared.gradients[i] ?? (spec && allocate(spec))
  );
  const fields: Record<string, Tensor> = {};
  let x = input;
  const ports = programs.map((program, i): Ports => {
    const tensors: Record<string, Tensor> = { ...shared.ports[slice]![i] };
    for (const field of program.fields) {
      tensors[PORTS.field(field.name)] = fields[field.name] ??= allocate(field);
    }
    for (const spec of computedBy(program, options)) tensors[spec.name] ??= allocate(spec);
    if (x) tensors[PORTS.input] = x;
    if (gradients[i]) tensors[PORTS.inputGradient] = gradients[i];
    if (gradients[i + 1]) tensors[PORTS.outputGradient] = gradients[i + 1]!;
    x = tensors[PORTS.output]!;
    return tensors;
  });
  return { ...input && { input }, fields, ports, output: x!, gradients };
}

/** Allocates, for each layer, what the slices of one micro-batch keep for each other, with gradients. */
export function allocateContext(
  device: Allocator,
  slices: readonly (readonly NamedProgram[])[],
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
