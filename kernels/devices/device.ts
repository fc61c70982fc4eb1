/**
 * The interface of a device: `alloc`, `compile`, `bind` → run.
 *
 * A device owns memory ({@linkcode Tensor}) and compiles ONNX models ({@linkcode Kernel}). A kernel
 * is *bound* to tensors once and run many times, so a run needs no marshalling. Tensor memory need not
 * be visible to the host: callers use `write` and `read`, so devices may have separate memory
 * (WebGPU).
 *
 * @module
 */

/** Element types of tensors on a device. */
export type DType = "f32" | "f16" | "i32" | "i64" | "bool";

/** The arrays that hold the elements of each type on the host. */
export const HOST_ARRAYS = {
  f32: Float32Array,
  f16: Float16Array,
  i32: Int32Array,
  i64: BigInt64Array,
  bool: Uint8Array,
} as const;

/** Bytes of one element of each {@linkcode DType}. */
export const DTYPE_BYTES = Object.fromEntries(
  Object.entries(HOST_ARRAYS).map(([dtype, { BYTES_PER_ELEMENT }]) => [dtype, BYTES_PER_ELEMENT]),
) as Readonly<Record<DType, number>>;

/** Host arrays that tensors are written from and read into. */
export type HostArray = Float32Array | Float16Array | Int32Array | BigInt64Array | Uint8Array;

/** Activations and gradients in messages; each owns its buffer, so that it can be transferred. */
export type MessageArray = Float32Array<ArrayBuffer> | Float16Array<ArrayBuffer>;

/** A value of any type in messages. */
export type ValueArray =
  | MessageArray
  | Int32Array<ArrayBuffer>
  | BigInt64Array<ArrayBuffer>
  | Uint8Array<ArrayBuffer>;

/** Values by their keys, such as `x.mask` and `skip.memory`. */
export type KeyedArrays = Readonly<Record<string, ValueArray>>;

/** Values passed between stages: the one tensor `x`, or values by their keys. */
export type StageValues = MessageArray | KeyedArrays;

/** Memory on a device. Only the device that allocated it can read its handle. */
export interface Tensor {
  /** The type of its elements. */
  readonly dtype: DType;
  /** Its shape; empty for a scalar. */
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

/** Bytes copied between the host and a device since it was opened. */
export interface CopiedBytes {
  /** Copied by `write`, and by internal copies through the host. */
  readonly toDevice: number;
  /** Copied by `read`, and by internal copies through the host. */
  readonly toHost: number;
}

/** A compute device. */
export interface Device {
  /** Its name: `native`, `webgpu`, `wasm` or `reference`. */
  readonly name: string;
  /**
   * True if a view may begin anywhere in its tensor at no cost. If false, only views from the first
   * element are free: other views are copied through the host at each use.
   */
  readonly hasFreeViews: boolean;
  /** Bytes copied from and to the host. */
  readonly copied: CopiedBytes;
  /** Bytes of tensor memory in use. */
  readonly allocatedBytes: number;
  /**
   * Allocates zeroed, 64-byte aligned memory.
   *
   * @throws {TypeError} when the dtype is unknown.
   * @throws {RangeError} when a size is not an integer from 0, or the memory is not available.
   */
  alloc(dtype: DType, shape: readonly number[]): Tensor;
  /**
   * Creates a tensor over part of another one's memory.
   *
   * @param offset in elements of `tensor`.
   * @throws {RangeError} when the view leaves the tensor.
   */
  view(tensor: Tensor, offset: number, shape: readonly number[]): Tensor;
  /**
   * Copies host data into a tensor; later runs read it.
   *
   * @throws {RangeError} when the number of elements differs.
   */
  write(tensor: Tensor, data: HostArray): void;
  /**
   * Copies a tensor to the host, into `into` if given, otherwise into a new array that owns its whole
   * buffer (so that it can be transferred). The result includes all runs awaited before.
   *
   * @throws {RangeError} when `into` has a different number of elements.
   */
  read<A extends HostArray>(tensor: Tensor, into?: A): Promise<A>;
  /** Sets every element to zero. */
  zero(tensor: Tensor): void;
  /** Frees memory from `alloc`, with its views and the runs that are bound to it. */
  free(tensor: Tensor): void;
  /**
   * Compiles an ONNX model given as protobuf bytes.
   *
   * @throws {Error} with the device's reason when it refuses the model.
   */
  compile(model: Uint8Array): Promise<Kernel>;
  /**
   * Frees all tensors and runs. Compiled models stay, and {@linkcode Device.compile} returns them
   * again. Absent if the device cannot keep them.
   */
  clear?(): void;
  /** Frees everything. Using the device afterwards throws. */
  close(): void;
}

/** Allocates memory: a device, or a counter of bytes. */
export type Allocator = Pick<Device, "alloc" | "view" | "hasFreeViews">;
