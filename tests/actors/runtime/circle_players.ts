/**
 * Actors that ask each other.
 *
 * @module
 */

import type { ActorFactory, ActorRef, ActorSpec, Ask } from "../../../actors/runtime/mod.ts";

/** What an actor that asks others understands. */
export type AskerMessage =
  /** Asks the first of the route for the rest of it; answers what came of that. */
  | { readonly type: "Pass"; readonly route: readonly ActorRef<AskerMessage>[] } & Ask<string>
  /** Answers at once, while it asks. */
  | { readonly type: "Answer"; readonly ask: ActorRef<AskerMessage> } & Ask<string>
  /** Keeps the question for later. */
  | { readonly type: "Keep" } & Ask<string>
  /** Asks another to keep the question, or to answer while it asks this actor. */
  | {
    readonly type: "Relay";
    readonly to: ActorRef<AskerMessage>;
    readonly question: "Keep" | "Answer";
  } & Ask<string>
  /** Asks, though it may owe an answer from an earlier step. */
  | { readonly type: "Go"; readonly route: readonly ActorRef<AskerMessage>[] }
  | { readonly type: "Notes" } & Ask<readonly string[]>;

export const ASKER: ActorSpec<undefined, AskerMessage> = {
  module: import.meta.url,
  export: "asker",
};

export const asker: ActorFactory<undefined, AskerMessage> = (ctx) => {
  const notes: string[] = [];
  let kept: ((text: string) => void) | undefined;
  const pass = async (route: readonly ActorRef<AskerMessage>[]) => {
    const [next, ...rest] = route;
    if (!next) return ctx.self.id;
    const question = { type: "Pass", route: rest } as const;
    return await ctx.ask(next, question, { timeoutMs: 60_000 }).catch((error) => {
      notes.push(String(error));
      return `${ctx.self.id} failed`;
    });
  };
  return {
    async Pass({ route }) {
      ctx.reply(await pass(route));
    },
    async Answer({ ask }) {
      const answer = ctx.ask(ask, { type: "Pass", route: [] });
      ctx.reply("first");
      notes.push(await answer);
    },
    Keep() {
      kept = ctx.deferReply();
    },
    async Relay({ to, question }) {
      ctx.reply(await ctx.ask(to, { type: question, ask: ctx.self }));
    },
    async Go({ route }) {
      notes.push(await pass(route));
      kept?.("kept");
      kept = undefined;
    },
    Notes: () => ctx.reply(notes),
  };
};
