/**
 * The transport of child processes: each is killed when it must be, and its death is told with the
 * code or the signal that it died of.
 *
 * @module
 */

import { Outbox, receiveFrames } from "../stream/stream.ts";
import type { RemoteIsolate, StartRequest, Transport, TransportOptions } from "../transport.ts";
import { Acceptor, type Orders } from "./acceptor.ts";
import { commandOf } from "./command.ts";
import { endReason } from "./end_reason.ts";
import { permissionFlags } from "./permissions.ts";
import { closeRendezvous, openRendezvous } from "./rendezvous.ts";

/** Isolates in processes of their own. */
export const PROCESS_TRANSPORT: Transport = {
  name: "process",
  sharesMemory: false,
  canKill: true,
  limitsMemory: true,
  check() {
    permissionFlags();
    closeRendezvous(openRendezvous());
  },
  open(options) {
    const acceptor = new Acceptor();
    return {
      start: (request) => new ProcessIsolate(request, options, acceptor),
      drain: () => acceptor.look(),
    };
  },
};

/** A child process, seen from the root. */
class ProcessIsolate implements RemoteIsolate {
  readonly ended: Promise<void>;
  readonly #gone = Promise.withResolvers<string>();
  readonly #number: number;
  readonly #graceMs: number;
  readonly #acceptor: Acceptor;
  readonly #receive: (frame: unknown) => void;
  readonly #outbox = new Outbox();
  readonly #child: Deno.ChildProcess;
  /** Settles when all that came is heard. */
  #heard: Promise<void> | undefined;
  #isDead = false;
  /** It has told that it is at work. */
  #hasStirred = false;
  #killTimer: ReturnType<typeof setTimeout> | undefined;

  /**
   * Starts a process.
   *
   * @throws {DOMException} when the first frame cannot be cloned.
   * @throws {Deno.errors.NotCapable} when it would get other permissions than this program.
   * @throws {RangeError} when the folder for temporary files cannot be used.
   */
  constructor(
    { isolate, memoryLimitMb, boot, transfer, receive }: StartRequest,
    { stopGraceMs }: TransportOptions,
    acceptor: Acceptor,
  ) {
    this.#number = isolate;
    this.#graceMs = stopGraceMs;
    this.#acceptor = acceptor;
    this.#receive = receive;
    this.#outbox.post(boot, transfer);
    try {
      const permissions = permissionFlags();
      const orders = acceptor.expect(
        isolate,
        (conn) => this.#attach(conn),
        () => this.#hasStirred = true,
      );
      this.#child = commandOf(memoryLimitMb, permissions, orders.rendezvous.directory).spawn();
      this.#instruct(orders);
    } catch (error) {
      acceptor.forget(isolate);
      throw error;
    }
    this.ended = this.#awaitEnd();
  }

  get gone(): Promise<string> {
    return this.#gone.promise;
  }

  send(frame: unknown, transfer: readonly Transferable[]): void {
    this.#outbox.post(frame, transfer as readonly ArrayBuffer[]);
  }

  stirs(): boolean {
    const hasStirred = this.#hasStirred;
    this.#hasStirred = false;
    return hasStirred;
  }

  /** All that it has sent is received: that it is done was the last of it. */
  close(): void {
    this.#gone.resolve("it is done");
    if (this.#isDead) return;
    this.#outbox.finish();
    this.#killTimer = setTimeout(() => this.kill(), this.#graceMs);
  }

  kill(): void {
    if (this.#isDead) return;
    try {
      this.#child.kill("SIGKILL");
    } catch {
      // It died a moment ago, and its status is about to say so.
    }
  }

  async #awaitEnd(): Promise<void> {
    const status = await this.#child.status;
    this.#isDead = true;
    clearTimeout(this.#killTimer);
    await this.#child.stdin.close().catch(() => {});
    await this.#heard;
    this.#acceptor.forget(this.#number);
    this.#gone.resolve(endReason(status));
  }

  #attach(conn: Deno.Conn): void {
    this.#outbox.attach(conn);
    this.#heard = receiveFrames(conn, this.#receive).finally(() => conn.close());
  }

  /** One line of JSON; the pipe stays open for as long as this process lives. */
  async #instruct(orders: Orders): Promise<void> {
    const writer = this.#child.stdin.getWriter();
    // One that has died already is noticed elsewhere.
    await writer.write(new TextEncoder().encode(`${JSON.stringify(orders)}\n`)).catch(() => {});
    writer.releaseLock();
  }
}
