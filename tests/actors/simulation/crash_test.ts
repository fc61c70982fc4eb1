import assert from "node:assert/strict";
import type { ActorFactory, ActorRef, ActorSpec } from "../../../actors/runtime/mod.ts";
import {
  delay,
  explore,
  type FaultOptions,
  pct,
  pos,
  random,
  type Scenario,
  shrink,
  simulate,
  type StepRecord,
} from "../../../actors/simulation/mod.ts";
import { CRASHES, playCommit } from "./two_phase_commit.ts";

type NoteMessage = { readonly type: "Note"; readonly text: string } | { readonly type: "Never" };

const NOTES: ActorSpec<undefined, NoteMessage> = { module: import.meta.url, export: "notes" };

/** Keeps what it is told, and leaves one question open. */
export const notes: ActorFactory<undefined, NoteMessage> = (ctx) => {
  const notes: string[] = [];
  ctx.expose(() => notes);
  return { Note: ({ text }) => void notes.push(text), Never: () => void ctx.deferReply() };
};

type WaiterMessage = { readonly type: "Wait" } | { readonly type: "Detour" };

interface WaiterInit {
  readonly notes: ActorRef<NoteMessage>;
}

const WAITER: ActorSpec<WaiterInit, WaiterMessage> = { module: import.meta.url, export: "waiter" };

/** Waits for an answer that never comes, and has something to say whatever becomes of that. */
export const waiter: ActorFactory<WaiterInit, WaiterMessage> = (ctx, { notes }) => {
  const say = (text: string) => ctx.send(notes, { type: "Note", text });
  const ask = () => ctx.ask(notes, { type: "Never" }, { timeoutMs: 60_000 });
  return {
    async Wait() {
      try {
        await ask();
      } finally {
        for (let tick = 0; tick < 20; tick++) await Promise.resolve();
        say("unwound");
      }
    },
    async Detour() {
      const answer = ask();
      for (let tick = 0; tick < 20; tick++) await Promise.resolve();
      say("went on");
      await answer;
    },
  };
};

type ParentMessage = { readonly type: "Stop" } | { readonly type: "Late" };

const PARENT: ActorSpec<WaiterInit, ParentMessage> = { module: import.meta.url, export: "parent" };

/** Has a child that waits, and stops with it. */
export const parent: ActorFactory<WaiterInit, ParentMessage> = (ctx, init) => {
  const child = ctx.spawn(WAITER, init, { id: "waiter" });
  ctx.send(child, { type: "Wait" });
  return { Stop: () => ctx.stop(), Late() {} };
};

for (const make of [random, () => pct(3), pos, () => delay(2)]) {
  const { name } = make();
  Deno.test(`a correct two-phase commit never fails, whoever crashes while it waits: ${name}`, async () => {
    const options = { strategy: make(), faults: CRASHES, runs: 250, isRepeated: false };
    const { runs, failed } = await explore(options, (world) => playCommit(world, false));
    assert.equal(failed, undefined, JSON.stringify(failed));
    assert.equal(runs, 250);
  });
}

Deno.test("an actor that is stopped while it waits unwinds before time passes or others act", async () => {
  const steps: string[] = [];
  const onStep = ({ actor, type, t }: StepRecord) => void steps.push(`${t} ${actor} ${type}`);
  const { failure, value } = await simulate({ onStep }, async (world) => {
    const { system, settle, idle } = world;
    const to = system.spawn(NOTES, undefined, { id: "notes" });
    const ref = system.spawn(PARENT, { notes: to }, { id: "parent" });
    await settle(5);
    system.send(ref, { type: "Stop" });
    for (const text of ["a", "b"]) system.send(to, { type: "Note", text });
    let seen: unknown;
    world.atEnd("what was said", ({ state }) => void (seen = state("notes")));
    await idle();
    return () => seen;
  });
  assert.equal(failure, undefined);
  assert.deepEqual(value!(), ["a", "b", "unwound"]);
  // Not one of them at the minute at which the question would have timed out.
  assert.deepEqual(steps.slice(5), [
    "0 parent Stop",
    "0 waiter finish",
    "0 parent finish",
    "0 notes Note",
    "0 notes Note",
    "0 notes Note",
  ]);
});

for (const kind of ["crash-before", "crash-after"] as const) {
  Deno.test(`an actor that crashes (${kind}) while it waits does nothing any more`, async () => {
    const faults = [{ step: 0, kind, target: "waiter" }];
    const { failure, value } = await simulate(
      { faults },
      async ({ system, settle, idle, atEnd }) => {
        const to = system.spawn(NOTES, undefined, { id: "notes" });
        const ref = system.spawn(WAITER, { notes: to }, { id: "waiter" });
        const down = Promise.withResolvers<unknown>();
        system.watch(ref, ({ reason }) => down.resolve(reason));
        await settle();
        system.send(ref, { type: "Wait" });
        let seen: unknown;
        atEnd("what was said", ({ state }) => void (seen = state("notes")));
        await idle();
        assert.notEqual(await down.promise, "stopped");
        return () => seen;
      },
    );
    assert.equal(failure, undefined);
    assert.deepEqual(value!(), []);
  });
}

Deno.test("a crash instead of an answer takes the answer with it, and ends the actor", async () => {
  const faults = [{ step: 4, kind: "crash-before" as const, target: "asker" }];
  const module = `data:text/javascript,
    export const asker = (ctx, to) => ({
      async Go() { await ctx.ask(to, { type: "Read" }); ctx.send(to, { type: "Alive" }); },
    });
    export const book = (ctx) => ({ Read() { ctx.reply(1); }, Alive() { throw new Error("!"); } });`;
  type Book = { type: "Read" } | { type: "Alive" };
  const steps: string[] = [];
  const onStep = ({ actor, type, faults: [fault = ""] = [] }: StepRecord) =>
    void steps.push(`${actor} ${type} ${fault}`.trim());
  const { failure, faults: done } = await simulate({ faults, onStep }, async ({ system, idle }) => {
    const to = system.spawn<undefined, Book>({ module, export: "book" }, undefined, { id: "book" });
    const asker = system.spawn<object, { type: "Go" }>({ module, export: "asker" }, to, {
      id: "asker",
    });
    system.watch(asker, () => {});
    system.send(asker, { type: "Go" });
    await idle();
  });
  assert.equal(failure, undefined, JSON.stringify(failure));
  assert.deepEqual(done, faults);
  assert.deepEqual(steps.slice(2), [
    "asker Go",
    "book Read",
    "asker answer:Read crash-before asker",
    "asker finish",
  ]);
});

/** A bank moves money by two messages of one handler, and answers in the end. */
const bank: Scenario<string> = async ({ system, settle, idle, atEnd }) => {
  const module = `data:text/javascript,
    export const account = (ctx, money) => {
      ctx.expose(() => money);
      return { Change({ by }) { money += by; } };
    };
    export const bank = (ctx, { from, to }) => ({
      Move({ money }) {
        ctx.send(from, { type: "Change", by: -money });
        ctx.send(to, { type: "Change", by: money });
        ctx.reply("moved");
      },
    });`;
  const [from, to] = ["from", "to"].map((id) =>
    system.spawn({ module, export: "account" }, 10, { id })
  );
  const bank = system.spawn<object, { type: "Move"; money: number }>(
    { module, export: "bank" },
    { from, to },
    { id: "bank" },
  );
  system.watch(bank, () => {});
  await settle();
  atEnd("no money is lost", ({ state }) => {
    const sum = state<number>("from")! + state<number>("to")!;
    return sum === 20 ? undefined : `there are ${sum}`;
  });
  const answer = await system.ask<{ type: "Move"; money: number }, string>(bank, {
    type: "Move",
    money: 3,
  }).catch(({ name }) => name);
  await idle();
  return answer;
};

Deno.test("what a handler sends is torn apart by a crash amid it, and only by that", async () => {
  const faults = (kinds: FaultOptions["kinds"]) => ({ kinds, rate: 0.5, actors: ["bank"] });
  const whole = { strategy: random(), faults: faults(["crash-before", "crash-after"]), runs: 200 };
  assert.equal((await explore(whole, bank)).failed, undefined);
  const torn = { strategy: random(), faults: faults(["crash-amid"]), runs: 200 };
  const { failed } = await explore(torn, bank);
  assert.equal(failed?.failure.message, "there are 17");
  const { run, isReplayed } = await shrink(torn, bank, failed);
  assert.deepEqual(run.faults, [{ step: 0, kind: "crash-amid", target: "bank", sends: 1 }]);
  assert.ok(isReplayed);
});

Deno.test("who asked an actor that crashes amid its handler gets the answer or learns that it is gone", async () => {
  const play = async (sends: number) => {
    const faults = [{ step: 0, kind: "crash-amid", target: "bank", sends }] as const;
    const { value, failure } = await simulate({ faults }, bank);
    return value ?? failure?.message;
  };
  assert.equal(await play(0), "ActorFailedError");
  assert.equal(await play(1), "there are 17");
  assert.equal(await play(2), "ActorFailedError");
  assert.equal(await play(3), "moved");
});

Deno.test("who was promised an answer by an earlier handler learns of a crash amid the answering one", async () => {
  const module = `data:text/javascript,export const host = (ctx) => {
    const owed = [];
    return { Wait() { owed.push(ctx.deferReply()); }, Release() { for (const reply of owed) reply(1); } };
  }`;
  type Host = { type: "Wait" } | { type: "Release" };
  const faults = [{ step: 3, kind: "crash-amid", target: "host", sends: 1 }] as const;
  const { value, failure } = await simulate({ faults }, async ({ system }) => {
    const host = system.spawn<undefined, Host>({ module, export: "host" }, undefined, {
      id: "host",
    });
    system.watch(host, () => {});
    const guests = [0, 1].map(() =>
      system.ask<Host, number>(host, { type: "Wait" }, { timeoutMs: Infinity })
    );
    system.send(host, { type: "Release" });
    return (await Promise.allSettled(guests)).map(({ status }) => status);
  });
  assert.equal(failure, undefined, JSON.stringify(failure));
  assert.deepEqual(value, ["fulfilled", "rejected"]);
});

Deno.test("a handler that asks and then waits for something else goes on before time passes", async () => {
  const { value } = await simulate({}, async ({ system, idle, settle, invariant }) => {
    let saidAt = -1;
    const to = system.spawn(NOTES, undefined, { id: "notes" });
    const ref = system.spawn(WAITER, { notes: to }, { id: "waiter" });
    system.watch(ref, () => {});
    await settle();
    invariant("when it was said", ({ state, now }) => {
      if (saidAt < 0 && state<string[]>("notes")!.includes("went on")) saidAt = now;
    });
    system.send(ref, { type: "Detour" });
    await idle();
    return saidAt;
  });
  assert.equal(value, 0);
});

Deno.test("a handler that never ends its unwinding is told, and the simulation ends", async () => {
  const module = `data:text/javascript,export const stuck = (ctx, to) => ({
    async Go() {
      try { await ctx.ask(to, { type: "Never" }); } finally { await new Promise(() => {}); }
    },
  })`;
  const { failure } = await simulate({ hangMs: 50 }, async ({ system, settle }) => {
    const to = system.spawn(NOTES, undefined, { id: "notes" });
    const ref = system.spawn<object, { type: "Go" }>({ module, export: "stuck" }, to, {
      id: "stuck",
    });
    system.send(ref, { type: "Go" });
    await settle(4);
    await system.stop();
  });
  assert.deepEqual(failure?.waits, ['"stuck" has not ended "Go"']);
});
