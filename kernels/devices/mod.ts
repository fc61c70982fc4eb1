/**
 * The devices: native, wasm and reference, behind one interface.
 *
 * @module
 */

export * from "./native.ts";
export * from "./native_library.ts";
export * from "./open.ts";
export * from "./reference.ts";
export * from "./wasm.ts";
