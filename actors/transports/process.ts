/**
 * The transport of child processes. A process can be killed, and its exit code or signal is
 * reported.
 *
 * A child has exactly the permissions of this program; if that is impossible, no child is started.
 *
 * [Note: partial permissions] Deno reports for each kind of permission whether it is granted,
 * denied or neither, and whether parts of a granted kind are denied; it does not report which
 * parts. So a kind that is denied in part cannot be passed to a child. A kind that is granted in
 * part looks as if it were not granted, so the child gets none of it. The kinds that a child
 * process needs must therefore be granted as a whole.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type {
  RemoteIsolate,
  StartRequest,
  Transport,
  TransportOptions,
} from "../runtime/transport.ts";
import { resultOr } from "../runtime/types.ts";
import {
  beatOf,
  closeRendezvousFolder,
  type Endpoint,
  listen,
  openRendezvous,
  type Rendezvous,
} from "./rendezvous.ts";
import { SocketPoll } from "./sockets.ts";
import { Outbox, receiveFrames } from "./stream.ts";

/** Data that a child process needs to connect to the root. */
export type Orders = ReturnType<Acceptor["expect"]>;

/** Accepts connections of processes. */
class Acceptor {
  readonly #expected = new Map<number, (conn: Deno.Conn) => void>();
  #rendezvous: Rendezvous | undefined;
  #endpoint: Endpoint | undefined;
  #poll: SocketPoll | undefined;

  /**
   * Expects a connection from a process, until {@linkcode forget}.
   *
   * @param onBeat called whenever the process reports activity.
   */
  expect(isolate: number, attach: (conn: Deno.Conn) => void, onBeat: () => void) {
    const rendezvous = this.#rendezvous ??= openRendezvous();
    this.#endpoint ??= listen(rendezvous, "0", (conn, caller) => {
      const attach = this.#expected.get(caller);
      if (attach) attach(conn);
      else conn.close();
    });
    this.#poll ??= new SocketPoll(rendezvous, 0);
    this.#expected.set(isolate, attach);
    this.#expected.set(beatOf(isolate), (conn) => void hearBeats(conn, onBeat));
    return { isolate, rendezvous, root: this.#endpoint.address };
  }

  /** Removes an ended process; after the last one, closes the sockets and removes the directory. */
  forget(isolate: number): void {
    this.#expected.delete(isolate);
    this.#expected.delete(beatOf(isolate));
    if (this.#expected.size > 0) return;
    this.#endpoint?.close();
    this.#poll?.close();
    if (this.#rendezvous) closeRendezvousFolder(this.#rendezvous.directory);
    this.#endpoint = this.#poll = this.#rendezvous = undefined;
  }

  /** Polls the sockets, if there are any. */
  look(): Promise<void> | undefined {
    return this.#poll?.look();
  }
}

/** Calls `onBeat` for each heartbeat until the process ends, which closes the connection. */
async function hearBeats(conn: Deno.Conn, onBeat: () => void): Promise<void> {
  const bytes = new Uint8Array(64);
  while (await conn.read(bytes).catch(() => null) !== null) onBeat();
  conn.close();
}

const CONFIGS = ["deno.json", "deno.jsonc"];

/**
 * Returns the command that starts a process for an actor.
 *
 * The process uses the configuration nearest to the main module of this program, so that imports
 * mean the same in both.
 *
 * @param memoryLimitMb limit of the JavaScript heap; buffers do not count.
 * @param permissions permission flags.
 * @param directory the private directory, which the process removes if the program dies before it
 * sends its orders.
 */
function commandOf(
  memoryLimitMb: number | undefined,
  permissions: readonly string[],
  directory: string,
): Deno.Command {
  const args = ["run", "--quiet", "--no-prompt", ...configFlags(), ...permissions];
  if (memoryLimitMb !== undefined) args.push(`--v8-flags=--max-old-space-size=${memoryLimitMb}`);
  args.push(new URL("./process_entry.ts", import.meta.url).href, directory);
  return new Deno.Command(Deno.execPath(), {
    args,
    env: { DENO_NO_UPDATE_CHECK: "1" },
    stdin: "piped",
    stdout: "inherit",
    stderr: "inherit",
  });
}

/**
 * Returns a flag for the configuration nearest to the main module. Without the flag, Deno would use
 * the configuration of this package.
 */
function configFlags(): string[] {
  if (!URL.canParse(Deno.mainModule) || new URL(Deno.mainModule).protocol !== "file:") return [];
  let folder = fileURLToPath(Deno.mainModule);
  while (dirname(folder) !== folder) {
    folder = dirname(folder);
    const found = CONFIGS.map((name) => join(folder, name)).find(isFile);
    if (found !== undefined) return ["--config", found];
  }
  return [];
}

const isFile = (path: string): boolean => resultOr(() => Deno.statSync(path).isFile, false);

/** Signals by which V8 ends a process whose heap has reached its limit. */
const OUT_OF_MEMORY_SIGNALS: readonly string[] = ["SIGTRAP", "SIGABRT", "SIGILL"];

/** Describes why a process ended. */
export function endReason({ code, signal }: Deno.CommandStatus): string {
  if (!signal) return `exited with code ${code}`;
  const hint = OUT_OF_MEMORY_SIGNALS.includes(signal) ? ", as when out of memory" : "";
  return `killed by ${signal}${hint}`;
}

/** The transport of child processes. */
export const PROCESS_TRANSPORT: Transport = {
  name: "process",
  sharesMemory: false,
  canKill: true,
  limitsMemory: true,
  check() {
    permissionFlags();
    closeRendezvousFolder(openRendezvous().directory);
  },
  open(options) {
    const acceptor = new Acceptor();
    return {
      start: (request) => startProcess(request, options, acceptor),
      drain: () => acceptor.look(),
    };
  },
};

/**
 * Starts a child process.
 *
 * @throws {DOMException} when the first frame cannot be cloned.
 * @throws {Deno.errors.NotCapable} when the process would not get exactly the permissions of this
 * program.
 * @throws {RangeError} when the folder for temporary files cannot be used.
 */
function startProcess(
  { isolate, memoryLimitMb, boot, transfer, receive }: StartRequest,
  { stopGraceMs }: TransportOptions,
  acceptor: Acceptor,
): RemoteIsolate {
  const gone = Promise.withResolvers<string>(), outbox = new Outbox();
  /** Settles when all received frames are handled. */
  let heard: Promise<void> | undefined;
  /** True when the process has reported activity since the last call of `isAlive`. */
  let sawActivity = false;
  let child: Deno.ChildProcess, isDead = false;
  let killTimer: ReturnType<typeof setTimeout> | undefined;
  const attach = (conn: Deno.Conn) => {
    outbox.attach(conn);
    heard = receiveFrames(conn, receive).finally(() => conn.close());
  };
  const kill = () => {
    // On a failure the process has just died; its status reports it.
    if (!isDead) resultOr(() => child.kill("SIGKILL"), undefined);
  };
  const awaitEnd = async () => {
    const status = await child.status;
    isDead = true;
    clearTimeout(killTimer);
    await child.stdin.close().catch(() => {});
    await heard;
    acceptor.forget(isolate);
    gone.resolve(endReason(status));
  };
  outbox.post(boot, transfer);
  try {
    const permissions = permissionFlags();
    const orders = acceptor.expect(isolate, attach, () => sawActivity = true);
    child = commandOf(memoryLimitMb, permissions, orders.rendezvous.directory).spawn();
    instruct(child, orders);
  } catch (error) {
    acceptor.forget(isolate);
    throw error;
  }
  return {
    send: (frame, transfer) => outbox.post(frame, transfer as readonly ArrayBuffer[]),
    isAlive() {
      const did = sawActivity;
      sawActivity = false;
      return did;
    },
    // All frames of the process are received, because its `done` is the last one.
    close() {
      gone.resolve("it is done");
      if (isDead) return;
      outbox.finish();
      killTimer = setTimeout(kill, stopGraceMs);
    },
    kill,
    gone: gone.promise,
    ended: awaitEnd(),
  };
}

/** Sends the orders as one line of JSON; the pipe stays open while this process lives. */
async function instruct({ stdin }: Deno.ChildProcess, orders: Orders): Promise<void> {
  const writer = stdin.getWriter();
  // A dead process is noticed by its status.
  await writer.write(new TextEncoder().encode(`${JSON.stringify(orders)}\n`)).catch(() => {});
  writer.releaseLock();
}

/** Permissions that a child process needs to start and to connect to others. */
const NEEDED = ["run", "read", "write", "net"] as const;

const OTHERS = ["env", "sys", "ffi", "import"] as const;

/**
 * Returns the permission flags for a child process.
 *
 * @throws {Deno.errors.NotCapable} when the child would not get exactly the permissions of this
 * program.
 */
function permissionFlags(): string[] {
  const kinds = [...NEEDED, ...OTHERS].map((name) => {
    const { state, partial } = Deno.permissions.querySync({ name });
    return { name, state, isPartial: partial === true };
  });
  const problems = kinds.flatMap(({ name, state, isPartial }) => {
    if (isPartial) return [`${name} denied in part`];
    if (!(NEEDED as readonly string[]).includes(name) || state === "granted") return [];
    return [state === "denied" ? `${name} denied` : `${name} not granted as a whole`];
  });
  if (problems.length > 0) {
    const whole = `${NEEDED.join(", ")} must be granted as a whole and none be denied in part`;
    const must = `it gets the permissions of this program, of which ${whole}`;
    const received = problems.join(", ");
    throw new Deno.errors.NotCapable(`Cannot start a process: ${must}, received ${received}`);
  }
  if (kinds.every(({ state }) => state === "granted")) return ["-A"];
  return kinds.filter(({ state }) => state !== "prompt").map(({ name, state }) =>
    `--${state === "granted" ? "allow" : "deny"}-${name}`
  );
}
