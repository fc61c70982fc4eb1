/**
 * The devices: native, webgpu, wasm and reference, behind one interface.
 *
 * @module
 */

export * from "./limits.ts";
export * from "./native/native.ts";
export * from "./onnx_runtime/native_library.ts";
export * from "./onnx_runtime/version.ts";
export * from "./open.ts";
export * from "./reference/reference.ts";
export {
  assertThreads,
  DEVICE_NAMES,
  type DeviceChoice,
  type DeviceName,
  type DeviceOptions,
  type DevicePermissions,
  devicePermissions,
  hasFreeViews,
  hasOwnMemory,
  hasThreads,
  needsProcess,
} from "./table.ts";
export * from "./wasm/wasm.ts";
export type { Adapter, AdapterKind, RefusedAdapter } from "./webgpu/adapters/adapter.ts";
export type { FoundAdapters } from "./webgpu/adapters/find_adapters.ts";
export { type AdapterOptions, webgpuAdapters } from "./webgpu/adapters/webgpu_adapters.ts";
export type { ModelValue } from "./webgpu/model/largest_value.ts";
export * from "./webgpu/webgpu.ts";
