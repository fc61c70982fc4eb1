/**
 * An open file of a simulated disk.
 *
 * @module
 */

import type { DiskImage, FileNode, Node } from "./disk_image.ts";

/** An open file or folder of a `SimulatedDisk`. */
export class SimulatedFile implements Disposable {
  #position = 0;

  /** Made by `SimulatedDisk.open`. */
  constructor(
    private readonly image: DiskImage,
    private readonly node: Node,
    private readonly isWritable: boolean,
    private readonly begin: (needsRoom: boolean) => void,
  ) {}

  /** Reads into `into`; null at the end. */
  async read(into: Uint8Array): Promise<number | null> {
    await Promise.resolve();
    const rest = this.#file().bytes.subarray(this.#position);
    const count = Math.min(rest.length, into.length);
    into.set(rest.subarray(0, count));
    this.#position += count;
    return count === 0 && into.length > 0 ? null : count;
  }

  /** Writes bytes, and says how many. */
  async write(bytes: Uint8Array): Promise<number> {
    await Promise.resolve();
    if (!this.isWritable) throw new Deno.errors.PermissionDenied("Bad file descriptor");
    this.begin(true);
    this.image.write(this.#file(), this.#position, bytes);
    this.#position += bytes.length;
    return bytes.length;
  }

  /** Goes to a place, counted from the start. */
  async seek(offset: number | bigint, _whence: Deno.SeekMode): Promise<number> {
    await Promise.resolve();
    return this.#position = Number(offset);
  }

  /** The size in bytes. */
  async stat(): Promise<{ readonly size: number }> {
    await Promise.resolve();
    return { size: this.#file().bytes.length };
  }

  /** Makes what was written durable; of a folder, the names in it. */
  async sync(): Promise<void> {
    await Promise.resolve();
    // A file system may look for room only now.
    this.begin(true);
    this.image.sync(this.node);
  }

  /** See {@linkcode sync}. */
  syncData(): Promise<void> {
    return this.sync();
  }

  /** Closes it. Nothing is synced by that. */
  [Symbol.dispose](): void {}

  #file(): FileNode {
    if (this.node.kind === "file") return this.node;
    throw new Deno.errors.IsADirectory("Is a directory");
  }
}
