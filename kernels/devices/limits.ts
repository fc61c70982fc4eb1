/**
 * What a chosen device can hold, known before it is opened.
 *
 * @module
 */

import { type DeviceChoice, type DeviceName, DEVICES } from "./table.ts";
import type { AdapterKind } from "./webgpu/adapters/adapter.ts";
import type { ModelValue } from "./webgpu/model/largest_value.ts";

/** What a device can hold. */
export interface DeviceLimits {
  /** Its name for a person: that of its adapter, where it has one. */
  readonly where: string;
  /** Bytes of the largest tensor; Infinity where only memory is the limit. */
  readonly tensorBytes: number;
  /** Bytes of memory of its own; Infinity where it has none or nobody knows. */
  readonly memoryBytes: number;
  /** Whether its tensors take memory of this machine. */
  readonly isHostMemory: boolean;
  /** Whether it computes models that are stored in FP16. */
  readonly hasF16: boolean;
}

/** Adapters whose memory is that of the machine. */
const SHARING: readonly AdapterKind[] = ["integrated", "software"];

/**
 * What a chosen device can hold.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { deviceLimits } from "@troupe/troupe/kernels";
 *
 * const { tensorBytes, isHostMemory } = deviceLimits({ name: "reference" });
 * assert.equal(tensorBytes, Infinity);
 * assert.ok(isHostMemory);
 * ```
 */
export function deviceLimits({ name, adapter }: DeviceChoice): DeviceLimits {
  if (!adapter) {
    const none = { tensorBytes: Infinity, memoryBytes: Infinity };
    return { where: name, ...none, isHostMemory: true, hasF16: true };
  }
  const { name: where, kind, maxBufferBytes, memoryBytes, hasF16 } = adapter;
  return {
    where,
    tensorBytes: maxBufferBytes,
    // What software says of its memory is no limit: that of the machine is.
    memoryBytes: kind === "software" ? Infinity : memoryBytes || Infinity,
    isHostMemory: SHARING.includes(kind),
    hasF16,
  };
}

/**
 * The largest value of a model as a device computes it: an input, an output, or what lies in between;
 * undefined for devices whose tensors have no limit but memory.
 *
 * @param model in ONNX.
 * @throws {Error} when the device cannot compute the model.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { encodeModel, Graph, largestValue } from "@troupe/troupe/kernels";
 *
 * const g = new Graph(), x = g.input("x", [2, 8]);
 * const product = g.matmul(x, g.transpose(x, [1, 0])); // [2, 2]
 * const model = encodeModel(g, [{ name: "x", value: x }], [{ name: "y", value: product }]);
 * assert.equal(largestValue("webgpu", model)!.byteLength, 4 * 2 * 8);
 * assert.equal(largestValue("native", model), undefined);
 * ```
 */
export function largestValue(name: DeviceName, model: Uint8Array): ModelValue | undefined {
  return DEVICES[name].largestValue?.(model);
}

/**
 * Bytes that opening a device takes in each process, and more in each isolate.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { libraryBytes } from "@troupe/troupe/kernels";
 *
 * assert.deepEqual(libraryBytes("reference"), { process: 0, isolate: 0 });
 * ```
 */
export function libraryBytes(name: DeviceName): { process: number; isolate: number } {
  return DEVICES[name].libraryBytes;
}
