/**
 * The one interface between Troupe and whatever computes: `alloc`, `compile`, `bind` → run.
 *
 * A device owns memory ({@linkcode Tensor}) and compiles ONNX models ({@linkcode Kernel}). A kernel
 * is *bound* to tensors once and run many times, so a run costs no marshalling. Nothing here
 * promises that tensor memory is visible to the host: callers use `write` and `read`, which leaves
 * room for devices with their own memory (WebGPU).
 *
 * @module
 */

/** Element types that cross the device interface. */
export type DType = "f32" | "f16" | "i32" | "i64" | "bool";

/** Bytes of one element of each {@linkcode DType}. */
export const DTYPE_BYTES: Readonly<Record<DType, number>> = {
  f32: 4,
  f16: 2,
  i32: 4,
  i64: 8,
  bool: 1,
};

/** The arrays that hold the elements of each type on the host. */
export const HOST_ARRAYS = {
  f32: Float32Array,
  f16: Float16Array,
  i32: Int32Array,
  i64: BigInt64Array,
  bool: Uint8Array,
} as const;

/** Host arrays that tensors are written from and read into. */
export type HostArray = Float32Array | Float16Array | Int32Array | BigInt64Array | Uint8Array;

/** Activations and gradients as they travel; each owns its buffer, so it can be transferred. */
export type MessageArray = Float32Array<ArrayBuffer> | Float16Array<ArrayBuffer>;

/** A value of any type as it travels. */
export type ValueArray =
  | MessageArray
  | Int32Array<ArrayBuffer>
  | BigInt64Array<ArrayBuffer>
  | Uint8Array<ArrayBuffer>;

/** Values by their keys, such as `x.mask` and `skip.memory`. */
export type KeyedArrays = Readonly<Record<string, ValueArray>>;

/** What stages hand to each other: the one tensor `x`, or values by their keys. */
export type Passed = MessageArray | KeyedArrays;

/** Memory on a device. Only the device that made it can read its handle. */
export interface Tensor {
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its sizes; empty for a scalar. */
  readonly shape: readonly number[];
}

/** A compiled ONNX model. */
export interface Kernel {
  /** Names of the graph's inputs. */
  readonly inputs: readonly string[];
  /** Names of the graph's outputs. */
  readonly outputs: readonly string[];
  /**
   * Binds every input and output to memory and returns the run.
   *
   * An output may share memory with an input (accumulation and optimizer updates in place). Runs
   * that touch the same memory must be awaited one after the other.
   *
   * @throws {TypeError} when a name is missing or unknown, or a dtype or shape differs.
   */
  bind(inputs: Readonly<Record<string, Tensor>>, outputs: Readonly<Record<string, Tensor>>): Run;
  /** Frees the compiled model. */
  close(): void;
}

/** Executes a bound kernel once; resolves when its outputs are complete. */
export type Run = () => Promise<void>;

/** Bytes that were copied between the host and a device since it was opened. */
export interface CopiedBytes {
  /** By `write`, and by what had to go by way of the host. */
  readonly toDevice: number;
  /** By `read`, and by what had to go by way of the host. */
  readonly toHost: number;
}

/** Everything Troupe asks of a device. */
export interface Device {
  /** The name by which users choose it: `native`, `webgpu`, `wasm`, `reference`. */
  readonly name: string;
  /**
   * Whether a view may begin anywhere in its tensor at no cost. Where not, only those that begin with
   * it are free: the bytes of any other travel by way of the host at each use.
   */
  readonly hasFreeViews: boolean;
  /** Bytes that were copied from and to the host, for accounting. */
  readonly copied: CopiedBytes;
  /** Bytes of tensor memory held now, for accounting. */
  readonly allocatedBytes: number;
  /**
   * Allocates zeroed, 64-byte aligned memory.
   *
   * @throws {TypeError} when there is no such dtype.
   * @throws {RangeError} when a size is not a whole number from 0, or no memory is that large.
   */
  alloc(dtype: DType, shape: readonly number[]): Tensor;
  /**
   * A tensor over part of another one's memory.
   *
   * @param offset in elements of `tensor`.
   * @throws {RangeError} when the view leaves the tensor.
   */
  view(tensor: Tensor, offset: number, shape: readonly number[]): Tensor;
  /**
   * Copies host data into a tensor; runs that start later see it.
   *
   * @throws {RangeError} when the number of elements differs.
   */
  write(tensor: Tensor, data: HostArray): void;
  /**
   * Copies a tensor to the host, into `into` where given, else into a new array that owns its
   * whole buffer (so that it can be transferred). Runs that were awaited before are seen.
   *
   * @throws {RangeError} when `into` has another number of elements.
   */
  read<A extends HostArray>(tensor: Tensor, into?: A): Promise<A>;
  /** Sets every element to zero. */
  zero(tensor: Tensor): void;
  /** Frees memory that `alloc` returned (never a view). */
  free(tensor: Tensor): void;
  /**
   * Compiles an ONNX model given as protobuf bytes.
   *
   * @throws {Error} with the device's own reason when the model is refused.
   */
  compile(model: Uint8Array): Promise<Kernel>;
  /** Frees everything. Using the device afterwards throws. */
  close(): void;
}
