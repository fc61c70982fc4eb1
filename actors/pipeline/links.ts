/**
 * Messages between workers: emulated links, arrays of values, cut into parts and joined, and inputs
 * that have arrived for the next actions.
 *
 * @module
 */

import { type Action, formatAction } from "../../schedules/mod.ts";
import { cutInto, endsBackward, WHOLE } from "../../schedules/internal.ts";
import { CompactingMap } from "../runtime/actor.ts";
import type { Batch, StageValues, ValueArray } from "../../kernels/mod.ts";
import { keyed, stageValues } from "../../kernels/internal.ts";
import type { ActorRef, Context, Message, SendOptions } from "../runtime/mod.ts";

/** An emulated link. */
export interface LinkOptions {
  /** Time from the last byte sent to its arrival, α, in microseconds. */
  readonly latencyUs: number;
  /** The bandwidth, 1/β, in gigabytes per second. */
  readonly gigabytesPerSecond: number;
  /** The most additional latency of a message, drawn for each. Default 0. */
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
  /** The time at which the link to each worker is free. */
  readonly #freeAt = new Map<string, number>();
  /** The arrival of the last message to each worker; a later one never overtakes it. */
  readonly #lastTo = new Map<string, number>();
  readonly #inTransit: { arrivesAt: number; message: P; land: () => void }[] = [];

  constructor(
    private readonly ctx: Context<P | LinkMessage<P>>,
    private readonly options: LinkOptions | undefined,
  ) {}

  /** Sends to another worker; only transferred arrays take time. */
  send(to: ActorRef<P | LinkMessage<P>>, message: P, sending: SendOptions): void {
    const ctx = this.ctx, options = this.options;
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
    this.ctx.busy(() => promise);
    inTransit.splice(later < 0 ? inTransit.length : later, 0, { arrivesAt, message, land });
    if (inTransit[0]!.message === message) this.#wake();
  }

  /** Removes and returns the messages that have arrived, in order. */
  arrived(): P[] {
    const now = this.ctx.now(), inTransit = this.#inTransit;
    const later = inTransit.findIndex((one) => one.arrivesAt > now);
    const due = inTransit.splice(0, later < 0 ? inTransit.length : later);
    if (inTransit.length > 0) this.#wake();
    for (const { land } of due) land();
    return due.map(({ message }) => message);
  }

  #wake(): void {
    const wait = this.#inTransit[0]!.arrivesAt - this.ctx.now();
    this.ctx.after(Math.max(0, wait), { type: "LinkDue" }, "link");
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
  map: (array: ValueArray, key: string) => ValueArray,
): StageValues {
  const values = Object.entries(keyed(passed)).map(([key, array]) => [key, map(array, key)]);
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
  return mapValues(first, (_, key) => join(all.map((one) => one[key]!)));
}

/** The input of an F or B. */
export interface Arrival {
  readonly tensor?: StageValues;
  readonly fields: Batch;
  /** The time at which another actor's message brought it; only in a traced run. */
  readonly at?: number | undefined;
}

/** The key of a stage and a micro-batch, or of a part of it. */
const keyOf = ({ stage, microBatch, part = WHOLE }: Action) =>
  `${stage}/${microBatch}/${part.index}`;

/** The inputs of a worker's next actions. */
export class Arrivals {
  readonly #inputs = new CompactingMap<string, Arrival>();
  readonly #evaluated = new CompactingMap<string, Arrival & { readonly missing: number }>();
  readonly #returns = new CompactingMap<string, StageValues>();
  readonly #buffers = new Map<number, StageValues[]>();
  #latest: number | undefined;

  /** Keeps an input of an action, together with what other messages have brought for it. */
  keep(action: Action, arrival: Arrival): void {
    const name = formatAction(action), before = this.#inputs.take(name);
    this.#inputs.set(name, before ? together(before, arrival) : arrival);
  }

  /** Keeps an input of an evaluation. @returns all inputs once the given number of messages came. */
  gather(name: string, arrival: Arrival, messages: number): Arrival | undefined {
    const before = this.#evaluated.take(name), missing = (before?.missing ?? messages) - 1;
    const all = before ? together(before, arrival) : arrival;
    if (missing <= 0) return all;
    this.#evaluated.set(name, { ...all, missing });
  }

  /** Removes and returns the input of an F. */
  takeForward(action: Action): Arrival {
    const arrival = this.#take(action);
    if (arrival) return arrival;
    throw new Error(`Cannot run ${formatAction(action)}: its input must have arrived`);
  }

  /** Removes and returns the gradient for a B or I, or for a part of a B. */
  takeGradient({ part, ...action }: Action): StageValues {
    const whole: Action = { ...action, kind: "B" };
    if (part === undefined) {
      const arrival = this.#take(whole);
      if (arrival) return arrival.tensor!;
      // A whole backward whose gradient arrived in parts.
      return joinPassed(
        cutInto(2).map((part) => this.takeForward({ ...whole, part }).tensor!),
        join,
      );
    }
    const own = this.#take({ ...whole, part });
    if (own) return own.tensor!;
    // A whole gradient stays until the last part of its backward runs.
    const arrival = this.takeForward(whole);
    if (!endsBackward({ ...whole, part })) this.#inputs.set(formatAction(whole), arrival);
    return mapValues(arrival.tensor!, (array) => cut(array, part.index, part.count));
  }

  #take(action: Action): Arrival | undefined {
    const arrival = this.#inputs.take(formatAction(action));
    if (arrival?.at !== undefined) this.#latest = Math.max(this.#latest ?? 0, arrival.at);
    return arrival;
  }

  /** Keeps the arrays that brought activations, for the gradients that are sent back. */
  keepReturn(action: Action, arrays: StageValues): void {
    this.#returns.set(keyOf(action), arrays);
  }

  /** Removes and returns the arrays that brought the activations of an action. */
  takeReturn(action: Action): StageValues | undefined {
    return this.#returns.take(keyOf(action));
  }

  /** Keeps the arrays that brought gradients of a stage, for the activations that it sends. */
  keepBuffer(stage: number, arrays: StageValues): void {
    this.#buffers.getOrInsertComputed(stage, () => []).push(arrays);
  }

  /** Removes and returns arrays for the activations of a stage. */
  takeBuffer(stage: number): StageValues | undefined {
    return this.#buffers.get(stage)?.pop();
  }

  /** The arrival of the last input taken since the last call; undefined unless the run is traced. */
  takeLatest(): number | undefined {
    const latest = this.#latest;
    this.#latest = undefined;
    return latest;
  }
}

/** The inputs that two messages have brought. */
function together(a: Arrival, b: Arrival): Arrival {
  return {
    tensor: { ...a.tensor && keyed(a.tensor), ...b.tensor && keyed(b.tensor) },
    fields: { ...a.fields, ...b.fields },
    at: b.at,
  };
}
