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

/** Most that Deno may note, in bytes: who asks without end fills a disk. */
export const MAX_AUDIT_BYTES = 2 ** 22;

/** Characters of a value that are told. */
const MAX_VALUE = 1000;

/** Reads the notes of one process. */
export class Audit {
  readonly #path: string;
  readonly #grants: Grants;
  readonly #denied: (permission: string, value: string) => void;
  readonly #told = new Set<string>();
  #read = 0;
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

  /** Reads what is new, which costs nothing when nothing is. @returns whether it is too much. */
  read(): boolean {
    const file = this.#file ??= this.#open(), size = file?.statSync().size ?? 0;
    if (!file || size === this.#read) return false;
    if (size > MAX_AUDIT_BYTES) return true;
    file.seekSync(this.#read, Deno.SeekMode.Start);
    const bytes = new Uint8Array(size - this.#read);
    const got = bytes.subarray(0, file.readSync(bytes) ?? 0);
    // A line may be half written.
    const whole = got.subarray(0, got.lastIndexOf(0x0a) + 1);
    this.#read += whole.length;
    for (const line of new TextDecoder().decode(whole).split("\n")) if (line) this.#note(line);
    return false;
  }

  /** Reads no more. */
  close(): void {
    this.#file?.close();
    this.#file = undefined;
  }

  #open(): Deno.FsFile | undefined {
    try {
      return Deno.openSync(this.#path);
    } catch {
      // Nothing has been asked for yet.
    }
  }

  #note(line: string): void {
    const noted = noteOf(line);
    if (!noted) return;
    const { permission, value } = noted, what = value.slice(0, MAX_VALUE);
    if (covers(this.#grants[permission], permission, what)) return;
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
