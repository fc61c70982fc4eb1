/**
 * The pipes of a child process, as what frames are written to and read from.
 *
 * @module
 */

import type { FrameSink, FrameSource } from "../stream/stream.ts";

/** The standard input of a child. */
export function sinkOf(stdin: WritableStream<Uint8Array>): FrameSink {
  const writer = stdin.getWriter();
  return {
    async write(bytes) {
      await writer.write(bytes);
      return bytes.length;
    },
    closeWrite: () => writer.close(),
    close: () => void writer.abort().catch(() => {}),
  };
}

/** The standard output of a child. Cancelled, it is at its end. */
export function sourceOf(
  stdout: ReadableStream<Uint8Array>,
): FrameSource & { cancel(): Promise<void> } {
  const reader = stdout.getReader();
  let rest = new Uint8Array();
  return {
    async read(into) {
      if (rest.length === 0) {
        const { value } = await reader.read();
        if (!value) return null;
        rest = value as Uint8Array<ArrayBuffer>;
      }
      const part = rest.subarray(0, into.length);
      into.set(part);
      rest = rest.subarray(part.length);
      return part.length;
    },
    cancel: () => reader.cancel().catch(() => {}),
  };
}
