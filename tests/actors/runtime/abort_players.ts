/**
 * An actor that takes questions back.
 *
 * @module
 */

import type { ActorFactory, ActorRef, ActorSpec, Ask } from "../../../actors/runtime/mod.ts";
import type { ServerMessage } from "./players.ts";

/** What the actor understands. */
export type AborterMessage =
  /** Asks two, and takes the one question back once the other is answered. */
  | {
    readonly type: "Hedge";
    readonly slow: ActorRef<ServerMessage>;
    readonly fast: ActorRef<ServerMessage>;
  } & Ask<readonly string[]>
  /** Asks three times with one signal; how often that was listened to, and no longer. */
  | { readonly type: "Listeners"; readonly server: ActorRef<ServerMessage> }
    & Ask<
      readonly number[]
    >;

export const ABORTER: ActorSpec<undefined, AborterMessage> = {
  module: import.meta.url,
  export: "aborter",
};

export const aborter: ActorFactory<undefined, AborterMessage> = (ctx) => ({
  async Hedge({ slow, fast }) {
    const controller = new AbortController(), { signal } = controller;
    const second = ctx.ask<ServerMessage, number>(slow, { type: "Double", n: 2 }, { signal })
      .then(String, String);
    const first = await ctx.ask<ServerMessage, number>(fast, { type: "Double", n: 1 });
    controller.abort(new DOMException("enough", "AbortError"));
    ctx.reply([`${first}`, await second]);
  },
  async Listeners({ server }) {
    const { signal } = new AbortController(), counts = [0, 0];
    const { addEventListener, removeEventListener } = signal;
    signal.addEventListener = (...args: unknown[]) => {
      counts[0]!++;
      Reflect.apply(addEventListener, signal, args);
    };
    signal.removeEventListener = (...args: unknown[]) => {
      counts[1]!++;
      Reflect.apply(removeEventListener, signal, args);
    };
    for (const n of [1, 2, 3]) await ctx.ask(server, { type: "Double", n }, { signal });
    ctx.reply(counts);
  },
});
