import assert from "node:assert/strict";
import { type Run, simulate, type StepRecord, type World } from "../../../actors/simulation/mod.ts";
import { delay, fifo, pct, pos, random } from "../../../actors/simulation/mod.ts";
import { AskTimeoutError, type System } from "../../../actors/runtime/mod.ts";
import { NODE, playRing, playSum, ROGUE, SUM } from "./players.ts";

const RING = { nodes: 8, tokens: 4, hops: 30 };
const STRATEGIES = [fifo, random, () => pct(3), pos, () => delay(2)];

Deno.test("the same seed gives the same run, another seed another one", async () => {
  for (const make of STRATEGIES) {
    const play = (seed: number) =>
      simulate({ seed, strategy: make() }, (world) => playRing(world, RING));
    const [first, second, other] = [await play(1), await play(1), await play(2)];
    assert.equal(first.failure, undefined);
    assert.deepEqual(first, second);
    if (make !== fifo) assert.notEqual(first.hash, other.hash, first.strategy);
    assert.equal(first.steps, 16 + RING.tokens * (RING.hops + 1));
  }
});

Deno.test("a run can be repeated from its deviations alone", async () => {
  const run = await simulate({ seed: 3, strategy: random() }, (world) => playRing(world, RING));
  const { deviations } = run;
  assert.ok(deviations.length > 10);
  const again = await simulate({ deviations }, (world) => playRing(world, RING));
  assert.equal(again.hash, run.hash);
});

Deno.test("steps are recorded with names, choices and hashes, which change nothing", async () => {
  const steps: StepRecord[] = [];
  const play = (onStep?: (step: StepRecord) => void) =>
    simulate(
      { seed: 5, strategy: random(), ...(onStep ? { onStep } : {}) },
      (world) => playRing(world, { nodes: 3, tokens: 2, hops: 2 }),
    );
  const run = await play((step) => steps.push(step));
  assert.equal(run.hash, (await play()).hash);
  assert.equal(steps.length, run.steps);
  assert.equal(steps.at(-1)!.hash, run.hash);
  const { actor, from, type, name, arity, did } = steps[6]!;
  assert.match(actor, /^node-[01]$/);
  assert.deepEqual({ from, type, arity }, { from: "system#2", type: "Pass", arity: 2 });
  assert.equal(name, actor === "node-0" ? "0F0" : "0F1");
  assert.match(did.join(), /^send node-[12] Pass [0-9a-f]{16}$/);
});

Deno.test("a scenario may stop the system, and its last step is recorded once", async () => {
  const steps: StepRecord[] = [];
  const stop = async ({ system, idle }: World) => {
    system.spawn(SUM, undefined, { id: "sum" });
    await idle();
    await system.stop();
  };
  const light = await simulate({}, stop);
  const full = await simulate({ onStep: (step) => void steps.push(step) }, stop);
  assert.deepEqual(full, light);
  assert.deepEqual(steps.map(({ actor, type }) => `${actor} ${type}`), [
    "sum init",
    "sum finish",
    "system finish",
  ]);
});

Deno.test("payloads count in the hash, unless digests are off", async () => {
  const play = (number: number, digests: boolean) =>
    simulate({ digests }, (world) => playSum(world, [[number]]));
  assert.notEqual((await play(1, true)).hash, (await play(2, true)).hash);
  assert.equal((await play(1, false)).hash, (await play(2, false)).hash);
});

Deno.test("virtual time passes only when nobody can do anything", async () => {
  const run = await simulate({}, async ({ system, idle }) => {
    const to = system.spawn(SUM, undefined, { id: "sum" });
    const error = await system.ask(to, { type: "Never" }, { timeoutMs: 3_600_000 })
      .catch((error) => error);
    assert.ok(error instanceof AskTimeoutError);
    system.send(to, { type: "Add", by: 1 });
    await idle();
    return await system.ask<{ type: "Read" }, { sum: number }>(to, { type: "Read" });
  });
  assert.equal(run.failure, undefined);
  assert.equal(run.value!.sum, 1);
});

Deno.test("the scenario goes on only while the actors stand still", async () => {
  const orders: string[][] = [];
  for (let run = 0; run < 2; run++) {
    const order: string[] = [];
    await simulate({
      onStep: ({ actor, type }) => void order.push(`${actor} ${type}`),
    }, async ({ system, idle }) => {
      const to = system.spawn(SUM, undefined, { id: "sum" });
      for (let n = 0; n < 3; n++) {
        await system.ask(to, { type: "Read" });
        // However many ticks of promises the scenario takes, the actors wait for it.
        for (let tick = 0; tick < 50 * run; tick++) await Promise.resolve();
        system.send(to, { type: "Add", by: n });
        order.push("scenario");
      }
      await idle();
    });
    orders.push(order);
  }
  assert.deepEqual(orders[0], orders[1]);
});

async function failureOf(play: (system: System) => Promise<void> | void, options = {}) {
  const run: Run = await simulate(options, async ({ system, idle }) => {
    await play(system);
    await idle();
  });
  assert.ok(run.failure, "the run must fail");
  return run.failure;
}

Deno.test("an actor's failure that nobody watches is the run's, once the actor has ended", async () => {
  const { kind, name, message, step } = await failureOf((system) => {
    const rogue = system.spawn(ROGUE, undefined, { id: "rogue" });
    system.send(rogue, { type: "Throw" });
  });
  assert.deepEqual({ kind, name, step }, { kind: "actor", name: "RangeError", step: 2 });
  assert.match(message, /Actor "rogue" failed while handling Throw: RangeError: out of luck/);
});

Deno.test("a question that nobody answers is a deadlock that says who waits for whom", async () => {
  const { kind, waits } = await failureOf((system) => {
    const to = system.spawn(SUM, undefined, { id: "sum" });
    const rogue = system.spawn(ROGUE, undefined, { id: "rogue" });
    system.send(rogue, { type: "AskNever", to, timeoutMs: Infinity });
  });
  assert.equal(kind, "deadlock");
  assert.deepEqual(waits, ['"rogue" waits for "sum" to answer "Never"; 0 messages wait there']);
});

Deno.test("a question that times out says who waited for whom as well", async () => {
  const { kind, name, waits } = await failureOf((system) => {
    const to = system.spawn(SUM, undefined, { id: "sum" });
    const rogue = system.spawn(ROGUE, undefined, { id: "rogue" });
    system.send(rogue, { type: "AskNever", to, timeoutMs: 1000 });
  });
  assert.deepEqual({ kind, name }, { kind: "actor", name: "AskTimeoutError" });
  assert.match(waits.join(), /"rogue" waits for "sum"/);
});

Deno.test("a handler that never ends is a deadlock, and the simulation ends", async () => {
  const { kind, waits } = await failureOf((system) => {
    const rogue = system.spawn(ROGUE, undefined, { id: "rogue" });
    system.send(rogue, { type: "Hang" });
  }, { hangMs: 50 });
  assert.equal(kind, "deadlock");
  assert.deepEqual(waits, ['"rogue" has not ended "Hang"']);
});

Deno.test("a run without end is a livelock", async () => {
  const { kind, step } = await failureOf((system) => {
    const rogue = system.spawn(ROGUE, undefined, { id: "rogue" });
    system.send(rogue, { type: "Again" });
  }, { maxSteps: 500 });
  assert.deepEqual({ kind, step }, { kind: "livelock", step: 500 });
});

Deno.test("what the scenario throws is the run's failure", async () => {
  const { kind, name } = await failureOf(() => assert.equal(1, 2));
  assert.deepEqual({ kind, name }, { kind: "scenario", name: "AssertionError" });
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
  const { kind, name, message, step } = run.failure!;
  assert.deepEqual({ kind, name, message, step }, {
    kind: "invariant",
    name: "less than 3",
    message: "3 were added",
    step: 4,
  });
});

Deno.test("what must hold at the end is checked at the end", async () => {
  const run = await simulate({}, async ({ system, atEnd, idle }) => {
    atEnd("no actor is left", ({ actors }) => actors.length > 0 ? `${actors}` : undefined);
    system.spawn(SUM, undefined, { id: "sum" });
    await idle();
  });
  assert.equal(run.failure?.message, "sum");
});

Deno.test("simulations run one at a time", async () => {
  const first = simulate({}, ({ idle }) => idle());
  await assert.rejects(simulate({}, ({ idle }) => idle()), /one after the other/);
  assert.equal((await first).failure, undefined);
});

Deno.test("timers of actors fire in virtual time", async () => {
  const run = await simulate({}, async ({ system, idle }) => {
    system.spawn(NODE, undefined, { id: "node" });
    const rogue = system.spawn(ROGUE, undefined, { id: "rogue" });
    system.send(rogue, { type: "After", delayMs: 86_400_000 });
    await idle();
  });
  assert.equal(run.failure?.name, "RangeError");
});
