/**
 * What an adapter has no memory for, in words.
 *
 * [Note: buffers that forget] The library returns a buffer of any size. Where the GPU has refused it,
 * what is written there is lost and what is read is zero, without an error; only a kernel that is
 * bound to it fails. So a kernel fills each new buffer with zeros before anybody has it, and a size
 * that is known to be too large is not asked for.
 *
 * @module
 */

import { mebibytes } from "../machine_memory.ts";
import type { Adapter } from "./adapters/adapter.ts";

/** How large buffers can be, and where. */
export type BufferLimit = Pick<Adapter, "name" | "maxBufferBytes">;

/**
 * Refuses a tensor that is larger than the largest buffer.
 *
 * @param cannot begins the message: "Cannot allocate on the webgpu device".
 * @param what the tensor is, where there are several.
 * @throws {RangeError} with both sizes.
 */
export function assertFits(
  cannot: string,
  byteLength: number,
  { name, maxBufferBytes }: BufferLimit,
  what?: string,
): void {
  if (byteLength <= maxBufferBytes) return;
  const received = mebibytes(byteLength) + (what === undefined ? "" : ` for ${what}`);
  throw new RangeError(
    `${cannot}: a tensor must fit into the largest buffer of ${name}, ${
      mebibytes(maxBufferBytes, Math.floor)
    }, received ${received}; take a smaller micro-batch or a smaller model`,
  );
}

/** How the library says that a kernel was bound to a buffer which the GPU has refused. */
const REFUSED = /Invalid Buffer|max buffer size limit/;

/**
 * What to throw in place of an error of a kernel: where the GPU had no memory, that.
 *
 * @param needed what there is no memory for: "900.00 MiB".
 */
export function namingMemory(
  error: unknown,
  cannot: string,
  needed: string,
  { name }: BufferLimit,
): unknown {
  if (!REFUSED.test((error as Error).message)) return error;
  return new RangeError(
    `${cannot}: ${name} must have memory for ${needed}, received too little; take --recompute cheap, --offload, a smaller micro-batch, or more adapters`,
    { cause: error },
  );
}
