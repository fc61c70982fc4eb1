/**
 * What a confined isolate has been given, and so may use: a record that only grows by what the root
 * sends it.
 *
 * [Note: addresses are capabilities] An address is plain data, so anybody can make one up. What makes
 * it worth something is that the root has seen it on its way to the isolate, in a message, an answer
 * or an init, where an actor's code finds it. Nothing else that the runtime needs shows an address:
 * senders, parents, receipts and whoever waits for whom are replaced by {@linkcode nobody}, and the
 * root puts them back in what returns.
 *
 * @module
 */

import { keyOf } from "../../actor/actor.ts";
import type { Credit, Receipt, ReplyTo } from "../../mailbox/envelope.ts";
import type { ActorRef } from "../../types.ts";
import type { ChaseFrame, LaunchFrame } from "../wire.ts";
import { Recent } from "./recent.ts";

/** Entries of each kind that are kept for one isolate. */
const KEPT = 100_000;

/** Messages of one isolate that may wait at once, wherever they are. */
const MESSAGES_MAX = 65_536;

/** Bytes in them, if they are more than one. */
const BYTES_MAX = 2 ** 30;

/** A question that an actor of the isolate owes the answer to. */
export interface Question {
  readonly asker: ActorRef;
  readonly type: string;
  /** Key of the actor elsewhere that it was handed on to. */
  readonly handedTo?: string;
}

/** A message of the isolate that waits somewhere. */
interface Debt {
  readonly isolate: number;
  readonly bytes: number;
}

/** What a confined isolate has been given. */
export interface Capabilities {
  /** Its first actor. */
  readonly self: ActorRef;
  readonly parent: ActorRef;
  /** Addresses, by key. */
  readonly known: Recent<string, ActorRef>;
  /** Where those actors live. */
  readonly isolates: Set<number>;
  /** Questions that it has to answer, by {@linkcode questionKey}. */
  readonly owed: Recent<string, Question>;
  /** Those that were taken back, when it may have begun to. */
  readonly late: Recent<string, Question>;
  /** Who owes the answers to its own questions. */
  readonly asked: Recent<number, ActorRef>;
  /** Isolates where somebody has watched its actors. */
  readonly watchers: Set<number>;
  /** What it returns without having seen it, by number. */
  readonly chases: Recent<number, ChaseFrame>;
  readonly receipts: Recent<number, Receipt>;
  tickets: number;
  /** Credits of messages that it got from other confined isolates. */
  readonly held: Recent<string, Credit>;
  /** Its own messages that wait, by number. */
  readonly debts: Map<number, Debt>;
  debtBytes: number;
  sent: number;
  hasEnded: boolean;
}

/** What an isolate has been given by its start. */
export function openCapabilities({ ref, parent }: LaunchFrame): Capabilities {
  return {
    self: ref,
    parent,
    known: new Recent(KEPT),
    isolates: new Set(),
    owed: new Recent(KEPT),
    late: new Recent(KEPT),
    asked: new Recent(KEPT),
    watchers: new Set(),
    chases: new Recent(KEPT),
    receipts: new Recent(KEPT),
    tickets: 0,
    held: new Recent(KEPT),
    debts: new Map(),
    debtBytes: 0,
    sent: 0,
    hasEnded: false,
  };
}

/** Tells one question from all others. */
export function questionKey({ isolate, ask }: ReplyTo): string {
  return `${isolate}/${ask}`;
}

/** An address that stands for one that the isolate must not see. */
export function nobody({ self: { system } }: Capabilities, id = "another actor"): ActorRef {
  const nowhere = { id, isolate: 0, serial: Number.MAX_SAFE_INTEGER };
  return system === undefined ? nowhere : { ...nowhere, system };
}

/** Whether an address is {@linkcode nobody}. */
export function isNobody({ isolate, serial }: ActorRef): boolean {
  return isolate === 0 && serial === Number.MAX_SAFE_INTEGER;
}

/** Gives the isolate addresses. */
export function learn(caps: Capabilities, refs: readonly ActorRef[]): void {
  for (const { id, isolate, serial, system } of refs) {
    if (system !== caps.self.system || isolate === caps.self.isolate) continue;
    const ref = { id, isolate, serial, ...system !== undefined && { system } };
    caps.known.set(keyOf(ref), ref);
    caps.isolates.add(isolate);
  }
}

/** Whether an address is that of an actor of the isolate. What it calls its children is its own. */
export function isOwn({ self }: Capabilities, { id, isolate, serial }: ActorRef): boolean {
  if (isolate !== self.isolate || serial < self.serial) return false;
  return serial > self.serial || id === self.id;
}

/** The address as it was given, if it was. */
export function given({ known }: Capabilities, ref: ActorRef): ActorRef | undefined {
  const found = known.get(keyOf(ref));
  return found?.id === ref.id ? found : undefined;
}

/** The first of some addresses of this system that the isolate was never given. */
export function stranger(caps: Capabilities, refs: readonly ActorRef[]): ActorRef | undefined {
  return refs.find((ref) =>
    ref.system === caps.self.system && !isOwn(caps, ref) && !given(caps, ref)
  );
}

/** An address as the isolate may see it. */
export function shown(caps: Capabilities, ref: ActorRef): ActorRef {
  return isOwn(caps, ref) || given(caps, ref) ? ref : nobody(caps);
}

/** Counts a message to `isolate` as one that waits; undefined when too many do. */
export function borrow(caps: Capabilities, isolate: number, bytes: number): Credit | undefined {
  const { debts, self } = caps, isOver = caps.debtBytes + bytes > BYTES_MAX;
  if (debts.size >= MESSAGES_MAX || isOver && debts.size > 0) return undefined;
  const number = caps.sent++;
  debts.set(number, { isolate, bytes });
  caps.debtBytes += bytes;
  return { isolate: self.isolate, number };
}

/** A message waits no more. */
export function repay(caps: Capabilities, number: number): void {
  caps.debtBytes -= caps.debts.get(number)?.bytes ?? 0;
  caps.debts.delete(number);
}

/** Nothing waits any more in an isolate that is gone. */
export function forgive(caps: Capabilities, isolate: number): void {
  for (const [number, debt] of caps.debts) if (debt.isolate === isolate) repay(caps, number);
}
