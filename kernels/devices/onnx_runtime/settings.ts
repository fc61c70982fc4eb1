/**
 * Settings of ONNX Runtime that the native and the wasm device share.
 *
 * @module
 */

/** Cache lines, and the widest vector registers, are 64 bytes. */
export const ALIGNMENT = 64;

/** Log nothing short of a crash: errors are thrown with their text, once. */
export const LOG_FATAL = 4;

/**
 * How far a session rewrites its graph: 0 is not at all, 99 all the way.
 *
 * Not at all, so that the bits of an operation do not depend on the model it stands in: a forward
 * pass, its recomputation inside a backward pass, and a backward pass in halves must agree. The
 * rewrites bring nothing here: forward and backward of GPT-2 blocks take the same time either way
 * (native and wasm, within 1 %), AdamW takes 2 ms more of a step of 145 ms.
 */
export const OPTIMIZATION_LEVEL = 0;
