/** Faults: actors that crash or stall, messages that are lost or come twice, sites that fail. */

import assert from "node:assert/strict";
import { atDepth } from "../../depth.ts";
import { explore } from "../../../actors/simulation/explore.ts";
import type { Fault, FaultKind, FaultOptions } from "../../../actors/simulation/faults.ts";
import { random, type Strategy, WAIT } from "../../../actors/simulation/strategies.ts";
import type { Scenario, SimulateOptions, World } from "../../../actors/simulation/run.ts";
import { shrink } from "../../../actors/simulation/shrink.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import type { StepRecord } from "../../../actors/simulation/recorder.ts";
import { type AnyRef, playSum, ROGUE, spawnText } from "./players.ts";

/** The steps of a run as lines with their faults. */
async function stepsOf(options: SimulateOptions, scenario: Scenario<unknown>) {
  const steps: string[] = [];
  const onStep = ({ t, actor, type, faults = [] }: StepRecord) =>
    void steps.push([t, actor, type, ...faults].join(" "));
  const run = await simulate({ ...options, onStep }, scenario);
  assert.equal(run.failure, undefined, JSON.stringify(run.failure));
  return { run, steps };
}

/** Records its messages, and leaves one ask open. */
const NOTES = `(ctx) => {
  const notes = [];
  ctx.expose(() => notes);
  return { Note({ text }) { notes.push(text); }, Never() { ctx.deferReply(); } };
}`;

/** Waits for an answer that never comes, and notes how the wait ended. */
const WAITER = `(ctx, notes) => {
  const say = (text) => ctx.send(notes, { type: "Note", text });
  const ask = () => ctx.ask(notes, { type: "Never" }, { timeoutMs: 60_000 });
  const tick = async () => { for (let tick = 0; tick < 20; tick++) await Promise.resolve(); };
  return {
    async Wait() { try { await ask(); } finally { await tick(); say("unwound"); } },
    async Detour() { const answer = ask(); await tick(); say("went on"); await answer; },
  };
}`;

/** Runs a scenario with the note-taking actor and returns its notes. */
const noting =
  (play: (world: World, notes: AnyRef) => Promise<void>): Scenario<unknown[]> => async (world) => {
    const notes = spawnText(world.system, "notes", NOTES), seen: unknown[] = [];
    world.atEnd("what was said", ({ state }) => void seen.push(...state<string[]>("notes")!));
    await play(world, notes);
    await world.idle();
    return seen;
  };

Deno.test("an actor that is stopped while it waits unwinds before time passes or others act", async () => {
  const PARENT = `(ctx, child) => {
    const waiter = ctx.spawn(child.spec, child.notes, { id: "waiter" });
    ctx.send(waiter, { type: "Wait" });
    return { Stop: () => ctx.stop() };
  }`;
  const module = `data:text/javascript,export const waiter = ${WAITER}`;
  const scenario = noting(async ({ system, settle }, notes) => {
    const child = { spec: { module, export: "waiter" }, notes };
    const parent = spawnText(system, "parent", PARENT, child);
    await settle(5);
    system.send(parent, { type: "Stop" });
    for (const text of ["a", "b"]) system.send(notes, { type: "Note", text });
  });
  const { run, steps } = await stepsOf({}, scenario);
  assert.deepEqual(run.value, ["a", "b", "unwound"]);
  // None of them at one minute, when the question would have timed out.
  const stopped = ["0 parent Stop", "0 waiter finish", "0 parent finish"];
  assert.deepEqual(steps.slice(5), [...stopped, ...Array(3).fill("0 notes Note")]);
});

Deno.test("an actor that crashes while it waits does nothing any more", async () => {
  for (const kind of ["crash-before", "crash-after"] as const) {
    const down = Promise.withResolvers<unknown>();
    const scenario = noting(async ({ system, settle }, notes) => {
      const waiter = spawnText(system, "waiter", WAITER, notes);
      system.watch(waiter, ({ reason }) => down.resolve(reason));
      await settle();
      system.send(waiter, { type: "Wait" });
    });
    const faults = [{ step: 0, kind, target: "waiter" }];
    const { failure, value } = await simulate({ faults }, scenario);
    assert.deepEqual([failure, value], [undefined, []]);
    assert.notEqual(await down.promise, "stopped");
  }
});

Deno.test("a handler that asks and then waits for something else continues before time passes", async () => {
  let saidAt = -1;
  const scenario = noting(async ({ system, settle, invariant }, notes) => {
    const waiter = spawnText(system, "waiter", WAITER, notes);
    system.watch(waiter, () => {});
    await settle();
    invariant("when it was said", ({ state, now }) => {
      if (saidAt < 0 && state<string[]>("notes")!.includes("went on")) saidAt = now;
    });
    system.send(waiter, { type: "Detour" });
  });
  await simulate({}, scenario);
  assert.equal(saidAt, 0);
});

Deno.test("a handler that never ends its unwinding is named, and the simulation ends", async () => {
  const STUCK = `(ctx, to) => ({ async Go() {
    try { await ctx.ask(to, { type: "Never" }); } finally { await new Promise(() => {}); }
  } })`;
  const { failure } = await simulate({ hangMs: 50 }, async ({ system, settle }) => {
    const stuck = spawnText(system, "stuck", STUCK, spawnText(system, "notes", NOTES));
    system.send(stuck, { type: "Go" });
    await settle(4);
    await system.stop();
  });
  assert.deepEqual(failure?.waits, ['"stuck" has not ended "Go"']);
});

Deno.test("a crash instead of an answer takes the answer with it, and ends the actor", async () => {
  const ASKS = `(ctx, to) => ({
    async Go() { await ctx.ask(to, { type: "Read" }); ctx.send(to, { type: "Alive" }); },
  })`;
  const BOOK = `(ctx) => ({ Read() { ctx.reply(1); }, Alive() { throw new Error("!"); } })`;
  const faults = [{ step: 4, kind: "crash-before" as const, target: "asker" }];
  const { run, steps } = await stepsOf({ faults }, async ({ system, idle }) => {
    const asker = spawnText(system, "asker", ASKS, spawnText(system, "book", BOOK));
    system.watch(asker, () => {});
    system.send(asker, { type: "Go" });
    await idle();
  });
  assert.deepEqual(run.faults, faults);
  const crashed = "0 asker answer:Read crash-before asker";
  assert.deepEqual(steps.slice(2), ["0 asker Go", "0 book Read", crashed, "0 asker finish"]);
});

/** A bank moves money by two messages of one handler, and answers in the end. */
const bank: Scenario<string> = async ({ system, settle, idle, atEnd }) => {
  const ACCOUNT = `(ctx, money) => {
    ctx.expose(() => money);
    return { Change({ by }) { money += by; } };
  }`;
  const BANK = `(ctx, [from, to]) => ({ Move({ money }) {
    ctx.send(from, { type: "Change", by: -money });
    ctx.send(to, { type: "Change", by: money });
    ctx.reply("moved");
  } })`;
  const accounts = ["from", "to"].map((id) => spawnText(system, id, ACCOUNT, 10));
  const bank = spawnText(system, "bank", BANK, accounts);
  system.watch(bank, () => {});
  await settle();
  atEnd("no money is lost", ({ state }) => {
    const sum = state<number>("from")! + state<number>("to")!;
    return sum === 20 ? undefined : `there are ${sum}`;
  });
  const answer = system.ask(bank, { type: "Move", money: 3 }).catch(({ name }) => name);
  const ended = await answer as string;
  await idle();
  return ended;
};

Deno.test("what a handler sends is torn apart by a crash amid it, and only by that", async () => {
  const optionsOf = (...kinds: FaultKind[]) => ({
    ...{ strategy: random(), faults: { kinds, rate: 0.5, actors: ["bank"] }, runs: 100 },
  });
  assert.equal((await explore(optionsOf("crash-before", "crash-after"), bank)).failed, undefined);
  const torn = optionsOf("crash-amid"), { failed } = await explore(torn, bank);
  assert.equal(failed?.failure.message, "there are 17");
  const { run, isReplayed } = await shrink(torn, bank, failed);
  assert.deepEqual(run.faults, [{ step: 0, kind: "crash-amid", target: "bank", sends: 1 }]);
  assert.ok(isReplayed);
});

Deno.test("an actor that asks a crashing actor gets the answer or learns of the crash", async () => {
  const ends = ["ActorFailedError", "there are 17", "ActorFailedError", "moved"];
  for (const [sends, end] of ends.entries()) {
    const faults = [{ step: 0, kind: "crash-amid", target: "bank", sends }] as const;
    const { value, failure } = await simulate({ faults }, bank);
    assert.equal(value ?? failure?.message, end, `${sends}`);
  }
});

Deno.test("an actor that asked an earlier handler learns of a crash in the answering handler", async () => {
  const HOST = `(ctx) => {
    const owed = [];
    return { Wait() { owed.push(ctx.deferReply()); }, Release() { for (const reply of owed) reply(1); } };
  }`;
  const faults = [{ step: 3, kind: "crash-amid", target: "host", sends: 1 }] as const;
  const { value, failure } = await simulate({ faults }, async ({ system }) => {
    const host = spawnText(system, "host", HOST);
    system.watch(host, () => {});
    const guests = [0, 1].map(() => system.ask(host, { type: "Wait" }, { timeoutMs: Infinity }));
    system.send(host, { type: "Release" });
    return (await Promise.allSettled(guests)).map(({ status }) => status);
  });
  assert.deepEqual([failure, value], [undefined, ["fulfilled", "rejected"]]);
});

Deno.test("a stall has its full duration, also in a repeated run", async () => {
  const faults = { kinds: ["stall"], rate: 1, stallMs: 77, actors: ["sum"] } as const;
  const { failed, runs } = await explore({ faults, runs: 10 }, async (world) => {
    await playSum(world, [[1], [2]]);
    world.atEnd("77 ms have passed", ({ now }) => now === 77 ? undefined : `${now} ms`);
  });
  assert.deepEqual([failed, runs], [undefined, 10]);
});

Deno.test("a slow edge holds the messages of one sender, and no others", async () => {
  const faults = [{ step: 3, kind: "slow-edge", target: "adder-0>sum", forMs: 50 }] as const;
  // Also where the strategy would rather wait for the end of the fault.
  for (const isEager of [false, true]) {
    const choose: Strategy["choose"] = (...[, , , timer]) => isEager && timer === "near" ? WAIT : 0;
    const options = { faults, strategy: { name: "eager", begin: () => true, choose } };
    const { value } = await simulate(options, (world) => playSum(world, [[1, 2], [3, 4]]));
    assert.deepEqual(value!.added, [3, 4, 1, 2]);
  }
});

Deno.test("a named site fails in some runs, when sites may, and counts anew in each step", async () => {
  const asking = (times: number) => async ({ system }: World) => {
    const rogue = system.spawn(ROGUE, undefined, { id: "rogue" }), fails: unknown[] = [];
    while (fails.length < times) {
      fails.push(await system.ask(rogue, { type: "Site", site: "disk" }));
    }
    return fails.join();
  };
  for (const [target, expected] of [["disk#0", "true,false"], ["disk#1", "false,false"]] as const) {
    const faults = [{ step: 0, kind: "site", target }] as const;
    assert.equal((await simulate({ faults }, asking(2))).value, expected);
  }
  for (const options of [{}, { faults: { kinds: ["site"] } } as const]) {
    const seen = new Set<string>();
    await explore({ runs: 60, ...options }, async (world) => void seen.add(await asking(1)(world)));
    assert.equal(seen.size, "faults" in options ? 2 : 1);
  }
});

/** Mistakes in a pair of actors that exchange numbers although messages are lost and duplicated. */
type Bug = "says nothing again" | "hears all twice" | undefined;

/** Says numbers in order, one at a time, each again until it is heard. */
const SENDER = `(ctx, { to, bug }) => {
  let heard = 0;
  ctx.expose(() => heard);
  const say = () => {
    if (heard === 3) return;
    ctx.send(to, { type: "Say", n: heard, from: ctx.self });
    if (bug !== "says nothing again") ctx.after(100, { type: "Again", n: heard });
  };
  return {
    Begin: say,
    Heard({ n }) { if (n === heard) { heard++; say(); } },
    Again({ n }) { if (n === heard) say(); },
  };
}`;

const RECEIVER = `(ctx, bug) => {
  const got = [];
  ctx.expose(() => got);
  return { Say({ n, from }) {
    if (n === got.length || bug === "hears all twice") got.push(n);
    ctx.send(from, { type: "Heard", n });
  } };
}`;

/** Says three numbers; all must come, each once and in order. */
const saying = (bug?: Bug): Scenario => async (world) => {
  const { system, settle, idle, invariant, eventually } = world;
  const to = spawnText(system, "receiver", RECEIVER, bug);
  const from = spawnText(system, "sender", SENDER, { to, bug });
  await settle();
  invariant("each number comes once and in order", ({ state }) => {
    const got = state<number[]>("receiver")!;
    if (got.some((n, index) => n !== index)) return `${got} came`;
  });
  eventually("all numbers come", ({ state }) => {
    const { length } = state<number[]>("receiver")!;
    if (length < 3) return `${length} of 3 came`;
  });
  system.send(from, { type: "Begin" });
  await idle();
};

const LINES: readonly FaultKind[] = ["loss", "duplication", "partition"];

const linesFail = (kinds: readonly FaultKind[], rate = 0.2): FaultOptions => ({
  ...{ kinds, rate, max: 6, stallMs: 250 },
});

for (const kinds of [...LINES.map((kind) => [kind]), LINES]) {
  Deno.test(`a message that is repeated until it is acknowledged counts once, with ${kinds}`, async () => {
    const happened = new Set<FaultKind>(), strategy = random();
    for (let seed = 0; seed < atDepth(40, 300); seed++) {
      const options = { seed, strategy, faults: linesFail(kinds) };
      const { failure, faults, hash } = await simulate(options, saying());
      assert.equal(failure, undefined, `seed ${seed}: ${JSON.stringify({ failure, faults })}`);
      for (const { kind, target } of faults) {
        happened.add(kind);
        // All actors together are not cut off from any other.
        if (kind === "partition") assert.doesNotMatch(target, /\|/);
      }
      const again = await simulate({ ...options, faults }, saying());
      assert.deepEqual([again.hash, again.faults], [hash, faults], `seed ${seed} again`);
    }
    assert.deepEqual([...happened].sort(), kinds.toSorted());
  });
}

const FORGOTTEN = [
  ["says nothing again", "loss", /of 3 came \d+ ms and \d+ steps after it became due/],
  ["says nothing again", "partition", /of 3 came/],
  ["hears all twice", "duplication", / came$/],
  ["hears all twice", "loss", / came$/],
] as const;

for (const [bug, kind, message] of FORGOTTEN) {
  Deno.test(`an actor that ${bug} is found by ${kind}, with few faults left of many`, async () => {
    const options = { faults: linesFail([kind]), runs: 300 };
    const { failed } = await explore(options, saying(bug));
    assert.match(failed?.failure.message ?? "none", message);
    const { run: { faults, deviations }, isReplayed } = await shrink(options, saying(bug), failed!);
    assert.ok(faults.length <= 2, JSON.stringify(faults));
    assert.deepEqual([faults[0]!.kind, deviations, isReplayed], [kind, [], true]);
  });
}

Deno.test("each kind of fault may have its rate", async () => {
  const counts = { loss: 0, duplication: 0 };
  for (let seed = 0; seed < 200; seed++) {
    const rates = { loss: 0.3, duplication: 0.03 };
    const faults: FaultOptions = { kinds: ["loss", "duplication"], rates, max: 100, stallMs: 10 };
    const { faults: done } = await simulate({ seed, faults }, saying());
    for (const { kind } of done) counts[kind as keyof typeof counts]++;
  }
  const ratio = counts.loss / counts.duplication;
  assert.ok(ratio > 7 && ratio < 14, JSON.stringify(counts));
});

Deno.test("what the scenario sends, and what an actor sends itself, always arrives", async () => {
  const ECHO = `(ctx) => {
    let reply;
    return {
      Ask() { reply = ctx.deferReply(); ctx.send(ctx.self, { type: "Own" }); },
      Own() { reply(1); },
    };
  }`;
  const faults = linesFail(["loss"], 1);
  const { failed } = await explore({ faults, runs: 5 }, async ({ system }) => {
    assert.equal(await system.ask(spawnText(system, "echo", ECHO), { type: "Ask" }), 1);
  });
  assert.equal(failed, undefined);
});

Deno.test("a question or an answer that is lost ends in the time that was given", async () => {
  const ASKS = `(ctx, to) => {
    let ended = "";
    ctx.expose(() => ended);
    return { async Go() {
      ended = await ctx.ask(to, { type: "Ask" }, { timeoutMs: 50 }).catch((error) => error.name);
    } };
  }`;
  const endOf = async (...faults: Fault[]) => {
    const { value, failure } = await simulate({ faults }, async ({ system, idle, atEnd }) => {
      const to = spawnText(system, "answerer", "(ctx) => ({ Ask() { ctx.reply(1); } })");
      system.send(spawnText(system, "asker", ASKS, to), { type: "Go" });
      const ended: unknown[] = [];
      atEnd("look", ({ state }) => void ended.push(state("asker")));
      await idle();
      return ended;
    });
    assert.equal(failure, undefined);
    return value![0];
  };
  assert.equal(await endOf(), 1);
  const cut = (target: string) => endOf({ step: 0, kind: "partition", target, forMs: 10 });
  for (const cutOff of ["asker", "answerer"]) assert.equal(await cut(cutOff), "AskTimeoutError");
  assert.equal(await cut("asker|answerer"), 1);
  for (const target of ["asker>answerer#0", "answerer>asker#0"]) {
    assert.equal(await endOf({ step: 0, kind: "loss", target }), "AskTimeoutError");
    assert.equal(await endOf({ step: 0, kind: "duplication", target }), 1);
  }
});
