/**
 * A simulated disk in memory, which can fail, and loses unsynced data at a power failure.
 *
 * [Note: durability] Changes are pending until they are synced: bytes by a sync of their file, names
 * (created, renamed, removed) by a sync of their folder, and only by it. At a power failure, any
 * pending changes may have reached the disk: either in order, with the last write in part ("torn"), or
 * in any order, sector by sector ("reordered"). Only changes of one name in one folder keep their order,
 * and impossible changes are dropped, such as renaming a folder whose creation was lost. POSIX allows
 * this, and most file systems lose less: Pillai et al., All File Systems Are Not Created Equal, OSDI
 * 2014.
 *
 * @module
 */

/** A file with its current and its durable bytes. */
interface FileNode {
  readonly kind: "file";
  bytes: Uint8Array;
  durable: Uint8Array;
}

/** A folder with its current and its durable names. */
interface FolderNode {
  readonly kind: "folder";
  names: Map<string, Node>;
  durable: Map<string, Node>;
}

/** A file or a folder. */
type Node = FileNode | FolderNode;

/** A change of the node of a name. */
interface NameChange {
  readonly folder: FolderNode;
  readonly name: string;
  readonly before: Node | undefined;
  readonly after: Node | undefined;
}

/** A change that is not synced. */
type Pending =
  | {
    readonly kind: "bytes";
    readonly file: FileNode;
    readonly at: number;
    readonly bytes: Uint8Array;
  }
  | { readonly kind: "names"; readonly changes: readonly NameChange[] };

/** Treatment of unsynced changes at a power failure. */
export type PowerFailure = "torn" | "reordered";

/** Creates an empty file. */
function newFile(): FileNode {
  return { kind: "file", bytes: new Uint8Array(), durable: new Uint8Array() };
}

/** Creates an empty folder. */
function newFolder(): FolderNode {
  return { kind: "folder", names: new Map(), durable: new Map() };
}

/** The image of a disk. */
class DiskImage {
  readonly root: FolderNode = newFolder();
  #pending: Pending[] = [];

  /** @param sectorBytes bytes that are written together. */
  constructor(private readonly sectorBytes: number) {}

  /** Writes bytes at an offset of a file. */
  write(file: FileNode, at: number, bytes: Uint8Array): void {
    file.bytes = written(file.bytes, at, bytes);
    this.#pending.push({ kind: "bytes", file, at, bytes: bytes.slice() });
  }

  /** Changes names atomically. */
  rename(renamed: readonly Omit<NameChange, "before">[]): void {
    const changes = renamed.map(({ folder, name, after }) => ({
      ...{ folder, name, after, before: folder.names.get(name) },
    }));
    for (const change of changes) apply(change.folder.names, change);
    this.#pending.push({ kind: "names", changes });
  }

  /** Makes the changes of a file's bytes, or of a folder's names, durable. */
  sync(node: Node): void {
    this.#pending = this.#pending.filter((pending) => {
      const isOfNode = pending.kind === "bytes"
        ? pending.file === node
        : pending.changes.some(({ folder }) => folder === node);
      if (isOfNode) settle(pending);
      return !isOfNode;
    });
  }

  /**
   * Simulates a power failure: pending changes survive in part.
   *
   * @param random chooses the survivors.
   */
  fail(how: PowerFailure, random: () => number): void {
    const survivors = how === "torn" ? this.#torn(random) : this.#reordered(random);
    const lost = new Map<FolderNode, Set<string>>();
    const lose = ({ folder, name }: NameChange) => {
      lost.set(folder, (lost.get(folder) ?? new Set()).add(name));
    };
    for (const pending of this.#pending) {
      if (pending.kind === "bytes") { for (const part of survivors(pending)) settle(part); }
      else {
        const { changes } = pending;
        const hasSurvived = survivors(pending).length > 0;
        const isOpen = changes.every(({ folder, name }) => !lost.get(folder)?.has(name));
        // The durable name must be the one before the change.
        const isPossible = changes.every((one) => one.folder.durable.get(one.name) === one.before);
        if (hasSurvived && isOpen && isPossible) settle(pending);
        else changes.forEach(lose);
      }
    }
    this.#pending = [];
    restore(this.root);
  }

  /** All changes up to a moment, and the next write in part. */
  #torn(random: () => number): (pending: Pending) => Pending[] {
    let left = Math.floor(random() * (this.#pending.length + 1));
    return (pending) => {
      if (left-- > 0) return [pending];
      if (left < -1 || pending.kind === "names") return [];
      const length = Math.floor(random() * pending.bytes.length);
      return [{ ...pending, bytes: pending.bytes.subarray(0, length) }];
    };
  }

  /** A random share of changes and sectors, which is random itself. */
  #reordered(random: () => number): (pending: Pending) => Pending[] {
    const share = random(), sector = this.sectorBytes;
    return (pending) => {
      if (pending.kind === "names") return random() < share ? [pending] : [];
      const { file, at, bytes } = pending, parts: Pending[] = [];
      for (let from = 0; from < bytes.length;) {
        const to = Math.min(bytes.length, from + sector - (at + from) % sector);
        if (random() < share) {
          parts.push({ kind: "bytes", file, at: at + from, bytes: bytes.subarray(from, to) });
        }
        from = to;
      }
      return parts;
    };
  }
}

/** Returns bytes with others written into them; gaps are zero. */
function written(into: Uint8Array, at: number, bytes: Uint8Array): Uint8Array {
  const next = new Uint8Array(Math.max(into.length, at + bytes.length));
  next.set(into);
  next.set(bytes, at);
  return next;
}

function apply(names: Map<string, Node>, { name, after }: NameChange): void {
  if (after) names.set(name, after);
  else names.delete(name);
}

function settle(pending: Pending): void {
  if (pending.kind === "names") {
    for (const change of pending.changes) apply(change.folder.durable, change);
  } else {
    const { file, at, bytes } = pending;
    if (bytes.length > 0) file.durable = written(file.durable, at, bytes);
  }
}

/** Resets a node and its descendants to their durable state. */
function restore(node: Node): void {
  if (node.kind === "file") node.bytes = node.durable;
  else {
    node.names = new Map(node.durable);
    for (const child of node.names.values()) restore(child);
  }
}

/** An open file or folder of a `SimulatedDisk`. */
export class SimulatedFile implements Disposable {
  #position = 0;

  /** Called by `SimulatedDisk.open`. */
  constructor(
    private readonly image: DiskImage,
    private readonly node: Node,
    private readonly isWritable: boolean,
    private readonly begin: (needsRoom: boolean) => void,
  ) {}

  /** Reads into `into`; returns the number of bytes, null at the end. */
  async read(into: Uint8Array): Promise<number | null> {
    await Promise.resolve();
    const rest = this.#file().bytes.subarray(this.#position);
    const count = Math.min(rest.length, into.length);
    into.set(rest.subarray(0, count));
    this.#position += count;
    return count === 0 && into.length > 0 ? null : count;
  }

  /** Writes bytes; returns their number. */
  async write(bytes: Uint8Array): Promise<number> {
    await Promise.resolve();
    if (!this.isWritable) throw new Deno.errors.PermissionDenied("Bad file descriptor");
    this.begin(true);
    this.image.write(this.#file(), this.#position, bytes);
    this.#position += bytes.length;
    return bytes.length;
  }

  /** Moves to an offset from the start. */
  async seek(offset: number | bigint, _whence: Deno.SeekMode): Promise<number> {
    await Promise.resolve();
    return this.#position = Number(offset);
  }

  /** Returns the size in bytes. */
  async stat(): Promise<{ readonly size: number }> {
    await Promise.resolve();
    return { size: this.#file().bytes.length };
  }

  /** Makes written bytes durable; for a folder, its names. */
  async sync(): Promise<void> {
    await Promise.resolve();
    // A file system may allocate space only now.
    this.begin(true);
    this.image.sync(this.node);
  }

  /** See {@linkcode SimulatedFile.sync}. */
  syncData(): Promise<void> {
    return this.sync();
  }

  /** Closes the file without syncing it. */
  [Symbol.dispose](): void {}

  #file(): FileNode {
    if (this.node.kind === "file") return this.node;
    throw new Deno.errors.IsADirectory("Is a directory");
  }
}

/** A fault of an operation: the disk is full, or the power fails before it. */
export type DiskFault = "full" | PowerFailure;

/** Options of a {@linkcode SimulatedDisk}. */
export interface SimulatedDiskOptions {
  /** Returns the fault of an operation, given its number from 0. Default: no faults. */
  readonly fails?: (operation: number, needsRoom: boolean) => DiskFault | undefined;
  /** Returns the random numbers of a power failure in an operation. */
  readonly random?: (operation: number) => () => number;
  /** Bytes that are written together. Default 64, because files of simulations are small. */
  readonly sectorBytes?: number;
}

const DEFAULT_SECTOR_BYTES = 64;

/**
 * Thrown by a simulated disk without power.
 *
 * @example
 * ```ts
 * import { PowerFailureError } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * assert.equal(new PowerFailureError().name, "PowerFailureError");
 * ```
 */
export class PowerFailureError extends Error {
  /** The name of the class, for code that cannot use `instanceof`. */
  override readonly name = "PowerFailureError";

  /** Creates the error. */
  constructor() {
    super("Cannot use the disk: it must have power");
  }
}

/**
 * A disk in memory with the functions of Deno that programs need to store files safely: `open`, `read`,
 * `write`, `sync`, `rename` … Paths are absolute, with `/`.
 *
 * @example Unsynced changes may be lost
 * ```ts
 * import { SimulatedDisk } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const disk = new SimulatedDisk({ random: () => () => 0.9 });
 * for (const name of ["/kept", "/lost"]) {
 *   using file = await disk.open(name, { write: true, createNew: true });
 *   await file.write(new TextEncoder().encode("precious"));
 *   if (name === "/lost") continue;
 *   await file.sync();
 *   using folder = await disk.open("/");
 *   await folder.sync();
 * }
 * disk.failPower("reordered");
 * await assert.rejects(disk.readFile("/kept"), { name: "PowerFailureError" });
 * disk.restart();
 * assert.equal(new TextDecoder().decode(await disk.readFile("/kept")), "precious");
 * assert.deepEqual(await Array.fromAsync(disk.readDir("/"), ({ name }) => name), ["kept"]);
 * ```
 */
export class SimulatedDisk {
  readonly #image: DiskImage;
  #operations = 0;
  #isDown = false;
  /** Number of restarts; open files are invalid after one. */
  #restarts = 0;

  /** Creates an empty disk. */
  constructor(private readonly options: SimulatedDiskOptions = {}) {
    this.#image = new DiskImage(options.sectorBytes ?? DEFAULT_SECTOR_BYTES);
  }

  /** Number of operations so far: writes, syncs, and changes of names. */
  get operations(): number {
    return this.#operations;
  }

  /** True after a power failure, until {@linkcode SimulatedDisk.restart}. */
  get isDown(): boolean {
    return this.#isDown;
  }

  /** Simulates a power failure. */
  failPower(how: PowerFailure): void {
    const random = this.options.random?.(this.#operations) ?? (() => 0);
    this.#isDown = true;
    this.#image.fail(how, random);
  }

  /** Restores the power; files that were open are invalid. */
  restart(): void {
    this.#isDown = false;
    this.#restarts++;
  }

  /** Opens a file or folder; see `Deno.open`. @throws {Deno.errors.NotFound} (as a rejection). */
  async open(
    path: string,
    { write = false, createNew = false }: { write?: boolean; createNew?: boolean } = {},
  ): Promise<SimulatedFile> {
    await this.#turn();
    const { folder, name, node } = this.#find(path);
    if (createNew && node) throw exists(path);
    if (!createNew && !node) throw notFound(path);
    const opened = node ?? newFile(), restarts = this.#restarts;
    if (!node) this.#rename(true, { folder, name, after: opened });
    return new SimulatedFile(this.#image, opened, write, (needsRoom) => {
      if (restarts !== this.#restarts) throw new PowerFailureError();
      this.#begin(needsRoom);
    });
  }

  /** Returns all bytes of a file. @throws {Deno.errors.NotFound} (as a rejection). */
  async readFile(path: string): Promise<Uint8Array> {
    const node = await this.#nodeAt(path);
    if (node.kind === "folder") throw new Deno.errors.IsADirectory(`Is a directory: ${path}`);
    return node.bytes.slice();
  }

  /** Yields the names in a folder. */
  async *readDir(path: string): AsyncGenerator<{ readonly name: string }, void> {
    const node = await this.#nodeAt(path);
    if (node.kind === "file") throw notFolder(path);
    for (const name of [...node.names.keys()].sort()) yield { name };
  }

  /** Creates a folder; with `recursive`, also its parents. */
  async mkdir(path: string, { recursive = false }: { recursive?: boolean } = {}): Promise<void> {
    await this.#turn();
    const parts = partsOf(path);
    for (let depth = recursive ? 1 : parts.length; depth <= parts.length; depth++) {
      const { folder, name, node } = this.#find(`/${parts.slice(0, depth).join("/")}`);
      if (node?.kind === "folder" && recursive) continue;
      if (node) throw exists(path);
      this.#rename(true, { folder, name, after: newFolder() });
    }
  }

  /** Renames a file or folder; a file or an empty folder at the target is replaced. */
  async rename(from: string, to: string): Promise<void> {
    await this.#turn();
    const source = this.#find(from), target = this.#find(to);
    if (!source.node) throw notFound(from);
    if (target.node?.kind === "folder" && target.node.names.size > 0) {
      throw new Error(`Directory not empty (os error 39): rename '${from}' -> '${to}'`);
    }
    this.#rename(true, { ...source, after: undefined }, { ...target, after: source.node });
  }

  /** Removes a file or folder; with `recursive`, first its contents, one by one. */
  async remove(path: string, { recursive = false }: { recursive?: boolean } = {}): Promise<void> {
    await this.#turn();
    const { folder, name, node } = this.#find(path);
    if (!node) throw notFound(path);
    if (node.kind === "folder" && node.names.size > 0) {
      if (!recursive) throw new Error(`Directory not empty (os error 39): remove '${path}'`);
      for (const child of [...node.names.keys()]) {
        await this.remove(`${path}/${child}`, { recursive });
      }
    }
    this.#rename(false, { folder, name, after: undefined });
  }

  #rename(needsRoom: boolean, ...changes: Parameters<DiskImage["rename"]>[0]): void {
    this.#begin(needsRoom);
    this.#image.rename(changes);
  }

  /** Takes a turn, as a real disk does, and checks the power. */
  async #turn(): Promise<void> {
    await Promise.resolve();
    if (this.#isDown) throw new PowerFailureError();
  }

  /** Starts an operation, which may fail. */
  #begin(needsRoom: boolean): void {
    if (this.#isDown) throw new PowerFailureError();
    const fault = this.options.fails?.(this.#operations, needsRoom);
    this.#operations++;
    if (fault === "full") throw noRoom();
    if (fault === undefined) return;
    this.failPower(fault);
    throw new PowerFailureError();
  }

  async #nodeAt(path: string): Promise<Node> {
    await this.#turn();
    const { node } = this.#find(path);
    if (node) return node;
    throw notFound(path);
  }

  #find(path: string): { folder: FolderNode; name: string; node: Node | undefined } {
    const parts = partsOf(path), name = parts.pop();
    let folder = this.#image.root;
    for (const part of parts) {
      const next = folder.names.get(part);
      if (!next) throw notFound(path);
      if (next.kind === "file") throw notFolder(path);
      folder = next;
    }
    return name === undefined
      ? { folder, name: "", node: folder }
      : { folder, name, node: folder.names.get(name) };
  }
}

const partsOf = (path: string) => path.split("/").filter((part) => part !== "" && part !== ".");

const notFound = (path: string) =>
  new Deno.errors.NotFound(`No such file or directory (os error 2): ${path}`);

const exists = (path: string) =>
  new Deno.errors.AlreadyExists(`File exists (os error 17): ${path}`);

const notFolder = (path: string) => new Deno.errors.NotADirectory(`Not a directory: ${path}`);

const noRoom = () =>
  Object.assign(new Error("No space left on device (os error 28)"), { code: "ENOSPC" });
