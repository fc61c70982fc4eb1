/**
 * Where processes meet: a private directory with a socket for each, and a token that those who
 * call must know.
 *
 * The sockets are of the Unix domain, in a directory that only this user can enter. On Windows,
 * where Deno has none, they are of TCP on the loopback interface, where the token is what keeps
 * others out; that is untested.
 *
 * @module
 */

import { readAll } from "../stream/stream.ts";
import { closeRendezvousFolder, openRendezvousFolder } from "./rendezvous_folder.ts";

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
