/**
 * What a confined process asked for and was denied. Deno notes each permission that is asked for in a
 * file, and not whether it was granted: what was is known here.
 *
 * @module
 */

import { join } from "node:path";
import type { Grants, Kind } from "./grants.ts";

/** Most different denials of one process that are told. */
const MAX_TOLD = 100;

/** Most bytes of notes of what was denied: who asks without end keeps the root busy. */
const MAX_DENIED_BYTES = 2 ** 22;

/** Most bytes that are read at a time. */
const MAX_READ_BYTES = 2 ** 20;

/** Most bytes that are not read yet: who asks without end fills a disk. */
const MAX_UNREAD_BYTES = 2 ** 26;

/** Characters of a value that are told. */
const MAX_VALUE = 1000;

/** Reads the notes of one process. */
export class Audit {
  readonly #path: string;
  readonly #grants: Grants;
  readonly #denied: (permission: string, value: string) => void;
  readonly #told = new Set<string>();
  #read = 0;
  /** Bytes from the beginning that were given back. */
  #freed = 0;
  #deniedBytes = 0;
  #file: Deno.FsFile | undefined;

  /** @param denied called once for each thing that was denied. */
  constructor(
    path: string,
    grants: Grants,
    denied: (permission: string, value: string) => void,
  ) {
    this.#path = path;
    this.#grants = grants;
    this.#denied = denied;
  }

  /** What was told, as a sentence has it; empty when nothing was. */
  get summary(): string {
    return [...this.#told].slice(0, 3).join(", ");
  }

  /**
   * Reads what is new, which costs nothing when nothing is.
   *
   * @returns whether it is too much.
   */
  read(): boolean {
    const file = this.#file ??= this.#open(), size = file?.statSync().size ?? 0;
    if (!file || size <= this.#read) return false;
    if (size - this.#read > MAX_UNREAD_BYTES) return true;
    file.seekSync(this.#read, Deno.SeekMode.Start);
    const bytes = new Uint8Array(Math.min(size - this.#read, MAX_READ_BYTES));
    const got = bytes.subarray(0, file.readSync(bytes) ?? 0);
    // A line may be half written.
    const whole = got.subarray(0, got.lastIndexOf(0x0a) + 1);
    this.#read += whole.length;
    for (const line of new TextDecoder().decode(whole).split("\n")) if (line) this.#note(line);
    this.#free(file);
    return this.#deniedBytes > MAX_DENIED_BYTES;
  }

  /**
   * Gives back to the disk what was read, where that is much.
   *
   * [Note: notes of what was granted] Who may read files may do so for days, and each time is noted.
   * Deno goes on to write where it was, so the file is longer again with the next line, and empty
   * before it. A line that is written at just the moment between a look and the cut is lost.
   */
  #free(file: Deno.FsFile): void {
    if (this.#read - this.#freed < MAX_READ_BYTES || file.statSync().size > this.#read) return;
    file.truncateSync(0);
    this.#freed = this.#read;
  }

  /** Reads what is left, and then no more. */
  close(): void {
    let before: number;
    do before = this.#read; while (!this.read() && this.#read > before);
    this.#file?.close();
    this.#file = undefined;
  }

  #open(): Deno.FsFile | undefined {
    try {
      return Deno.openSync(this.#path, { read: true, write: true });
    } catch {
      // Nothing has been asked for yet.
    }
  }

  #note(line: string): void {
    const noted = noteOf(line.replace(/^\0+/, ""));
    if (!noted) return;
    const { permission, value } = noted, what = value.slice(0, MAX_VALUE);
    if (covers(this.#grants[permission], permission, what)) return;
    this.#deniedBytes += line.length;
    const told = `${permission} ${JSON.stringify(what)}`;
    if (this.#told.has(told) || this.#told.size === MAX_TOLD) return;
    this.#told.add(told);
    this.#denied(permission, what);
  }
}

/** What a line says; nothing, where somebody else has written it. */
function noteOf(line: string): { permission: Kind; value: string } | undefined {
  try {
    const { permission, value } = JSON.parse(line);
    return { permission: String(permission) as Kind, value: String(value ?? "") };
  } catch {
    return undefined;
  }
}

/** Whether a permission is among those granted. */
function covers(granted: true | readonly string[] | undefined, kind: Kind, value: string): boolean {
  if (granted === true) return true;
  return (granted ?? []).some((one) => {
    switch (kind) {
      case "read":
      case "write":
      case "ffi":
        return value === one || value.startsWith(join(one, "/"));
      case "net":
      case "import": {
        const host = URL.canParse(value) && kind === "import" ? hostOf(new URL(value)) : value;
        return host === one || host.replace(/:\d+$/, "") === one;
      }
      default:
        return value === one;
    }
  });
}

function hostOf({ protocol, hostname, port }: URL): string {
  return `${hostname}:${port || (protocol === "https:" ? 443 : 80)}`;
}
