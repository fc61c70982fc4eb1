/**
 * A boss and clerks: actors that stop each other, and take their time.
 *
 * @module
 */

import type {
  ActorFactory,
  ActorRef,
  ActorSpec,
  Down,
  Message,
  PlaceName,
  StopOptions,
} from "../../../actors/runtime/mod.ts";

function specOf<I, M extends Message>(name: string): ActorSpec<I, M> {
  return { module: import.meta.url, export: name };
}

/** Writes what it is told. */
export type ClerkMessage =
  | { readonly type: "Write"; readonly text: string }
  /** Waits in virtual time: for an answer that never comes. */
  | { readonly type: "Nap"; readonly ms: number }
  | { readonly type: "Silence" }
  | { readonly type: "Faint" }
  | { readonly type: "Notes" };

export const CLERK = specOf<undefined, ClerkMessage>("clerk");

export const clerk: ActorFactory<undefined, ClerkMessage> = (ctx) => {
  const notes: string[] = [];
  let pillow: ActorRef<ClerkMessage> | undefined;
  return {
    Write({ text }) {
      notes.push(text);
      ctx.reply(`${ctx.self.id} wrote ${text}`);
    },
    async Nap({ ms }) {
      pillow ??= ctx.spawn(CLERK, undefined, { id: `${ctx.self.id}'s pillow` });
      await ctx.ask(pillow, { type: "Silence" }, { timeoutMs: ms }).catch(() => {});
    },
    Silence: () => void ctx.deferReply(),
    Faint() {
      throw new RangeError("no tea");
    },
    Notes: () => ctx.reply(notes),
  };
};

/** Has clerks. */
export type BossMessage =
  | { readonly type: "Clerks" }
  | { readonly type: "Watch" | "Unwatch"; readonly ref: ActorRef }
  | { readonly type: "Stop"; readonly ref: ActorRef; readonly options?: StopOptions }
  | {
    readonly type: "StopAndUnwatch";
    readonly stop: readonly ActorRef[];
    readonly unwatch: ActorRef;
  }
  | { readonly type: "Dictate"; readonly texts: readonly string[] }
  /** Has the first clerk write, and does not wait. */
  | { readonly type: "Tell"; readonly text: string }
  | { readonly type: "Remind"; readonly afterMs: number }
  | { readonly type: "Down"; readonly down: Down }
  | { readonly type: "Notes" };

export interface BossInit {
  readonly clerks: readonly string[];
  readonly isolate?: PlaceName;
}

export const BOSS = specOf<BossInit, BossMessage>("boss");

export const boss: ActorFactory<BossInit, BossMessage> = (ctx, { clerks, isolate = "local" }) => {
  const refs = clerks.map((id) => ctx.spawn(CLERK, undefined, { id, isolate }));
  const notes: string[] = [];
  return {
    Clerks: () => ctx.reply(refs),
    Watch: ({ ref }) => ctx.watch(ref, (down) => ({ type: "Down", down })),
    Unwatch: ({ ref }) => ctx.unwatch(ref),
    Stop: ({ ref, options }) => ctx.stop(ref, options),
    StopAndUnwatch({ stop, unwatch }) {
      for (const ref of stop) ctx.stop(ref);
      ctx.unwatch(unwatch);
    },
    async Dictate({ texts }) {
      const written: unknown[] = [];
      for (const text of texts) written.push(await ctx.ask(refs[0]!, { type: "Write", text }));
      ctx.reply(written.join(", "));
    },
    Tell: ({ text }) => ctx.send(refs[0]!, { type: "Write", text }),
    Remind: ({ afterMs }) => ctx.after(afterMs, { type: "Notes" }),
    Down: ({ down: { ref, reason } }) =>
      void notes.push(`${ref.id} ${reason === "stopped" ? reason : reason.kind}`),
    Notes: () => ctx.reply(notes),
  };
};
