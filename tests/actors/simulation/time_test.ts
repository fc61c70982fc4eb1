import assert from "node:assert/strict";
import type { ActorFactory, ActorRef, ActorSpec } from "../../../actors/runtime/mod.ts";
import {
  delay,
  dfs,
  explore,
  fifo,
  pct,
  portfolio,
  pos,
  random,
  replayOf,
  type Scenario,
  shrink,
  simulate,
  type StepRecord,
  type Strategy,
  WAIT,
  type World,
} from "../../../actors/simulation/mod.ts";
import { playRing, playSum, SUM } from "./players.ts";

type PatientMessage =
  | { readonly type: "Arm"; readonly delayMs: number }
  | { readonly type: "Timeout" }
  | { readonly type: "Done" };

const PATIENT: ActorSpec<undefined, PatientMessage> = {
  module: import.meta.url,
  export: "patient",
};

/** Waits for something to be done, but not for ever. */
export const patient: ActorFactory<undefined, PatientMessage> = (ctx) => {
  let end = "";
  ctx.expose(() => end);
  return {
    Arm: ({ delayMs }) => ctx.after(delayMs, { type: "Timeout" }, "timeout"),
    Timeout: () => void (end ||= "timeout"),
    Done() {
      end ||= "done";
      ctx.cancel("timeout");
    },
  };
};

type CourierMessage = { readonly type: "Go"; readonly hops: number };

const COURIER: ActorSpec<ActorRef<PatientMessage>, CourierMessage> = {
  module: import.meta.url,
  export: "courier",
};

/** Says that it is done, after a while. */
export const courier: ActorFactory<ActorRef<PatientMessage>, CourierMessage> = (ctx, to) => {
  const self: ActorRef<CourierMessage> = ctx.self;
  ctx.expose(() => 0);
  return {
    Go({ hops }) {
      if (hops > 0) ctx.send(self, { type: "Go", hops: hops - 1 });
      else ctx.send(to, { type: "Done" });
    },
  };
};

/** A timer and a message that race; fails when the timer wins. */
function race(delayMs: number, ends: Set<string> = new Set()): Scenario {
  return async ({ system, settle, idle, atEnd }) => {
    const patient = system.spawn(PATIENT, undefined, { id: "patient" });
    const courier = system.spawn(COURIER, patient, { id: "courier" });
    await settle();
    system.send(patient, { type: "Arm", delayMs });
    system.send(courier, { type: "Go", hops: 2 });
    atEnd("done in time", ({ state }) => {
      ends.add(state<string>("patient")!);
      if (state("patient") !== "done") return "timeout";
    });
    await idle();
  };
}

const STRATEGIES: readonly (() => Strategy)[] = [
  random,
  () => pct(3),
  pos,
  () => delay(2),
  portfolio,
  dfs,
];

for (const make of STRATEGIES) {
  const { name } = make();
  Deno.test(`a timer that is near may fire before a message: ${name}, and such a run replays`, async () => {
    const options = { strategy: make(), runs: 300 };
    const ends = new Set<string>();
    const { failed } = await explore(options, race(100, ends));
    assert.equal(failed?.failure.name, "done in time");
    if (name !== "delay(2)") assert.ok(failed.deviations.some((one) => "wait" in one));
    const { seed, deviations } = failed;
    const again = await simulate({ seed, deviations }, race(100));
    assert.deepEqual([again.hash, again.failure], [failed.hash, failed.failure]);
    const { run, isReplayed } = await shrink(options, race(100), failed);
    assert.ok(isReplayed);
    assert.ok(run.deviations.length <= 2, JSON.stringify(run.deviations));
  });

  Deno.test(`a timer that is far, or none with raceMs 0, does not: ${name}`, async () => {
    for (const options of [{ raceMs: 0 }, { raceMs: 99 }]) {
      const strategy = make();
      const { failed } = await explore({ ...options, strategy, runs: 100 }, race(100));
      assert.equal(failed, undefined);
    }
    const { failed } = await explore({ strategy: make(), runs: 100 }, race(1001));
    assert.equal(failed, undefined);
  });
}

Deno.test("exhaustive search finds both ends of a race, plain order only the one", async () => {
  const both = new Set<string>(), plain = new Set<string>();
  const scenario = (ends: Set<string>): Scenario => async (world) =>
    void await race(10, ends)({
      ...world,
      atEnd: (name, check) => world.atEnd(name, (view) => void check(view)),
    });
  await explore({ strategy: dfs(), runs: Infinity }, scenario(both));
  await explore({ strategy: fifo(), runs: 3 }, scenario(plain));
  assert.deepEqual([...both].sort(), ["done", "timeout"]);
  assert.deepEqual([...plain], ["done"]);
});

Deno.test("a strategy of one's own that waits is repeated from its deviations, however far the timer", async () => {
  const late: Strategy = {
    name: "late",
    begin: () => true,
    choose: (_, step) => step === 2 && waits++ < 1 ? WAIT : 0,
  };
  let waits = 0;
  const steps: StepRecord[] = [];
  const onStep = (step: StepRecord) => void steps.push(step);
  const scenario: Scenario = async ({ system, idle, atEnd }) => {
    const patient = system.spawn(PATIENT, undefined, { id: "patient" });
    system.send(patient, { type: "Arm", delayMs: 86_400_000 });
    system.send(patient, { type: "Done" });
    atEnd("done in time", ({ state }) => state("patient") === "done" ? undefined : "timeout");
    await idle();
  };
  const run = await simulate({ strategy: late, onStep }, scenario);
  assert.equal(run.failure?.name, "done in time");
  assert.deepEqual(run.deviations, [{ step: 2, wait: 1 }]);
  const again = await simulate({ deviations: run.deviations }, scenario);
  assert.deepEqual([again.hash, again.failure], [run.hash, run.failure]);
  const strict = await simulate({ strategy: replayOf(steps) }, scenario);
  assert.equal(strict.hash, run.hash);
  // Where there is no timer, to wait for one counts for nothing.
  const none = await simulate({ deviations: [{ step: 0, wait: 3 }] }, scenario);
  assert.equal(none.failure, undefined);
});

type ClockMessage = { readonly type: "Tick" } | { readonly type: "Read" };

const CLOCK: ActorSpec<number, ClockMessage> = { module: import.meta.url, export: "clock" };

/** Ticks for ever. */
export const clock: ActorFactory<number, ClockMessage> = (ctx, periodMs) => {
  let ticks = 0;
  ctx.expose(() => ticks);
  ctx.after(periodMs, { type: "Tick" });
  return {
    Tick() {
      ticks++;
      ctx.after(periodMs, { type: "Tick" });
    },
    Read: () => ctx.reply(ticks),
  };
};

Deno.test("a scenario lets time pass by so much, though timers start again and again", async () => {
  for (const make of [fifo, random, () => pct(3), pos, () => delay(2)]) {
    const seen: unknown[] = [];
    const run = await simulate({ strategy: make(), raceMs: 0 }, async (world: World) => {
      const { system, settle, advance, atEnd } = world;
      const ref = system.spawn(CLOCK, 100, { id: "clock" });
      await settle({ ms: 250 });
      const read = async () => seen.push(await system.ask(ref, { type: "Read" }));
      await read();
      await advance(0);
      await advance(1000);
      await read();
      await advance(49);
      await read();
      atEnd("time stands still", (view) => view.now === 1299 ? undefined : `${view.now}`);
    });
    assert.equal(run.failure, undefined, JSON.stringify(run.failure));
    assert.deepEqual(seen, [2, 12, 12], run.strategy);
  }
});

Deno.test("an answer that a timer has to bring is awaited also by a scenario that advances", async () => {
  const run = await simulate({}, async ({ system, advance }) => {
    system.spawn(CLOCK, 100, { id: "clock" });
    const sum = system.spawn(SUM, undefined, { id: "sum" });
    await advance(10);
    let isLate = false;
    const answer = system.ask(sum, { type: "Never" }, { timeoutMs: 5000 });
    answer.catch(() => isLate = true);
    await advance(4989);
    assert.equal(isLate, false);
    await assert.rejects(answer, /within 5000 ms/);
  });
  assert.equal(run.failure, undefined, JSON.stringify(run.failure));
});

Deno.test("to wait for timers that start again and again is a livelock, which says what to use", async () => {
  const run = await simulate({ maxSteps: 100 }, async ({ system, idle }) => {
    system.spawn(CLOCK, 100, { id: "clock" });
    await idle();
  });
  assert.equal(run.failure?.kind, "livelock");
  assert.match(run.failure.message, /no end after 100 steps; timers run: see world.advance/);
});

Deno.test("times that are none are refused", async () => {
  for (const ms of [-1, NaN]) {
    const run = await simulate({}, ({ advance }) => advance(ms));
    assert.match(run.failure!.message, /^Cannot advance: ms must be 0 or more, received/);
    await assert.rejects(simulate({ raceMs: ms }, () => {}), /raceMs must be 0 or more/);
  }
});

Deno.test("who waits for a message for ever is listed at the end", async () => {
  const run = await simulate({}, async ({ system, idle }) => {
    const patient = system.spawn(PATIENT, undefined, { id: "patient" });
    system.spawn(COURIER, patient, { id: "courier" });
    await idle();
  });
  assert.deepEqual(run.waiting, [
    '"patient" waits for a message (Arm, Timeout, Done)',
    '"courier" waits for a message (Go)',
  ]);
  // One whose timer runs does not wait for ever.
  const timed = await simulate({}, async ({ system, advance }) => {
    system.spawn(CLOCK, 100, { id: "clock" });
    await advance(10);
  });
  assert.deepEqual(timed.waiting, []);
});

Deno.test("exhaustive search makes all its runs with one seed, so that chance does not mislead it", async () => {
  const seen = new Set<number>();
  const module = `data:text/javascript,export const gambler = (ctx, to) => {
    ctx.expose(() => 0);
    return { Go() { if (ctx.random("dice") < 0.5) ctx.send(to, { type: "Add", by: 1 }); } };
  };`;
  const scenario: Scenario = async ({ system, settle, idle }) => {
    const to = system.spawn(SUM, undefined, { id: "sum" });
    const gamblers = [0, 1, 2, 3].map((n) =>
      system.spawn<ActorRef, { type: "Go" }>({ module, export: "gambler" }, to, { id: `g${n}` })
    );
    await settle();
    for (const gambler of gamblers) system.send(gambler, { type: "Go" });
    await idle();
    seen.add((await system.ask<{ type: "Read" }, { sum: number }>(to, { type: "Read" })).sum);
  };
  for (let seed = 0; seed < 8; seed++) {
    seen.clear();
    const { failed } = await explore({ strategy: dfs(), runs: Infinity, seed }, scenario);
    assert.equal(failed, undefined);
    assert.equal(seen.size, 1, `seed ${seed}`);
  }
});

Deno.test("exhaustive search refuses faults before anything is run", async () => {
  const options = { strategy: dfs(), faults: { kinds: ["crash-after"] } } as const;
  const refused = /^TypeError: Cannot explore by dfs: it must have no faults to inject/;
  await assert.rejects(explore(options, () => assert.fail()), refused);
  await assert.rejects(simulate(options, () => assert.fail()), refused);
});

/** Mean runs until a strategy finds that what one actor sends comes between two messages of another,
 * after so many steps in plain order. */
async function meanRuns(make: () => Strategy, settled: number): Promise<number> {
  let total = 0;
  const searches = 20;
  for (let search = 0; search < searches; search++) {
    const options = { strategy: make(), runs: 1000, seed: 1000 * search, isRepeated: false };
    const { runs, failed } = await explore(options, async (world) => {
      if (settled > 0) {
        await playRing({ ...world, idle: () => world.settle() }, {
          nodes: 10,
          tokens: 1,
          hops: settled,
        });
      }
      const { added } = await playSum(world, [[1, 3], [2]]);
      assert.notDeepEqual(added, [1, 2, 3]);
    });
    assert.ok(failed);
    total += runs;
  }
  return total / searches;
}

for (const make of [() => delay(2), () => pct(3)]) {
  const { name } = make();
  Deno.test(`what was settled costs ${name} no runs`, async () => {
    const [before, after] = [await meanRuns(make, 0), await meanRuns(make, 1000)];
    assert.ok(after < 1.5 * before + 2, `${before} runs, after 1,000 settled steps ${after}`);
  });
}
