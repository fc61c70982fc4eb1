/**
 * Actors for the tests of the simulation.
 *
 * @module
 */

import {
  type ActorFactory,
  type ActorRef,
  type ActorSpec,
  shouldFail,
  type System,
} from "../../../actors/runtime/mod.ts";
import { FORBIDDEN_GLOBALS } from "../../../actors/simulation/determinism_guard.ts";
import type { World } from "../../../actors/simulation/run.ts";

/** The messages of players: the runs judge them, not the type checker. */
// deno-lint-ignore no-explicit-any -- see above
export type Any = any;

/** The address of a player. */
export type AnyRef = ActorRef<Any>;

/** Makes a player. */
export type AnyActor = (ctx: Any, init: Any) => ReturnType<ActorFactory<Any, Any>>;

/** The spec of a player of the module `module`. */
export const specOf = (module: string, name: string): ActorSpec<Any, Any> => ({
  module,
  export: name,
});

/** Spawns the actor that a text of JavaScript makes; its id is its name. */
export function spawnText(system: System, id: string, text: string, init?: unknown): AnyRef {
  const module = `data:text/javascript,export const actor = ${text}`;
  return system.spawn(specOf(module, "actor"), init, { id });
}

/** Passes tokens round a ring. */
export const NODE = specOf(import.meta.url, "node");

export const node: AnyActor = (ctx) => {
  let next: AnyRef, passed = 0;
  ctx.expose(() => passed);
  return {
    Wire: (message) => void ({ next } = message),
    Pass({ hops, microBatch }) {
      passed++;
      ctx.setActivity(`0F${microBatch}`);
      if (hops > 0) ctx.send(next, { type: "Pass", hops: hops - 1, microBatch });
    },
  };
};

/** Makes a ring in which `tokens` go `hops` steps each. */
export async function playRing(
  { system, settle, idle }: World<unknown>,
  { nodes, tokens, hops }: { nodes: number; tokens: number; hops: number },
): Promise<void> {
  const ids = Array.from({ length: nodes }, (_, n) => `node-${n}`);
  const ring = ids.map((id) => system.spawn(NODE, undefined, { id }));
  ring.forEach((ref, n) => system.send(ref, { type: "Wire", next: ring[(n + 1) % nodes]! }));
  await settle();
  for (let microBatch = 0; microBatch < tokens; microBatch++) {
    system.send(ring[microBatch % nodes]!, { type: "Pass", hops, microBatch });
  }
  await idle();
}

/** Keeps its numbers in order and adds them in f32. */
export const SUM = specOf(import.meta.url, "sum");

export const sum: AnyActor = (ctx) => {
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

/** Sends numbers when asked to, one after the other. */
const ADDER = specOf(import.meta.url, "adder");

export const adder: AnyActor = (ctx, { to, numbers }) => {
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
  return await system.ask(to, { type: "Read" }) as { sum: number; added: number[] };
}

/** Waits for something to be done, but not for ever. */
export const PATIENT = `(ctx) => {
  let end = "";
  ctx.expose(() => end);
  return {
    Arm: ({ delayMs }) => ctx.after(delayMs, { type: "Timeout" }, "timeout"),
    Timeout() { end ||= "timeout"; },
    Done() { end ||= "done"; },
  };
}`;

/** Uses a forbidden global as a program would. */
export function use(token: string): unknown {
  const { kind, holder } = FORBIDDEN_GLOBALS.find((forbidden) => forbidden.token === token)!;
  const path = token.split("."), name = path.pop()!;
  const owner = holder
    ? MADE[holder]!()
    : path.reduce<Any>((object, name) => object[name], globalThis);
  const value = owner[name];
  if (kind === "get") return value;
  if (kind === "new") return new value({});
  if (kind === "date") return new value();
  return value.apply(owner, kind === "format" ? [] : [new Uint8Array(1)]);
}

/** Creates an object with a forbidden member on its prototype. */
const MADE: Readonly<Record<string, () => Any>> = {
  "Event.prototype": () => new Event("late"),
  "Intl.DateTimeFormat.prototype": () => new Intl.DateTimeFormat("en"),
  "Deno.FsFile.prototype": () => Object.create(Deno.FsFile.prototype),
};

/** Uses the forbidden global that a message names. */
export const ROGUE = specOf(import.meta.url, "rogue");

export const rogue: AnyActor = (ctx) => ({
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
  Again: () => ctx.send(ctx.self, { type: "Again" }),
  Hang: () => new Promise(() => {}),
  Throw() {
    throw new RangeError("out of luck");
  },
  Site: ({ site }) => ctx.reply(shouldFail(site)),
  async AskNever({ to, timeoutMs = Infinity }) {
    await ctx.ask(to, { type: "Never" }, { timeoutMs });
  },
  After: ({ delayMs }) => ctx.after(delayMs, { type: "Throw" }),
});

/** Asks another actor for its sum and has it double the sum. */
export const ASKER = specOf(import.meta.url, "asker");

export const asker: AnyActor = (ctx, { sum }) => {
  let total = 0;
  const read = async () => (await ctx.ask(sum, { type: "Read" })).sum;
  ctx.expose(() => total);
  return {
    async Double() {
      const by = await read();
      ctx.setActivity(`${by}`);
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
    system.send(sum, { type: "Add", by: n / 3 });
    system.send(asker, { type: "Double" });
  }
  return await system.ask(asker, { type: "Total" }) as number;
}

/** Watches another, spawns it again when it is down, and gambles. */
export const GUARD = specOf(import.meta.url, "guard");

export const guard: AnyActor = (ctx) => {
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
    Rolled: ({ eyes }) => void (rolled = eyes),
    Read: () => ctx.reply(restarts),
  };
};
