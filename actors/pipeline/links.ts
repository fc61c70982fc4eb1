/**
 * Arrays that travel, cut into equal parts and put together again: the halves of a micro-batch.
 *
 * @module
 */

import { keyed, type Passed, passedOf, type ValueArray } from "../../kernels/internal.ts";
import type { ActorRef, Context, Message, SendOptions } from "../runtime/mod.ts";

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

/** One of `count` equal parts, in the memory of the whole. */
export function cut<A extends ValueArray>(array: A, index: number, count: number): A {
  if (count === 1) return array;
  const length = array.length / count;
  return array.subarray(index * length, (index + 1) * length) as A;
}

/** The parts one after the other; one alone stays as it is. */
export function join<A extends ValueArray>(parts: readonly A[]): A {
  const [first] = parts as [A];
  if (parts.length === 1) return first;
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const whole = new (first.constructor as new (length: number) => A)(length);
  let offset = 0;
  for (const part of parts) {
    whole.set(part as never, offset);
    offset += part.length;
  }
  return whole;
}

/** Does something to every array that is handed on. */
export function mapPassed(passed: Passed, map: (array: ValueArray) => ValueArray): Passed {
  const values = Object.entries(keyed(passed)).map(([key, array]) => [key, map(array)]);
  return passedOf(Object.fromEntries(values));
}

/** Puts together what is handed on in parts, key by key. */
export function joinPassed(
  parts: readonly Passed[],
  join: (arrays: readonly ValueArray[]) => ValueArray,
): Passed {
  const [first] = parts as [Passed];
  if (parts.length === 1) return first;
  const all = parts.map(keyed);
  return passedOf(
    Object.fromEntries(Object.keys(all[0]!).map((key) => [key, join(all.map((one) => one[key]!))])),
  );
}
