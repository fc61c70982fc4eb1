/**
 * What a disk holds: now, as programs see it, and durably, as it is after the power has failed.
 *
 * [Note: durability] A program's writes and names are pending until they are synced: bytes by a sync
 * of their file, names (made, renamed, removed) by a sync of the folder that they stand in, and by
 * nothing else. When the power fails, any of what is pending may have reached the disk: in order,
 * and the last write in part ("torn"), or in any order, sector by sector ("reordered"). Only changes
 * of one name in one folder keep their order, and what can no longer be done is not done, such as
 * renaming a folder whose making was lost. That is what POSIX lets a file system do, and more than
 * most do: Pillai et al., All File Systems Are Not Created Equal, OSDI 2014.
 *
 * @module
 */

/** A file: its bytes now and durably. */
export interface FileNode {
  readonly kind: "file";
  bytes: Uint8Array;
  durable: Uint8Array;
}

/** A folder: its names now and durably. */
export interface FolderNode {
  readonly kind: "folder";
  names: Map<string, Node>;
  durable: Map<string, Node>;
}

/** A file or a folder. */
export type Node = FileNode | FolderNode;

/** A name that becomes another's, or nobody's. */
interface NameChange {
  readonly folder: FolderNode;
  readonly name: string;
  readonly before: Node | undefined;
  readonly after: Node | undefined;
}

/** What is done but not synced. */
type Pending =
  | {
    readonly kind: "bytes";
    readonly file: FileNode;
    readonly at: number;
    readonly bytes: Uint8Array;
  }
  | { readonly kind: "names"; readonly changes: readonly NameChange[] };

/** How a power failure treats what is not synced. */
export type PowerFailure = "torn" | "reordered";

/** An empty file. */
export function newFile(): FileNode {
  return { kind: "file", bytes: new Uint8Array(), durable: new Uint8Array() };
}

/** An empty folder. */
export function newFolder(): FolderNode {
  return { kind: "folder", names: new Map(), durable: new Map() };
}

/** The image of a disk. */
export class DiskImage {
  readonly root: FolderNode = newFolder();
  #pending: Pending[] = [];

  /** @param sectorBytes bytes that reach the disk together. */
  constructor(private readonly sectorBytes: number) {}

  /** Writes bytes at a place of a file. */
  write(file: FileNode, at: number, bytes: Uint8Array): void {
    file.bytes = written(file.bytes, at, bytes);
    this.#pending.push({ kind: "bytes", file, at, bytes: bytes.slice() });
  }

  /** Changes names, all at once. */
  rename(renamed: readonly Omit<NameChange, "before">[]): void {
    const changes = renamed.map(({ folder, name, after }) => ({
      ...{ folder, name, after, before: folder.names.get(name) },
    }));
    for (const change of changes) apply(change.folder.names, change);
    this.#pending.push({ kind: "names", changes });
  }

  /** Makes what was done to a file's bytes, or a folder's names, durable. */
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
   * The power fails: what was pending survives in part, and everything else is as it was synced.
   *
   * @param random draws what survives.
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
        if (hasSurvived && isOpen && changes.every(isPossible)) settle(pending);
        else changes.forEach(lose);
      }
    }
    this.#pending = [];
    restore(this.root);
  }

  /** All until a moment; the last write up to a byte. */
  #torn(random: () => number): (pending: Pending) => Pending[] {
    let left = Math.floor(random() * (this.#pending.length + 1));
    return (pending) => {
      if (left-- > 0) return [pending];
      if (left < -1 || pending.kind === "names") return [];
      const length = Math.floor(random() * pending.bytes.length);
      return [{ ...pending, bytes: pending.bytes.subarray(0, length) }];
    };
  }

  /** Each change or none, each sector or not; in some runs nearly all, in others nearly none. */
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

/** Bytes with others in them; what was never written is zero. */
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

/** Whether the name is durably what it was when it was changed. */
function isPossible({ folder, name, before }: NameChange): boolean {
  return folder.durable.get(name) === before;
}

/** Makes a node, and all beneath it, what it durably is. */
function restore(node: Node): void {
  if (node.kind === "file") node.bytes = node.durable;
  else {
    node.names = new Map(node.durable);
    for (const child of node.names.values()) restore(child);
  }
}
