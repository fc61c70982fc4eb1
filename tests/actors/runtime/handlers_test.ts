/** Handlers: records of functions and instances of classes, and their types. */

import assert from "node:assert/strict";
import {
  type ActorRef,
  type Ask,
  type Context,
  type Handlers,
  OTHERS,
} from "../../../actors/runtime/mod.ts";
import { downOf } from "./harness.ts";
import { type AnyActor, type AnyMessage, plain, specOf } from "./players.ts";
import { failTest, playTest, replayed } from "./simulated.ts";

/** An account and its base class. */
class Named {
  constructor(protected readonly ctx: Context<AnyMessage>) {}
  Name() {
    this.ctx.reply("inherited");
  }
  Balance() {
    this.ctx.reply(Number.NaN);
  }
}

class Account extends Named {
  #balance: number;
  readonly fees = [1];
  readonly Refund = ({ amount }: AnyMessage) => this.Pay({ type: "Pay", amount: -amount });

  constructor(ctx: Context<AnyMessage>, balance: number) {
    super(ctx);
    this.#balance = balance;
  }

  Pay({ amount }: AnyMessage) {
    this.#balance += amount;
  }

  override Balance() {
    this.ctx.reply(this.#balance);
  }

  get Total() {
    return () => this.#balance;
  }

  override toString() {
    throw new Error("must not be called");
  }
}

const ACCOUNT = specOf(import.meta.url, "account");

export const account: AnyActor = (ctx, balance) =>
  new Account(ctx, balance) as unknown as Handlers<AnyMessage>;

playTest("methods, also inherited ones, and functions in fields are handlers", async (world) => {
  const { system } = world, account = system.spawn(ACCOUNT, 40, { id: "account" });
  system.send(account, { type: "Pay", amount: 5 });
  system.send(account, { type: "Refund", amount: 3 });
  const balance = await system.ask(account, { type: "Balance" });
  return [balance, await system.ask(account, { type: "Name" })];
}, [42, "inherited"]);

for (
  const type of ["toString", "constructor", "hasOwnProperty", "__proto__", "fees", "Total", "ctx"]
) {
  failTest(`${type} of an instance is no handler`, async ({ system, idle }) => {
    system.send(system.spawn(ACCOUNT, 0, { id: "account" }), { type });
    await idle();
  }, /has a handler for \(Refund, Pay, Balance, Name\)$/);
}

Deno.test("a journal of an instance replays", async () => {
  const { steps, compared } = await replayed(ACCOUNT, async (system) => {
    const account = system.spawn(ACCOUNT, 40, { id: "account" });
    system.send(account, { type: "Pay", amount: 2 });
    assert.equal(await system.ask(account, { type: "Balance" }), 42);
  });
  assert.deepEqual({ steps, compared }, { steps: 4, compared: 1 });
});

Deno.test("an actor that was restarted with its id replays as a new one", async () => {
  const mortal = plain(`(ctx) => ({
    async Go() { ctx.reply([ctx.random("x"), await ctx.external(() => 1)]); },
    Fail() { throw new Error("out of luck"); },
  })`);
  const { steps, compared } = await replayed(mortal, async (system) => {
    for (const _ of [1, 2]) {
      const ref = system.spawn(mortal, undefined, { id: "mortal" }), down = downOf(system, ref);
      await system.ask(ref, { type: "Go" });
      system.send(ref, { type: "Fail" });
      await down;
    }
  });
  assert.deepEqual({ steps, compared }, { steps: 10, compared: 4 });
});

/** Answers every message with its type. */
export const mirror = (ctx: Context<AnyMessage>) => ({
  [OTHERS]: ({ type }: AnyMessage) => ctx.reply(type),
});

Deno.test("a replayed actor no longer has the buffers that it transferred", async () => {
  const spec = plain(`(ctx) => ({
    Go() {
      const sent = new ArrayBuffer(8), replied = new ArrayBuffer(8);
      ctx.send(ctx.self, { type: "Take", sent }, { transfer: [sent] });
      ctx.reply(replied, { transfer: [replied] });
      ctx.setActivity([sent.byteLength, replied.byteLength].join());
    },
    Take() {},
  })`);
  const { compared } = await replayed(spec, (system) => {
    return system.ask(system.spawn(spec, undefined, { id: "plain" }), { type: "Go" });
  });
  assert.equal(compared, 2);
});

Deno.test("messages named like members of every object replay", async () => {
  const spec = specOf(import.meta.url, "mirror");
  const { steps, compared } = await replayed(spec, async (system) => {
    const ref = system.spawn(spec, undefined, { id: "mirror" });
    for (const type of ["toString", "constructor"]) {
      assert.equal(await system.ask(ref, { type }), type);
    }
  });
  assert.deepEqual({ steps, compared }, { steps: 4, compared: 2 });
});

type A = { readonly type: "A"; readonly n: number };
type B = { readonly type: "B" };

Deno.test("the type checker knows which actor understands what", () => {
  const use = (ctx: Context<A>, a: ActorRef<A>, both: ActorRef<A | B>) => {
    ctx.send(both, { type: "B" });
    ctx.after(1, { type: "A", n: 1 });
    const narrowed: ActorRef<A> = both;
    const unknown: ActorRef[] = [a, both, narrowed];
    // @ts-expect-error: `a` does not understand B
    ctx.send(a, { type: "B" });
    // @ts-expect-error: n is missing
    ctx.send(a, { type: "A" });
    // @ts-expect-error: nothing can be sent to an actor of unknown messages
    ctx.send(unknown[0]!, { type: "B" });
    // @ts-expect-error: `a` does not understand B
    const widened: ActorRef<A | B> = a;
    // @ts-expect-error: the actor does not understand B itself
    ctx.after(1, { type: "B" });
    return widened;
  };
  // @ts-expect-error: a handler is missing
  const handlers: Handlers<A | B> = { A() {} };
  assert.equal(typeof use, "function");
  assert.deepEqual(Object.keys(handlers), ["A"]);
});

type Bank =
  | { readonly type: "Pay"; readonly amount: number }
  | { readonly type: "Balance" } & Ask<number>
  | { readonly type: "Owner"; readonly of: string } & Ask<{ readonly name: string }>;

Deno.test("the type checker knows what a question is answered with", () => {
  const use = async (ctx: Context<Bank>, to: ActorRef<Bank>, old: ActorRef<A | B>) => {
    const balance = await ctx.ask(to, { type: "Balance" });
    const { name } = await ctx.ask(to, { type: "Owner", of: "a" }, { timeoutMs: 5 });
    const sum: number = balance + name.length;
    // @ts-expect-error: the balance is a number
    const text: string = await ctx.ask(to, { type: "Balance" });
    // @ts-expect-error: neither is it a text because the caller says so
    await ctx.ask<Bank, string>(to, { type: "Balance" });
    // @ts-expect-error: the question lacks a part
    await ctx.ask(to, { type: "Owner" });
    // @ts-expect-error: a question has no more parts than are declared
    await ctx.ask(to, { type: "Balance", currency: "a" });
    // @ts-expect-error: there is no such question
    await ctx.ask(to, { type: "Balanced" });
    // @ts-expect-error: nothing can be asked of an actor of unknown messages
    await ctx.ask(to as ActorRef, { type: "Balance" });
    // What declares nothing is answered with what the caller says, as before.
    const said: Date = await ctx.ask(old, { type: "A", n: 1 });
    const named = await ctx.ask<A | B, Date>(old, { type: "B" });
    ctx.send(to, { type: "Balance" });
    return [sum, text, said, named];
  };
  const answer = (ctx: Context<Bank>, old: Context<A>) => {
    ctx.reply(1);
    ctx.reply({ name: "a" });
    // @ts-expect-error: no question is answered with a text
    ctx.reply("1");
    // @ts-expect-error: nor in a later step
    ctx.deferReply()("1");
    old.reply("anything");
    // A context serves where fewer messages are sent to the actor itself.
    const part: Context<A> = old as Context<A | B>;
    return part;
  };
  assert.equal(typeof use, "function");
  assert.equal(typeof answer, "function");
});
