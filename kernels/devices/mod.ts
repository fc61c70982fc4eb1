/**
 * The devices: native, wasm and reference, behind one interface.
 *
 * @module
 */

export * from "./native/native.ts";
export * from "./onnx_runtime/native_library.ts";
export * from "./open.ts";
export * from "./reference/reference.ts";
export * from "./wasm/wasm.ts";
export * from "./webgpu/webgpu.ts";
