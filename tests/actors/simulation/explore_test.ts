import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  checkScenario,
  ddmin,
  delay,
  describeStep,
  dfs,
  explore,
  fifo,
  pct,
  portfolio,
  pos,
  random,
  type Scenario,
  shrink,
  SimulationError,
  type World,
} from "../../../actors/simulation/mod.ts";
import type { Candidate } from "../../../actors/runtime/mod.ts";
import { GUARD, playRing, playSum, ROGUE } from "./players.ts";

const strategies = () => [fifo(), random(), pct(3), pos(), delay(2), portfolio()];

const candidates = fc.array(
  fc.record({ actor: fc.constantFrom("a", "b"), from: fc.constantFrom("a", "b", "c") }),
  { minLength: 1, maxLength: 6 },
).map((list) =>
  list.map((one, seq): Candidate => ({ ...one, lane: "data", type: "Note", seq, nth: 0 }))
);

Deno.test("every strategy picks a candidate, and the same ones for the same seed", () => {
  fc.assert(fc.property(fc.array(candidates), fc.integer(), (turns, seed) => {
    for (const strategy of strategies()) {
      const play = () => {
        strategy.begin({ seed, run: 1, expectedSteps: turns.length });
        return turns.map((turn, step) => strategy.choose(turn, step, () => 0));
      };
      const choices = play();
      for (const [step, choice] of choices.entries()) assert.ok(turns[step]![choice]);
      assert.deepEqual(choices, play());
    }
  }));
});

Deno.test("delay(k) leaves plain order in at most k places before the late ones are alone", () => {
  const strategy = delay(2);
  const four = Array.from(
    { length: 4 },
    (_, seq): Candidate => ({
      actor: "a",
      from: `${seq}`,
      lane: "data",
      type: "Note",
      seq,
      nth: 0,
    }),
  );
  for (let seed = 0; seed < 50; seed++) {
    strategy.begin({ seed, run: 0, expectedSteps: 4 });
    const left = [...four], order: number[] = [];
    for (let step = 0; step < 4; step++) {
      order.push(...left.splice(strategy.choose(left, step, () => 0), 1).map(({ seq }) => seq));
    }
    const overtaken = order.filter((seq, n) => order.slice(n + 1).some((other) => other < seq));
    const late = new Set(
      order.flatMap((seq, n) => order.slice(0, n).some((other) => other > seq) ? [seq] : []),
    );
    assert.ok(late.size <= 2, `${order}: ${overtaken}`);
  }
});

Deno.test("dfs makes every order of three independent messages, and no other", async () => {
  const orders = new Set<string>(), strategy = dfs();
  const { runs } = await explore({ strategy, runs: Infinity }, async (world) => {
    const { added } = await playSum(world, [[1], [2], [3]]);
    orders.add(added.join(""));
  });
  assert.deepEqual([...orders].sort(), ["123", "132", "213", "231", "312", "321"]);
  assert.ok(runs < 100, `${runs} runs`);
});

Deno.test("random, pct, pos and the portfolio find every order of three messages too", async () => {
  for (const strategy of [random(), pct(3), pos(), portfolio()]) {
    const orders = new Set<string>();
    await explore({ strategy, runs: 200 }, async (world) => {
      const { added } = await playSum(world, [[1], [2], [3]]);
      orders.add(added.join(""));
    });
    assert.equal(orders.size, 6, strategy.name);
  }
});

Deno.test("runs that must agree and do not are a failure", async () => {
  const play: Scenario<unknown> = async (world) => (await playSum(world, [[1e8], [1], [-1e8]])).sum;
  const { failed } = await explore({ mustAgree: true }, play);
  assert.equal(failed?.failure.name, "agreement");
  assert.match(failed.failure.message, /^plain order gave 0, this order 1$/);
  assert.equal((await explore({ mustAgree: false }, play)).failed, undefined);
});

Deno.test("a run that differs when it is repeated is found at its first step", async () => {
  const globals = globalThis as { draws?: number };
  globals.draws = 0;
  // Nothing that a trap could see: a counter that outlives the run.
  const module = `data:text/javascript,export const leaky = (ctx) => ({
    Go() { ctx.send(ctx.self, { type: "Note", n: globalThis.draws++ }); },
    Note() {},
  })`;
  const { failed } = await explore({ runs: 3 }, async ({ system, idle }) => {
    const leaky = system.spawn<undefined, { type: "Go" }>(
      { module, export: "leaky" },
      undefined,
      { id: "leaky" },
    );
    system.send(leaky, { type: "Go" });
    await idle();
  });
  delete globals.draws;
  assert.equal(failed?.failure.kind, "diverged");
  assert.equal(failed.failure.step, 2);
  assert.match(failed.failure.message, /differ first at step 2: leaky < leaky#0 Note/);
});

Deno.test("ddmin leaves only what is needed, whatever that is", async () => {
  await fc.assert(fc.asyncProperty(
    fc.uniqueArray(fc.nat(60), { maxLength: 5 }),
    async (needed) => {
      const items = Array.from({ length: 61 }, (_, n) => n);
      const fails = (some: readonly number[]) =>
        Promise.resolve(needed.every((one) => some.includes(one)));
      assert.deepEqual(await ddmin(items, fails), needed.toSorted((a, b) => a - b));
    },
  ));
});

/** Fails when one token has lapped another: needs an order that is far from plain. */
async function race(world: World<unknown>, nodes: number, hops: number): Promise<void> {
  world.invariant("no token is far ahead", ({ actors, state }) => {
    const passed = actors.map((id) => state<number>(id) ?? 0);
    const ahead = Math.max(...passed) - Math.min(...passed);
    if (ahead > 3) return `${ahead} ahead`;
  });
  await playRing(world, { nodes, tokens: nodes, hops });
}

Deno.test("a failure after 500 steps shrinks to at most 5 deviations, and replays", async () => {
  // Ordinary work, 500 steps of it, then a bug that needs two messages in another order.
  const scenario: Scenario = async (world) => {
    await playRing(world, { nodes: 10, tokens: 5, hops: 100 });
    const { added } = await playSum(world, [[1], [2], [3], [4]]);
    assert.ok(added.indexOf(4) > added.indexOf(1), "4 came before 1");
  };
  const options = { strategy: random() };
  const { failed } = await explore(options, scenario);
  assert.ok(failed!.failure.step > 500 && failed!.deviations.length > 200);
  const { run, tries, isReplayed } = await shrink(options, scenario, failed!);
  assert.ok(run.deviations.length <= 5, `${run.deviations.length} deviations`);
  assert.ok(tries < 200, `${tries} tries`);
  assert.equal(run.failure.name, "AssertionError");
  assert.ok(isReplayed);
});

Deno.test("shrinking never lengthens, and shrinking what is shrunk changes nothing", async () => {
  const scenario: Scenario = (world) => race(world, 8, 40);
  const options = { strategy: random() };
  const { failed } = await explore(options, scenario);
  assert.equal(failed?.failure.name, "no token is far ahead");
  const once = await shrink(options, scenario, failed);
  assert.ok(once.run.deviations.length <= failed.deviations.length);
  assert.ok(once.isReplayed);
  const twice = await shrink(options, scenario, once.run);
  assert.deepEqual(twice.run.deviations, once.run.deviations);
});

Deno.test("a smaller configuration that fails alike is taken", async () => {
  const scenario: Scenario<void, number> = (world) => race(world, world.configuration, 40);
  const options = {
    strategy: random(),
    configuration: 8,
    smaller: (nodes: number) => nodes > 2 ? [2, nodes >> 1, nodes - 1] : [],
  };
  const { failed } = await explore(options, scenario);
  const { configuration, run } = await shrink(options, scenario, failed!);
  assert.ok(configuration < 8, `${configuration}`);
  assert.equal(run.failure.name, "no token is far ahead");
});

Deno.test("a failing check prints the steps, the seed and a test to paste", async () => {
  const scenario: Scenario = async (world) => {
    const { added } = await playSum(world, [[1], [2], [3]]);
    assert.deepEqual(added.toSorted(), added, "out of order");
  };
  const error = await checkScenario("sorted", { seed: 40 }, scenario).catch((error) => error);
  assert.ok(error instanceof SimulationError);
  assert.match(error.message, /^scenario "AssertionError" at step \d+: out of order/);
  assert.match(error.message, / adder-1 < system#1 Go {2}<- choice 1 of 3\n/);
  const [, plan] = /simulationTest\("sorted", (\{.*\}), scenario\);/.exec(error.message)!;
  assert.match(plan!, /^\{ seed: \d+, deviations: \[\{"step":\d+,"choice":1\}\] \}$/);
  const pasted = new Function(`return (${plan})`)();
  await assert.rejects(checkScenario("sorted", pasted, scenario), SimulationError);
});

Deno.test("a step as a line says who got what from whom, as which, and by which choice", () => {
  assert.equal(
    describeStep({
      n: 7,
      isolate: 0,
      t: 20,
      actor: "stage-1",
      from: "stage-0#3",
      type: "Activation",
      name: "1F3",
      payload: "",
      choice: 2,
      arity: 4,
      faults: ["crash-after stage-1"],
      did: [],
      chain: "",
      hash: "",
    }),
    "     7       20 ms  stage-1 < stage-0#3 Activation (1F3)  <- choice 2 of 4" +
      "  <- crash-after stage-1",
  );
});

const KINDS = ["crash-before", "crash-after", "stall", "slow-edge"] as const;

Deno.test("each fault happens when asked for, and a run with it can be repeated", async () => {
  const play: Scenario<number> = async ({ system, settle, idle }) => {
    const guard = system.spawn(GUARD, undefined, { id: "guard" });
    await settle();
    for (let n = 0; n < 10; n++) system.send(guard, { type: "Tell", n });
    await idle();
    return await system.ask(guard, { type: "Read" });
  };
  for (const kind of KINDS) {
    const actors = ["child"], faults = { kinds: [kind], rate: 0.2, actors };
    const found = new Set<unknown>();
    const { failed, runs } = await explore({ faults, runs: 40 }, async (world) => {
      const restarts = await play(world);
      found.add(restarts);
      return restarts;
    });
    assert.equal(failed, undefined);
    assert.equal(runs, 40);
    assert.equal(found.has(1), kind.startsWith("crash"), kind);
  }
});

Deno.test("a stall lasts as long as it was asked to, also when the run is repeated", async () => {
  const faults = { kinds: ["stall"], rate: 1, stallMs: 77, actors: ["sum"] } as const;
  const { failed, runs } = await explore({ faults, runs: 10 }, async (world) => {
    await playSum(world, [[1], [2]]);
    world.atEnd("77 ms have passed", ({ now }) => now === 77 ? undefined : `${now} ms`);
  });
  assert.equal(failed, undefined);
  assert.equal(runs, 10);
});

Deno.test("faults are off unless asked for, and leave the order as it is", async () => {
  const hashes: string[][] = [];
  for (const faults of [undefined, { kinds: KINDS, rate: 0 }]) {
    const seen: string[] = [];
    await explore({ runs: 5, isRepeated: false, ...(faults ? { faults } : {}) }, async (world) => {
      const { added } = await playSum(world, [[1], [2], [3], [4]]);
      seen.push(added.join());
    });
    hashes.push(seen);
  }
  assert.deepEqual(hashes[0], hashes[1]);
});

Deno.test("a named site fails in some runs, when sites may", async () => {
  const play = async (faults: object) => {
    let failures = 0;
    await explore({ runs: 60, ...faults }, async ({ system }) => {
      const rogue = system.spawn(ROGUE, undefined, { id: "rogue" });
      if (await system.ask(rogue, { type: "Site", site: "disk" })) failures++;
    });
    return failures;
  };
  assert.equal(await play({}), 0);
  const failures = await play({ faults: { kinds: ["site"] } });
  assert.ok(failures > 0 && failures < 60, `${failures}`);
});

Deno.test("a crash that breaks the system shrinks to that crash alone", async () => {
  const scenario: Scenario = async (world) => {
    const { added } = await playSum(world, [[1, 2, 3], [4, 5, 6]]);
    assert.equal(added.length, 6);
  };
  const options = { faults: { kinds: KINDS, max: 3, rate: 0.1 } };
  const { failed } = await explore(options, scenario);
  const { run, isReplayed } = await shrink(options, scenario, failed!);
  assert.equal(run.failure.kind, "actor");
  assert.equal(run.failure.name, "InjectedCrash");
  assert.equal(run.faults.length, 1);
  assert.deepEqual(run.deviations, []);
  assert.ok(isReplayed);
});
