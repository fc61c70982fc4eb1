/**
 * The answers that the supervisor owes: each is given once, and when a worker is gone, all of them at
 * once, now and later, say so.
 *
 * @module
 */

import type { WorkerLost } from "./protocol.ts";
import type { Context, Message, Reply } from "./runtime/mod.ts";

/** What is owed. */
export interface Answers {
  /** Whether a worker is gone. */
  readonly isLost: boolean;
  /** Takes over the answer to the message being handled. */
  owe(): Reply;
  /** A worker is gone: whoever waits for an answer gets this one. */
  giveUp(lost: WorkerLost): void;
}

/** Opens the answers of an actor. */
export function openAnswers<M extends Message>(ctx: Context<M>): Answers {
  const waiting = new Set<Reply>();
  let lost: WorkerLost | undefined;
  return {
    get isLost() {
      return lost !== undefined;
    },
    owe() {
      const reply = ctx.deferReply();
      if (lost) reply({ lost });
      else waiting.add(reply);
      return (value, options) => {
        if (waiting.delete(reply)) reply({ value }, options);
      };
    },
    giveUp(first) {
      lost ??= first;
      for (const reply of waiting) reply({ lost });
      waiting.clear();
    },
  };
}
