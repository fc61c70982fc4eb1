import assert from "node:assert/strict";
import type { ActorRef, Context, Handlers } from "../../../actors/runtime/mod.ts";

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
