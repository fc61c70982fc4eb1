/**
 * A sender and a receiver over lines that lose and double messages: numbers in order, one at a time,
 * each said again until it is heard; and what is easily forgotten of that.
 *
 * @module
 */

import type { ActorFactory, ActorRef, ActorSpec } from "../../../actors/runtime/mod.ts";
import type { World } from "../../../actors/simulation/mod.ts";

/** What the pair may have forgotten. */
export type Bug = "says nothing again" | "hears all twice" | undefined;

type SenderMessage =
  | { readonly type: "Begin" }
  | { readonly type: "Heard"; readonly n: number }
  | { readonly type: "Again"; readonly n: number };
type ReceiverMessage = {
  readonly type: "Say";
  readonly n: number;
  readonly from: ActorRef<SenderMessage>;
};

interface SenderInit {
  readonly to: ActorRef<ReceiverMessage>;
  readonly count: number;
  readonly bug: Bug;
}

const AGAIN_MS = 100;

const specOf = (name: string) => ({ module: import.meta.url, export: name });
const SENDER = specOf("sender") as ActorSpec<SenderInit, SenderMessage>;
const RECEIVER = specOf("receiver") as ActorSpec<Bug, ReceiverMessage>;

export const sender: ActorFactory<SenderInit, SenderMessage> = (ctx, { to, count, bug }) => {
  const self: ActorRef<SenderMessage> = ctx.self;
  let heard = 0;
  ctx.expose(() => heard);
  const say = () => {
    if (heard === count) return;
    ctx.send(to, { type: "Say", n: heard, from: self });
    if (bug !== "says nothing again") ctx.after(AGAIN_MS, { type: "Again", n: heard });
  };
  return {
    Begin: say,
    Heard({ n }) {
      if (n !== heard) return;
      heard++;
      say();
    },
    Again: ({ n }) => n === heard ? say() : undefined,
  };
};

export const receiver: ActorFactory<Bug, ReceiverMessage> = (ctx, bug) => {
  const got: number[] = [];
  ctx.expose(() => got);
  return {
    Say({ n, from }) {
      if (n === got.length || bug === "hears all twice") got.push(n);
      ctx.send(from, { type: "Heard", n });
    },
  };
};

/** Says `count` numbers; all must come, each once and in order. */
export async function playLossy(
  { system, settle, idle, invariant, eventually }: World<unknown>,
  bug: Bug,
  { count = 3, withinMs = Infinity } = {},
): Promise<void> {
  const to = system.spawn(RECEIVER, bug, { id: "receiver" });
  const from = system.spawn(SENDER, { to, count, bug }, { id: "sender" });
  await settle();
  invariant("each number comes once and in order", ({ state }) => {
    const got = state<number[]>("receiver")!;
    if (got.some((n, index) => n !== index)) return `${got} came`;
  });
  eventually("all numbers come", ({ state }) => {
    const got = state<number[]>("receiver")!;
    if (got.length < count) return `${got.length} of ${count} came`;
  }, { withinMs });
  system.send(from, { type: "Begin" });
  await idle();
}
