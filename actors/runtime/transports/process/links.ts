/**
 * Links: a socket from each process to each other process that it has something to tell.
 *
 * [Note: the way to a link] The first frames to an isolate go by the root, which passes them on,
 * and so does the sender's address. The receiver calls there. From then on all goes over the link,
 * which the receiver begins to hear when it gets, by the root, the note that nothing more comes
 * that way. So frames keep their order, and a first message is never later than what the sender
 * tells others afterwards, such as that it watches an actor which these then make fail. A receiver
 * knows, before it learns that a sender is gone, that there is a link to be heard to its end.
 *
 * @module
 */

import { type Address, call, type Door, openDoor, type Station } from "./station.ts";
import { Outbox, receive } from "../stream/stream.ts";
import type { ForwardFrame, Frame, SwitchFrame, UpFrame } from "../wire.ts";

/** The receiving end of a link. */
interface Incoming {
  /** Whether the link is to be heard. */
  readonly switched: PromiseWithResolvers<boolean>;
  /** Settles when all that was sent is received. */
  readonly heard: Promise<void>;
}

/** The links of a process. */
export class Links {
  readonly #introduced = new Set<number>();
  readonly #outgoing = new Map<number, Outbox>();
  readonly #incoming = new Map<number, Incoming>();
  readonly #station: Station;
  readonly #number: number;
  readonly #receive: (frame: Frame) => void;
  readonly #up: (frame: UpFrame | ForwardFrame, transfer: readonly ArrayBuffer[]) => void;
  readonly #door: Door;

  /**
   * @param number that of this isolate.
   * @param receive handles a frame.
   * @param up tells the root.
   */
  constructor(
    station: Station,
    number: number,
    receive: (frame: Frame) => void,
    up: (frame: UpFrame | ForwardFrame, transfer: readonly ArrayBuffer[]) => void,
  ) {
    this.#station = station;
    this.#number = number;
    this.#receive = receive;
    this.#up = up;
    this.#door = openDoor(station, `${number}`, (conn, caller) => this.#attach(conn, caller));
  }

  /** The sending ends. */
  outboxes(): Iterable<Outbox> {
    return this.#outgoing.values();
  }

  /** Sends to isolate `to`. @throws {DOMException} when it cannot be cloned. */
  post(to: number, frame: Frame, transfer: readonly ArrayBuffer[]): void {
    const link = this.#outgoing.get(to);
    if (link) return link.post(frame, transfer);
    this.#forward(to, frame, transfer);
    if (this.#introduced.has(to)) return;
    this.#introduced.add(to);
    this.#up({ kind: "introduce", to, line: this.#door.address }, []);
  }

  /** Has a link from isolate `from`, which can be called at `address`. */
  accept(from: number, address: Address): void {
    const switched = Promise.withResolvers<boolean>();
    const heard = this.#hear(address, switched.promise);
    this.#incoming.set(from, { switched, heard });
  }

  /** Nothing more comes from isolate `from` but over its link. */
  switch(from: number): void {
    this.#incoming.get(from)?.switched.resolve(true);
  }

  /** Waits until all that a dead isolate has sent is received. */
  async settle(from: number): Promise<void> {
    const link = this.#incoming.get(from);
    // What went by the root before is lost, so what would come after must not be heard.
    link?.switched.resolve(false);
    await link?.heard;
  }

  /** Ends the links between this isolate and one that is gone. */
  close(isolate: number): void {
    this.#outgoing.get(isolate)?.close();
    this.#outgoing.delete(isolate);
    this.#incoming.delete(isolate);
  }

  /** Sends all there is to send and ends every link. */
  async finish(): Promise<void> {
    await Promise.all([...this.#outgoing.values()].map((link) => link.finish()));
  }

  #forward(to: number, frame: Frame | SwitchFrame, transfer: readonly ArrayBuffer[]): void {
    this.#up({ kind: "forward", to, frame, transfer }, transfer);
  }

  /** A receiver has called. */
  #attach(conn: Deno.Conn, caller: number): void {
    const link = new Outbox();
    link.attach(conn);
    this.#outgoing.set(caller, link);
    this.#forward(caller, { kind: "switch", from: this.#number }, []);
  }

  async #hear(address: Address, isSwitched: Promise<boolean>): Promise<void> {
    const conn = await call(this.#station, address, this.#number).catch(() => undefined);
    // Nobody there: it has died since.
    if (!conn) return;
    if (await isSwitched) await receive(conn, (frame) => this.#receive(frame as Frame));
    conn.close();
  }
}
