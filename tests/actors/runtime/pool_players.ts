/**
 * Members of pools, and one that hands on.
 *
 * @module
 */

import type { ActorFactory, ActorRef, ActorSpec, Ask } from "../../../actors/runtime/mod.ts";

/** What a member understands. */
export type MemberMessage =
  | { readonly type: "Who"; readonly n: number } & Ask<string>
  /** Takes so long, in virtual milliseconds. */
  | { readonly type: "Work"; readonly ms: number } & Ask<string>
  | { readonly type: "Add"; readonly n: number }
  | { readonly type: "Sum" } & Ask<number>
  | { readonly type: "Faint" }
  | { readonly type: "Silence" } & Ask<never>;

export const MEMBER: ActorSpec<number, MemberMessage> = {
  module: import.meta.url,
  export: "member",
};

export const member: ActorFactory<number, MemberMessage> = (ctx, start) => {
  let sum = start;
  const clock = start < 0 ? undefined : ctx.spawn(MEMBER, -1, { id: `${ctx.self.id}'s clock` });
  return {
    Who: ({ n }) => ctx.reply(`${ctx.self.id} ${n}`),
    async Work({ ms }) {
      await ctx.ask(clock!, { type: "Silence" }, { timeoutMs: ms }).catch(() => {});
      ctx.reply(ctx.self.id);
    },
    Add: ({ n }) => void (sum += n),
    Sum: () => ctx.reply(sum),
    Faint() {
      throw new RangeError("no air");
    },
    Silence: () => void ctx.deferReply(),
  };
};

/** Hands everything on to another. */
export type ForwarderMessage = MemberMessage;

export const FORWARDER: ActorSpec<ActorRef<MemberMessage>, ForwarderMessage> = {
  module: import.meta.url,
  export: "forwarder",
};

export const forwarder: ActorFactory<ActorRef<MemberMessage>, ForwarderMessage> = (ctx, to) => {
  const hand = () => ctx.forward(to);
  return { Who: hand, Work: hand, Add: hand, Sum: hand, Faint: hand, Silence: hand };
};
