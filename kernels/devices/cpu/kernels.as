/** All kernels of the module. */

export * from "./adamw";
export * from "./dropout";
export * from "./gelu";
export * from "./gemm";
export * from "./layer_norm";
export * from "./normals";
export * from "./softmax";
export * from "./sums";
