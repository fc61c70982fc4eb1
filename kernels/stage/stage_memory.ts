/**
 * The memory of a stage, byte by byte: allocated, counted and planned by the same functions.
 *
 * With φ trained numbers and b elements of a bucket, AdamW takes on the device
 *
 * | precision | all on the device | offloaded |
 * |---|---|---|
 * | fp32 | 4φ + 4φ + 8φ = 16φ | 4φ + 4φ + 8b |
 * | fp16 | 2φ + 2φ + 4φ + 8φ + 4b = 16φ + 4b | 2φ + 2φ + 16b |
 *
 * for weights, gradients, master weights, moments, and buckets: those of the offloaded states, and in
 * FP16 one of widened gradients. AxoNN (section V-B) counts 20φ where we need 16φ + 4b: it widens all
 * gradients at once. On the native and the reference device, whose memory is the host's, an offload
 * moves bytes from one column to the other and saves none. What ONNX Runtime takes while a model
 * runs is not counted.
 *
 * @module
 */

import { activationBytes, type ActivationOptions } from "./activations.ts";
import { type Device, DTYPE_BYTES, type Tensor } from "../devices/device.ts";
import { allocateNorms, type NormMemory } from "../optimizer/gradient_norms.ts";
import { elementCount } from "../graph/shapes.ts";
import {
  allocateOptimizer,
  MOMENTS,
  type OptimizerMemory,
  type OptimizerOptions,
} from "../optimizer/optimizer.ts";
import {
  createParameters,
  flatLength,
  type FlatState,
  type ParameterStore,
} from "../optimizer/parameters.ts";
import { type Precision, storageDtype } from "../layers/precision.ts";
import type { LayerProgram } from "../layers/layer_program.ts";
import { checkInterval } from "./recompute_interval.ts";
import type { StageProgram } from "./stage.ts";

/** Options of {@linkcode openStage}. */
export interface StageOptions extends ActivationOptions {
  /** Which optimizer, with its settings. */
  readonly optimizer: OptimizerOptions;
  /**
   * Elements of an optimizer bucket, at most those of the stage; 65,536 or all of them where not
   * given.
   */
  readonly bucketSize?: number;
  /** That of the program; told again, it must be the same. */
  readonly precision?: Precision;
  /** Whether master weights and moments rest on the host and visit the device in buckets. */
  readonly offload?: boolean;
  /** Versions of the weights that are kept for micro-batches in flight; 1 where not given. */
  readonly versions?: number;
}

/** Bytes of a stage on its device. */
export interface DeviceBytes {
  /** Weights as the models read them, in all versions, frozen ones too. */
  readonly weights: number;
  /** Gradients. */
  readonly gradients: number;
  /** FP32 weights of the optimizer, where the weights are FP16. */
  readonly master: number;
  /** Moments of the optimizer. */
  readonly moments: number;
  /** Activations and gradients between layers: those of each slot, and what slots share. */
  readonly activations: number;
  /** The optimizer's bucket: visiting states, and widened gradients. */
  readonly buckets: number;
  /** Scalars, and a number or two for each parameter. */
  readonly other: number;
}

/** Bytes that a stage holds. It gives none back, so this is the peak too. */
export interface StageMemory {
  /** On the device. */
  readonly device: DeviceBytes;
  /** On the host: what is offloaded, and FP32 weights of frozen parameters that are FP16. */
  readonly host: { readonly master: number; readonly moments: number };
}

/** What a stage holds on its device from the start, beside frozen weights. */
export interface Resident {
  readonly precision: Precision;
  readonly store: ParameterStore;
  /** Full names and shapes of the weights that are not trained. */
  readonly frozen: readonly { readonly name: string; readonly shape: readonly number[] }[];
  readonly optimizer: OptimizerMemory;
  readonly norms: NormMemory;
  readonly lossScale: Tensor;
}

/** A layer and the prefix of its parameters' names. */
interface NamedProgram {
  readonly prefix: string;
  readonly program: LayerProgram;
}

/** The parameters of some layers by full name. */
function parametersOf(layers: readonly NamedProgram[]) {
  return layers.flatMap(({ prefix, program: { parameters } }) =>
    parameters.map(({ name, shape, frozen = false }) => ({ name: prefix + name, shape, frozen }))
  );
}

const layersOf = ({ programs, layers }: StageProgram): NamedProgram[] =>
  layers.map(({ prefix, program }) => ({ prefix, program: programs[program]! }));

const precisionOf = (layers: readonly NamedProgram[]) => layers[0]?.program.precision ?? "fp32";

/** Allocates what a stage holds from the start. */
export function allocateResident(
  device: Pick<Device, "alloc" | "view">,
  layers: readonly NamedProgram[],
  { optimizer, bucketSize, offload = false, versions = 1 }: StageOptions,
): Resident {
  const precision = precisionOf(layers), parameters = parametersOf(layers);
  const store = createParameters(device, parameters.filter(({ frozen }) => !frozen), {
    moments: MOMENTS[optimizer.kind].length,
    precision,
    offload,
    versions,
    ...bucketSize && { bucketSize },
  });
  return {
    precision,
    store,
    frozen: parameters.filter(({ frozen }) => frozen),
    optimizer: allocateOptimizer(device, store, optimizer),
    norms: allocateNorms(device, store),
    lossScale: device.alloc("f32", []),
  };
}

const bytesOf = (tensors: Iterable<Tensor>) =>
  [...tensors].reduce((sum, { dtype, shape }) => sum + elementCount(shape) * DTYPE_BYTES[dtype], 0);

/** The bytes of what a stage holds, and of its activations. */
export function countMemory(resident: Resident, activations: number): StageMemory {
  const { precision, store, optimizer: { scalars, visitors, gradient }, norms } = resident;
  const frozen = resident.frozen.reduce((sum, { shape }) => sum + elementCount(shape), 0);
  const masters = store.master ? [store.master] : [];
  const onDevice = (states: readonly FlatState[]) =>
    bytesOf(states.filter((state) => "dtype" in state));
  const onHost = (states: readonly FlatState[]) =>
    states.reduce((sum, state) => "values" in state ? sum + 4 * state.length : sum, 0);
  return {
    device: {
      weights: bytesOf(store.versions) + frozen * DTYPE_BYTES[storageDtype(precision)],
      gradients: bytesOf([store.gradients]),
      master: onDevice(masters),
      moments: onDevice(store.moments),
      activations,
      buckets: bytesOf([...visitors, ...gradient ? [gradient] : []]),
      other: bytesOf([
        ...[...scalars.values()].flatMap((tensors) => Object.values(tensors)),
        norms.sums,
        ...norms.tops ? [norms.tops] : [],
        resident.lossScale,
      ]),
    },
    host: {
      master: onHost(masters) + (precision === "fp16" ? 4 * frozen : 0),
      moments: onHost(store.moments),
    },
  };
}

/**
 * The bytes that a stage will hold when `slots` micro-batches were in flight at a time: what
 * {@linkcode Stage.memory} will say. Pure: nothing is allocated.
 *
 * @throws {RangeError} {@linkcode TypeError} as {@linkcode openStage}.
 *
 * @example FP16 with offload: 2φ for weights, 2φ for gradients, 16 bytes for each element of a bucket
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS, compileModel, gpt2, planMemory } from "@troupe/troupe/kernels";
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
  { slots, ...options }: StageOptions & { readonly slots: number },
): StageMemory {
  checkStageOptions(program, options);
  const counter: Pick<Device, "alloc" | "view"> = {
    alloc: (dtype, shape) => ({ dtype, shape }),
    view: ({ dtype }, _, shape) => ({ dtype, shape }),
  };
  const { perMicroBatch, shared } = activationBytes(program, options);
  const resident = allocateResident(counter, layersOf(program), options);
  return countMemory(resident, shared + slots * perMicroBatch);
}

/**
 * Checks options against a stage, at the door.
 *
 * @throws {RangeError} when the bucket or the recompute interval is not a positive integer, or the
 * bucket is larger than the stage.
 * @throws {TypeError} when the precision is not that of the program.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ADAMW_DEFAULTS, checkStageOptions, compileModel, mlp } from "@troupe/troupe/kernels";
 *
 * const stage = compileModel(mlp({ inputs: 16, hidden: 32, layers: 1, classes: 4 }, 1), "none");
 * const options = { optimizer: ADAMW_DEFAULTS, backward: "whole", precision: "fp16" } as const;
 * assert.throws(() => checkStageOptions(stage, options), /that of its program, fp32, received fp16/);
 * ```
 */
export function checkStageOptions(program: StageProgram, options: StageOptions): void {
  checkInterval(options.recomputeInterval);
  const layers = layersOf(program), compiled = precisionOf(layers);
  const { precision = compiled, bucketSize } = options;
  if (precision !== compiled) {
    throw new TypeError(
      `Cannot open stage: precision must be that of its program, ${compiled}, received ${precision}`,
    );
  }
  if (bucketSize !== undefined) checkBucketSize(program, bucketSize);
}

/**
 * Checks the size of buckets that a user asks for; the default fits any stage.
 *
 * @param bucketSize in elements.
 * @throws {RangeError} when it is not a positive integer, or larger than a stage that is trained.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { checkBucketSize, compileModel, mlp } from "@troupe/troupe/kernels";
 *
 * const stage = compileModel(mlp({ inputs: 16, hidden: 32, layers: 2, classes: 4 }, 1), "none");
 * checkBucketSize(stage, 256);
 * assert.throws(() => checkBucketSize(stage, 1e6), /at most \d+, the elements of the stage/);
 * ```
 */
export function checkBucketSize(program: StageProgram, bucketSize: number): void {
  if (!Number.isSafeInteger(bucketSize) || bucketSize < 1) {
    throw new RangeError(
      `Cannot open stage: bucketSize must be a positive integer, received ${bucketSize}`,
    );
  }
  const trained = parametersOf(layersOf(program)).filter(({ frozen }) => !frozen);
  const elements = flatLength(trained);
  if (trained.length === 0 || bucketSize <= elements) return;
  throw new RangeError(
    `Cannot open stage: bucketSize must be at most ${elements}, the elements of the stage, received ${bucketSize}`,
  );
}

/**
 * All bytes of a column of {@linkcode StageMemory}.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { totalBytes } from "@troupe/troupe/kernels";
 *
 * assert.equal(totalBytes({ master: 400, moments: 800 }), 1200);
 * ```
 */
export function totalBytes(parts: DeviceBytes | StageMemory["host"]): number {
  return Object.values(parts).reduce((sum: number, bytes: number) => sum + bytes, 0);
}
