/**
 * A {@linkcode Device} over an engine whose memory the host can see.
 *
 * @module
 */

import type { Device } from "../device.ts";
import { type Engine, engineDevice } from "./engine_device.ts";

/** What such a device is made of: its blocks are bytes. */
export interface HostEngine<Block>
  extends Pick<Engine<Block>, "name" | "allocate" | "release" | "compile" | "close"> {
  /** The bytes of a block. Fetched anew at every use: a wasm heap moves when it grows. */
  bytes(block: Block): Uint8Array;
  /** Sets bytes to zero, where that is faster than by their array. */
  readonly zero?: Engine<Block>["zero"];
}

/** Makes a {@linkcode Device} of such an engine. */
export function hostDevice<Block>(engine: HostEngine<Block>): Device {
  const copied = { toDevice: 0, toHost: 0 };
  return engineDevice({
    ...engine,
    hasFreeViews: true,
    copied,
    write(block, byteOffset, bytes) {
      engine.bytes(block).set(bytes, byteOffset);
      copied.toDevice += bytes.byteLength;
    },
    read(block, byteOffset, into) {
      into.set(engine.bytes(block).subarray(byteOffset, byteOffset + into.byteLength));
      copied.toHost += into.byteLength;
    },
    zero: engine.zero ??
      ((block, byteOffset, byteLength) =>
        void engine.bytes(block).fill(0, byteOffset, byteOffset + byteLength)),
  });
}
