import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  ActorFailedError,
  type Candidate,
  type Choose,
  createSystem,
  type Lane,
} from "../../../actors/runtime/mod.ts";
import { headsOf } from "../../../actors/runtime/actor/actor.ts";
import { realClock } from "../../../actors/runtime/world/clock.ts";
import type { Isolate } from "../../../actors/runtime/isolate/isolate.ts";
import { openSystem } from "../../../actors/runtime/root.ts";
import { substream } from "../../../actors/runtime/world/random.ts";
import { thrownBy, until } from "./harness.ts";
import { RECORDER, type RecorderMessage, SENDER } from "./players.ts";

interface Note {
  readonly from: string;
  readonly lane: Lane;
  readonly n: number;
}

/** Three actors send notes to a fourth; gives the notes in the order of their handling. */
async function play(lanes: readonly Lane[], choose?: Choose): Promise<Note[]> {
  await using system = createSystem(choose ? { choose } : {});
  const to = system.spawn(RECORDER, undefined, { id: "recorder" });
  for (const id of ["a", "b", "c"]) {
    const sender = system.spawn(SENDER, { to, lanes }, { id });
    system.send(sender, { type: "Go" });
  }
  let notes: Note[] = [];
  await until(async () => {
    notes = await system.ask<RecorderMessage, Note[]>(to, { type: "Read" });
    return notes.length === 3 * lanes.length;
  });
  return notes;
}

const lanes = fc.array(fc.constantFrom<Lane>("control", "data"), { maxLength: 12 });

Deno.test("whatever is chosen, every message is handled, in order of sender and lane", () =>
  fc.assert(
    fc.asyncProperty(lanes, fc.integer(), async (lanes, seed) => {
      const next = substream(seed, "choose");
      const notes = await play(lanes, ({ length }) => Math.floor(length * next()));
      for (const from of ["a", "b", "c"]) {
        for (const lane of ["control", "data"]) {
          const numbers = notes.filter((one) => one.from === from && one.lane === lane);
          assert.deepEqual(
            numbers.map(({ n }) => n),
            [...lanes.keys()].filter((n) => lanes[n] === lane),
          );
        }
      }
    }),
    { numRuns: 50 },
  ));

Deno.test("choosing the first candidate is plain order", () =>
  fc.assert(
    fc.asyncProperty(lanes, async (lanes) => {
      assert.deepEqual(await play(lanes, () => 0), await play(lanes));
    }),
    { numRuns: 30 },
  ));

Deno.test("another choice gives another order, and the same choices the same", async () => {
  const lanes: Lane[] = ["data", "data", "data", "control"];
  const last: Choose = ({ length }) => length - 1;
  assert.notDeepEqual(await play(lanes, last), await play(lanes));
  assert.deepEqual(await play(lanes, last), await play(lanes, last));
});

Deno.test("the candidates kept from step to step are those that a look at every actor finds", () =>
  fc.assert(
    fc.asyncProperty(lanes, fc.integer(), async (lanes, seed) => {
      const next = substream(seed, "choose");
      let isolate!: Isolate, checked = 0;
      const choose: Choose = (candidates) => {
        const all = [...isolate.actors.values()].flatMap(headsOf);
        const rank = ({ lane, seq }: { lane: Lane; seq: number }) =>
          (lane === "control" ? 0 : 2 ** 52) + seq;
        const expected = all.toSorted((a, b) => rank(a) - rank(b)).map(({ seq }) => seq);
        assert.deepEqual(candidates.map(({ seq }) => seq), expected);
        checked++;
        return Math.floor(next() * candidates.length);
      };
      const world = { seed: 0, clock: realClock(), breathe: () => undefined, stopGraceMs: 1000 };
      await using system = openSystem({ ...world, choose, attach: (it) => void (isolate = it) });
      const to = system.spawn(RECORDER, undefined, { id: "recorder" });
      const senders = ["a", "b", "c"].map((id) => system.spawn(SENDER, { to, lanes }, { id }));
      for (const sender of senders) system.send(sender, { type: "Go" });
      await system.ask(senders[0]!, { type: "Go" });
      system.send<RecorderMessage>(to, { type: "Watch", ref: senders[1]! });
      await system.stop();
      assert.ok(checked > 8);
    }),
    { numRuns: 30 },
  ));

Deno.test("candidates are in canonical order, and say who, from whom and what", async () => {
  const seen: (readonly Candidate[])[] = [];
  await play(["data", "control", "control"], (candidates) => {
    seen.push(candidates);
    return candidates.length - 1;
  });
  for (const candidates of seen) {
    const order = candidates.map(({ lane, seq }) => (lane === "control" ? 0 : 1e9) + seq);
    assert.deepEqual(order, order.toSorted((a, b) => a - b));
  }
  const all = seen.flat().map(({ actor, lane, from, type }) => `${from} ${lane} ${type} ${actor}`);
  assert.ok(all.includes("system control init recorder"));
  assert.ok(all.includes("system data Go b"));
  assert.ok(all.includes("b control Note recorder"));
});

Deno.test("a choice that is none fails the system", async () => {
  let isFirst = true;
  const choose: Choose = ({ length }) => {
    const choice = isFirst ? length : 0;
    isFirst = false;
    return choice;
  };
  await using system = createSystem({ choose });
  system.spawn(RECORDER, undefined, { id: "recorder" });
  const error = await thrownBy(system.failed);
  assert.ok(error instanceof ActorFailedError);
  assert.match(error.message, /Cannot pick a message: .* from 0 to 0, received 1$/);
});
