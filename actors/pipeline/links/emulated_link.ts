/**
 * An emulated link between workers: messages take the time that they would take over a network.
 *
 * A link from one worker to another carries one message at a time at its bandwidth, and every
 * message arrives one latency after its last byte was sent. The sender stamps the time of arrival
 * and the receiver waits for it, so neither is kept busy and a busy one does not slow the link.
 *
 * @module
 */

import type { ActorRef, Context, Message, SendOptions } from "../../runtime/mod.ts";

/** What is emulated. */
export interface LinkOptions {
  /** Time from the last byte sent to its arrival, α, in microseconds. */
  readonly latencyUs: number;
  /** Bytes in a nanosecond, 1/β: gigabytes a second. */
  readonly gigabytesPerSecond: number;
  /** More latency for each message, drawn anew from 0 to this; 0 unless given. */
  readonly jitterUs?: number | undefined;
}

/** What a worker with links understands besides: `P` are the messages that travel on them. */
export type LinkMessage<P extends Message> =
  /** A message that is still on its way over an emulated link. */
  | { readonly type: "OnLink"; readonly arrivesAt: number; readonly message: P }
  /** To itself: messages on the link have arrived. */
  | { readonly type: "LinkDue" };

/** Both ends of the links of one worker. */
export interface EmulatedLink<P extends Message> {
  /** Sends to another worker; the arrays that are transferred are what takes time. */
  send(to: ActorRef<P | LinkMessage<P>>, message: P, options: SendOptions): void;
  /** Takes a message that is on its way. */
  receive(message: P, arrivesAt: number): void;
  /** The messages that have arrived by now, in order. */
  arrived(): P[];
}

/** Opens the links of a worker; with no options a message arrives as fast as the runtime can. */
export function openEmulatedLink<P extends Message>(
  ctx: Context<P | LinkMessage<P>>,
  options: LinkOptions | undefined,
): EmulatedLink<P> {
  /** When the link to each worker is free. */
  const freeAt = new Map<string, number>();
  const underWay: { arrivesAt: number; message: P; land: () => void }[] = [];
  /** When the last message from each worker arrives: a later one never overtakes it. */
  const lastTo = new Map<string, number>();
  const wake = () => {
    const wait = underWay[0]!.arrivesAt - ctx.now();
    ctx.after(Math.max(0, wait), { type: "LinkDue" }, "link");
  };
  return {
    send(to, message, sending) {
      if (!options || to.id === ctx.self.id) return ctx.send(to, message, sending);
      const { latencyUs, gigabytesPerSecond, jitterUs = 0 } = options;
      const sentAt = Math.max(ctx.now(), freeAt.get(to.id) ?? 0) +
        bytesOf(sending) / (gigabytesPerSecond * 1e6);
      freeAt.set(to.id, sentAt);
      const jitter = jitterUs === 0 ? 0 : jitterUs * ctx.random("link");
      const arrivesAt = Math.max(lastTo.get(to.id) ?? 0, sentAt + (latencyUs + jitter) / 1e3);
      lastTo.set(to.id, arrivesAt);
      ctx.send(to, { type: "OnLink", arrivesAt, message }, sending);
    },
    receive(message, arrivesAt) {
      const later = underWay.findIndex((one) => one.arrivesAt > arrivesAt);
      const { promise, resolve: land } = Promise.withResolvers<void>();
      // While it is on its way nobody may have anything else to do.
      ctx.busy(() => promise);
      underWay.splice(later < 0 ? underWay.length : later, 0, { arrivesAt, message, land });
      if (underWay[0]!.message === message) wake();
    },
    arrived() {
      const now = ctx.now(), later = underWay.findIndex((one) => one.arrivesAt > now);
      const due = underWay.splice(0, later < 0 ? underWay.length : later);
      if (underWay.length > 0) wake();
      for (const { land } of due) land();
      return due.map(({ message }) => message);
    },
  };
}

const bytesOf = ({ transfer = [] }: SendOptions) =>
  transfer.reduce((sum, { byteLength }) => sum + byteLength, 0);
