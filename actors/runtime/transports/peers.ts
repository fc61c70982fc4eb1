/**
 * The connections of an isolate to others of its transport, beside the one to the root.
 *
 * [Note: the way to a connection] The first frames to an isolate go by the root, which passes them
 * on, and so does an invitation. The receiver connects. From then on all goes over the connection,
 * to which the receiver begins to listen when it gets, by the root, the note that nothing more
 * comes that way. So frames keep their order, and a first message is never later than what the
 * sender tells others afterwards, such as that it watches an actor which these then make fail. A
 * receiver knows, before it learns that a sender is gone, that there is a connection to be heard to
 * its end.
 *
 * @module
 */

import type { PeerConnector, PeerReceiver, PeerSender } from "./transport.ts";
import type { Frame, SwitchFrame, UpFrame } from "./wire.ts";

/** How an isolate tells the root. */
export type Up = (frame: UpFrame, transfer?: readonly Transferable[]) => void;

/** The other isolates, as one that is not the root reaches them. */
export class Peers {
  /** Those that may connect and have not yet. */
  readonly #invited = new Set<number>();
  readonly #senders = new Map<number, PeerSender>();
  readonly #receivers = new Map<number, PeerReceiver>();
  readonly #number: number;
  readonly #connector: PeerConnector | undefined;
  readonly #receive: (frame: Frame) => void;
  readonly #up: Up;

  /**
   * @param number that of this isolate.
   * @param connector absent where all goes by the root.
   * @param receive handles a frame.
   * @param up tells the root.
   */
  constructor(
    number: number,
    connector: PeerConnector | undefined,
    receive: (frame: Frame) => void,
    up: Up,
  ) {
    this.#number = number;
    this.#connector = connector;
    this.#receive = receive;
    this.#up = up;
  }

  /** Sends to isolate `to`. @throws {DOMException} when it cannot be cloned. */
  post(to: number, frame: Frame, transfer: readonly ArrayBuffer[]): void {
    const sender = this.#senders.get(to);
    if (sender) return sender.send(frame, transfer);
    this.#forward(to, frame, transfer);
    if (!this.#connector || this.#invited.has(to)) return;
    this.#invited.add(to);
    const connected = (sender: PeerSender) => this.#connected(to, sender);
    const { address, transfer: moved } = this.#connector.invite(to, connected);
    this.#up({ kind: "invite", to, address, transfer: moved }, moved);
  }

  /** Connects to isolate `from`. */
  accept(from: number, address: unknown): void {
    const receive = (frame: unknown) => this.#receive(frame as Frame);
    const receiver = this.#connector?.connect(from, address, receive);
    if (receiver) this.#receivers.set(from, receiver);
  }

  /** Nothing more comes from isolate `from` but over its connection. */
  switch(from: number): void {
    this.#receivers.get(from)?.listen();
  }

  /** Waits until all that a dead isolate has sent is received. */
  async settle(from: number): Promise<void> {
    await this.#receivers.get(from)?.settle();
  }

  /** Ends the connections between this isolate and one that is gone. */
  close(isolate: number): void {
    this.#invited.delete(isolate);
    for (const ends of [this.#senders, this.#receivers]) {
      ends.get(isolate)?.close();
      ends.delete(isolate);
    }
  }

  /** Sends all there is to send. */
  async finish(): Promise<void> {
    await Promise.all([...this.#senders.values()].map((sender) => sender.finish()));
  }

  #forward(to: number, frame: Frame | SwitchFrame, transfer: readonly ArrayBuffer[]): void {
    this.#up({ kind: "forward", to, frame, transfer }, transfer);
  }

  #connected(to: number, sender: PeerSender): void {
    // It may have died on its way here.
    if (!this.#invited.delete(to)) return sender.close();
    this.#senders.set(to, sender);
    this.#forward(to, { kind: "switch", from: this.#number }, []);
  }
}
