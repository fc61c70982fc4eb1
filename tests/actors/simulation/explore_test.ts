/** Many runs of a scenario: comparison, shrinking and reports. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  checkScenario,
  ddmin,
  describeFailedRun,
  describeStep,
  type FailedRun,
  shrink,
} from "../../../actors/simulation/shrink.ts";
import {
  classOf,
  type Scenario,
  type SimulateOptions,
  SimulationError,
  type World,
} from "../../../actors/simulation/run.ts";
import { delay, pct, random, type Strategy } from "../../../actors/simulation/strategies.ts";
import { explore } from "../../../actors/simulation/explore.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import { assertRefused } from "../../kernels/graph/refused.ts";
import { type Any, playRing, playSum, spawnText } from "./players.ts";

const FOUR = [[1], [2], [3], [4]];

/** Has the order in which numbers arrive judged. */
const summing =
  (judge: (added: readonly number[]) => void, numbers = FOUR): Scenario => async (world) =>
    judge((await playSum(world, numbers)).added);

const isFirst = summing((added) => assert.equal(added[0], 1, "another came first"));

/** Returns the first run that fails with the wanted message. */
async function find(scenario: Scenario<unknown>, options: SimulateOptions = {}, says = /./) {
  for (let seed = 0; seed < 200; seed++) {
    const run = await simulate({ seed, strategy: random(), ...options }, scenario);
    if (run.failure && says.test(run.failure.message)) return run as FailedRun;
  }
  throw new Error("no such run in 200");
}

Deno.test("runs that must agree and do not are a failure", async () => {
  const play: Scenario<unknown> = async (world) => (await playSum(world, [[1e8], [1], [-1e8]])).sum;
  const { failed } = await explore({ mustAgree: true }, play);
  assert.equal(failed?.failure.name, "agreement");
  assert.match(failed.failure.message, /^FIFO order gave 0, this order 1$/);
  assert.equal((await explore({ mustAgree: false }, play)).failed, undefined);
});

Deno.test("an exploration counts its runs, its steps and the different orders", async () => {
  const options = { strategy: random(), seed: 5 };
  const one = await explore({ ...options, runs: 30 }, (world) => playSum(world, [[1], [2]]));
  assert.deepEqual([one.runs, one.steps, one.failed], [30, 30 * 8, undefined]);
  assert.ok(one.distinct > 1 && one.distinct <= 30, `${one.distinct}`);
  const { failed, runs } = await explore({ ...options, runs: 90 }, isFirst);
  assert.equal(failed!.seed, 5 + runs - 1);
  assert.equal((await simulate({ ...options, seed: failed!.seed }, isFirst)).hash, failed!.hash);
});

Deno.test("options with which nothing is tested, or never what they say, are refused", async () => {
  const loss = (rates: object) => ({ faults: { kinds: ["loss" as const], ...rates } });
  const choosing = (choice: number): { readonly strategy: Strategy } => ({
    strategy: { name: "mine", begin: () => true, choose: () => choice },
  });
  await assertRefused("explorations", [
    () => explore({ runs: 0 }, isFirst),
    () => explore({ runs: NaN }, isFirst),
    () => explore({ seed: NaN }, isFirst),
    () => explore(loss({ rate: 2 }), isFirst),
    () => explore(loss({ rates: { loss: -1 } }), isFirst),
    () => explore(loss({ kinds: ["rain"] }), isFirst),
    () => explore(loss({ kinds: [] }), isFirst),
    () => explore(choosing(0.5), isFirst),
    () => explore(choosing(9), isFirst),
    () => shrink({}, isFirst, undefined as never),
    () => explore({ strategy: delay(0) }, isFirst),
    () => explore({ strategy: delay(1.5) }, isFirst),
    () => explore({ strategy: pct(0) }, isFirst),
    () => explore({ strategy: pct(1.5) }, isFirst),
  ]);
});

Deno.test("two runs of one order must return the same, or fail alike", async () => {
  const diverged = async (scenario: Scenario<unknown>, isRepeated = true) => {
    const { failed } = await explore({ runs: 10, isRepeated }, scenario);
    if (failed) assert.equal(failed.failure.kind, "diverged");
    return failed?.failure.message;
  };
  let runs = 0;
  const message = "two runs of the same order return { run: 0 }, then { run: 1 }";
  assert.equal(await diverged(() => ({ run: runs++ })), message);
  assert.equal(await diverged(() => runs++, false), undefined);
  runs = 0;
  const failing = () => assert.ok(runs++ !== 1, "out of luck");
  assert.match((await diverged(failing))!, /return undefined, then out of luck$/);
});

Deno.test("a run that differs when it is repeated is found at its first step", async () => {
  const globals = globalThis as { draws?: number };
  globals.draws = 0;
  // Not detected by the guard: a counter that outlives the run.
  const LEAKY = `(ctx) => ({
    Go() { ctx.send(ctx.self, { type: "Note", n: globalThis.draws++ }); },
    Note() {},
  })`;
  const { failed } = await explore({ runs: 3 }, async ({ system, idle }) => {
    system.send(spawnText(system, "leaky", LEAKY), { type: "Go" });
    await idle();
  });
  delete globals.draws;
  assert.deepEqual([failed?.failure.kind, failed?.failure.step], ["diverged", 2]);
  assert.match(failed!.failure.message, /differ first at step 2: leaky < leaky#0 Note/);
});

Deno.test("ddmin keeps only the needed items", async () => {
  const sets = fc.uniqueArray(fc.nat(60), { maxLength: 5 });
  await fc.assert(fc.asyncProperty(sets, async (needed) => {
    const items = Array.from({ length: 61 }, (_, n) => n);
    const fails = (some: readonly number[]) =>
      Promise.resolve(needed.every((one) => some.includes(one)));
    assert.deepEqual(await ddmin(items, fails), needed.toSorted((a, b) => a - b));
  }));
});

/** Fails when one token has lapped another: needs an order that is far from FIFO. */
async function race(world: World<Any>, nodes: number): Promise<void> {
  world.invariant("no token is far ahead", ({ actors, state }) => {
    const passed = actors.map((id) => state<number>(id) ?? 0);
    const ahead = Math.max(...passed) - Math.min(...passed);
    if (ahead > 3) return `${ahead} ahead`;
  });
  await playRing(world, { nodes, tokens: nodes, hops: 40 });
}

Deno.test("shrinking never lengthens, takes a smaller configuration, and changes nothing twice", async () => {
  const scenario: Scenario<void, number> = (world) => race(world, world.configuration);
  const smaller = (nodes: number) => nodes > 2 ? [2, nodes >> 1, nodes - 1] : [];
  const options = { strategy: random(), configuration: 6 };
  const { failed } = await explore(options, scenario);
  const once = await shrink(options, scenario, failed!);
  assert.ok(once.run.deviations.length <= failed!.deviations.length && once.isReplayed);
  const twice = await shrink(options, scenario, once.run);
  assert.deepEqual(twice.run.deviations, once.run.deviations);
  const { configuration, run } = await shrink({ ...options, smaller }, scenario, failed!);
  assert.ok(configuration < 6, `${configuration}`);
  for (const { failure } of [failed!, once.run, run]) {
    assert.equal(failure.name, "no token is far ahead");
  }
});

Deno.test("shrinking keeps to the bug that was found, though FIFO order has another", async () => {
  const scenario = summing((added) => {
    throw new RangeError(added[0] === 4 ? "4 came first" : "nothing is right");
  });
  const failed = await find(scenario, {}, /^4 came/);
  const { run } = await shrink({ strategy: random() }, scenario, failed);
  assert.deepEqual([run.failure.message, run.deviations.length], ["4 came first", 1]);
});

Deno.test("failures of one class differ in numbers and queues, not in names or words", () => {
  const failure = { kind: "deadlock", name: "Deadlock", message: "", step: 3, waits: [] } as const;
  const waits = (n: number) => [`"a" waits for "b" to answer "Read"; ${n} messages wait there`];
  const [few, many] = [2, 5].map((n) => classOf({ ...failure, waits: waits(n) }));
  assert.equal(few, many);
  assert.notEqual(few, classOf({ ...failure, waits: ['"b" waits for "a" to answer "Read"'] }));
  const thrown = (kind: "actor" | "invariant", name: string, message: string) =>
    classOf({ ...failure, kind, name, message });
  const numbered = thrown("actor", "Error", "step 3: 17 are left\nat here");
  assert.equal(numbered, thrown("actor", "Error", "step 12: 1.5 are left\nat there"));
  assert.notEqual(numbered, thrown("actor", "Error", "step 3: 17 are lost"));
  assert.notEqual(numbered, thrown("actor", "RangeError", "step 3: 17 are left"));
  assert.equal(thrown("invariant", "stash", "one"), thrown("invariant", "stash", "other"));
});

Deno.test("a choice that is left is made as small as it can be", async () => {
  for (let choice = 3; choice > 0; choice--) {
    // Four adders and their sum are made in five steps; then the adders are asked to go.
    const deviations = [{ step: 5, choice }];
    assert.deepEqual((await simulate({ deviations }, summing(() => {}))).deviations, deviations);
  }
  const deviations = [{ step: 5, choice: 3 }, { step: 6, choice: 2 }];
  const { run } = await shrink({}, isFirst, await find(isFirst, { deviations }));
  assert.deepEqual(run.deviations, [{ step: 5, choice: 1 }]);
});

Deno.test("a wait for timers that is left is made as short as it can be", async () => {
  const TIMED = `(ctx) => {
    let fired = 0;
    ctx.expose(() => fired);
    for (let n = 1; n <= 4; n++) ctx.after(n, { type: "Fired" });
    return { Fired() { fired++; }, Note() {} };
  }`;
  const scenario: Scenario = async ({ system, idle, invariant }) => {
    system.send(spawnText(system, "timed", TIMED), { type: "Note" });
    invariant("first", ({ type, now }) => type === "Note" && now > 1 ? `at ${now}` : undefined);
    await idle();
  };
  const choices = [1, 2, 3, 4].map((step) => ({ step, choice: 1 }));
  const failed = await find(scenario, { deviations: [{ step: 1, wait: 4 }, ...choices] });
  const { run: { deviations } } = await shrink({}, scenario, failed);
  const waits = deviations.filter((one) => "wait" in one);
  assert.ok(waits.length > 0 && waits.every(({ wait }) => wait <= 2), JSON.stringify(deviations));
});

Deno.test("a failing check prints the steps, the seed and a test to paste", async () => {
  const scenario = summing((added) => assert.deepEqual(added.toSorted(), added, "out of order"));
  const error = await checkScenario("sorted", { seed: 40 }, scenario).catch((error) => error);
  assert.ok(error instanceof SimulationError);
  assert.match(error.message, /^scenario "AssertionError" at step \d+: out of order/);
  assert.match(error.message, / adder-1 < system#1 Go {2}<- choice 1 of 4\n/);
  const [, plan] = /simulationTest\("sorted", (\{.*\}), scenario\);/.exec(error.message)!;
  assert.match(plan!, /^\{ seed: \d+, deviations: \[\{"step":\d+,"choice":1\}\] \}$/);
  const pasted = new Function(`return (${plan})`)();
  await assert.rejects(checkScenario("sorted", pasted, scenario), SimulationError);
});

Deno.test("the line of a step has its message, its choice and its faults", () => {
  const hashes = { payload: "", did: [], chain: "", hash: "" };
  const step = { n: 7, isolate: 0, t: 20, actor: "stage-1", from: "stage-0#3", type: "Activation" };
  const order = { name: "1F3", choice: 2, arity: 4, waits: 1, faults: ["crash-after stage-1"] };
  const line = "     7       20 ms  stage-1 < stage-0#3 Activation (1F3)";
  const notes = "  <- after 1 timer  <- choice 2 of 4  <- crash-after stage-1";
  assert.equal(describeStep({ ...step, ...order, ...hashes }), line + notes);
});

Deno.test("a message that is late is reported on one line, where it is put back", async () => {
  const six = [[1], [2], [3], [4], [5], [6]];
  const scenario = summing((added) => assert.ok(added.at(-1) !== 1, "1 came last"), six);
  const failed = await find(scenario, { strategy: delay(1) });
  assert.ok("late" in failed.deviations[0]!);
  const shrunk = await shrink({ strategy: delay(1) }, scenario, failed);
  assert.deepEqual(shrunk.run.deviations.map((one) => "late" in one), [true]);
  const report = describeFailedRun("late", shrunk).split("\n");
  const lines = report.filter((line) => line.includes("  <- "));
  assert.equal(lines.length, 1, lines.join("\n"));
  assert.match(lines[0]!, / {2}<- delayed from here: (adder-0 < system#1 Go|sum < adder-0#0 Add)$/);
});

Deno.test("a long report shows its last steps, and those before that were not in FIFO order", async () => {
  const scenario: Scenario = async (world) => {
    const { added } = await playSum(world, FOUR);
    await playRing(world, { nodes: 4, tokens: 1, hops: 100 });
    assert.equal(added[0], 1, "another came first");
  };
  const report = describeFailedRun("far", await shrink({}, scenario, await find(scenario)));
  assert.match(report, /\n {2}\.\.\. 5 steps\n.* <- choice 1 of 4\n {2}\.\.\. \d+ steps\n/);
  assert.equal(report.split("\n").filter((line) => / ms {2}/.test(line)).length, 31);
});
