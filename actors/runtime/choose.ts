/**
 * Which message is handled next: the one place where the order of a run is decided.
 *
 * @module
 */

import { type Actor, headOf, headsOf } from "./actor.ts";
import type { Envelope } from "./mailbox.ts";
import type { Lane } from "./types.ts";

/** A message that may be handled next. */
export interface Candidate {
  /** Id of the actor that would handle it. */
  readonly actor: string;
  /** The lane it waits in. */
  readonly lane: Lane;
  /** Id of the sender. */
  readonly from: string;
  /** Type of the message; `init`, `finish` and `answer:…` are what the runtime lets an actor do. */
  readonly type: string;
  /** Counts what was enqueued in the isolate: a lower one is older. */
  readonly seq: number;
}

/**
 * Picks the next message by its index. Candidates stand in one order everywhere: control before
 * data, then the oldest first. So 0 is what happens without a `Choose`. A message behind another
 * of the same sender and lane is no candidate.
 *
 * @example The newest message first, as far as the order of each sender allows
 * ```ts
 * import { type Choose, createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const module = `data:text/javascript,export const log = (ctx) => {
 *   const log = [];
 *   return { Note({ n }) { log.push(n); }, Read() { ctx.reply(log); } };
 * }`;
 * type Log = { type: "Note"; n: number } | { type: "Read" };
 *
 * const choose: Choose = (candidates) => candidates.length - 1;
 * await using system = createSystem({ choose });
 * const log = system.spawn<undefined, Log>({ module, export: "log" }, undefined, { id: "log" });
 * for (const n of [1, 2]) system.send(log, { type: "Note", n });
 * assert.deepEqual(await system.ask(log, { type: "Read" }), [1, 2]);
 * ```
 */
export type Choose = (candidates: readonly Candidate[]) => number;

/** A message and the actor that is to handle it now. */
export interface Work {
  readonly actor: Actor;
  readonly envelope: Envelope;
}

/** Finds the next message. */
export interface Picker {
  /** Must be called when the head of an actor's queue may have become another. */
  changed(actor: Actor): void;
  /** Takes the next message out of its queue. */
  next(): Work | undefined;
}

/** Control before data, then by age, as one number. */
function rank({ lane, seq }: Envelope): number {
  return lane === "control" ? seq : seq + 2 ** 52;
}

function take(actor: Actor, envelope: Envelope): Work {
  if (!actor.agenda.remove(envelope)) actor.mailbox.remove(envelope);
  return { actor, envelope };
}

/** Plain order, by a binary heap of the actors' heads. Entries whose head is no longer the
 * actor's are dropped when they come up, so nothing is ever searched for. */
export function fifoPicker(): Picker {
  const heap: { rank: number; actor: Actor; envelope: Envelope }[] = [];

  function push(entry: (typeof heap)[number]): void {
    let index = heap.push(entry) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (heap[parent]!.rank <= entry.rank) break;
      heap[index] = heap[parent]!;
      index = parent;
    }
    heap[index] = entry;
  }

  function pop(): (typeof heap)[number] | undefined {
    const top = heap[0], last = heap.pop();
    if (heap.length === 0 || !last) return last;
    let index = 0;
    for (let child = 1; child < heap.length; child = 2 * index + 1) {
      if (child + 1 < heap.length && heap[child + 1]!.rank < heap[child]!.rank) child++;
      if (heap[child]!.rank >= last.rank) break;
      heap[index] = heap[child]!;
      index = child;
    }
    heap[index] = last;
    return top;
  }

  return {
    changed(actor) {
      const envelope = headOf(actor);
      if (!envelope || actor.offered === envelope) return;
      actor.offered = envelope;
      push({ rank: rank(envelope), actor, envelope });
    },
    next() {
      for (let top = pop(); top; top = pop()) {
        const { actor, envelope } = top;
        if (actor.offered === envelope) actor.offered = undefined;
        if (headOf(actor) === envelope) return take(actor, envelope);
      }
      return undefined;
    },
  };
}

/**
 * The order that `choose` picks.
 *
 * @param actors the actors of the isolate.
 * @throws {RangeError} (from `next`) when the choice is not the index of a candidate.
 */
export function choosingPicker(actors: ReadonlyMap<number, Actor>, choose: Choose): Picker {
  return {
    changed() {},
    next() {
      const work = [...actors.values()]
        .flatMap((actor) => headsOf(actor).map((envelope) => ({ actor, envelope })))
        .sort((a, b) => rank(a.envelope) - rank(b.envelope));
      if (work.length === 0) return undefined;
      const index = choose(work.map(({ actor, envelope: { lane, from, message, seq } }) => ({
        actor: actor.ref.id,
        lane,
        from: from.id,
        type: message.type,
        seq,
      })));
      const chosen = work[index];
      if (!chosen) {
        throw new RangeError(
          `Cannot pick a message: the choice must be an integer from 0 to ${work.length - 1}, ` +
            `received ${index}`,
        );
      }
      return take(chosen.actor, chosen.envelope);
    },
  };
}
