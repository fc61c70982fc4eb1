import assert from "node:assert/strict";
import type { ActorRef, Ask, Context, Handlers } from "../../../actors/runtime/mod.ts";

type A = { readonly type: "A"; readonly n: number };
type B = { readonly type: "B" };

Deno.test("the type checker knows who understands what", () => {
  const use = (ctx: Context<A>, a: ActorRef<A>, both: ActorRef<A | B>) => {
    ctx.send(both, { type: "B" });
    ctx.after(1, { type: "A", n: 1 });
    const narrowed: ActorRef<A> = both;
    const anybody: ActorRef[] = [a, both, narrowed];
    // @ts-expect-error: `a` does not understand B
    ctx.send(a, { type: "B" });
    // @ts-expect-error: n is missing
    ctx.send(a, { type: "A" });
    // @ts-expect-error: nothing can be sent to just anybody
    ctx.send(anybody[0]!, { type: "B" });
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

type Account =
  | { readonly type: "Pay"; readonly amount: number }
  | { readonly type: "Balance" } & Ask<number>
  | { readonly type: "Owner"; readonly of: string } & Ask<{ readonly name: string }>;

Deno.test("the type checker knows what a question is answered with", () => {
  const use = async (ctx: Context<Account>, to: ActorRef<Account>, old: ActorRef<A | B>) => {
    const balance = await ctx.ask(to, { type: "Balance" });
    const { name } = await ctx.ask(to, { type: "Owner", of: "a" }, { timeoutMs: 5 });
    const sum: number = balance + name.length;
    // @ts-expect-error: the balance is a number
    const text: string = await ctx.ask(to, { type: "Balance" });
    // @ts-expect-error: neither is it a text because the caller says so
    await ctx.ask<Account, string>(to, { type: "Balance" });
    // @ts-expect-error: the question lacks a part
    await ctx.ask(to, { type: "Owner" });
    // @ts-expect-error: a question has no more parts than are declared
    await ctx.ask(to, { type: "Balance", currency: "a" });
    // @ts-expect-error: there is no such question
    await ctx.ask(to, { type: "Balanced" });
    // @ts-expect-error: nothing can be asked of just anybody
    await ctx.ask(to as ActorRef, { type: "Balance" });
    // What declares nothing is answered with what the caller says, as before.
    const said: Date = await ctx.ask(old, { type: "A", n: 1 });
    const named = await ctx.ask<A | B, Date>(old, { type: "B" });
    ctx.send(to, { type: "Balance" });
    return [sum, text, said, named];
  };
  const answer = (ctx: Context<Account>, old: Context<A>) => {
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
