/**
 * Frames as bytes: what structured clone takes, in one run of bytes, and beside it the buffers that
 * move, each as it is. Both ends run on machines of one byte order.
 *
 * @module
 */

import { checkTransfer } from "../../snapshot.ts";
import { readValue } from "./value_reader.ts";
import { writeValue } from "./value_writer.ts";

/** A frame as bytes. */
export interface EncodedFrame {
  /** All but the buffers. */
  readonly body: Uint8Array<ArrayBuffer>;
  /** What moved and what is large, each to be received into a buffer of its own; some are empty. */
  readonly buffers: readonly Uint8Array<ArrayBuffer>[];
}

/**
 * Makes bytes of a frame. The buffers in `transfer` become the sender's no longer: they are moved,
 * not copied.
 *
 * @throws {DOMException} `DataCloneError` when the frame cannot be cloned; then nothing has moved.
 *
 * @example
 * ```ts
 * import { decodeFrame, encodeFrame } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const tensor = new Float32Array([1, 2]);
 * const { body, buffers } = encodeFrame({ kind: "activation", tensor }, [tensor.buffer]);
 * assert.equal(tensor.length, 0);
 * const frame = decodeFrame(body, buffers.map(({ buffer }) => buffer));
 * assert.deepEqual(frame, { kind: "activation", tensor: new Float32Array([1, 2]) });
 * ```
 */
export function encodeFrame(frame: unknown, transfer: readonly ArrayBuffer[]): EncodedFrame {
  try {
    checkTransfer(transfer);
    const { bytes, copies } = writeValue(frame, transfer);
    const moved = transfer.map((buffer) => buffer.transfer());
    return { body: bytes, buffers: [...moved, ...copies].map((buffer) => new Uint8Array(buffer)) };
  } catch (error) {
    throw new DOMException((error as Error).message, "DataCloneError");
  }
}

/**
 * The frame of a body and its buffers, which become parts of it; see {@linkcode encodeFrame}.
 *
 * @throws {SyntaxError} when the bytes are no frame.
 */
export function decodeFrame(body: Uint8Array, buffers: readonly ArrayBuffer[]): unknown {
  return readValue(body, buffers);
}
