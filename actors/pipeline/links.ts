/**
 * Messages between workers: emulated links, and the arrays of values, cut into parts and joined.
 *
 * @module
 */

import type { StageValues, ValueArray } from "../../kernels/mod.ts";
import { keyed, stageValues } from "../../kernels/internal.ts";
import type { ActorRef, Context, Message, SendOptions } from "../runtime/mod.ts";

/** An emulated link. */
export interface LinkOptions {
  /** Time from the last byte sent to its arrival, α, in microseconds. */
  readonly latencyUs: number;
  /** The bandwidth, 1/β, in gigabytes per second. */
  readonly gigabytesPerSecond: number;
  /** The most additional latency of a message, drawn for each; 0 unless given. */
  readonly jitterUs?: number | undefined;
}

/** The messages of a worker with links; `P` are the messages on the links. */
export type LinkMessage<P extends Message> =
  /** Brings a message that is in transit on an emulated link. */
  | { readonly type: "OnLink"; readonly arrivesAt: number; readonly message: P }
  /** To itself: handles the messages that have arrived. */
  | { readonly type: "LinkDue" };

/** Both ends of the links of one worker; without options messages are not delayed. */
export class EmulatedLink<P extends Message> {
  readonly #ctx: Context<P | LinkMessage<P>>;
  readonly #options: LinkOptions | undefined;
  /** The time at which the link to each worker is free. */
  readonly #freeAt = new Map<string, number>();
  /** The arrival of the last message to each worker; a later one never overtakes it. */
  readonly #lastTo = new Map<string, number>();
  readonly #inTransit: { arrivesAt: number; message: P; land: () => void }[] = [];

  constructor(ctx: Context<P | LinkMessage<P>>, options: LinkOptions | undefined) {
    this.#ctx = ctx;
    this.#options = options;
  }

  /** Sends to another worker; only transferred arrays take time. */
  send(to: ActorRef<P | LinkMessage<P>>, message: P, sending: SendOptions): void {
    const ctx = this.#ctx, options = this.#options;
    if (!options || to.id === ctx.self.id) return ctx.send(to, message, sending);
    const { latencyUs, gigabytesPerSecond, jitterUs = 0 } = options;
    const sentAt = Math.max(ctx.now(), this.#freeAt.get(to.id) ?? 0) +
      bytesOf(sending) / (gigabytesPerSecond * 1e6);
    this.#freeAt.set(to.id, sentAt);
    const jitter = jitterUs === 0 ? 0 : jitterUs * ctx.random("link");
    const earliest = sentAt + (latencyUs + jitter) / 1e3;
    const arrivesAt = Math.max(this.#lastTo.get(to.id) ?? 0, earliest);
    this.#lastTo.set(to.id, arrivesAt);
    ctx.send(to, { type: "OnLink", arrivesAt, message }, sending);
  }

  /** Takes a message that is in transit. */
  receive(message: P, arrivesAt: number): void {
    const inTransit = this.#inTransit, { promise, resolve: land } = Promise.withResolvers<void>();
    const later = inTransit.findIndex((one) => one.arrivesAt > arrivesAt);
    // While it is in transit, all workers may be idle: the system must not count as stalled.
    this.#ctx.busy(() => promise);
    inTransit.splice(later < 0 ? inTransit.length : later, 0, { arrivesAt, message, land });
    if (inTransit[0]!.message === message) this.#wake();
  }

  /** Removes and returns the messages that have arrived, in order. */
  arrived(): P[] {
    const now = this.#ctx.now(), inTransit = this.#inTransit;
    const later = inTransit.findIndex((one) => one.arrivesAt > now);
    const due = inTransit.splice(0, later < 0 ? inTransit.length : later);
    if (inTransit.length > 0) this.#wake();
    for (const { land } of due) land();
    return due.map(({ message }) => message);
  }

  #wake(): void {
    const wait = this.#inTransit[0]!.arrivesAt - this.#ctx.now();
    this.#ctx.after(Math.max(0, wait), { type: "LinkDue" }, "link");
  }
}

const bytesOf = ({ transfer = [] }: SendOptions) =>
  transfer.reduce((sum, { byteLength }) => sum + byteLength, 0);

/** Returns a view of one of `count` equal parts of an array. */
export function cut<A extends ValueArray>(array: A, index: number, count: number): A {
  if (count === 1) return array;
  const length = array.length / count;
  return array.subarray(index * length, (index + 1) * length) as A;
}

/** Joins parts to one array; a single part is returned as it is. */
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

/** Maps every array of values. */
export function mapValues(
  passed: StageValues,
  map: (array: ValueArray) => ValueArray,
): StageValues {
  const values = Object.entries(keyed(passed)).map(([key, array]) => [key, map(array)]);
  return stageValues(Object.fromEntries(values));
}

/** Joins parts of values, key by key. */
export function joinPassed(
  parts: readonly StageValues[],
  join: (arrays: readonly ValueArray[]) => ValueArray,
): StageValues {
  const [first] = parts as [StageValues];
  if (parts.length === 1) return first;
  const all = parts.map(keyed);
  return stageValues(
    Object.fromEntries(Object.keys(all[0]!).map((key) => [key, join(all.map((one) => one[key]!))])),
  );
}
