import assert from "node:assert/strict";
import type { ActorFactory, ActorRef, ActorSpec } from "../../../actors/runtime/mod.ts";
import {
  classOf,
  delay,
  describeFailedRun,
  type FailedRun,
  random,
  type Scenario,
  shrink,
  simulate,
  type SimulateOptions,
} from "../../../actors/simulation/mod.ts";
import { playRing, playSum } from "./players.ts";

type PairMessage =
  | { readonly type: "Ask"; readonly other: ActorRef<PairMessage> }
  | { readonly type: "Keep" };

const PAIR: ActorSpec<undefined, PairMessage> = { module: import.meta.url, export: "pair" };

/** Asks another, which keeps the question. A circle of questions would be found before. */
export const pair: ActorFactory<undefined, PairMessage> = (ctx) => ({
  async Ask({ other }) {
    ctx.reply(await ctx.ask(other, { type: "Keep" }, { timeoutMs: Infinity }));
  },
  Keep: () => void ctx.deferReply(),
});

/** One that waits for another, which does nothing about it. */
async function block({ system, idle }: Parameters<Scenario>[0], left: string, right: string) {
  const refs = [left, right].map((id) => system.spawn(PAIR, undefined, { id }));
  system.send(refs[0]!, { type: "Ask", other: refs[1]! });
  await idle();
}

/** The first run of a seed that fails as is wanted. */
async function find(
  isWanted: (failed: FailedRun) => boolean,
  scenario: Scenario<unknown>,
  options: SimulateOptions = {},
): Promise<FailedRun> {
  for (let seed = 0; seed < 200; seed++) {
    const run = await simulate({ seed, strategy: random(), ...options }, scenario);
    if (run.failure && isWanted(run as FailedRun)) return run as FailedRun;
  }
  throw new Error("no such run in 200");
}

const FOUR = [[1], [2], [3], [4]];

Deno.test("shrinking keeps to the bug that was found, though plain order has another", async () => {
  const scenario: Scenario = async (world) => {
    const { added } = await playSum(world, FOUR);
    if (added[0] === 4) throw new RangeError("4 came first");
    throw new RangeError("nothing is right");
  };
  const failed = await find(({ failure }) => /^4 came/.test(failure.message), scenario);
  const { run } = await shrink({ strategy: random() }, scenario, failed);
  assert.equal(run.failure.message, "4 came first");
  assert.equal(run.deviations.length, 1);
});

Deno.test("deadlocks are told apart by who waits for whom", async () => {
  const scenario: Scenario = async (world) => {
    const { added } = await playSum(world, FOUR);
    await (added[0] === 4 ? block(world, "left", "right") : block(world, "up", "down"));
  };
  const waitsFor = (text: string) => ({ failure }: FailedRun) =>
    failure.waits.some((wait) => wait.startsWith(text));
  const failed = await find(waitsFor('"left" waits for "right"'), scenario);
  const other = await find(waitsFor('"up" waits for "down"'), scenario);
  assert.equal(failed.failure.kind, "deadlock");
  assert.notEqual(classOf(failed.failure), classOf(other.failure));
  const { run, isReplayed } = await shrink({ strategy: random() }, scenario, failed);
  assert.equal(classOf(run.failure), classOf(failed.failure));
  assert.equal(run.deviations.length, 1);
  assert.ok(isReplayed);
});

Deno.test("how many messages wait somewhere makes no other deadlock", () => {
  const failure = { kind: "deadlock", name: "Deadlock", message: "", step: 3 } as const;
  const waits = (n: number) => [`"a" waits for "b" to answer "Read"; ${n} messages wait there`];
  const [few, many] = [2, 5].map((n) => classOf({ ...failure, waits: waits(n) }));
  assert.equal(few, many);
});

Deno.test("a choice that is left is made as small as it can be", async () => {
  const scenario: Scenario = async (world) => {
    const { added } = await playSum(world, FOUR);
    assert.equal(added[0], 1, "another came first");
  };
  for (let choice = 3; choice > 0; choice--) {
    // Four adders and their sum are made in five steps; then the adders are told to go.
    const run = await simulate({ deviations: [{ step: 5, choice }] }, async (world) => {
      await playSum(world, FOUR);
    });
    assert.deepEqual(run.deviations, [{ step: 5, choice }]);
  }
  const failed = await find(
    () => true,
    scenario,
    { deviations: [{ step: 5, choice: 3 }, { step: 6, choice: 2 }] },
  );
  const { run } = await shrink({}, scenario, failed);
  assert.deepEqual(run.deviations, [{ step: 5, choice: 1 }]);
});

Deno.test("a wait for timers that is left is made as short as it can be", async () => {
  const module = `data:text/javascript,export const timed = (ctx) => {
    let fired = 0;
    ctx.expose(() => fired);
    for (let n = 1; n <= 4; n++) ctx.after(n, { type: "Fired" });
    return { Fired() { fired++; }, Note() {} };
  }`;
  const scenario: Scenario = async ({ system, idle, invariant }) => {
    const timed = system.spawn<undefined, { type: "Note" }>(
      { module, export: "timed" },
      undefined,
      {
        id: "timed",
      },
    );
    system.send(timed, { type: "Note" });
    invariant("first", ({ type, now }) => type === "Note" && now > 1 ? `at ${now}` : undefined);
    await idle();
  };
  const failed = await find(() => true, scenario, {
    deviations: [
      { step: 1, wait: 4 },
      { step: 1, choice: 1 },
      ...[2, 3, 4].map((step) => ({ step, choice: 1 })),
    ],
  });
  const shrunk = await shrink({}, scenario, failed);
  const waits = shrunk.run.deviations.filter((one) => "wait" in one);
  assert.ok(waits.every(({ wait }) => wait <= 2), JSON.stringify(shrunk.run.deviations));
});

Deno.test("a bug after 1,000 settled steps shrinks as one without them", async () => {
  const scenario: Scenario = async (world) => {
    await playRing({ ...world, idle: () => world.settle() }, { nodes: 10, tokens: 1, hops: 1000 });
    const { added } = await playSum(world, [[1, 1, 1], [2, 2, 2], [3, 3, 3], [4]]);
    assert.ok(added[0] !== 4, "4 came first");
  };
  const failed = await find(() => true, scenario);
  assert.ok(failed.steps > 1000);
  const { run } = await shrink({ strategy: random() }, scenario, failed);
  assert.ok(run.deviations.length <= 3, JSON.stringify(run.deviations));
});

Deno.test("a message that is late is told on one line, where it is put back", async () => {
  const scenario: Scenario = async (world) => {
    const { added } = await playSum(world, [[1], [2], [3], [4], [5], [6]]);
    assert.ok(added.at(-1) !== 1, "1 came last");
  };
  const failed = await find(() => true, scenario, { strategy: delay(1) });
  assert.ok("late" in failed.deviations[0]!);
  const shrunk = await shrink({ strategy: delay(1) }, scenario, failed);
  assert.deepEqual(shrunk.run.deviations.map((one) => "late" in one), [true]);
  const lines = describeFailedRun("late", shrunk).split("\n").filter((line) =>
    line.includes("  <- ")
  );
  assert.equal(lines.length, 1, lines.join("\n"));
  assert.match(lines[0]!, / {2}<- late from here: (adder-0 < system#1 Go|sum < adder-0#0 Add)$/);
});

Deno.test("what is far from the end of a long report is told where the order was not plain", async () => {
  const scenario: Scenario = async (world) => {
    const { added } = await playSum(world, FOUR);
    await playRing(world, { nodes: 4, tokens: 1, hops: 100 });
    assert.equal(added[0], 1, "another came first");
  };
  const failed = await find(() => true, scenario);
  const report = describeFailedRun("far", await shrink({}, scenario, failed));
  assert.match(report, /\n {2}\.\.\. 5 steps\n.* <- choice 1 of 4\n {2}\.\.\. \d+ steps\n/);
});
