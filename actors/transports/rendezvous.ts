/**
 * Where processes meet: a private directory with a socket for each, and a token that those who
 * call must know.
 *
 * The sockets are of the Unix domain, in a directory that only this user can enter. On Windows,
 * where Deno has none, they are of TCP on the loopback interface, where the token is what keeps
 * others out; that is untested.
 *
 * [Note: whose folder it is] As long as its program lives, it holds a lock on the file `lock` in
 * its folder, which the system takes away whatever the program dies of. The file gets its name when
 * it is locked already. So a folder with a lock file that can be locked is one that nobody needs. When
 * a program is killed, those of its processes that are left remove it; when all are killed at once, the
 * next program does.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { readAll } from "./stream.ts";

const PREFIX = "troupe-", LOCK = "lock";

/** Longest path of a socket in bytes: what fits into `sun_path`. */
const MAX_PATH_BYTES = Deno.build.os === "linux" ? 107 : 103;

/** Bytes of the longest name of a socket, with the slash before it: ten digits and `.sock`. */
const NAME_BYTES = 16;

/** Times that a folder is removed which others remove as well. */
const MAX_TRIES = 10;

/** The locks of this program's folders, by path. */
const held = new Map<string, Deno.FsFile>();

/**
 * Makes a folder, and removes those that killed programs of the same user have left.
 *
 * @returns its path, to be given to {@linkcode closeRendezvousFolder}.
 * @throws {RangeError} when the folder for temporary files is missing, full, or named too long.
 */
export function openRendezvousFolder(): string {
  let path: string | undefined;
  try {
    path = Deno.makeTempDirSync({ prefix: PREFIX });
    const bytes = new TextEncoder().encode(path).length + NAME_BYTES;
    if (bytes > MAX_PATH_BYTES && Deno.build.os !== "windows") {
      throw new RangeError(
        `${path}, where a socket would have ${bytes} of ${MAX_PATH_BYTES} bytes`,
      );
    }
    lockTemporaryFolder(path);
    removeAbandoned(path);
    return path;
  } catch (cause) {
    if (path !== undefined) Deno.removeSync(path, { recursive: true });
    if (cause instanceof Deno.errors.NotCapable) throw cause;
    throw new RangeError(
      `Cannot start a process: TMPDIR must be a folder that can be written, has room and a short ` +
        `path, received ${(cause as Error).message}`,
      { cause },
    );
  }
}

/** Removes the folder and what is in it. */
export function closeRendezvousFolder(path: string): void {
  try {
    Deno.removeSync(path, { recursive: true });
  } catch (error) {
    // What tidies temporary directories may have been faster.
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  } finally {
    held.get(path)?.close();
    held.delete(path);
  }
}

/**
 * Removes folders that killed programs of this user have left, where this program may do so without
 * asking.
 */
export function tidyRendezvousFolders(): void {
  const kinds = ["read", "write"] as const;
  if (kinds.some((name) => Deno.permissions.querySync({ name }).state !== "granted")) return;
  try {
    const path = Deno.makeTempDirSync({ prefix: PREFIX });
    removeAbandoned(path);
    Deno.removeSync(path);
  } catch {
    // To tidy up after others is not worth an error.
  }
}

/** Removes the folder of a program that has died, and what else it has left. */
export function removeOrphaned(path: string): void {
  // When several processes do, each may fail for what another did, and the last one succeeds.
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    try {
      Deno.removeSync(path, { recursive: true });
    } catch {
      // It is gone, or is tried again.
    }
  }
  tidyRendezvousFolders();
}

/** Locks a temporary folder that others remove when this program dies. */
export function lockTemporaryFolder(path: string): void {
  held.set(path, lockIn(path));
}

function lockIn(path: string): Deno.FsFile {
  const unlocked = join(path, `${LOCK}-new`);
  const file = Deno.openSync(unlocked, { write: true, createNew: true });
  try {
    file.lockSync(true);
    // A full disk may have had room for a folder and an empty file.
    file.writeSync(new TextEncoder().encode(`pid ${Deno.pid}\n`));
    Deno.renameSync(unlocked, join(path, LOCK));
    return file;
  } catch (error) {
    file.close();
    throw error;
  }
}

/** Removes what lies abandoned beside a folder of this program. */
function removeAbandoned(own: string): void {
  const temporary = dirname(own), { uid } = Deno.lstatSync(own);
  for (const { name, isDirectory } of Deno.readDirSync(temporary)) {
    const path = join(temporary, name);
    if (!isDirectory || !name.startsWith(PREFIX) || !isAbandoned(path, uid)) continue;
    try {
      Deno.removeSync(path, { recursive: true });
    } catch {
      // Another program tidies up as well.
    }
  }
}

/** Whether the program that made a folder is dead. Other users' folders are not looked into. */
function isAbandoned(path: string, uid: number | null): boolean {
  try {
    const lock = join(path, LOCK);
    if (Deno.lstatSync(path).uid !== uid || !Deno.lstatSync(lock).isFile) return false;
    using file = Deno.openSync(lock, { write: true });
    return file.tryLockSync(true);
  } catch {
    return false;
  }
}

/** Where a process listens. */
export type Address = Deno.UnixAddr | Deno.NetAddr;

/** What two processes must share to meet. */
export interface Rendezvous {
  readonly directory: string;
  readonly token: string;
}

/** A place where one isolate can be connected to. */
export interface Endpoint {
  readonly address: Address;
  close(): void;
}

const ENCODER = new TextEncoder();

/** Length of a UUID. */
const TOKEN_BYTES = 36;

/** The number of the isolate that calls. */
const CALLER_BYTES = Float64Array.BYTES_PER_ELEMENT;

/** The number by which the watchdog of an isolate's process calls. */
export const beatOf = (isolate: number) => -isolate;

/** Makes the directory. @throws {RangeError} when the folder for temporary files cannot have it. */
export function openRendezvous(): Rendezvous {
  return { directory: openRendezvousFolder(), token: crypto.randomUUID() };
}

/** Removes the directory and what is in it. */
export function closeRendezvous({ directory }: Rendezvous): void {
  closeRendezvousFolder(directory);
}

/** Listens for connections. @param name that of the socket in its directory. */
export function listen(
  { directory, token }: Rendezvous,
  name: string,
  onConnect: (conn: Deno.Conn, caller: number) => void,
): Endpoint {
  const listener: Deno.Listener<Deno.Conn<Address>, Address> = Deno.build.os === "windows"
    ? Deno.listen({ transport: "tcp", hostname: "127.0.0.1", port: 0 })
    : Deno.listen({ transport: "unix", path: `${directory}/${name}.sock` });
  const hear = async () => {
    for await (const conn of listener) {
      authenticate(conn, token).then((caller) => {
        if (caller === undefined) conn.close();
        else onConnect(conn, caller);
      });
    }
  };
  // It ends when the endpoint is closed.
  hear().catch(() => {});
  return { address: listener.addr, close: () => listener.close() };
}

/** Who calls, or undefined for one that does not know the token. */
async function authenticate(conn: Deno.Conn, token: string): Promise<number | undefined> {
  const greeting = await readAll(conn, TOKEN_BYTES + CALLER_BYTES).catch(() => undefined);
  if (!greeting || !ENCODER.encode(token).every((byte, n) => byte === greeting[n])) {
    return undefined;
  }
  return new DataView(greeting.buffer).getFloat64(TOKEN_BYTES);
}

/** Calls the isolate at `address` in the name of another. */
export async function connect(
  { token }: Rendezvous,
  address: Address,
  caller: number,
): Promise<Deno.Conn> {
  const conn: Deno.Conn = "path" in address
    ? await Deno.connect({ transport: "unix", path: address.path })
    : await Deno.connect({ hostname: address.hostname, port: address.port });
  const greeting = new Uint8Array(TOKEN_BYTES + CALLER_BYTES);
  ENCODER.encodeInto(token, greeting);
  new DataView(greeting.buffer).setFloat64(TOKEN_BYTES, caller);
  // So few bytes always go at once into a socket that is new.
  await conn.write(greeting);
  return conn;
}
