/**
 * Actors whose handlers overlap.
 *
 * @module
 */

// deno-lint-ignore-file determinism/no-ambient -- what is outside has a clock of its own

import type { ActorFactory, ActorRef, ActorSpec, Ask } from "../../../actors/runtime/mod.ts";

/** What a cache understands. */
export type CacheMessage =
  /** Looks a key up, from afar the first time: the key itself, doubled. */
  | { readonly type: "Get"; readonly key: string } & Ask<string>
  /** Asks another cache. */
  | { readonly type: "Via"; readonly to: ActorRef<CacheMessage>; readonly key: string }
    & Ask<
      string
    >
  /** How many steps have been under way at once. */
  | { readonly type: "Most" } & Ask<number>
  /** Fails after a while. */
  | { readonly type: "Faint" } & Ask<string>
  | { readonly type: "Never" } & Ask<string>;

export interface CacheInit {
  readonly maxSteps?: number;
  /** What is far away takes so long in real time: nothing may depend on it. */
  readonly farMs?: number;
}

export const CACHE: ActorSpec<CacheInit, CacheMessage> = {
  module: import.meta.url,
  export: "cache",
};

export const cache: ActorFactory<CacheInit, CacheMessage> = (ctx, { maxSteps, farMs = 0 }) => {
  if (maxSteps !== undefined) ctx.reentrant(maxSteps);
  const known = new Map<string, string>();
  let now = 0, most = 0;
  const enter = () => void (most = Math.max(most, ++now));
  ctx.expose(() => [...known.keys()]);
  return {
    async Get({ key }) {
      enter();
      ctx.doing(key);
      if (!known.has(key)) {
        known.set(
          key,
          await ctx.outside(() =>
            new Promise<string>((resolve) => setTimeout(resolve, farMs, key + key))
          ),
        );
      }
      ctx.reply(known.get(key)!);
      now--;
    },
    async Via({ to, key }) {
      enter();
      ctx.doing(`via ${to.id}`);
      ctx.reply(await ctx.ask(to, { type: "Get", key }).catch((error) => String(error)));
      now--;
    },
    Most: () => ctx.reply(most),
    async Faint() {
      ctx.doing("weak");
      await ctx.outside(() => Promise.reject(new RangeError("no air")));
    },
    Never: () => void ctx.deferReply(),
  };
};
