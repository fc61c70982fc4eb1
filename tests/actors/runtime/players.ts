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
  Ask,
  Context,
  Down,
  Failure,
  Lane,
  Message,
  PlaceName,
  Reply,
  StopOptions,
} from "../../../actors/runtime/mod.ts";

function specOf<I, M extends Message>(name: string): ActorSpec<I, M> {
  return { module: import.meta.url, export: name };
}

/** Works without letting others in its isolate work. */
function busy(ms: number): void {
  for (const until = performance.now() + ms; performance.now() < until;);
}

const kindOf = (reason: Down["reason"]) => reason === "stopped" ? reason : reason.kind;

/** Writes down what it gets. */
export type RecorderMessage =
  | { readonly type: "Note"; readonly what: unknown }
  | { readonly type: "NoteBytes"; readonly bytes: Float32Array }
  | { readonly type: "Busy"; readonly ms: number }
  | { readonly type: "Down"; readonly down: Down }
  | { readonly type: "Watch"; readonly ref: ActorRef }
  | { readonly type: "Read" } & Ask<readonly unknown[]>
  /** Answered as soon as there are that many notes. */
  | { readonly type: "Wait"; readonly count: number } & Ask<readonly unknown[]>;

export const RECORDER = specOf<Float32Array | undefined, RecorderMessage>("recorder");

export const recorder: ActorFactory<Float32Array | undefined, RecorderMessage> = (ctx, init) => {
  const notes: unknown[] = [...init ?? []];
  let awaited: { readonly count: number; readonly reply: Reply } | undefined;
  const tell = () => {
    if (!awaited || notes.length < awaited.count) return;
    awaited.reply(notes);
    awaited = undefined;
  };
  const note = (what: unknown) => {
    notes.push(what);
    tell();
  };
  return {
    Note: ({ what }) => note(what),
    NoteBytes: ({ bytes }) => note([...bytes]),
    Busy({ ms }) {
      busy(ms);
      note("busy");
    },
    Down: ({ down: { ref, reason } }) => note(`${ref.id} ${kindOf(reason)}`),
    Watch: ({ ref }) => ctx.watch(ref, (down) => ({ type: "Down", down })),
    Read: () => ctx.reply(notes),
    Wait({ count }) {
      awaited = { count, reply: ctx.deferReply() as Reply };
      tell();
    },
  };
};

/** Sends numbered notes, so that each says who sent it, in which lane and as which. */
export type SenderMessage = { readonly type: "Go" } & Ask<string>;

export interface SenderInit {
  readonly to: ActorRef<RecorderMessage>;
  readonly lanes: readonly Lane[];
}

export interface SenderNote {
  readonly from: string;
  readonly lane: Lane;
  readonly n: number;
}

export const SENDER = specOf<SenderInit, SenderMessage>("sender");

export const sender: ActorFactory<SenderInit, SenderMessage> = (ctx, { to, lanes }) => ({
  Go() {
    for (const [n, lane] of lanes.entries()) {
      const what: SenderNote = { from: ctx.self.id, lane, n };
      ctx.send(to, { type: "Note", what }, { lane });
    }
    ctx.reply("sent");
  },
});

/** Answers, or does not, in all the ways there are. */
export type ServerMessage =
  | { readonly type: "Double" | "Later"; readonly n: number } & Ask<number>
  | { readonly type: "Bytes"; readonly length: number } & Ask<Float32Array>
  | { readonly type: "Wedge"; readonly ms: number } & Ask<string>
  | { readonly type: "Twice" | "Forget" | "Never" | "Hang" } & Ask<number>
  | { readonly type: "NeverWith"; readonly how: "Throw" | "Stop" } & Ask<never>
  | {
    readonly type:
      | ("Now" | "Throw" | "Reject" | "Stop" | "Exit" | "Close")
      | ("ThrowLater" | "RejectLater");
  };

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
      ctx.send(ctx.self, { type: how });
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

/** Asks others on behalf of its asker. */
export type ClientMessage =
  | { readonly type: "Relay"; readonly to: ActorRef<ServerMessage>; readonly n: number }
    & Ask<number>
  | { readonly type: "Both"; readonly to: ActorRef<ServerMessage> } & Ask<readonly number[]>
  /** Asks all, then is deaf for a while, so that all answers wait when it hears again. */
  | { readonly type: "AskDeaf"; readonly to: readonly ActorRef<ServerMessage>[] }
    & Ask<readonly number[]>
  /** Asks another, or itself, for what is not answered. */
  | { readonly type: "Forgotten"; readonly to?: ActorRef<ServerMessage> } & Ask<unknown>
  | { readonly type: "Note"; readonly what: string }
  | { readonly type: "Read" } & Ask<readonly string[]>;

export const CLIENT = specOf<undefined, ClientMessage>("client");

export const client: ActorFactory<undefined, ClientMessage> = (ctx) => {
  const notes: string[] = [];
  return {
    async Relay({ to, n }) {
      notes.push("ask");
      const answer = await ctx.ask(to, { type: "Later", n });
      notes.push("answered");
      ctx.reply(answer);
    },
    async Both({ to }) {
      ctx.reply(await Promise.all([1, 2].map((n) => ctx.ask(to, { type: "Double", n }))));
    },
    async AskDeaf({ to }) {
      const answers = to.map((ref, n) => ctx.ask(ref, { type: "Double", n }));
      busy(50);
      ctx.reply(await Promise.all(answers));
    },
    async Forgotten({ to }) {
      const answer = to ? ctx.ask(to, { type: "Forget" }) : ctx.ask(ctx.self, { type: "Read" });
      ctx.reply(await (answer as Promise<unknown>).catch(String));
    },
    Note: ({ what }) => void notes.push(what),
    Read: () => ctx.reply(notes),
  };
};

/** A timer, or the end of one. */
export interface Timing {
  readonly delayMs?: number;
  readonly what?: string;
  readonly key?: string;
  readonly cancel?: string;
}

/** Uses timers, chance and the clock. */
export type ClockworkMessage =
  /** Starts and cancels timers in one step. */
  | { readonly type: "Set"; readonly timings: readonly Timing[] }
  | { readonly type: "Ring"; readonly what: string }
  | { readonly type: "CancelRung"; readonly delayMs: number } & Ask<string>
  | { readonly type: "Elapsed" } & Ask<number>
  | { readonly type: "Draw"; readonly label: string; readonly count: number } & Ask<number[]>
  | { readonly type: "Read" } & Ask<readonly string[]>
  /** Answered when `what` has rung. */
  | { readonly type: "Await"; readonly what: string } & Ask<readonly string[]>;

export const CLOCKWORK = specOf<undefined, ClockworkMessage>("clockwork");

export const clockwork: ActorFactory<undefined, ClockworkMessage> = (ctx) => {
  const rung: string[] = [], born = ctx.now();
  let awaited: { readonly what: string; readonly reply: Reply } | undefined;
  const tell = () => {
    if (awaited && rung.includes(awaited.what)) awaited.reply(rung);
  };
  return {
    Set({ timings }) {
      for (const { delayMs = 0, what = "", key, cancel } of timings) {
        if (cancel !== undefined) ctx.cancel(cancel);
        else ctx.after(delayMs, { type: "Ring", what }, key);
      }
    },
    Ring({ what }) {
      rung.push(what);
      tell();
    },
    async CancelRung({ delayMs }) {
      ctx.after(delayMs, { type: "Ring", what: "too late" }, "key");
      // The timer fires while this step goes on, so its message waits in the mailbox.
      await new Promise((resolve) => setTimeout(resolve, delayMs + 10));
      ctx.cancel("key");
      ctx.reply("cancelled");
    },
    Elapsed: () => ctx.reply(ctx.now() - born),
    Draw: ({ label, count }) => ctx.reply(Array.from({ length: count }, () => ctx.random(label))),
    Read: () => ctx.reply(rung),
    Await({ what }) {
      awaited = { what, reply: ctx.deferReply() as Reply };
      tell();
    },
  };
};

/** Has children, and writes down when it and they come and go. */
export type ParentMessage =
  | { readonly type: "Tell"; readonly child: string; readonly what: "Throw" | "Exit" }
  | { readonly type: "WatchChild" | "Respawn"; readonly child: string }
  | { readonly type: "Down"; readonly down: Down }
  | { readonly type: "Refs" } & Ask<readonly ActorRef<ServerMessage>[]>
  | { readonly type: "Exit" | "Stop" };

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
    Tell: ({ child, what }) => ctx.send(children.get(child)!, { type: what }),
    WatchChild: ({ child }) => ctx.watch(children.get(child)!, (down) => ({ type: "Down", down })),
    Respawn: ({ child }) => void children.set(child, make(child)),
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

/** Does to its isolate what no actor should. */
export type RogueMessage =
  | { readonly type: "Pid" } & Ask<number>
  | { readonly type: "Loop" } & Ask<string>
  | { readonly type: "Fill" }
  | { readonly type: "Exit"; readonly code: number }
  /** Sends a message of that many bytes. */
  | { readonly type: "Ship"; readonly to: ActorRef<RecorderMessage>; readonly bytes: number }
  /** Computes that long, in another step. */
  | { readonly type: "Busy"; readonly ms: number } & Ask<number>
  /** Sends a message of that many bytes again and again, for ever. */
  | { readonly type: "Pour"; readonly to: ActorRef<RecorderMessage>; readonly bytes: number }
    & Ask<string>
  /** Sends that many notes, and stops. */
  | { readonly type: "Will"; readonly to: ActorRef<RecorderMessage>; readonly notes: number }
  /** Sends that many notes, now and then pausing. */
  | { readonly type: "Write"; readonly to: ActorRef<RecorderMessage>; readonly notes: number }
    & Ask<string>
  | { readonly type: "Echo"; readonly value: unknown } & Ask<unknown>
  /** Tells of the buffer that it gets. */
  | { readonly type: "Weigh"; readonly tensor: Float32Array } & Ask<object>
  | { readonly type: "Spawn"; readonly isolate: PlaceName }
    & Ask<
      readonly [ActorRef<ServerMessage>, ActorRef<RecorderMessage>]
    >;

export const ROGUE = specOf<undefined, RogueMessage>("rogue");

function ship(ctx: Context<RogueMessage>, to: ActorRef<RecorderMessage>, bytes: number): void {
  const { buffer } = new Uint8Array(bytes);
  const message: RecorderMessage & { buffer: ArrayBuffer } = { type: "Note", what: bytes, buffer };
  ctx.send(to, message, { transfer: [buffer] });
}

export const rogue: ActorFactory<undefined, RogueMessage> = (ctx) => ({
  Pid: () => ctx.reply(Deno.pid),
  Loop() {
    ctx.reply("looping");
    for (;;);
  },
  Fill() {
    const hoard: unknown[] = [];
    for (;;) hoard.push({ n: hoard.length, more: [hoard.length] });
  },
  Exit: ({ code }) => Deno.exit(code),
  Ship: ({ to, bytes }) => ship(ctx, to, bytes),
  Busy({ ms }) {
    busy(ms);
    ctx.reply(ctx.now());
  },
  async Pour({ to, bytes }) {
    ctx.reply("pouring");
    for (;;) {
      ship(ctx, to, bytes);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  },
  Will({ to, notes }) {
    for (let what = 0; what < notes; what++) ctx.send(to, { type: "Note", what });
    ctx.stop();
  },
  async Write({ to, notes }) {
    for (let what = 0; what < notes; what++) {
      ctx.send(to, { type: "Note", what });
      if (what % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 0));
    }
    ctx.reply("written");
  },
  Echo: ({ value }) => ctx.reply(value),
  Weigh({ tensor }) {
    const { byteOffset, buffer: { byteLength } } = tensor;
    ctx.reply({ byteOffset, byteLength, last: tensor.at(-1) });
  },
  Spawn({ isolate }) {
    ctx.reply([
      ctx.spawn(SERVER, undefined, { id: "inner", isolate }),
      ctx.spawn(RECORDER, undefined, { id: "notes", isolate }),
    ]);
  },
});

/** A member of a pool. */
export type MemberMessage =
  | { readonly type: "Who"; readonly n: number } & Ask<string>
  /** Takes that long, in virtual milliseconds. */
  | { readonly type: "Work"; readonly ms: number } & Ask<string>
  | { readonly type: "Add"; readonly n: number }
  | { readonly type: "Sum" } & Ask<number>
  | { readonly type: "Faint" }
  | { readonly type: "Silence" } & Ask<never>;

export const MEMBER = specOf<number, MemberMessage>("member");

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

/** Hands all messages on to another. */
export const FORWARDER = specOf<ActorRef<MemberMessage>, MemberMessage>("forwarder");

export const forwarder: ActorFactory<ActorRef<MemberMessage>, MemberMessage> = (ctx, to) => {
  const hand = () => ctx.forward(to);
  return { Who: hand, Work: hand, Add: hand, Sum: hand, Faint: hand, Silence: hand };
};

/** Writes what a boss dictates. */
export type ClerkMessage =
  | { readonly type: "Write"; readonly text: string } & Ask<string>
  /** Waits in virtual time: for an answer that never comes. */
  | { readonly type: "Nap"; readonly ms: number }
  | { readonly type: "Silence" } & Ask<never>
  | { readonly type: "Faint" }
  | { readonly type: "Notes" } & Ask<readonly string[]>;

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
  | { readonly type: "Clerks" } & Ask<readonly ActorRef<ClerkMessage>[]>
  | { readonly type: "Watch" | "Unwatch"; readonly ref: ActorRef }
  | { readonly type: "Stop"; readonly ref: ActorRef; readonly options?: StopOptions }
  | {
    readonly type: "StopAndUnwatch";
    readonly stop: readonly ActorRef[];
    readonly unwatch: ActorRef;
  }
  | { readonly type: "Dictate"; readonly texts: readonly string[] } & Ask<string>
  /** Has the first clerk write, and does not wait. */
  | { readonly type: "Tell"; readonly text: string }
  | { readonly type: "Remind"; readonly afterMs: number }
  | { readonly type: "Down"; readonly down: Down }
  | { readonly type: "Notes" } & Ask<readonly string[]>;

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
      const written: string[] = [];
      for (const text of texts) written.push(await ctx.ask(refs[0]!, { type: "Write", text }));
      ctx.reply(written.join(", "));
    },
    Tell: ({ text }) => ctx.send(refs[0]!, { type: "Write", text }),
    Remind: ({ afterMs }) => ctx.after(afterMs, { type: "Notes" }),
    Down: ({ down: { ref, reason } }) => void notes.push(`${ref.id} ${kindOf(reason)}`),
    Notes: () => ctx.reply(notes),
  };
};
