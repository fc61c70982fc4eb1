/**
 * Connections from isolate to isolate over MPI: each is a name that parcels bear.
 *
 * @module
 */

import type {
  Collectives,
  Invitation,
  PeerConnector,
  PeerReceiver,
  PeerSender,
} from "../transport.ts";
import type { Address } from "./addresses.ts";
import { type FrameChannel, openFrames } from "./comm.ts";
import type { InvitationAddress, PeerFrame } from "./peer_frames.ts";

/** One that receives. */
interface Receiving {
  readonly receive: (frame: unknown) => void;
  readonly early: unknown[];
  isHeard: boolean | undefined;
  readonly ended: PromiseWithResolvers<void>;
}

/** Connects an isolate to others of its job. */
export class MpiConnector implements PeerConnector {
  readonly #own: Address;
  readonly #frames: FrameChannel;
  readonly #invited: ((sender: PeerSender) => void)[] = [];
  /** By the number of the isolate in the job. */
  readonly #receiving = new Map<number, Receiving>();

  /**
   * @param own where this isolate is.
   * @param port its port to the communication worker of its rank.
   */
  constructor(own: Address, port: MessagePort) {
    this.#own = own;
    this.#frames = openFrames(port, (frame) => this.#hear(frame as PeerFrame));
  }

  /** Sums over the ranks of a column. */
  get collectives(): Collectives {
    return this.#frames;
  }

  /** Receives what has come by now. */
  drain(): void {
    this.#frames.drain();
  }

  invite(_: number, connected: (sender: PeerSender) => void): Invitation {
    const invitation = this.#invited.push(connected) - 1;
    const address: InvitationAddress = { ...this.#own, invitation };
    return { address, transfer: [] };
  }

  connect(_: number, address: unknown, receive: (frame: unknown) => void): PeerReceiver {
    const to = address as InvitationAddress, { isolate, invitation } = to;
    const one: Receiving = {
      receive,
      early: [],
      isHeard: undefined,
      ended: Promise.withResolvers(),
    };
    this.#receiving.set(isolate, one);
    this.#send(to, { kind: "connected", from: this.#own, invitation });
    const hear = (isHeard: boolean) => {
      one.isHeard ??= isHeard;
      for (const frame of one.early.splice(0)) if (one.isHeard) receive(frame);
    };
    return {
      listen: () => hear(true),
      settle() {
        hear(false);
        return one.ended.promise;
      },
      close: () => {
        hear(false);
        this.#receiving.delete(isolate);
      },
    };
  }

  #send(to: Address, frame: PeerFrame, transfer: readonly Transferable[] = []): void {
    this.#frames.send(to, frame, transfer);
  }

  #hear(heard: PeerFrame): void {
    if (heard.kind === "connected") {
      return this.#invited[heard.invitation]?.(this.#senderTo(heard.from));
    }
    const one = this.#receiving.get(heard.from);
    if (heard.kind === "end") one?.ended.resolve();
    else if (one?.isHeard) one.receive(heard.frame);
    else if (one?.isHeard === undefined) one?.early.push(heard.frame);
  }

  #senderTo(to: Address): PeerSender {
    const from = this.#own.isolate;
    return {
      send: (frame, transfer) => this.#send(to, { kind: "frame", from, frame }, transfer),
      finish: () => Promise.resolve(),
      close: () => this.#send(to, { kind: "end", from }),
    };
  }
}
