/** One run: its order, its record, its clock, and the ways in which it fails. */

import assert from "node:assert/strict";
import {
  delay,
  fifo,
  pct,
  pos,
  random,
  replayOf,
  type Strategy,
  WAIT,
} from "../../../actors/simulation/strategies.ts";
import type { Scenario, SimulateOptions, World } from "../../../actors/simulation/run.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import type { StepRecord } from "../../../actors/simulation/recorder.ts";
import FAILURES from "../../golden/simulation/failures.json" with { type: "json" };
import { type Any, NODE, PATIENT, playRing, playSum, ROGUE, spawnText, SUM } from "./players.ts";

const RING = { nodes: 8, tokens: 4, hops: 30 };
const STRATEGIES = [fifo, random, () => pct(3), pos, () => delay(2)];

const ring = (world: World) => playRing(world, RING);

/** A run and its records, each as a line. */
async function linesOf<T>(
  scenario: Scenario<T>,
  line: (step: StepRecord) => string,
  options: SimulateOptions = {},
) {
  const lines: string[] = [], onStep = (step: StepRecord) => void lines.push(line(step));
  return { run: await simulate({ ...options, onStep }, scenario), lines };
}

Deno.test("the same seed gives the same run, another seed another one, and deviations repeat it", async () => {
  for (const make of STRATEGIES) {
    const play = (seed: number) => simulate({ seed, strategy: make() }, ring);
    const [first, second, other] = [await play(1), await play(1), await play(2)];
    assert.equal(first.failure, undefined);
    assert.deepEqual(first, second);
    if (make !== fifo) assert.notEqual(first.hash, other.hash, first.strategy);
    assert.equal(first.steps, 16 + RING.tokens * (RING.hops + 1));
    const { deviations } = first;
    assert.equal((await simulate({ deviations }, ring)).hash, first.hash, first.strategy);
    if (make === random) assert.ok(deviations.length > 10);
  }
});

Deno.test("steps are recorded with names, choices and hashes, which change nothing", async () => {
  const steps: StepRecord[] = [];
  const scenario = (world: World) => playRing(world, { nodes: 3, tokens: 2, hops: 2 });
  const options = { seed: 5, strategy: random() };
  const run = await simulate({ ...options, onStep: (step) => void steps.push(step) }, scenario);
  assert.deepEqual(await simulate(options, scenario), run);
  assert.deepEqual([steps.length, steps.at(-1)!.hash], [run.steps, run.hash]);
  const { actor, from, type, name, arity, did } = steps[6]!;
  assert.match(actor, /^node-[01]$/);
  assert.deepEqual({ from, type, arity }, { from: "system#2", type: "Pass", arity: 2 });
  assert.equal(name, actor === "node-0" ? "0F0" : "0F1");
  assert.match(did.join(), /^send node-[12] Pass [0-9a-f]{16}$/);
});

Deno.test("a scenario may stop the system, and its last step is recorded once", async () => {
  const stop = async ({ system, idle }: World) => {
    system.spawn(SUM, undefined, { id: "sum" });
    await idle();
    await system.stop();
  };
  const { run, lines } = await linesOf(stop, ({ actor, type }) => `${actor} ${type}`);
  assert.deepEqual(run, await simulate({}, stop));
  assert.deepEqual(lines, ["sum init", "sum finish", "system finish"]);
});

Deno.test("payloads count in the hash, unless digests are off", async () => {
  const play = async (number: number, digests: boolean) =>
    (await simulate({ digests }, (world) => playSum(world, [[number]]))).hash;
  assert.notEqual(await play(1, true), await play(2, true));
  assert.equal(await play(1, false), await play(2, false));
});

Deno.test("the scenario continues only while no actor runs", async () => {
  const orders: string[] = [];
  for (const ticks of [0, 50]) {
    const order: string[] = [];
    const onStep = ({ actor, type }: StepRecord) => void order.push(`${actor} ${type}`);
    await simulate({ onStep }, async ({ system, idle }) => {
      const to = system.spawn(SUM, undefined, { id: "sum" });
      for (let by = 0; by < 3; by++) {
        await system.ask(to, { type: "Read" });
        // However many ticks of promises the scenario takes, the actors wait for it.
        for (let tick = 0; tick < ticks; tick++) await Promise.resolve();
        system.send(to, { type: "Add", by });
        order.push("scenario");
      }
      await idle();
    });
    orders.push(order.join());
  }
  assert.equal(orders[0], orders[1]);
});

for (const [title, { message, options = {}, failure: expected }] of Object.entries<Any>(FAILURES)) {
  Deno.test(title, async () => {
    const { failure } = await simulate(options, async ({ system, idle }) => {
      const to = system.spawn(SUM, undefined, { id: "sum" });
      system.send(system.spawn(ROGUE, undefined, { id: "rogue" }), { to, ...message } as Any);
      await idle();
    });
    const { message: text = "", ...fields } = expected;
    assert.ok(failure!.message.startsWith(text), failure!.message);
    assert.deepEqual({ ...failure, ...fields }, failure);
  });
}

Deno.test("what the scenario throws is the run's failure", async () => {
  const { failure } = await simulate({}, () => assert.equal(1, 2));
  assert.deepEqual([failure?.kind, failure?.name], ["scenario", "AssertionError"]);
});

Deno.test("an invariant is checked after each step, and sees states and mailboxes", async () => {
  const seen: string[] = [];
  const run = await simulate({}, async ({ system, invariant, atEnd, idle }) => {
    const to = system.spawn(SUM, undefined, { id: "sum" });
    invariant("less than 3", (view) => {
      const { added } = view.state<{ added: number[] }>("sum") ?? { added: [] };
      seen.push(`${view.steps} ${view.actor} ${view.type} ${view.waiting("sum")}`);
      if (added.length >= 3) return `${added.length} were added`;
    });
    atEnd("never checked", () => assert.fail("the run has failed before"));
    for (let by = 0; by < 5; by++) system.send(to, { type: "Add", by });
    await idle();
  });
  assert.deepEqual(seen, ["1 sum init 5", "2 sum Add 4", "3 sum Add 3", "4 sum Add 2"]);
  const failure = { kind: "invariant", name: "less than 3", message: "3 were added", step: 4 };
  assert.deepEqual(run.failure, { ...failure, waits: [] });
});

Deno.test("simulations run one at a time", async () => {
  const first = simulate({}, ({ idle }) => idle());
  await assert.rejects(simulate({}, ({ idle }) => idle()), /only one simulation/);
  assert.equal((await first).failure, undefined);
});

/** Ticks for ever. */
const CLOCK = `(ctx) => {
  let ticks = 0;
  const start = () => ctx.after(100, { type: "Tick" });
  ctx.expose(() => ticks);
  start();
  return { Tick() { ticks++; start(); }, Read() { ctx.reply(ticks); } };
}`;

Deno.test("a strategy that waits is repeated from its deviations, however far the timer", async () => {
  let waits = 0;
  const late: Strategy = {
    name: "late",
    begin: () => true,
    choose: (_, step) => step === 2 && waits++ < 1 ? WAIT : 0,
  };
  const steps: StepRecord[] = [], onStep = (step: StepRecord) => void steps.push(step);
  const scenario: Scenario = async ({ system, idle, atEnd }) => {
    const patient = spawnText(system, "patient", PATIENT);
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

Deno.test("a message that can be handled waits for timers no longer than raceMs", async () => {
  const eager = (first: string): Strategy => ({
    name: "eager",
    begin: () => true,
    choose: (candidates, _step, _state, timer) =>
      timer === "near" ? WAIT : Math.max(0, candidates.findIndex(({ type }) => type === first)),
  });
  const TIMED = `(ctx) => {
    for (const n of [600, 1200, 1500]) ctx.after(n, { type: "Fired", n });
    return { Fired() {}, Note() {} };
  }`;
  const scenario = async ({ system, settle, idle }: World) => {
    const timed = spawnText(system, "timed", TIMED);
    await settle(1);
    system.send(timed, { type: "Note" });
    await idle();
  };
  const line = ({ t, type }: StepRecord) => `${t} ${type}`;
  const fired = ["1500 Fired", "1500 Fired", "1500 Fired"];
  // A step of another message does not let the note wait any longer.
  for (const [first, steps] of [["Note", fired], ["Fired", fired.with(0, "600 Fired")]] as const) {
    const { lines } = await linesOf(scenario, line, { strategy: eager(first) });
    const at = steps.indexOf("1500 Fired");
    assert.deepEqual(lines.slice(1), steps.toSpliced(at, 0, "600 Note"));
  }
});

Deno.test("timers of one moment fire in the order in which they were started", async () => {
  const TIMED = `(ctx) => {
    for (const n of [1, 2, 3]) ctx.after(10, { type: "Fired" + n });
    ctx.after(5, { type: "Fired0" });
    const Fired = () => {};
    return { Fired0: Fired, Fired1: Fired, Fired2: Fired, Fired3: Fired };
  }`;
  const { lines } = await linesOf(async ({ system, idle }) => {
    spawnText(system, "timed", TIMED);
    await idle();
  }, ({ type }) => type.replace("Fired", ""));
  assert.deepEqual(lines, ["init", "0", "1", "2", "3"]);
});

Deno.test("a scenario lets exactly the requested time pass, although timers recur", async () => {
  for (const make of STRATEGIES) {
    const seen: unknown[] = [];
    const run = await simulate({ strategy: make(), raceMs: 0 }, async (world: World) => {
      const { system, settle, advance, atEnd } = world;
      const ref = spawnText(system, "clock", CLOCK);
      await settle({ ms: 250 });
      const read = async () => seen.push(await system.ask(ref, { type: "Read" }));
      await read();
      for (const ms of [0, 1000, 49]) {
        await advance(ms);
        await read();
      }
      atEnd("no time passes after that", (view) => view.now === 1299 ? undefined : `${view.now}`);
    });
    assert.equal(run.failure, undefined, JSON.stringify(run.failure));
    assert.deepEqual(seen, [2, 2, 12, 12], run.strategy);
  }
});

Deno.test("a scenario that advances also awaits an answer that depends on a timer", async () => {
  const run = await simulate({}, async ({ system, advance }) => {
    spawnText(system, "clock", CLOCK);
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

Deno.test("waiting for recurring timers is a livelock, whose message names the alternative", async () => {
  const run = await simulate({ maxSteps: 100 }, async ({ system, idle }) => {
    spawnText(system, "clock", CLOCK);
    await idle();
  });
  assert.equal(run.failure?.kind, "livelock");
  assert.match(run.failure.message, /no end after 100 steps; timers run: see world.advance/);
});

Deno.test("negative times and NaN are refused", async () => {
  for (const ms of [-1, NaN]) {
    const run = await simulate({}, ({ advance }) => advance(ms));
    assert.match(run.failure!.message, /^Cannot advance: ms must be 0 or more, received/);
    await assert.rejects(simulate({ raceMs: ms }, () => {}), /raceMs must be 0 or more/);
  }
});

Deno.test("an actor that waits for a message forever is listed at the end", async () => {
  const run = await simulate({}, async ({ system, idle }) => {
    spawnText(system, "patient", PATIENT);
    system.spawn(NODE, undefined, { id: "node" });
    await idle();
  });
  assert.deepEqual(run.waiting, [
    '"patient" waits for a message (Arm, Timeout, Done)',
    '"node" waits for a message (Wire, Pass)',
  ]);
  // An actor with a running timer does not wait forever.
  const timed = await simulate({}, async ({ system, advance }) => {
    spawnText(system, "clock", CLOCK);
    await advance(10);
  });
  assert.deepEqual(timed.waiting, []);
});
