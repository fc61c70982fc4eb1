/** All kernels of the module. */

export * from "./adamw";
export * from "./normals";
