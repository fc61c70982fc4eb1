/**
 * The replies that the supervisor owes: each is given once, and when a worker is gone, all of them at
 * once, now and later, say so.
 *
 * @module
 */

import { BriefMap } from "../../runtime/actor/brief_map.ts";
import type { WorkerLost } from "../protocol.ts";
import type { Context, Down, Message, Reply } from "../../runtime/mod.ts";

/** What is owed. */
export interface OwedReplies {
  /** Takes over the reply to the message being handled. */
  owe(): Reply;
  /** A worker is gone: whoever waits for a reply gets this one. */
  giveUp(lost: WorkerLost): void;
  /** The same for one that has ended. @param when what was under way: `step 4`. */
  lose(down: Down, when: string | undefined): void;
}

/** Opens the replies of an actor. */
export function openOwedReplies<M extends Message>(ctx: Context<M, unknown>): OwedReplies {
  const waiting = new BriefMap<Reply, true>();
  let lost: WorkerLost | undefined;
  const giveUp = (first: WorkerLost) => {
    lost ??= first;
    for (const [reply] of waiting) {
      waiting.take(reply);
      reply({ lost });
    }
  };
  return {
    owe() {
      const reply = ctx.deferReply();
      if (lost) reply({ lost });
      else waiting.set(reply, true);
      return (value, options) => {
        if (waiting.take(reply)) reply({ value }, options);
      };
    },
    giveUp,
    lose({ ref, reason }, when) {
      const during = when === undefined ? "" : ` in ${when}`;
      if (reason === "stopped") {
        const message = `${ref.id} failed${during}: it must run to the end, and stopped`;
        return giveUp({ worker: ref.id, kind: "exit", message, isWedged: false });
      }
      const { actor, handling, error, kind } = reason;
      const doing = handling ? ` while handling ${handling}` : "";
      const message = `${actor} failed${during}${doing}: ${error.message}`;
      giveUp({ worker: actor, kind, message, isWedged: false });
    },
  };
}
