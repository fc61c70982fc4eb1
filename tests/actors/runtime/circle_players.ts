/**
 * Actors that ask each other.
 *
 * @module
 */

import { type AnyActor, type AnyRef, specOf } from "./players.ts";

export const ASKER = specOf(import.meta.url, "asker");

export const asker: AnyActor = (ctx) => {
  const notes: string[] = [];
  let kept: ((text: string) => void) | undefined;
  const pass = async (route: readonly AnyRef[]) => {
    const [next, ...rest] = route;
    if (!next) return ctx.self.id;
    const question = { type: "Pass", route: rest };
    return await ctx.ask(next, question, { timeoutMs: 60_000 }).catch((error) => {
      notes.push(String(error));
      return `${ctx.self.id} failed`;
    });
  };
  return {
    /** Asks the first of the route for the rest of it; answers what came of that. */
    Pass: async ({ route }) => ctx.reply(await pass(route)),
    /** Answers at once, while it asks. */
    async Answer({ ask }) {
      const answer = ctx.ask(ask as AnyRef, { type: "Pass", route: [] });
      ctx.reply("first");
      notes.push(await answer);
    },
    /** Keeps the question for later. */
    Keep: () => void (kept = ctx.deferReply()),
    /** Asks another to keep the question, or to answer while it asks this actor. */
    Relay: async ({ to, question }) =>
      ctx.reply(await ctx.ask(to as AnyRef, { type: question, ask: ctx.self })),
    /** Asks, though it may owe an answer from an earlier step. */
    async Go({ route }) {
      notes.push(await pass(route));
      kept = void kept?.("kept");
    },
    Notes: () => ctx.reply(notes),
  };
};
