/** Messages that are lost, come twice or are cut off; and what must come true all the same. */

import assert from "node:assert/strict";
import {
  explore,
  type FaultKind,
  type FaultOptions,
  random,
  type Scenario,
  shrink,
  simulate,
} from "../../../actors/simulation/mod.ts";
import { type Bug, playLossy } from "./lossy_players.ts";

const faultsOf = (kinds: readonly FaultKind[], rate = 0.2): FaultOptions => ({
  ...{ kinds, rate, max: 6, stallMs: 250 },
});

const LINES: readonly FaultKind[] = ["loss", "duplication", "partition"];

const scenarioOf = (bug: Bug): Scenario => (world) => playLossy(world, bug);

for (const kinds of [...LINES.map((kind) => [kind]), LINES]) {
  Deno.test(`what is said again until it is heard comes once, with ${kinds}`, async () => {
    const happened = new Set<FaultKind>();
    for (let seed = 0; seed < 100; seed++) {
      const options = { seed, strategy: random(), faults: faultsOf(kinds) };
      const { failure, faults, hash } = await simulate(options, scenarioOf(undefined));
      assert.equal(failure, undefined, `seed ${seed}: ${JSON.stringify({ failure, faults })}`);
      for (const { kind } of faults) happened.add(kind);
      const again = await simulate(
        { ...options, strategy: random(), faults },
        scenarioOf(undefined),
      );
      assert.deepEqual([again.hash, again.faults], [hash, faults], `seed ${seed} again`);
    }
    assert.deepEqual([...happened].sort(), kinds.toSorted());
  });
}

for (
  const [bug, kind, message] of [
    ["says nothing again", "loss", /of 3 came \d+ ms and \d+ steps after it became due/],
    ["says nothing again", "partition", /of 3 came/],
    ["hears all twice", "duplication", / came$/],
    ["hears all twice", "loss", / came$/],
  ] as const
) {
  Deno.test(`who ${bug} is found by ${kind}, with few faults left of many`, async () => {
    const options = { faults: faultsOf([kind]), runs: 300 };
    const { failed } = await explore(options, scenarioOf(bug));
    assert.match(failed?.failure.message ?? "none", message);
    const { run, isReplayed } = await shrink(options, scenarioOf(bug), failed!);
    assert.ok(run.faults.length <= 2, JSON.stringify(run.faults));
    assert.equal(run.faults[0]!.kind, kind);
    assert.deepEqual(run.deviations, []);
    assert.ok(isReplayed);
  });
}

Deno.test("each kind has a rate of its own", async () => {
  const counts = { loss: 0, duplication: 0 };
  for (let seed = 0; seed < 200; seed++) {
    const rates = { loss: 0.3, duplication: 0.03 };
    const faults: FaultOptions = { kinds: ["loss", "duplication"], rates, max: 100, stallMs: 10 };
    const { faults: done } = await simulate({ seed, faults }, scenarioOf(undefined));
    for (const { kind } of done) counts[kind as keyof typeof counts]++;
  }
  const ratio = counts.loss / counts.duplication;
  assert.ok(ratio > 7 && ratio < 14, JSON.stringify(counts));
});

Deno.test("what the scenario sends and asks always arrives", async () => {
  const module = "data:text/javascript,export const echo = (ctx) => ({ Ask() { ctx.reply(1); } })";
  const { failed } = await explore(
    { faults: faultsOf(["loss"], 1), runs: 5 },
    async ({ system }) => {
      const echo = system.spawn<undefined, { type: "Ask" }>(
        { module, export: "echo" },
        undefined,
        { id: "echo" },
      );
      assert.equal(await system.ask(echo, { type: "Ask" }), 1);
    },
  );
  assert.equal(failed, undefined);
});

Deno.test("a question or an answer that is lost ends in the time that was given", async () => {
  const module = `data:text/javascript,
    export const answerer = (ctx) => ({ Ask() { ctx.reply(1); } });
    export const asker = (ctx, { to }) => {
      let ended = "";
      ctx.expose(() => ended);
      return { async Go() {
        ended = await ctx.ask(to, { type: "Ask" }, { timeoutMs: 50 }).catch((error) => error.name);
      } };
    };`;
  const ends = async (faults: { kind: FaultKind; target: string }[]) => {
    let ended: unknown;
    const list = faults.map((fault) => ({ ...fault, step: 0 }));
    const { failure } = await simulate({ faults: list }, async ({ system, idle, atEnd }) => {
      const to = system.spawn({ module, export: "answerer" }, undefined, { id: "answerer" });
      const asker = system.spawn<object, { type: "Go" }>(
        { module, export: "asker" },
        { to },
        { id: "asker" },
      );
      system.send(asker, { type: "Go" });
      atEnd("look", ({ state }) => void (ended = state("asker")));
      await idle();
    });
    assert.equal(failure, undefined);
    return ended;
  };
  assert.equal(await ends([]), 1);
  assert.equal(await ends([{ kind: "loss", target: "asker>answerer#0" }]), "AskTimeoutError");
  assert.equal(await ends([{ kind: "loss", target: "answerer>asker#0" }]), "AskTimeoutError");
  assert.equal(await ends([{ kind: "duplication", target: "asker>answerer#0" }]), 1);
  assert.equal(await ends([{ kind: "duplication", target: "answerer>asker#0" }]), 1);
});

Deno.test("what must come true in a time fails as soon as that is over", async () => {
  const play = (withinMs: number) =>
    simulate(
      { faults: [{ step: 0, kind: "loss", target: "sender>receiver#1" }] },
      (world) => playLossy(world, undefined, { withinMs }),
    );
  assert.equal((await play(100)).failure, undefined);
  const { failure } = await play(99);
  assert.equal(failure?.kind, "liveness");
  assert.equal(failure.name, "all numbers come");
  assert.match(failure.message, /^1 of 3 came 100 ms and \d+ steps after it became due$/);
});

Deno.test("what must follow each time is due each time", async () => {
  const play = (missed: number) =>
    simulate({}, async ({ system, eventually, idle }) => {
      const module = `data:text/javascript,export const worker = (ctx) => {
        let asked = 0, done = 0;
        ctx.expose(() => ({ asked, done }));
        return {
          Ask({ n }) { asked++; if (n !== ${missed}) ctx.after(10, { type: "Done" }); },
          Done() { done = asked; },
        };
      }`;
      const worker = system.spawn<undefined, { type: "Ask"; n: number }>(
        { module, export: "worker" },
        undefined,
        { id: "worker" },
      );
      type State = { asked: number; done: number };
      const open = ({ asked, done }: State) => asked - done;
      eventually(
        "what is asked is done",
        ({ state }) => open(state<State>("worker")!) > 0 ? "not done" : undefined,
        {
          when: ({ state }) => open(state<State>("worker") ?? { asked: 0, done: 0 }) > 0,
          withinSteps: 1,
        },
      );
      for (let n = 0; n < 3; n++) {
        system.send(worker, { type: "Ask", n });
        await idle();
      }
    });
  assert.equal((await play(-1)).failure, undefined);
  assert.equal((await play(1)).failure?.name, "what is asked is done");
  assert.equal((await play(2)).failure?.name, "what is asked is done");
});
