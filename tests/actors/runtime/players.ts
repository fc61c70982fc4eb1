/**
 * Actors for the tests of the runtime.
 *
 * @module
 */

// deno-lint-ignore-file determinism/no-ambient -- they play with real time

import { LANES } from "../../../actors/runtime/isolate.ts";
import type {
  ActorFactory,
  ActorRef,
  ActorSpec,
  Ask,
  Context,
  Down,
  Lane,
} from "../../../actors/runtime/mod.ts";

/** The messages of players: the runs judge them, not the type checker. */
// deno-lint-ignore no-explicit-any -- see above
export type Any = any;

export type AnyMessage = { readonly type: Any; readonly [key: string]: Any } & Ask<Any>;

export type AnyRef = ActorRef<AnyMessage>;

export type AnyActor = ActorFactory<Any, AnyMessage>;

/** The spec of a player of a module. */
export const specOf = (module: string, name: string): ActorSpec<Any, AnyMessage> => ({
  module,
  export: name,
});

/** An actor in plain JavaScript. */
export const plain = (factory: string): ActorSpec<Any, AnyMessage> =>
  specOf(`data:text/javascript,${encodeURIComponent(`export const plain = ${factory}`)}`, "plain");

const HERE = import.meta.url;

/** Blocks its isolate. */
export function busy(ms: number): void {
  for (const until = performance.now() + ms; performance.now() < until;);
}

/** The kind of an end. */
export const kindOf = (reason: Down["reason"]) => reason === "stopped" ? reason : reason.kind;

/** Takes notes, and answers a waiting question once there are enough notes. */
function noteBook(ctx: Context<AnyMessage>, notes: unknown[]) {
  let isDone = () => false, reply: Any;
  const look = () => {
    if (reply && isDone()) reply = void reply(notes);
  };
  return {
    note: (what: unknown) => void (notes.push(what), look()),
    wait(test: () => boolean) {
      isDone = test;
      reply = ctx.deferReply();
      look();
    },
  };
}

/** Records its messages. */
export const RECORDER = specOf(HERE, "recorder");

export const recorder: AnyActor = (ctx, init) => {
  const notes: unknown[] = [...init ?? []], { note, wait } = noteBook(ctx, notes);
  return {
    Note: ({ what }) => note(what),
    NoteBytes: ({ bytes }) => note([...bytes]),
    Busy({ ms, idle }) {
      busy(ms);
      if (idle) ctx.send(ctx.self, { type: "Note", what: "idle" }, { lane: "idle" });
      note("busy");
    },
    Down: ({ down: { ref, reason } }) => note(`${ref.id} ${kindOf(reason)}`),
    Watch: ({ ref }) => ctx.watch(ref, (down) => ({ type: "Down", down })),
    Read: () => ctx.reply(notes),
    Wait: ({ count }) => wait(() => notes.length >= count),
  };
};

/** A note of a sender, with its sender, lane and number. */
export interface SenderNote {
  readonly from: string;
  readonly lane: Lane;
  readonly n: number;
}

/** Sends numbered notes in its lanes. */
export const SENDER = specOf(HERE, "sender");

export const sender: AnyActor = (ctx, { to, lanes }) => ({
  Go() {
    for (const [n, lane] of lanes.entries()) {
      ctx.send(to as AnyRef, { type: "Note", what: { from: ctx.self.id, lane, n } }, { lane });
    }
    ctx.reply("sent");
  },
});

/** Asserts that notes are those of each sender and lane in order. */
export function inOrder(notes: readonly Any[], ids: readonly string[], lanes: readonly Lane[]) {
  return ids.every((from) =>
    LANES.every((lane) => {
      const own = notes.filter((one) => one.from === from && one.lane === lane);
      return `${own.map(({ n }) => n)}` === `${[...lanes.keys()].filter((n) => lanes[n] === lane)}`;
    })
  );
}

/** Throws what tests wait for. */
export function fail(): never {
  throw new RangeError("out of luck");
}

/** Answers, or does not, in all the ways there are. */
export const SERVER = specOf(HERE, "server");

export const server: AnyActor = (ctx) => {
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
    Now: () => void (late = void late?.()),
    Twice: () => [1, 2].forEach((n) => ctx.reply(n)),
    Forget() {},
    Never: () => void ctx.deferReply(),
    NeverWith({ how }) {
      ctx.deferReply();
      ctx.send(ctx.self, { type: how });
    },
    Throw() {
      ctx.setActivity("2F0, step 3");
      fail();
    },
    Reject: () => Promise.resolve().then(fail),
    Stop: () => ctx.stop(),
    Exit: () => Deno.exit(3),
    Close: () => (globalThis as Any).close(),
    ThrowLater: () => void setTimeout(fail, 0),
    RejectLater: () => void Promise.resolve().then(fail),
    Wedge({ ms }) {
      ctx.reply("wedged");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    },
    Hang: () => new Promise(() => {}),
  };
};

/** Asks others on behalf of its asker. */
export const CLIENT = specOf(HERE, "client");

export const client: AnyActor = (ctx) => {
  const notes: string[] = [];
  const double = (to: AnyRef, n: number) => ctx.ask(to, { type: "Double", n });
  return {
    async Relay({ to, n }) {
      notes.push("ask");
      const answer = await ctx.ask(to as AnyRef, { type: "Later", n });
      notes.push("answered");
      ctx.reply(answer);
    },
    Both: async ({ to }) => ctx.reply(await Promise.all([1, 2].map((n) => double(to, n)))),
    /** Asks all, then blocks for a while, so that all answers wait afterwards. */
    async AskDeaf({ to }) {
      const answers = to.map(double);
      busy(50);
      ctx.reply(await Promise.all(answers));
    },
    /** Asks another actor, or itself, a question that is not answered. */
    async Forgotten({ to }) {
      const answer = ctx.ask(to ?? ctx.self, { type: to ? "Forget" : "Read" });
      ctx.reply(await answer.catch(String));
    },
    Note: ({ what }) => void notes.push(what),
    Read: () => ctx.reply(notes),
  };
};

/** Uses timers, chance and the clock. */
export const CLOCKWORK = specOf(HERE, "clockwork");

export const clockwork: AnyActor = (ctx) => {
  const rung: string[] = [], born = ctx.now(), { note, wait } = noteBook(ctx, rung);
  return {
    /** Starts timers in one step. */
    Set({ timings }) {
      for (const { delayMs, what, key } of timings) ctx.after(delayMs, { type: "Ring", what }, key);
    },
    Ring: ({ what }) => note(what),
    async ReplaceRung({ delayMs }) {
      ctx.after(delayMs, { type: "Ring", what: "too late" }, "key");
      // The timer fires during this step, so its message waits in the mailbox.
      await new Promise((resolve) => setTimeout(resolve, delayMs + 10));
      ctx.after(3_600_000, { type: "Ring", what: "later" }, "key");
      ctx.reply("replaced");
    },
    Elapsed: () => ctx.reply(ctx.now() - born),
    Draw: ({ label, count }) => ctx.reply(Array.from({ length: count }, () => ctx.random(label))),
    Read: () => ctx.reply(rung),
    Await: ({ count }) => wait(() => rung.length >= count),
  };
};

/** Harms its isolate in several ways. */
export const ROGUE = specOf(HERE, "rogue");

function ship(ctx: Context<AnyMessage>, to: AnyRef, bytes: number): void {
  const { buffer } = new Uint8Array(bytes);
  ctx.send(to, { type: "Note", what: bytes, buffer }, { transfer: [buffer] });
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export const rogue: AnyActor = (ctx) => ({
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
    for (;; await pause(1)) ship(ctx, to, bytes);
  },
  Will({ to, notes }) {
    for (let what = 0; what < notes; what++) ctx.send(to as AnyRef, { type: "Note", what });
    ctx.stop();
  },
  async Write({ to, notes }) {
    for (let what = 0; what < notes; what++) {
      ctx.send(to as AnyRef, { type: "Note", what });
      if (what % 50 === 0) await pause(0);
    }
    ctx.reply("written");
  },
  Weigh({ tensor }) {
    const { byteOffset, buffer: { byteLength } } = tensor;
    ctx.reply({ byteOffset, byteLength, last: tensor.at(-1) });
  },
  Spawn: ({ isolate }) =>
    ctx.reply([
      ctx.spawn(SERVER, undefined, { id: "inner", isolate }),
      ctx.spawn(RECORDER, undefined, { id: "notes", isolate }),
    ]),
});

/** Records the cleanup of an actor in a file, in any isolate. */
const cleanUp = (ctx: Context<AnyMessage>, diary: string | undefined, what = "cleanup") => {
  if (!diary) return;
  ctx.defer(async () => {
    await Promise.resolve();
    Deno.writeTextFileSync(diary, `${ctx.self.id} ${what}\n`, { append: true });
  });
};

/** Writes what a boss dictates. */
export const CLERK = specOf(HERE, "clerk");

export const clerk: AnyActor = (ctx, diary?: string) => {
  const notes: string[] = [];
  let pillow: AnyRef | undefined;
  cleanUp(ctx, diary);
  return {
    Write({ text }) {
      notes.push(text);
      ctx.reply(`${ctx.self.id} wrote ${text}`);
    },
    async Nap({ ms }) {
      pillow ??= ctx.spawn(SERVER, undefined, { id: `${ctx.self.id}'s pillow` });
      // Lets virtual time pass: waits for an answer that never comes.
      await ctx.ask(pillow, { type: "Never" }, { timeoutMs: ms }).catch(() => {});
    },
    Silence: () => void ctx.deferReply(),
    Faint() {
      throw new RangeError("no tea");
    },
    Exit: () => Deno.exit(3),
    Notes: () => ctx.reply(notes),
  };
};

/** Has clerks. */
export const BOSS = specOf(HERE, "boss");

export const boss: AnyActor = (ctx, { clerks: ids, isolate = "local", diary }) => {
  const make = (id: string) => ctx.spawn(CLERK, diary, { id, isolate });
  const clerks: AnyRef[] = ids.map(make), notes: string[] = [];
  cleanUp(ctx, diary, "first cleanup");
  cleanUp(ctx, diary, "last cleanup");
  return {
    Clerks: () => ctx.reply(clerks),
    Watch: ({ ref }) => ctx.watch(ref, (down) => ({ type: "Down", down })),
    Stop: ({ ref, options }) => ctx.stop(ref, options),
    async Dictate({ texts }) {
      const written: unknown[] = [];
      for (const text of texts) written.push(await ctx.ask(clerks[0]!, { type: "Write", text }));
      ctx.reply(written.join(", "));
    },
    /** Sends a message to a clerk, and does not wait. */
    Tell: ({ nth = 0, message }) => ctx.send(clerks[nth]!, message),
    /** Makes a clerk again that has ended. */
    Replace: ({ nth }) => void (clerks[nth] = make(ids[nth])),
    Exit: () => Deno.exit(3),
    Remind: ({ afterMs }) => ctx.after(afterMs, { type: "Notes" }),
    Down: ({ down: { ref, reason } }) => void notes.push(`${ref.id} ${kindOf(reason)}`),
    Notes: () => ctx.reply(notes),
  };
};
