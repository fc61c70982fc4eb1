/**
 * A child process as the root sees it: it is killed when it must be, and its death is told with
 * the code or the signal that it died of.
 *
 * @module
 */

import { describeFailure, type Reason } from "../../failure.ts";
import type { Hub } from "../hub.ts";
import { Lines } from "../worker/lines.ts";
import { commandOf } from "./command.ts";
import type { Orders } from "./reception.ts";
import { Outbox, receive } from "../stream/stream.ts";
import type { Host, Root } from "../transport.ts";
import type {
  BootFrame,
  DownFrame,
  ForwardFrame,
  Frame,
  Line,
  SwitchFrame,
  UpFrame,
} from "../wire.ts";

/** What V8 ends a process with when the heap is at its limit. */
const OUT_OF_MEMORY_SIGNALS: readonly string[] = ["SIGTRAP", "SIGABRT", "SIGILL"];

/** A child process, seen from the root. */
export class ProcessHost implements Host {
  readonly #hub: Hub;
  readonly #number: number;
  /** Id of its first actor. */
  readonly #actor: string;
  readonly #graceMs: Root["stopGraceMs"];
  readonly #outbox = new Outbox();
  /** Lines in its name: a process has none of its own, so what comes and goes is passed on. */
  readonly #lines: Lines;
  readonly #child: Deno.ChildProcess;
  /** Settles when all that came is heard. */
  #heard: Promise<void> | undefined;
  #why = "";
  #isDead = false;
  /** It has told that it is at work. */
  #hasStirred = false;
  #killTimer: ReturnType<typeof setTimeout> | undefined;

  /**
   * Starts a process.
   *
   * @throws {DOMException} when the first actor's init cannot be cloned.
   * @throws {Deno.errors.NotCapable} when it would get other permissions than this program.
   * @throws {RangeError} when the folder for temporary files cannot be used.
   */
  constructor(hub: Hub, boot: BootFrame, transfer: readonly ArrayBuffer[]) {
    const { isolate, launch, stopGraceMs } = boot;
    this.#hub = hub;
    this.#number = isolate;
    this.#actor = launch.ref.id;
    this.#graceMs = stopGraceMs;
    this.#lines = new Lines(
      (frame) => this.#outbox.post(frame),
      (to, port) => hub.introduce(isolate, to, port),
    );
    this.#outbox.post(boot, transfer);
    try {
      const command = commandOf(launch.place.memoryLimitMb);
      const orders = hub.reception.enter(
        isolate,
        (conn) => this.#attach(conn),
        () => this.#hasStirred = true,
      );
      this.#child = command.spawn();
      this.#instruct(orders);
    } catch (error) {
      hub.reception.leave(isolate);
      throw error;
    }
  }

  async ended(): Promise<void> {
    const { code, signal } = await this.#child.status;
    this.#isDead = true;
    clearTimeout(this.#killTimer);
    await this.#child.stdin.close().catch(() => {});
    await this.#heard;
    this.#hub.reception.leave(this.#number);
    this.#lines.closeAll();
    this.#hub.lose(this.#number, this.#exit(code, signal));
  }

  post(frame: Frame, transfer: readonly ArrayBuffer[]): void {
    this.#outbox.post(frame, transfer);
  }

  relay(_: Lines, frame: Frame | SwitchFrame, transfer: readonly ArrayBuffer[]): void {
    this.#outbox.post(frame, transfer);
  }

  accept(from: number, line: Line): void {
    if (line instanceof MessagePort) this.#lines.accept(from, line);
    else this.#tell({ kind: "accept", from, line });
  }

  async isolateGone(isolate: number, reason: Reason): Promise<void> {
    await this.#lines.settle(isolate);
    this.#lines.close(isolate);
    this.#tell({ kind: "isolate-gone", isolate, reason });
  }

  stirs(): boolean {
    const hasStirred = this.#hasStirred;
    this.#hasStirred = false;
    return hasStirred;
  }

  hasStarted(about: number): void {
    this.#tell({ kind: "has-started", about });
  }

  kill(why: string): void {
    // Only the first reason counts.
    this.#why ||= why;
    this.#kill();
  }

  /** All that it has sent is received: either "done" was the last of it, or it is dead. */
  leave(): Promise<void> {
    if (!this.#isDead) {
      this.#outbox.finish();
      this.#killTimer = setTimeout(() => this.#kill(), this.#graceMs);
    }
    return Promise.resolve();
  }

  #kill(): void {
    if (!this.#isDead) this.#child.kill("SIGKILL");
  }

  #attach(conn: Deno.Conn): void {
    this.#outbox.attach(conn);
    const heard = receive(conn, (frame) => this.#hear(frame as UpFrame | ForwardFrame | Frame));
    this.#heard = heard.finally(() => conn.close());
  }

  #hear(frame: UpFrame | ForwardFrame | Frame): void {
    if (frame.kind === "forward") this.#hub.forward(this.#lines, frame);
    else this.#hub.hear(this.#number, frame);
  }

  #tell(frame: DownFrame): void {
    this.#outbox.post(frame);
  }

  /** One line of JSON; the pipe stays open for as long as this process lives. */
  async #instruct(orders: Orders): Promise<void> {
    const writer = this.#child.stdin.getWriter();
    // One that has died already is noticed elsewhere.
    await writer.write(new TextEncoder().encode(`${JSON.stringify(orders)}\n`)).catch(() => {});
    writer.releaseLock();
  }

  /** The failure of an actor whose process ended without a word. */
  #exit(code: number, signal: string | null): Reason {
    const hint = OUT_OF_MEMORY_SIGNALS.includes(signal ?? "") ? ", as when out of memory" : "";
    const how = signal ? `killed by ${signal}${hint}` : `exited with code ${code}`;
    const cause = this.#why || how;
    const error = new Error(`the process of "${this.#actor}" has ended: ${cause}`);
    return describeFailure(this.#actor, "exit", error);
  }
}
