/**
 * The disk as checkpoints see it. `Deno` is one; a rehearsal puts another in its place, which fails,
 * and forgets what was not synced.
 *
 * @module
 */

/** An open file or folder; that of Deno is one. */
export interface DiskFile extends Disposable, Pick<Deno.FsFile, "read" | "write" | "seek"> {
  /** Its size in bytes. */
  stat(): Promise<Pick<Deno.FileInfo, "size">>;
  /** Makes what was written durable; of a folder, the names in it. */
  sync(): Promise<void>;
  /** Makes what was written durable, but not its times. */
  syncData(): Promise<void>;
}

/** Calls of a file system, as Deno has them. */
export interface Disk {
  /** Opens a file or folder to read; or makes a file to write, which must not be there yet. */
  open(path: string, options?: { write?: boolean; createNew?: boolean }): Promise<DiskFile>;
  /** All bytes of a file. */
  readFile(path: string): Promise<Uint8Array>;
  /** The names in a folder. */
  readDir(path: string): AsyncIterable<{ readonly name: string }>;
  /** Makes a folder; where `recursive`, those above it too, and none where there is one. */
  mkdir(path: string, options?: { recursive?: boolean }): Promise<void>;
  /** Gives a file or folder another name, in one step. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file or folder; where `recursive`, with all that is in it. */
  remove(path: string, options?: { recursive?: boolean }): Promise<void>;
}
