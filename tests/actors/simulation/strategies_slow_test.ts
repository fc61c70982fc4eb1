/** The strategies: what each chooses, which planted bugs it finds, and what a search has seen at its end. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { atDepth } from "../../depth.ts";
import { type Candidate } from "../../../actors/runtime/mod.ts";
import {
  delay,
  deviate,
  dfs,
  fifo,
  pct,
  portfolio,
  pos,
  random,
  replayOf,
  type Strategy,
} from "../../../actors/simulation/strategies.ts";
import { explore } from "../../../actors/simulation/explore.ts";
import type { Scenario } from "../../../actors/simulation/run.ts";
import { shrink } from "../../../actors/simulation/shrink.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import type { StepRecord } from "../../../actors/simulation/recorder.ts";
import { countStates, MODELS, pipelineOf } from "./count_states.ts";
import { type Any, PATIENT, playRing, playSum, spawnText, SUM } from "./players.ts";
import { PLANTED } from "./planted.ts";

const candidate = (seq: number, actor = "a", from = `from-${seq}`): Candidate => ({
  ...{ actor, from, lane: "data", type: "Note", seq, nth: 0 },
});

/** Returns a strategy's choice among candidates, without known states. */
const choose = (strategy: Strategy, candidates: readonly Candidate[], step = 0) =>
  strategy.choose(candidates, step, () => 0);

const turns = fc.array(
  fc.array(
    fc.record({ actor: fc.constantFrom("a", "b"), from: fc.constantFrom("a", "b", "c") }),
    { minLength: 1, maxLength: 6 },
  ).map((list) => list.map(({ actor, from }, seq) => candidate(seq, actor, from))),
);

Deno.test("every strategy picks a candidate, and the same ones for the same seed", () => {
  fc.assert(fc.property(turns, fc.integer(), (turns, seed) => {
    for (const strategy of [fifo(), random(), pct(3), pos(), delay(2), portfolio()]) {
      const play = () => {
        strategy.begin({ seed, run: 1, expectedSteps: turns.length });
        return turns.map((turn, step) => choose(strategy, turn, step));
      };
      const choices = play();
      for (const [step, choice] of choices.entries()) assert.ok(turns[step]![choice]);
      assert.deepEqual(choices, play());
    }
  }));
});

Deno.test("a portfolio begins with FIFO order, and then takes turns", () => {
  const strategy = portfolio();
  const names = [0, 1, 2, 3, 4, 5].map((run) => {
    strategy.begin({ seed: run, run, expectedSteps: 9 });
    return strategy.name;
  });
  assert.deepEqual(names, ["fifo", "random", "pos", "pct(3)", "delay(2)", "random"]);
});

Deno.test("delay(k) leaves FIFO order in at most k places before the late ones are alone", () => {
  const strategy = delay(2);
  let most = 0;
  for (let seed = 0; seed < 50; seed++) {
    strategy.begin({ seed, run: 0, expectedSteps: 4 });
    const left = [0, 1, 2, 3].map((seq) => candidate(seq)), order: number[] = [];
    for (let step = 0; step < 4; step++) {
      order.push(...left.splice(choose(strategy, left, step), 1).map(({ seq }) => seq));
    }
    const late = order.filter((seq, n) => order.slice(0, n).some((other) => other > seq));
    assert.ok(late.length <= 2, `${order}`);
    most = Math.max(most, late.length);
  }
  assert.equal(most, 2);
});

Deno.test("messages that are late come in the order in which they were put back", () => {
  for (const order of [[0, 1], [1, 0]]) {
    const strategy = deviate(order.map((late) => ({ step: 0, late })));
    strategy.begin({ seed: 0, run: 0, expectedSteps: 1 });
    assert.equal(choose(strategy, [candidate(0), candidate(1)]), order[0]);
  }
});

Deno.test("pos: messages that race with the chosen one draw again, the others do not", () => {
  /** Of three messages, which come first and second. */
  const order = (seed: number, actors: readonly string[]) => {
    const strategy = pos();
    strategy.begin({ seed, run: 0, expectedSteps: 3 });
    const left = actors.map((actor, seq) => candidate(seq, actor));
    return [0, 1].map((step) => left.splice(choose(strategy, left, step), 1)[0]!.seq);
  };
  let first = 0, second = 0;
  const seeds = 200;
  for (let seed = 0; seed < seeds; seed++) {
    // Messages to three actors do not race: they come in the order of their first priorities.
    const drawn = order(seed, ["a", "b", "c"]), redrawn = order(seed, ["a", "a", "a"]);
    if (drawn[0] === redrawn[0]) first++;
    if (drawn[1] === redrawn[1]) second++;
  }
  assert.equal(first, seeds);
  assert.ok(second > 0.3 * seeds && second < 0.7 * seeds, `${second} of ${seeds} alike`);
});

Deno.test("pct(depth) changes priorities at depth − 1 moments", () => {
  const edges = Array.from({ length: 8 }, (_, seq) => candidate(seq, `actor-${seq}`));
  for (let depth = 1; depth <= 5; depth++) {
    const strategy = pct(depth);
    // An edge that is lowered comes last, so each moment brings another edge to the front.
    const edgesChosen = Array.from({ length: 50 }, (_, seed) => {
      strategy.begin({ seed, run: 0, expectedSteps: 100 });
      return new Set(Array.from({ length: 100 }, (_, step) => choose(strategy, edges, step))).size;
    });
    assert.equal(Math.max(...edgesChosen), depth);
    // Two moments may be one, but not in most of the runs.
    assert.ok(edgesChosen.filter((count) => count === depth).length > 25, `${edgesChosen}`);
  }
});

Deno.test("a strict replay refuses a candidate more, or one less, though the chosen one is there", () => {
  const hashes = { payload: "", did: [], chain: "", hash: "" };
  const from = { from: "from-0#0", type: "Note", choice: 0, arity: 2 };
  const record: StepRecord = { n: 0, isolate: 0, t: 0, actor: "a", ...from, ...hashes };
  const three = [0, 1, 2].map((seq) => candidate(seq));
  assert.equal(choose(replayOf([record]), three.slice(0, 2)), 0);
  for (const [some, received] of [[three, 3], [three.slice(0, 1), 1]] as const) {
    const refusal = new RegExp(`^ReplayError: .*one of 2 candidates.*received one of ${received}`);
    assert.throws(() => choose(replayOf([record]), some), refusal);
  }
});

Deno.test("every strategy with chance, and dfs, finds every order of three messages", async () => {
  for (const strategy of [random(), pct(3), pos(), portfolio(), dfs()]) {
    const orders = new Set<string>();
    const { runs } = await explore({ strategy, runs: 100 }, async (world) => {
      orders.add((await playSum(world, [[1], [2], [3]])).added.join(""));
    });
    assert.equal([...orders].sort().join(), "123,132,213,231,312,321", strategy.name);
    assert.equal(runs < 100, strategy.name === "dfs");
  }
});

const COURIER = `(ctx, to) => {
  ctx.expose(() => 0);
  return { Go({ hops }) {
    if (hops > 0) ctx.send(ctx.self, { type: "Go", hops: hops - 1 });
    else ctx.send(to, { type: "Done" });
  } };
}`;

/** A timer and a message that race: the timer must not come first. */
const race = (delayMs: number): Scenario => async ({ system, settle, idle, atEnd }) => {
  const patient = spawnText(system, "patient", PATIENT);
  const courier = spawnText(system, "courier", COURIER, patient);
  await settle();
  system.send(patient, { type: "Arm", delayMs });
  system.send(courier, { type: "Go", hops: 2 });
  atEnd("done in time", ({ state }) => state("patient") === "done" ? undefined : "timeout");
  await idle();
};

for (const make of [random, () => pct(3), pos, () => delay(2), portfolio, dfs]) {
  const name = make === portfolio ? "portfolio" : make().name;
  Deno.test(`a near timer may fire before a message, a far timer does not: ${name}`, async () => {
    const raceMs = 100, options = { strategy: make(), runs: 300, raceMs };
    const { failed } = await explore(options, race(100));
    assert.equal(failed?.failure.name, "done in time");
    if (name !== "delay(2)") assert.ok(failed.deviations.some((one) => "wait" in one));
    const { seed, deviations } = failed;
    const again = await simulate({ seed, deviations, raceMs }, race(100));
    assert.deepEqual([again.hash, again.failure], [failed.hash, failed.failure]);
    const { run, isReplayed } = await shrink(options, race(100), failed);
    assert.ok(isReplayed && run.deviations.length <= 2, JSON.stringify(run.deviations));
    for (const [delayMs, raceMs] of [[100, 0], [100, 99], [1001, undefined]] as const) {
      const far = { strategy: make(), runs: 40, ...raceMs !== undefined && { raceMs } };
      assert.equal((await explore(far, race(delayMs))).failed, undefined, `${delayMs}`);
    }
  });
}

Deno.test("exhaustive search tells states apart by the timers that still run", async () => {
  // While its second timer runs, there is something else to do.
  const ALARM = `(ctx) => {
    let set = 0;
    ctx.expose(() => set);
    return {
      Set({ ms }) {
        ctx.after(ms, { type: "Ring", ms }, "ring");
        if (++set === 2) ctx.send(ctx.self, { type: "On" });
      },
      On() {},
      Ring() {},
    };
  }`;
  const SETTER = `(ctx, { to, ms }) => {
    ctx.expose(() => 0);
    return { Go() { ctx.send(to, { type: "Set", ms }); } };
  }`;
  const moments = new Set<number>();
  const options = { strategy: dfs(), raceMs: 0, runs: Infinity };
  await explore(options, async ({ system, settle, invariant, idle }) => {
    const to = spawnText(system, "alarm", ALARM);
    const setters = [10, 500].map((ms) => spawnText(system, `after${ms}`, SETTER, { to, ms }));
    await settle();
    invariant("rings", ({ type, now }) => void (type === "Ring" && moments.add(now)));
    for (const setter of setters) system.send(setter, { type: "Go" });
    await idle();
  });
  assert.deepEqual([...moments].sort(), [10, 500]);
});

Deno.test("exhaustive search makes all its runs with one seed, so that chance does not mislead it", async () => {
  const GAMBLER = `(ctx, to) => {
    ctx.expose(() => 0);
    return { Go() { if (ctx.random("dice") < 0.5) ctx.send(to, { type: "Add", by: 1 }); } };
  }`;
  const seen = new Set<number>();
  const scenario: Scenario = async ({ system, settle, idle }) => {
    const to = system.spawn(SUM, undefined, { id: "sum" });
    const gamblers = [0, 1, 2, 3].map((n) => spawnText(system, `g${n}`, GAMBLER, to));
    await settle();
    for (const gambler of gamblers) system.send(gambler, { type: "Go" });
    await idle();
    seen.add((await system.ask(to, { type: "Read" }) as Any).sum);
  };
  for (let seed = 0; seed < 3; seed++) {
    seen.clear();
    const { failed } = await explore({ strategy: dfs(), runs: Infinity, seed }, scenario);
    assert.deepEqual([failed, seen.size], [undefined, 1], `seed ${seed}`);
  }
});

Deno.test("exhaustive search refuses faults before anything is run", async () => {
  const options = { strategy: dfs(), faults: { kinds: ["crash-after"] } } as const;
  for (const run of [explore, simulate]) {
    const refused = /^TypeError: Cannot explore by dfs: it must have no faults to inject/;
    await assert.rejects(run(options, () => assert.fail()), refused);
  }
});

/** The published counts, from 2 stages on. */
const COUNTS = {
  twoStepByArrival: [39, 517, ...atDepth<number[]>([], [6693])],
  atomicByArrival: [12, 103, ...atDepth<number[]>([], [999, 9109])],
  atomicBySender: [12, 95, ...atDepth<number[]>([], [714, 5247])],
} as const;

Deno.test("both models of Algorithm 2 have exactly the published states", async () => {
  for (const [name, counts] of Object.entries(COUNTS)) {
    for (const [index, expected] of counts.entries()) {
      const model = MODELS[name as keyof typeof MODELS];
      const { states } = await countStates(model, pipelineOf(index + 2));
      assert.equal(states, expected, name);
    }
  }
});

Deno.test("a search for states needs actors that expose theirs, and keeps to its limit", async () => {
  const search = (strategy: Strategy, text: string) =>
    explore({ strategy }, async ({ system, settle, idle }) => {
      const ref = spawnText(system, "shy", text);
      await settle();
      system.send(ref, { type: "Note" });
      await idle();
    });
  const shy = /Cannot count states: "shy" must call ctx.expose/;
  await assert.rejects(search(dfs(), "() => ({ Note() {} })"), shy);
  const open = "(ctx) => { let n = 0; ctx.expose(() => n); return { Note() { n++; } }; }";
  assert.equal((await search(dfs(2), open)).failed, undefined);
  await assert.rejects(search(dfs(1), open), /there must be at most 1 states/);
});

/** Mean runs until a strategy finds that what one actor sends comes between two messages of another,
 * after a number of steps in FIFO order. */
async function meanRuns(make: () => Strategy, settled: number): Promise<number> {
  let total = 0;
  const searches = 10;
  for (let search = 0; search < searches; search++) {
    const options = { strategy: make(), runs: 1000, seed: 1000 * search, isRepeated: false };
    const { runs, failed } = await explore(options, async (world) => {
      const calm = { ...world, idle: () => world.settle() };
      if (settled > 0) await playRing(calm, { nodes: 10, tokens: 1, hops: settled });
      const { added } = await playSum(world, [[1, 3], [2]]);
      assert.notDeepEqual(added, [1, 2, 3]);
    });
    assert.ok(failed);
    total += runs;
  }
  return total / searches;
}

for (const make of [() => delay(2), () => pct(3)]) {
  Deno.test(`settled steps cost ${make().name} no runs`, async () => {
    const [before, after] = [await meanRuns(make, 0), await meanRuns(make, atDepth(300, 1000))];
    assert.ok(after < 1.5 * before + 2, `${before} runs, after settled steps ${after}`);
  });
}

/** Runs without the bug, none of which may fail. */
const CLEAN_RUNS = atDepth(20, 200);

/** Every bug is looked for at random and by one of these in turn; in `test:deep` by all. */
const STRATEGIES = [() => pct(3), pos, () => delay(2), portfolio];

for (const [index, planted] of PLANTED.entries()) {
  Deno.test(`planted: ${planted.name} is found, made small, and not found where it is not`, async () => {
    const { options, scenario } = planted, seed = 1;
    for (const make of [random, ...atDepth([STRATEGIES[index % 4]!], STRATEGIES)]) {
      const bounded = { ...options, strategy: make(), seed, runs: 500 };
      const { failed } = await explore(bounded, scenario(true));
      assert.ok(failed, `${bounded.strategy.name} did not find it`);
      if (make !== random) continue;
      const { run, isReplayed } = await shrink(bounded, scenario(true), failed);
      assert.ok(run.deviations.length <= 5, `${run.deviations.length} deviations`);
      assert.ok(run.faults.length <= 1);
      assert.deepEqual([run.failure.name, isReplayed], [failed.failure.name, true]);
    }
    const clean = { ...options, seed, runs: CLEAN_RUNS };
    const { failed, runs } = await explore({ ...clean, strategy: portfolio() }, scenario(false));
    assert.deepEqual([failed, runs], [undefined, CLEAN_RUNS], JSON.stringify(failed?.failure));
  });
}
