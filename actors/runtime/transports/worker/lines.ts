/**
 * Lines: one MessagePort from each isolate to each other that it has something to tell. The sender
 * opens the line with its first frame and has the root introduce it, so the two talk directly and
 * no isolate needs to know of another before.
 *
 * @module
 */

import { receiveMessageOnPort } from "node:worker_threads";
import { turn } from "../../world/pace.ts";
import { cloning } from "../../snapshot.ts";
import type { Frame } from "../wire.ts";

/**
 * A frame and its place on its line, as the only entry of a map.
 *
 * [Note: why a map] `receiveMessageOnPort` searches what it received for ports, element by element
 * of every typed array: 10 ms for 512 KB. It does not look into maps.
 */
type Numbered = ReadonlyMap<number, Frame>;

/** The sending end of a line. */
interface Outgoing {
  readonly port: MessagePort;
  sent: number;
}

/** The receiving end of a line. */
interface Incoming {
  readonly port: MessagePort;
  received: number;
  /** Frames that came before their turn: draining overtakes the one that the event loop has. */
  readonly early: Map<number, Frame>;
}

/** Most frames of a line that are received at once: a fast sender must not keep all from work. Many
 * times what an isolate handles until it receives again, so that what waits is counted. */
const MAX_DRAIN = 65_536;

/** Turns of the event loop without a frame after which a dead isolate's line counts as empty. */
const QUIET_TURNS = 4;

/** The lines of an isolate. */
export class Lines {
  readonly #outgoing = new Map<number, Outgoing>();
  readonly #incoming = new Map<number, Incoming>();
  readonly #receive: (frame: Frame) => void;
  readonly #introduce: (to: number, port: MessagePort) => void;

  /**
   * @param receive handles a frame.
   * @param introduce has the port handed to an isolate that has no line from here.
   */
  constructor(
    receive: (frame: Frame) => void,
    introduce: (to: number, port: MessagePort) => void,
  ) {
    this.#receive = receive;
    this.#introduce = introduce;
  }

  /** Sends on the line to isolate `to`. @throws {DOMException} when it cannot be cloned. */
  post(to: number, frame: Frame, transfer: readonly Transferable[]): void {
    const line = this.#outgoing.get(to) ?? this.#open(to);
    const numbered: Numbered = new Map([[line.sent, frame]]);
    cloning(() => line.port.postMessage(numbered, [...transfer]));
    // Only now: a frame that cannot be cloned has not been sent.
    line.sent++;
  }

  /** Listens to the line from isolate `from`. */
  accept(from: number, port: MessagePort): void {
    const line: Incoming = { port, received: 0, early: new Map() };
    this.#incoming.set(from, line);
    port.onmessage = ({ data }) => {
      this.#hear(line, data as Numbered);
      // What waits behind it is to count for the capacity of its actor before that goes on.
      this.#drain(line);
    };
  }

  /** Receives what has come by now. The event loop hands over one frame of a line a turn, which
   * would keep a control message behind as many steps as there are frames before it. */
  drain(): void {
    for (const line of this.#incoming.values()) this.#drain(line);
  }

  #drain(line: Incoming): void {
    for (let n = 0; n < MAX_DRAIN; n++) {
      // The types know the ports of node only; this takes those of the web as well.
      const got = receiveMessageOnPort(line.port as never);
      if (!got) break;
      this.#hear(line, got.message as Numbered);
    }
  }

  /** Waits until all that a dead isolate has sent is received. */
  async settle(from: number): Promise<void> {
    const line = this.#incoming.get(from);
    for (let quiet = 0; line && quiet < QUIET_TURNS; quiet++) {
      const before = line.received;
      await turn();
      this.drain();
      if (line.received !== before) quiet = -1;
    }
  }

  /** Closes both lines between this isolate and another. */
  close(isolate: number): void {
    for (const lines of [this.#outgoing, this.#incoming]) {
      lines.get(isolate)?.port.close();
      lines.delete(isolate);
    }
  }

  /** Closes every line. */
  closeAll(): void {
    for (const isolate of [...this.#outgoing.keys(), ...this.#incoming.keys()]) this.close(isolate);
  }

  #open(to: number): Outgoing {
    const { port1: port, port2 } = new MessageChannel();
    const line = { port, sent: 0 };
    this.#outgoing.set(to, line);
    this.#introduce(to, port2);
    return line;
  }

  #hear(line: Incoming, numbered: Numbered): void {
    for (const [n, frame] of numbered) line.early.set(n, frame);
    let next: Frame | undefined;
    while ((next = line.early.get(line.received))) {
      line.early.delete(line.received++);
      this.#receive(next);
    }
  }
}
