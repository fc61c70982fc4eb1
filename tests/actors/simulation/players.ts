/**
 * The actors that the tests of the simulation play with.
 *
 * @module
 */

import {
  type ActorFactory,
  type ActorRef,
  type ActorSpec,
  shouldFail,
} from "../../../actors/runtime/mod.ts";
import type { Context, Message, System } from "../../../actors/runtime/mod.ts";
import { TRAPPED, type World } from "../../../actors/simulation/mod.ts";

function specOf<I, M extends Message>(name: string): ActorSpec<I, M> {
  return { module: import.meta.url, export: name };
}

/** Passes tokens round a ring. */
export type NodeMessage =
  | { readonly type: "Wire"; readonly next: ActorRef<NodeMessage> }
  | { readonly type: "Pass"; readonly hops: number; readonly microBatch: number };

export const NODE = specOf<undefined, NodeMessage>("node");

export const node: ActorFactory<undefined, NodeMessage> = (ctx) => {
  let next: ActorRef<NodeMessage>, passed = 0;
  ctx.expose(() => passed);
  return {
    Wire: (message) => void ({ next } = message),
    Pass({ hops, microBatch }) {
      passed++;
      ctx.doing(`0F${microBatch}`);
      if (hops > 0) ctx.send(next, { type: "Pass", hops: hops - 1, microBatch });
    },
  };
};

/** Makes a ring in which `tokens` go `hops` steps each. */
export async function playRing(
  { system, settle, idle }: World<unknown>,
  { nodes, tokens, hops }: { nodes: number; tokens: number; hops: number },
): Promise<void> {
  const ring = Array.from(
    { length: nodes },
    (_, n) => system.spawn(NODE, undefined, { id: `node-${n}` }),
  );
  for (const [n, ref] of ring.entries()) {
    system.send(ref, { type: "Wire", next: ring[(n + 1) % nodes]! });
  }
  await settle();
  for (let microBatch = 0; microBatch < tokens; microBatch++) {
    system.send(ring[microBatch % nodes]!, { type: "Pass", hops, microBatch });
  }
  await idle();
}

/** Keeps what it gets, in order, and adds it up in f32. */
export type SumMessage =
  | { readonly type: "Add"; readonly by: number }
  | { readonly type: "Tensor"; readonly values: Float32Array }
  | { readonly type: "Read" }
  | { readonly type: "Never" };

export const SUM = specOf<undefined, SumMessage>("sum");

export const sum: ActorFactory<undefined, SumMessage> = (ctx) => {
  let sum = 0;
  const added: number[] = [];
  const add = (by: number) => {
    sum = Math.fround(sum + by);
    added.push(by);
  };
  ctx.expose(() => ({ sum, added }));
  return {
    Add: ({ by }) => add(by),
    Tensor: ({ values }) => values.forEach(add),
    Read: () => ctx.reply({ sum, added }),
    Never: () => void ctx.deferReply(),
  };
};

/** Sends numbers when told to, one after the other. */
export type AdderMessage = { readonly type: "Go" };

export interface AdderInit {
  readonly to: ActorRef<SumMessage>;
  readonly numbers: readonly number[];
}

export const ADDER = specOf<AdderInit, AdderMessage>("adder");

export const adder: ActorFactory<AdderInit, AdderMessage> = (ctx, { to, numbers }) => {
  ctx.expose(() => 0);
  return {
    Go() {
      for (const by of numbers) ctx.send(to, { type: "Add", by });
    },
  };
};

/** Spawns a sum and adders, and has them all add; returns what the sum has. */
export async function playSum(
  { system, settle, idle }: World<unknown>,
  numbers: readonly (readonly number[])[],
): Promise<{ sum: number; added: number[] }> {
  const to = system.spawn(SUM, undefined, { id: "sum" });
  const adders = numbers.map((numbers, n) =>
    system.spawn(ADDER, { to, numbers }, { id: `adder-${n}` })
  );
  await settle();
  for (const adder of adders) system.send(adder, { type: "Go" });
  await idle();
  return await system.ask(to, { type: "Read" });
}

/** Does what it is told, which is nothing good. */
export type RogueMessage =
  | { readonly type: "Use"; readonly token: string }
  | { readonly type: "UseLater"; readonly token: string }
  | { readonly type: "Swallow"; readonly token: string }
  | { readonly type: "Again" }
  | { readonly type: "Hang" }
  | { readonly type: "Throw" }
  | { readonly type: "Site"; readonly site: string }
  | { readonly type: "AskNever"; readonly to: ActorRef<SumMessage>; readonly timeoutMs: number }
  | { readonly type: "After"; readonly delayMs: number };

export const ROGUE = specOf<undefined, RogueMessage>("rogue");

/** Uses what is trapped as a program would. */
export function use(token: string): unknown {
  const { kind, holder } = TRAPPED.find((trapped) => trapped.token === token)!;
  const path = token.split("."), name = path.pop()!;
  const owner = holder ? MADE[holder]!() : path.reduce<unknown>(
    (object, name) => (object as Record<string, unknown>)[name],
    globalThis,
  );
  const value = (owner as Record<string, unknown>)[name];
  if (kind === "get") return value;
  if (kind === "new") return new (value as new (...args: unknown[]) => unknown)({});
  if (kind === "date") return new (value as new () => unknown)();
  const args = kind === "format" ? [] : [new Uint8Array(1)];
  return (value as (...args: unknown[]) => unknown).apply(owner, args);
}

/** Makes what has a trap on its prototype. */
const MADE: Readonly<Record<string, () => object>> = {
  "Event.prototype": () => new Event("late"),
  "Intl.DateTimeFormat.prototype": () => new Intl.DateTimeFormat("en"),
  "Deno.FsFile.prototype": () => Object.create(Deno.FsFile.prototype),
};

export const rogue: ActorFactory<undefined, RogueMessage> = (ctx) => {
  const self: ActorRef<RogueMessage> = ctx.self;
  return {
    Use: ({ token }) => void use(token),
    async UseLater({ token }) {
      await Promise.resolve();
      use(token);
    },
    Swallow({ token }) {
      try {
        use(token);
      } catch {
        // As a careless program does.
      }
    },
    Again: () => ctx.send(self, { type: "Again" }),
    Hang: () => new Promise(() => {}),
    Throw() {
      throw new RangeError("out of luck");
    },
    Site: ({ site }) => ctx.reply(shouldFail(site)),
    async AskNever({ to, timeoutMs }) {
      await ctx.ask(to, { type: "Never" }, { timeoutMs });
    },
    After({ delayMs }) {
      ctx.after(delayMs, { type: "Throw" });
    },
  };
};

/** Asks another for its sum and tells it to add as much again. */
export type AskerMessage = { readonly type: "Double" } | { readonly type: "Total" };

export interface AskerInit {
  readonly sum: ActorRef<SumMessage>;
}

export const ASKER = specOf<AskerInit, AskerMessage>("asker");

export const asker: ActorFactory<AskerInit, AskerMessage> = (ctx, { sum }) => {
  let total = 0;
  const read = async () => (await ctx.ask<SumMessage, { sum: number }>(sum, { type: "Read" })).sum;
  ctx.expose(() => total);
  return {
    async Double() {
      const by = await read();
      ctx.doing(`${by}`);
      total += by;
      ctx.send(sum, { type: "Add", by });
    },
    async Total() {
      const [one, other] = await Promise.all([read(), read()]);
      ctx.reply(total + one + other);
    },
  };
};

/** One asks another that gets numbers, in one isolate or in two. */
export async function playAsker(
  system: System,
  isolate: "local" | "worker" | "process" = "local",
): Promise<number> {
  const sum = system.spawn(SUM, undefined, { id: "sum", isolate });
  const asker = system.spawn(ASKER, { sum }, { id: "asker", isolate });
  for (let n = 0; n < 20; n++) {
    system.send<SumMessage>(sum, { type: "Add", by: n / 3 });
    system.send(asker, { type: "Double" });
  }
  return await system.ask<AskerMessage, number>(asker, { type: "Total" });
}

/** Watches another, spawns it again when it is down, and gambles. */
export type GuardMessage =
  | { readonly type: "Tell"; readonly n: number }
  | { readonly type: "Down" }
  | { readonly type: "Dice" }
  | { readonly type: "Rolled"; readonly eyes: number; readonly at: number }
  | { readonly type: "Read" };

export const GUARD = specOf<undefined, GuardMessage>("guard");

export const guard: ActorFactory<undefined, GuardMessage> = (ctx: Context<GuardMessage>) => {
  let restarts = 0, rolled = 0;
  const make = () => {
    const child = ctx.spawn(SUM, undefined, { id: "child" });
    ctx.watch(child, () => ({ type: "Down" }));
    return child;
  };
  let child = make();
  ctx.expose(() => ({ restarts, rolled }));
  return {
    Tell: ({ n }) => ctx.send(child, { type: "Add", by: n }),
    Down() {
      restarts++;
      child = make();
    },
    Dice() {
      const eyes = 1 + Math.floor(6 * ctx.random("dice"));
      ctx.after(1000 * ctx.random("delay"), { type: "Rolled", eyes, at: ctx.now() }, "dice");
    },
    Rolled({ eyes }) {
      rolled = eyes;
      ctx.cancel("dice");
    },
    Read: () => ctx.reply(restarts),
  };
};
