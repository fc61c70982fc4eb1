/**
 * Connects the processes of a program: a private directory with a socket for each process, and a
 * token that a connecting process must send.
 *
 * The sockets are Unix domain sockets in a directory that only this user can enter. On Windows,
 * where Deno does not support them, they are TCP sockets on the loopback interface, protected by
 * the token; that is untested.
 *
 * [Note: owner of a folder] While its program lives, it holds a lock on the file `lock` in its
 * folder; the system releases the lock whenever the program dies. The file is renamed to `lock`
 * after it is locked. So a folder whose `lock` can be locked is abandoned. When a program is
 * killed, its remaining processes remove the folder; when all are killed at the same time, the next
 * program removes it.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { resultOr } from "../runtime/types.ts";
import { readAll } from "./stream.ts";

const PREFIX = "troupe-", LOCK = "lock";

/** Maximum path length of a socket in bytes: what fits into `sun_path`. */
const MAX_PATH_BYTES = Deno.build.os === "linux" ? 107 : 103;

/** Maximum bytes of a socket name with its slash: ten digits and `.sock`. */
const NAME_BYTES = 16;

/** Maximum attempts to remove a folder that other processes remove at the same time. */
const MAX_TRIES = 10;

/** Locks of this program's folders, by path. */
const held = new Map<string, Deno.FsFile>();

/**
 * Creates a folder, and removes folders that killed programs of the same user have left.
 *
 * @returns the path, to be passed to {@linkcode closeRendezvousFolder}.
 * @throws {RangeError} when the folder for temporary files is missing or full, or its path is too
 * long.
 */
export function openRendezvousFolder(): string {
  let path: string | undefined;
  try {
    path = Deno.makeTempDirSync({ prefix: PREFIX });
    const bytes = new TextEncoder().encode(path).length + NAME_BYTES;
    if (bytes > MAX_PATH_BYTES && Deno.build.os !== "windows") {
      throw new RangeError(`${path}, with sockets of ${bytes} of ${MAX_PATH_BYTES} bytes`);
    }
    lockTemporaryFolder(path);
    removeAbandoned(path);
    return path;
  } catch (cause) {
    if (path !== undefined) Deno.removeSync(path, { recursive: true });
    if (cause instanceof Deno.errors.NotCapable) throw cause;
    const must = "TMPDIR must be a folder that can be written, has room and a short path";
    const received = (cause as Error).message;
    throw new RangeError(`Cannot start a process: ${must}, received ${received}`, { cause });
  }
}

/** Removes a folder and its contents. */
export function closeRendezvousFolder(path: string): void {
  try {
    Deno.removeSync(path, { recursive: true });
  } catch (error) {
    // A cleaner of temporary directories may have removed it first.
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  } finally {
    held.get(path)?.close();
    held.delete(path);
  }
}

/**
 * Removes folders that killed programs of this user have left, if this program has the permissions.
 */
export function tidyRendezvousFolders(): void {
  const kinds = ["read", "write"] as const;
  if (kinds.some((name) => Deno.permissions.querySync({ name }).state !== "granted")) return;
  try {
    const path = Deno.makeTempDirSync({ prefix: PREFIX });
    removeAbandoned(path);
    Deno.removeSync(path);
  } catch {
    // A failed cleanup is not an error of this program.
  }
}

/** Removes the folder of a dead program, and other abandoned folders. */
export function removeOrphaned(path: string): void {
  // Processes that remove it at the same time may make each other fail; the last attempt succeeds.
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    // On a failure the folder is gone, or the next attempt removes it.
    resultOr(() => Deno.removeSync(path, { recursive: true }), undefined);
  }
  tidyRendezvousFolders();
}

/** Locks a temporary folder; other programs remove it after this program dies. */
export function lockTemporaryFolder(path: string): void {
  const unlocked = join(path, `${LOCK}-new`);
  const file = Deno.openSync(unlocked, { write: true, createNew: true });
  try {
    file.lockSync(true);
    // A full disk may have had room for the folder and an empty file, but not for data.
    file.writeSync(new TextEncoder().encode(`pid ${Deno.pid}\n`));
    Deno.renameSync(unlocked, join(path, LOCK));
    held.set(path, file);
  } catch (error) {
    file.close();
    throw error;
  }
}

/** Removes abandoned folders next to a folder of this program. */
function removeAbandoned(own: string): void {
  const temporary = dirname(own), { uid } = Deno.lstatSync(own);
  for (const { name, isDirectory } of Deno.readDirSync(temporary)) {
    const path = join(temporary, name);
    if (!isDirectory || !name.startsWith(PREFIX) || !isAbandoned(path, uid)) continue;
    // On a failure another program removes it at the same time.
    resultOr(() => Deno.removeSync(path, { recursive: true }), undefined);
  }
}

/** Returns whether the program that created a folder has died; false for other users' folders. */
const isAbandoned = (path: string, uid: number | null): boolean =>
  resultOr(() => {
    const lock = join(path, LOCK);
    if (Deno.lstatSync(path).uid !== uid || !Deno.lstatSync(lock).isFile) return false;
    using file = Deno.openSync(lock, { write: true });
    return file.tryLockSync(true);
  }, false);

/** Address of a listening socket. */
export type Address = Deno.UnixAddr | Deno.NetAddr;

/** Data that two processes share to connect. */
export type Rendezvous = ReturnType<typeof openRendezvous>;

/** A listening socket of an isolate. */
export type Endpoint = ReturnType<typeof listen>;

const ENCODER = new TextEncoder();

/** Length of a UUID. */
const TOKEN_BYTES = 36;

/** Bytes of the number of the connecting isolate. */
const CALLER_BYTES = Float64Array.BYTES_PER_ELEMENT;

/** Returns the caller number of the watchdog of an isolate's process. */
export const beatOf = (isolate: number) => -isolate;

/**
 * Creates the directory.
 *
 * @throws {RangeError} when the folder for temporary files cannot be used.
 */
export function openRendezvous() {
  return { directory: openRendezvousFolder(), token: crypto.randomUUID() };
}

/**
 * Listens for connections.
 *
 * @param name name of the socket in the directory.
 */
export function listen(
  { directory, token }: Rendezvous,
  name: string,
  onConnect: (conn: Deno.Conn, caller: number) => void,
) {
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
  // The loop ends when the endpoint is closed.
  hear().catch(() => {});
  return { address: listener.addr, close: () => listener.close() };
}

/** Returns the number of the caller; undefined when its token is wrong. */
async function authenticate(conn: Deno.Conn, token: string): Promise<number | undefined> {
  const greeting = await readAll(conn, TOKEN_BYTES + CALLER_BYTES).catch(() => undefined);
  if (!greeting || !ENCODER.encode(token).every((byte, n) => byte === greeting[n])) {
    return undefined;
  }
  return new DataView(greeting.buffer).getFloat64(TOKEN_BYTES);
}

/** Connects to the isolate at `address` as `caller`. */
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
  // A new socket always accepts this few bytes in one write.
  await conn.write(greeting);
  return conn;
}
