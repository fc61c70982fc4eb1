/**
 * The fastest device: ONNX Runtime's C library over `Deno.dlopen`.
 *
 * Kernels read and write tensors in place, without a copy. Unless asked otherwise, runs happen off
 * the isolate's thread, so messages keep flowing while a kernel computes.
 *
 * @module
 */

import type { Device } from "../device.ts";
import { ONNX_DTYPE } from "../../graph/value.ts";
import { type Handle, POINTER_BYTES } from "../onnx_runtime/function_table.ts";
import type { Binding, BoundProgram } from "../engine/engine_device.ts";
import { hostDevice } from "../engine/host_device.ts";
import { nativeLibraryPath } from "../onnx_runtime/native_library.ts";
import { adamwOf } from "./adamw.ts";
import { alone } from "./alone.ts";
import { openKernelMemory } from "./kernel_memory.ts";
import { openOrt, type Ort } from "./ort_api.ts";
import type { NativeBytes } from "./ort_memory.ts";
import { prepareModel } from "./prepare_model.ts";

/** Options of {@linkcode openNative}. */
export interface NativeOptions {
  /** Threads within one operation, 1 by default. */
  threads?: number;
  /**
   * Whether runs take the isolate's own thread. Default false: a run computes on another, and the
   * isolate stays free. An isolate that has nothing else to do is faster without the change of
   * threads: that took an eighth of the time of two workers on two cores.
   */
  isBlocking?: boolean;
  /** The ONNX Runtime library; by default {@linkcode nativeLibraryPath}. */
  library?: string;
  /** Receives one line before a download starts. */
  announce?: (line: string) => void;
}

/**
 * Opens ONNX Runtime's native library as a device. Its memory is not garbage collected: close it.
 *
 * @throws {RangeError} when `threads` is not a positive whole number.
 * @throws {Error} when the library cannot be found, fetched or loaded.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { openNative } from "@troupe/troupe/kernels";
 *
 * const device = await openNative();
 * const tensor = device.alloc("f32", [2, 3]);
 * const row = device.view(tensor, 3, [3]);
 * device.write(row, Float32Array.of(1, 2, 3));
 * assert.deepEqual(await device.read(tensor), Float32Array.of(0, 0, 0, 1, 2, 3));
 * device.close();
 * ```
 */
export async function openNative(options: NativeOptions = {}): Promise<Device> {
  const { threads = 1, isBlocking = false, announce } = options;
  if (!Number.isInteger(threads) || threads < 1) {
    throw new RangeError(
      `Cannot open the native device: threads must be a whole number from 1, received ${threads}`,
    );
  }
  const library = options.library ?? await nativeLibraryPath(announce);
  const ort = await alone(() => openOrt(library, { threads, isBlocking }));
  const own = isBlocking ? openKernelMemory() : undefined;
  return hostDevice<NativeBytes>({
    name: "native",
    allocate: (byteLength) => own?.allocate(byteLength) ?? ort.allocate(byteLength),
    bytes: ({ bytes }) => bytes,
    release: (block) => void (own?.free(block) || ort.free(block)),
    async compile(model) {
      const session = await ort.createSession(prepareModel(model, threads)), names = openNames(ort);
      const bindOwn = own && adamwOf(model, own);
      return {
        bind: (inputs, outputs) =>
          bindOwn?.(inputs, outputs) ?? bind(ort, session, names.at, inputs, outputs),
        release() {
          ort.releaseSession(session);
          names.close();
        },
      };
    },
    close: ort.close,
  });
}

function bind(
  ort: Ort,
  session: Handle,
  nameAt: (name: string) => bigint,
  inputs: readonly Binding<NativeBytes>[],
  outputs: readonly Binding<NativeBytes>[],
): BoundProgram {
  const all = [...inputs, ...outputs];
  const tensors = all.map(({ dtype, shape, block, byteOffset, byteLength }) =>
    ort.createTensor(block.address + BigInt(byteOffset), byteLength, shape, ONNX_DTYPE[dtype])
  );
  // One array of pointers: first every name, then every tensor, inputs before outputs in both.
  const table = ort.allocate(2 * all.length * POINTER_BYTES);
  new BigUint64Array(table.bytes.buffer).set([
    ...all.map(({ name }) => nameAt(name)),
    ...tensors.map(Deno.UnsafePointer.value),
  ]);
  const at = (index: number) =>
    Deno.UnsafePointer.create(table.address + BigInt(index * POINTER_BYTES))!;
  const tables = {
    inputCount: BigInt(inputs.length),
    outputCount: BigInt(outputs.length),
    inputNames: at(0),
    outputNames: at(inputs.length),
    inputs: at(all.length),
    outputs: at(all.length + inputs.length),
  };
  return {
    run: () => ort.run(session, tables),
    release() {
      tensors.forEach(ort.releaseTensor);
      ort.free(table);
    },
  };
}

/**
 * The names of a session's inputs and outputs as zero-terminated strings, each written once: some
 * sessions, such as those that step weights, are bound a thousand times.
 */
function openNames(ort: Ort) {
  const known = new Map<string, NativeBytes>();
  return {
    at(name: string): bigint {
      const memory = known.get(name) ?? cString(ort, name);
      known.set(name, memory);
      return memory.address;
    },
    close: () => known.forEach(ort.free),
  };
}

/** A zero-terminated string. */
function cString(ort: Ort, text: string): NativeBytes {
  const encoded = new TextEncoder().encode(text);
  const memory = ort.allocate(encoded.length + 1);
  memory.bytes.set(encoded);
  return memory;
}
