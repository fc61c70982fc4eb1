/**
 * A disk for rehearsals: it keeps everything in memory, fails where it is told to, and forgets what
 * was not synced when its power fails.
 *
 * @module
 */

import {
  DiskImage,
  type FolderNode,
  newFile,
  newFolder,
  type Node,
  type PowerFailure,
} from "./disk_image.ts";
import { SimulatedFile } from "./simulated_file.ts";

/** What goes wrong in an operation: the disk is full, or the power fails before it. */
export type DiskFault = "full" | PowerFailure;

/** How a disk behaves. */
export interface SimulatedDiskOptions {
  /** Asked before each operation, which is counted from 0, whether it goes wrong. Default: never. */
  readonly fails?: (operation: number, needsRoom: boolean) => DiskFault | undefined;
  /** Draws what survives a power failure in an operation. */
  readonly random?: (operation: number) => () => number;
  /** Bytes that reach the disk together. Default 64, as files of rehearsals are small. */
  readonly sectorBytes?: number;
}

const DEFAULT_SECTOR_BYTES = 64;

/**
 * The power of a simulated disk has failed: whoever used it is dead.
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
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "PowerFailureError";

  /** Says what happened. */
  constructor() {
    super("Cannot use the disk: it must have power");
  }
}

/**
 * A disk in memory with the calls of Deno's that programs need to keep files safely: `open`, `read`,
 * `write`, `sync`, `rename` … Paths are absolute, with `/`.
 *
 * @example What is not synced may be lost
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
  /** Handles of a program that died are of no use to the next one. */
  #life = 0;

  /** An empty disk. */
  constructor(private readonly options: SimulatedDiskOptions = {}) {
    this.#image = new DiskImage(options.sectorBytes ?? DEFAULT_SECTOR_BYTES);
  }

  /** Operations so far: writes of pieces, syncs, and changes of names. */
  get operations(): number {
    return this.#operations;
  }

  /** Whether the power has failed and nobody has restarted it. */
  get isDown(): boolean {
    return this.#isDown;
  }

  /** The power fails now. */
  failPower(how: PowerFailure): void {
    const random = this.options.random?.(this.#operations) ?? (() => 0);
    this.#isDown = true;
    this.#image.fail(how, random);
  }

  /** The power is back; files that were open are gone. */
  restart(): void {
    this.#isDown = false;
    this.#life++;
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
    const opened = node ?? newFile(), life = this.#life;
    if (!node) this.#rename(true, { folder, name, after: opened });
    return new SimulatedFile(this.#image, opened, write, (needsRoom) => {
      if (life !== this.#life) throw new PowerFailureError();
      this.#begin(needsRoom);
    });
  }

  /** All bytes of a file. @throws {Deno.errors.NotFound} (as a rejection). */
  async readFile(path: string): Promise<Uint8Array> {
    const node = await this.#nodeAt(path);
    if (node.kind === "folder") throw new Deno.errors.IsADirectory(`Is a directory: ${path}`);
    return node.bytes.slice();
  }

  /** The names in a folder, in no order that means anything. */
  async *readDir(path: string): AsyncGenerator<{ readonly name: string }, void> {
    const node = await this.#nodeAt(path);
    if (node.kind === "file") throw notFolder(path);
    for (const name of [...node.names.keys()].sort()) yield { name };
  }

  /** Makes a folder; where `recursive`, those above it too. */
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

  /** Gives a file or folder another name, where there is none or one that may be replaced. */
  async rename(from: string, to: string): Promise<void> {
    await this.#turn();
    const source = this.#find(from), target = this.#find(to);
    if (!source.node) throw notFound(from);
    if (target.node?.kind === "folder" && target.node.names.size > 0) {
      throw new Error(`Directory not empty (os error 39): rename '${from}' -> '${to}'`);
    }
    this.#rename(true, { ...source, after: undefined }, { ...target, after: source.node });
  }

  /** Removes a file or folder; where `recursive`, what is in it first, one by one. */
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

  /** Everything takes a turn, as on a real disk, and needs power. */
  async #turn(): Promise<void> {
    await Promise.resolve();
    if (this.#isDown) throw new PowerFailureError();
  }

  /** Begins an operation, which may go wrong. */
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
