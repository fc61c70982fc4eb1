/**
 * The actors that the tests of the runtime play with.
 *
 * @module
 */

// deno-lint-ignore-file determinism/no-ambient -- they play with real time

import type {
  ActorFactory,
  ActorRef,
  ActorSpec,
  Context,
  Down,
  Failure,
  Lane,
  Message,
  PlaceName,
} from "../../../actors/runtime/mod.ts";

function specOf<I, M extends Message>(name: string): ActorSpec<I, M> {
  return { module: import.meta.url, export: name };
}

/** Works without letting anybody else in its isolate work. */
function busy(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

/** Writes down what it gets, and tells when asked. */
export type RecorderMessage =
  | { readonly type: "Note"; readonly what: unknown }
  | { readonly type: "NoteBytes"; readonly bytes: Float32Array }
  | { readonly type: "Busy"; readonly ms: number }
  | { readonly type: "Down"; readonly down: Down }
  | { readonly type: "Watch"; readonly ref: ActorRef }
  | { readonly type: "Read" };

export const RECORDER = specOf<undefined, RecorderMessage>("recorder");

export const recorder: ActorFactory<undefined, RecorderMessage> = (ctx) => {
  const notes: unknown[] = [];
  return {
    Note({ what }) {
      notes.push(what);
    },
    NoteBytes({ bytes }) {
      notes.push([...bytes]);
    },
    Busy({ ms }) {
      busy(ms);
      notes.push("busy");
    },
    Down({ down: { ref, reason } }) {
      notes.push(`${ref.id} ${reason === "stopped" ? reason : reason.kind}`);
    },
    Watch({ ref }) {
      ctx.watch(ref, (down) => ({ type: "Down", down }));
    },
    Read() {
      ctx.reply(notes);
    },
  };
};

/** Sends numbered notes, so that each knows who sent it, in which lane and as which. */
export type SenderMessage = { readonly type: "Go" };

export interface SenderInit {
  readonly to: ActorRef<RecorderMessage>;
  readonly lanes: readonly Lane[];
}

export const SENDER = specOf<SenderInit, SenderMessage>("sender");

export const sender: ActorFactory<SenderInit, SenderMessage> = (ctx, { to, lanes }) => ({
  Go() {
    for (const [n, lane] of lanes.entries()) {
      ctx.send(to, { type: "Note", what: { from: ctx.self.id, lane, n } }, { lane });
    }
    ctx.reply("sent");
  },
});

/** Answers, or does not, in all the ways there are. */
export type ServerMessage =
  | { readonly type: "Double"; readonly n: number }
  | { readonly type: "Bytes"; readonly length: number }
  | { readonly type: "Later"; readonly n: number }
  | { readonly type: "Now" }
  | { readonly type: "Twice" }
  | { readonly type: "Forget" }
  | { readonly type: "Never" }
  | { readonly type: "NeverWith"; readonly how: "Throw" | "Stop" }
  | { readonly type: "Throw" }
  | { readonly type: "Reject" }
  | { readonly type: "Stop" }
  | { readonly type: "Exit" }
  | { readonly type: "Close" }
  | { readonly type: "ThrowLater" }
  | { readonly type: "RejectLater" }
  | { readonly type: "Wedge"; readonly ms: number }
  | { readonly type: "Hang" };

export const SERVER = specOf<undefined, ServerMessage>("server");

export const server: ActorFactory<undefined, ServerMessage> = (ctx) => {
  let late: (() => void) | undefined;
  return {
    Double: ({ n }) => ctx.reply(2 * n),
    Bytes({ length }) {
      const bytes = new Float32Array(length).fill(1);
      ctx.reply(bytes, { transfer: [bytes.buffer] });
      if (bytes.length !== 0) throw new Error("a buffer moved must be empty");
    },
    Later({ n }) {
      const reply = ctx.deferReply();
      late = () => reply(n);
    },
    Now() {
      late?.();
      late = undefined;
    },
    Twice() {
      ctx.reply(1);
      ctx.reply(2);
    },
    Forget() {},
    Never: () => void ctx.deferReply(),
    NeverWith({ how }) {
      ctx.deferReply();
      ctx.send(ctx.self as ActorRef<ServerMessage>, { type: how });
    },
    Throw() {
      ctx.doing("2F0, step 3");
      throw new RangeError("out of luck");
    },
    async Reject() {
      await Promise.resolve();
      throw new RangeError("out of luck");
    },
    Stop: () => ctx.stop(),
    Exit: () => Deno.exit(3),
    Close: () => (globalThis as unknown as { close(): void }).close(),
    ThrowLater: () =>
      void setTimeout(() => {
        throw new RangeError("out of luck");
      }, 0),
    RejectLater: () => void Promise.reject(new RangeError("out of luck")),
    Wedge({ ms }) {
      ctx.reply("wedged");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    },
    Hang: () => new Promise(() => {}),
  };
};

/** Asks others on behalf of who asks it. */
export type ClientMessage =
  | { readonly type: "Relay"; readonly to: ActorRef<ServerMessage>; readonly n: number }
  | { readonly type: "Both"; readonly to: ActorRef<ServerMessage> }
  /** Asks all, then is deaf for a while, so that all answers wait when it hears again. */
  | { readonly type: "AskDeaf"; readonly to: readonly ActorRef<ServerMessage>[] }
  | { readonly type: "AskSelf" }
  | { readonly type: "Ask"; readonly to: ActorRef<ServerMessage>; readonly type_: "Forget" }
  | { readonly type: "Note"; readonly what: string }
  | { readonly type: "Read" };

export const CLIENT = specOf<undefined, ClientMessage>("client");

export const client: ActorFactory<undefined, ClientMessage> = (ctx) => {
  const notes: string[] = [];
  return {
    async Relay({ to, n }) {
      notes.push("ask");
      const answer = await ctx.ask<ServerMessage, number>(to, { type: "Later", n });
      notes.push("answered");
      ctx.reply(answer);
    },
    async Both({ to }) {
      ctx.reply(
        await Promise.all([
          ctx.ask(to, { type: "Double", n: 1 }),
          ctx.ask(to, { type: "Double", n: 2 }),
        ]),
      );
    },
    async AskDeaf({ to }) {
      const answers = to.map((ref, n) => ctx.ask(ref, { type: "Double", n }));
      for (const start = performance.now(); performance.now() - start < 200;);
      ctx.reply(await Promise.all(answers));
    },
    async AskSelf() {
      ctx.reply(await ctx.ask(ctx.self, { type: "Read" }).catch((error) => String(error)));
    },
    async Ask({ to, type_ }) {
      ctx.reply(await ctx.ask(to, { type: type_ }).catch((error) => String(error)));
    },
    Note: ({ what }) => void notes.push(what),
    Read: () => ctx.reply(notes),
  };
};

/** Uses timers, chance and the clock. */
export type ClockworkMessage =
  | { readonly type: "Set"; readonly delayMs: number; readonly what: string; readonly key?: string }
  | { readonly type: "Cancel"; readonly key: string }
  | { readonly type: "Ring"; readonly what: string }
  | { readonly type: "CancelRung"; readonly delayMs: number }
  | { readonly type: "Elapsed" }
  | { readonly type: "Draw"; readonly label: string; readonly count: number }
  | { readonly type: "Read" };

export const CLOCKWORK = specOf<undefined, ClockworkMessage>("clockwork");

export const clockwork: ActorFactory<undefined, ClockworkMessage> = (ctx) => {
  const rung: string[] = [];
  const born = ctx.now();
  return {
    Set({ delayMs, what, key }) {
      ctx.after(delayMs, { type: "Ring", what }, key);
    },
    Cancel: ({ key }) => ctx.cancel(key),
    Ring: ({ what }) => void rung.push(what),
    async CancelRung({ delayMs }) {
      ctx.after(delayMs, { type: "Ring", what: "too late" }, "key");
      // The timer fires while this step goes on, so its message waits in the mailbox.
      await new Promise((resolve) => setTimeout(resolve, delayMs + 10));
      ctx.cancel("key");
      ctx.reply("cancelled");
    },
    Elapsed: () => ctx.reply(ctx.now() - born),
    Draw({ label, count }) {
      ctx.reply(Array.from({ length: count }, () => ctx.random(label)));
    },
    Read: () => ctx.reply(rung),
  };
};

/** Has children, and says when it and they come and go. */
export type ParentMessage =
  | { readonly type: "Tell"; readonly child: string; readonly what: ServerMessage["type"] }
  | { readonly type: "WatchChild"; readonly child: string }
  | { readonly type: "Respawn"; readonly child: string }
  | { readonly type: "Down"; readonly down: Down }
  | { readonly type: "Refs" }
  | { readonly type: "Exit" }
  | { readonly type: "Stop" };

export interface ParentInit {
  readonly children: readonly string[];
  readonly isolate: PlaceName;
  /** Path of a file: the order of its lines is the order of events, whatever the isolate. */
  readonly diary: string;
}

export const PARENT = specOf<ParentInit, ParentMessage>("parent");

export const parent: ActorFactory<ParentInit, ParentMessage> = (ctx, init) => {
  const { diary, isolate } = init;
  const note = (what: string) => Deno.writeTextFileSync(diary, `${what}\n`, { append: true });
  const make = (id: string) => ctx.spawn(CHILD, { diary }, { id, isolate });
  const children = new Map(init.children.map((id) => [id, make(id)]));
  ctx.defer(() => note(`${ctx.self.id} first cleanup`));
  ctx.defer(async () => {
    await Promise.resolve();
    note(`${ctx.self.id} last cleanup`);
  });
  return {
    Tell: ({ child, what }) => ctx.send(children.get(child)!, { type: what } as ServerMessage),
    WatchChild({ child }) {
      ctx.watch(children.get(child)!, (down) => ({ type: "Down", down }));
    },
    Respawn({ child }) {
      children.set(child, make(child));
    },
    Down: ({ down }) => note(`${ctx.self.id} saw ${down.ref.id} ${(down.reason as Failure).kind}`),
    Refs: () => ctx.reply([...children.values()]),
    Exit: () => Deno.exit(3),
    Stop: () => ctx.stop(),
  };
};

export const CHILD = specOf<{ readonly diary: string }, ServerMessage>("child");

export const child: ActorFactory<{ readonly diary: string }, ServerMessage> = (ctx, { diary }) => {
  ctx.defer(() => Deno.writeTextFileSync(diary, `${ctx.self.id} cleanup\n`, { append: true }));
  return server(ctx as Context<ServerMessage>, undefined);
};

/** Cannot be made. */
export const broken: ActorFactory<unknown, Message & { type: never }> = (ctx) => {
  ctx.doing("opening the device");
  throw new RangeError("out of luck");
};

/** Fails when it stops. */
export type SlovenMessage = { readonly type: "Stop" };

export const SLOVEN = specOf<undefined, SlovenMessage>("sloven");

export const sloven: ActorFactory<undefined, SlovenMessage> = (ctx) => {
  ctx.defer(() => {
    throw new RangeError("out of luck");
  });
  return { Stop: () => ctx.stop() };
};

/** Holds what it was made with. */
export type HolderMessage = { readonly type: "Read" };

export const HOLDER = specOf<Float32Array, HolderMessage>("holder");

export const holder: ActorFactory<Float32Array, HolderMessage> = (ctx, init) => ({
  Read: () => ctx.reply([...init]),
});
