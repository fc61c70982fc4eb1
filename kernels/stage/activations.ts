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
 * What no layer of the stage reads, such as the output of the last one, is always shared: it is read
 * as soon as it is there.
 *
 * @module
 */

import {
  inputsOf,
  isSkip,
  type LayerProgram,
  layersOf,
  type NamedProgram,
  outputsOf,
  PORTS,
  type StageProgram,
  type StageSkip,
  valuePorts,
} from "../compile/programs.ts";
import {
  type Device,
  type DType,
  DTYPE_BYTES,
  type KeyedArrays,
  type Passed,
  type Tensor,
  type ValueArray,
} from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Layer, TensorSpec } from "../layers/layer.ts";
import { storageDtype } from "../precision.ts";

/** A run of layers whose activations are computed again together: from `from` to before `to`. */
interface Segment {
  readonly from: number;
  readonly to: number;
}

/**
 * The segments of a stage, first layer first; one where there is no interval. Layers in a row of one
 * block count as one, so that the interval is in what `--layers` counts, wherever blocks are cut.
 */
export function segmentsOf(
  layers: readonly Pick<Layer, "block">[],
  interval = layers.length,
): Segment[] {
  const begins = layers.flatMap(({ block }, i) =>
    block !== undefined && block === layers[i - 1]?.block ? [] : [i]
  );
  const starts = begins.filter((_, nth) => nth % interval === 0);
  return starts.map((from, i) => ({ from, to: starts[i + 1] ?? layers.length }));
}

/** How many layers a user counts: those in a row of one block are one. */
export const countBlocks = (layers: readonly Pick<Layer, "block">[]): number =>
  segmentsOf(layers, 1).length;

/**
 * The interval of `recomputeInterval` that needs least memory.
 *
 * AxoNN (section V-A) counts activations of a worker as G·(N/(G·ac) + 1 + ac) for N layers on G
 * workers, G micro-batches in flight and an interval ac, and takes ac = √N for its best. That is the
 * minimum of another formula: only one micro-batch is recomputed at a time, so ac counts once,
 * G·(N/(G·ac) + 1) + ac. Of this one √N is the minimum (of the printed one √(N/G) is). An interval
 * beyond a worker's N/G layers changes nothing, so the result is the whole number from 1 to ⌈N/G⌉
 * whose value is least, the smaller of two equal ones.
 *
 * The formula takes what a layer computes for as large as its input. So it is under the policy
 * `full`; under `none` a layer of GPT-2 computes about twenty times its input, and a smaller interval
 * needs less: `activationBytes` tells the bytes of each.
 *
 * @param layers of the model, N; a block counts as one.
 * @param workers of a pipeline, G.
 * @throws {RangeError} when one is not a positive integer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { bestRecomputeInterval } from "@troupe/troupe/kernels";
 *
 * assert.equal(bestRecomputeInterval(24, 2), 5);
 * assert.equal(bestRecomputeInterval(24, 8), 3); // a worker has no more than 3 layers
 * ```
 */
export function bestRecomputeInterval(layers: number, workers: number): number {
  for (const [name, value] of Object.entries({ layers, workers })) {
    if (Number.isSafeInteger(value) && value >= 1) continue;
    throw new RangeError(
      `Cannot choose a recompute interval: ${name} must be a positive integer, received ${value}`,
    );
  }
  const root = Math.floor(Math.sqrt(layers));
  // N/ac + ac is less at √N rounded up than at √N rounded down exactly when N > product of both.
  const nearest = layers > root * (root + 1) ? root + 1 : root;
  return Math.min(nearest, Math.ceil(layers / workers));
}

/** Checks the interval at the door. */
export function checkInterval(interval: number | undefined): void {
  if (interval === undefined || (Number.isSafeInteger(interval) && interval >= 1)) return;
  throw new RangeError(
    `Cannot recompute activations: the interval must be a positive integer, received ${interval}`,
  );
}

/** A value that passes between layers, or over a border of the stage. */
interface ValuePath {
  /** What it is, by its key. */
  readonly spec: TensorSpec;
  /** The layer that makes it; undefined where it comes from another stage. */
  readonly maker: number | undefined;
  /** The layers that read it. */
  readonly users: readonly number[];
  /** Whether it leaves for another stage, or is the loss. */
  readonly leaves: boolean;
  /** Of what a layer hands to the next one, the index of that; of all others undefined. */
  readonly boundary?: number;
  /** Its gradient, where it has one. */
  readonly gradient?: {
    readonly spec: TensorSpec;
    /** Whether it, or that of later uses, comes from another stage. */
    readonly arrives: boolean;
    /** Whether it goes to another stage. */
    readonly leaves: boolean;
  };
}

/** The paths of a stage: what is handed on in the order of the layers, then what is given by name. */
function valuePaths(
  programs: readonly LayerProgram[],
  skips: readonly StageSkip[] = [],
): ValuePath[] {
  return [...handedPaths(programs), ...skipPaths(programs, skips)];
}

/** What crosses the border of a stage, by key. */
export interface StageBorder {
  /** What other stages send. */
  readonly inputs: readonly TensorSpec[];
  /** What goes to other stages, or the loss. */
  readonly outputs: readonly TensorSpec[];
  /** The gradients that other stages send. */
  readonly arriving: readonly TensorSpec[];
  /** The gradients that go to other stages. */
  readonly leaving: readonly TensorSpec[];
}

/**
 * What crosses the border of a stage; of a sequence in slices, for one of them.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, cutIntoStages, mlp, stageBorder } from "@troupe/troupe/kernels";
 *
 * const model = mlp({ inputs: 4, hidden: 8, layers: 1, classes: 2 }, 3);
 * const [first] = cutIntoStages(compileModel(model, "none"), 2);
 * const { inputs, outputs } = stageBorder(first!);
 * assert.deepEqual(inputs, []);
 * assert.deepEqual(outputs, [{ name: "x", dtype: "f32", shape: [3, 8] }]);
 * ```
 */
export function stageBorder(stage: StageProgram): StageBorder {
  const paths = valuePaths(layersOf(stage).map(({ program }) => program), stage.skips);
  const plain = ({ name, dtype, shape }: TensorSpec): TensorSpec => ({ name, dtype, shape });
  const gradients = paths.flatMap(({ gradient }) => gradient ? [gradient] : []);
  return {
    inputs: paths.filter(({ maker }) => maker === undefined).map(({ spec }) => plain(spec)),
    outputs: paths.filter(({ leaves }) => leaves).map(({ spec }) => plain(spec)),
    arriving: gradients.filter(({ arrives }) => arrives).map(({ spec }) => plain(spec)),
    leaving: gradients.filter(({ leaves }) => leaves).map(({ spec }) => plain(spec)),
  };
}

function handedPaths(programs: readonly LayerProgram[]): ValuePath[] {
  const end = programs.length, { isLoss } = programs.at(-1)!;
  return Array.from({ length: end + 1 }, (_, boundary) => boundary).flatMap((boundary) => {
    const specs = boundary === 0
      ? inputsOf(programs[0]!).map(({ gradient, ...spec }) => ({
        ...spec,
        hasGradient: !!gradient,
      }))
      : outputsOf(programs[boundary - 1]!);
    return specs.filter(({ name }) => !isSkip(name)).map(({ hasGradient, ...spec }): ValuePath => {
      const path = {
        spec,
        maker: boundary === 0 ? undefined : boundary - 1,
        users: boundary === end ? [] : [boundary],
        leaves: boundary === end,
        boundary,
      };
      if (!hasGradient || isLoss && boundary === end) return path;
      const gradient = gradientOf(spec, programs);
      return {
        ...path,
        gradient: { spec: gradient, arrives: boundary === end, leaves: boundary === 0 },
      };
    });
  });
}

function skipPaths(programs: readonly LayerProgram[], skips: readonly StageSkip[]): ValuePath[] {
  const usersOf = (key: string) =>
    programs.flatMap((program, i) => inputsOf(program).some(({ name }) => name === key) ? [i] : []);
  const made = programs.flatMap((program, maker) =>
    outputsOf(program).filter(({ name }) => isSkip(name)).map((spec) => ({ ...spec, maker }))
  );
  const isMade = (key: string) => made.some(({ name }) => name === key);
  const taken = new Map(
    programs.flatMap(inputsOf)
      .filter(({ name }) => isSkip(name) && !isMade(name))
      .map(({ gradient, ...spec }) =>
        [spec.name, { ...spec, hasGradient: gradient !== undefined, maker: undefined }] as const
      ),
  );
  return [...made, ...taken.values()].map(({ maker, hasGradient, ...spec }): ValuePath => {
    const skip = skips.find(({ key }) => key === spec.name);
    const leaves = (skip?.to.length ?? 0) > 0;
    const path = { spec, maker, users: usersOf(spec.name), leaves };
    if (!hasGradient) return path;
    return {
      ...path,
      gradient: {
        spec: gradientOf(spec, programs),
        arrives: skip?.gradientFrom !== undefined,
        leaves: skip?.gradientTo !== undefined,
      },
    };
  });
}

const gradientOf = (spec: TensorSpec, programs: readonly LayerProgram[]): TensorSpec => ({
  ...spec,
  dtype: storageDtype(programs[0]!.precision),
});

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

/** Tensors by port, or by the key of a value. */
export type Ports = Readonly<Record<string, Tensor>>;

/** A stage as far as its memory goes. */
interface StageParts {
  /** For each slice of a sequence the layers; of a whole sequence once. */
  readonly slices: readonly (readonly NamedProgram[])[];
  /** What crosses its border by name. */
  readonly skips?: readonly StageSkip[] | undefined;
}

/** The activations that all micro-batches of a stage share. */
export interface SharedActivations {
  /** For each slice of a sequence, for each layer what it computes into shared memory, and its masks. */
  readonly ports: readonly (readonly Ports[])[];
  /** For each path of {@linkcode valuePaths} its gradient, where micro-batches share it. */
  readonly gradients: readonly (Tensor | undefined)[];
  /** Where gradients go that W computes again with an interval and I has added, by port. */
  readonly again: Ports;
}

/** The activations of one micro-batch in flight, with those that it shares. */
export interface Activations {
  /** What other stages sent, by key; nothing on the first stage. */
  readonly inputs: Ports;
  /** The fields of the micro-batch that the layers read. */
  readonly fields: Ports;
  /** For each layer what its models read and write, but for parameters. */
  readonly ports: readonly Ports[];
  /** What goes to other stages, by key, or the loss. */
  readonly outputs: Ports;
  /** Gradients that come from other stages, and those that go to them, by key. */
  readonly gradients: { readonly arriving: Ports; readonly leaving: Ports };
}

/** What takes memory: a device, or a counter of bytes. */
export type Allocator = Pick<Device, "alloc" | "view" | "hasFreeViews">;

/** What the models of a layer write, apart from gradients, by port. */
function computedBy(
  program: LayerProgram,
  options: ActivationOptions,
): TensorSpec[] {
  const { saved, carried } = program;
  const made = outputsOf(program).map((spec) => ({ ...spec, name: valuePorts(spec.name).output }));
  return [...made, ...saved, ...options.backward === "split" ? carried : []];
}

/**
 * What a segment computes into shared memory: all but what a later segment reads, or what leaves the
 * stage before others run. Without an interval it is only what no layer of the stage reads.
 */
function sharedBy(
  { from, to }: Segment,
  programs: readonly LayerProgram[],
  paths: readonly ValuePath[],
  options: ActivationOptions,
  slice: number,
): SharedSpec[] {
  return programs.slice(from, to).flatMap((program, i) => {
    const layer = from + i, own = paths.filter(({ maker }) => maker === layer);
    const isShared = ({ name }: TensorSpec) => {
      const path = own.find(({ spec }) => valuePorts(spec.name).output === name);
      if (options.recomputeInterval === undefined) return path?.users.length === 0;
      return !path?.users.some((user) => user >= to) && (!path?.leaves || to === programs.length);
    };
    return computedBy(program, options).filter(isShared).map((spec) => ({ slice, layer, spec }));
  });
}

/** Tensors start at multiples of this many bytes, as those of `alloc` do. */
const ALIGNMENT = 64;

/**
 * Allocates what all micro-batches share, and all slices of their sequences: as much as the largest
 * segment needs.
 */
export function allocateShared(
  device: Allocator,
  { slices, skips }: StageParts,
  options: ActivationOptions,
): SharedActivations {
  const all = slices.map((layers) => layers.map(({ program }) => program));
  const segments = slices.flatMap((layers, slice) => {
    const programs = all[slice]!, paths = valuePaths(programs, skips);
    return segmentsOf(layers, options.recomputeInterval)
      .map((segment) => sharedBy(segment, programs, paths, options, slice));
  });
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
    gradients: sharedGradients(device, valuePaths(all[0]!, skips), all[0]!.length, options),
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
    programs.flatMap((program) => [
      ...(program.contexts ?? []).map((spec) => [PORTS.contextSum(spec.name), spec] as const),
      ...inputsOf(program).filter(({ name, gradient }) => isSkip(name) && gradient).map((spec) => {
        const { inputGradient } = valuePorts(spec.name);
        return [inputGradient, { ...spec, dtype: storageDtype(program.precision) }] as const;
      }),
    ]),
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

/**
 * Whether W reads a gradient when I has left it: then it is each micro-batch's. With an interval W
 * computes again what layers hand to each other, but not the sums of what is given by name.
 */
function isOwnGradient(
  { boundary }: ValuePath,
  layers: number,
  { backward, recomputeInterval }: ActivationOptions,
): boolean {
  const isComputedAgain = recomputeInterval !== undefined && boundary !== undefined;
  return backward === "split" && !(isComputedAgain && boundary !== layers);
}

/** Of what layers hand on two tensors for each size: one is read while the other is written. */
function sharedGradients(
  device: Allocator,
  paths: readonly ValuePath[],
  layers: number,
  options: ActivationOptions,
): (Tensor | undefined)[] {
  const pool = new Map<string, Tensor>();
  return paths.map((path, i) => {
    const { gradient, boundary, spec: { name, shape } } = path;
    if (!gradient || options.backward === "never") return undefined;
    if (isOwnGradient(path, layers, options)) return undefined;
    const nth = i - paths.findIndex((other) => other.boundary === boundary);
    const key = boundary === undefined ? name : `${boundary % 2} ${nth} ${shape}`;
    if (!pool.has(key)) pool.set(key, device.alloc(gradient.spec.dtype, shape));
    return pool.get(key)!;
  });
}

/** Allocates what one micro-batch, or one slice of its sequences, needs beside what it shares. */
export function allocateActivations(
  device: Allocator,
  { slices, skips }: StageParts,
  options: ActivationOptions,
  shared: SharedActivations,
  slice = 0,
): Activations {
  const programs = slices[slice]!.map(({ program }) => program);
  const allocate = ({ dtype, shape }: TensorSpec) => device.alloc(dtype, shape);
  const paths = valuePaths(programs, skips), fields: Record<string, Tensor> = {};
  const ports = programs.map((program, i) => {
    const tensors: Record<string, Tensor> = { ...shared.ports[slice]![i] };
    for (const field of program.fields) {
      tensors[PORTS.field(field.name)] = fields[field.name] ??= allocate(field);
    }
    for (const spec of computedBy(program, options)) tensors[spec.name] ??= allocate(spec);
    return tensors;
  });
  const inputs: Record<string, Tensor> = {}, outputs: Record<string, Tensor> = {};
  const arriving: Record<string, Tensor> = {}, leaving: Record<string, Tensor> = {};
  for (const [i, { spec, maker, users, leaves, gradient }] of paths.entries()) {
    const key = spec.name, port = valuePorts(key);
    const tensor = maker === undefined ? inputs[key] = allocate(spec) : ports[maker]![port.output]!;
    for (const user of users) ports[user]![port.input] = tensor;
    if (leaves) outputs[key] = tensor;
    if (!gradient || options.backward === "never") continue;
    const sum = shared.gradients[i] ?? allocate(gradient.spec);
    if (maker !== undefined) ports[maker]![port.outputGradient] = sum;
    for (const user of users) {
      ports[user]![port.inputGradient] = sum;
      ports[user]![port.laterGradient] = sum;
    }
    if (gradient.arrives) arriving[key] = sum;
    if (gradient.leaves) leaving[key] = sum;
  }
  return { inputs, fields, ports, outputs, gradients: { arriving, leaving } };
}

/** Allocates, for each layer, what the slices of one micro-batch keep for each other, with gradients. */
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

/** The values by their keys; the one tensor of a chain is `x`. */
export const keyed = (passed: Passed): KeyedArrays =>
  ArrayBuffer.isView(passed) ? { x: passed } : passed;

/** Values by their keys, or the array alone where the only one is the `x` of a chain. */
export function passedOf(values: KeyedArrays): Passed {
  const [key, ...more] = Object.keys(values), { x } = values;
  const isAlone = key === "x" && more.length === 0;
  return isAlone && (x instanceof Float32Array || x instanceof Float16Array) ? x : values;
}

/**
 * Writes what has arrived into the tensors of its keys; what has another key is left.
 *
 * @throws {TypeError} when a value is missing.
 */
export function writePassed(device: Device, tensors: Ports, passed: Passed | undefined): void {
  const values = passed && keyed(passed);
  for (const [key, tensor] of Object.entries(tensors)) {
    const array = values?.[key];
    if (!array) throw new TypeError(`Cannot run: the value "${key}" must have arrived`);
    device.write(tensor, array);
  }
}

/** Copies tensors to the host, into arrays of the same keys where there are any. */
export async function readPassed(device: Device, tensors: Ports, into?: Passed): Promise<Passed> {
  const arrays = into && keyed(into), values: Record<string, ValueArray> = {};
  for (const [key, tensor] of Object.entries(tensors)) {
    values[key] = await device.read<ValueArray>(tensor, arrays?.[key]);
  }
  return passedOf(values);
}
