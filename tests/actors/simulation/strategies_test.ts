import assert from "node:assert/strict";
import type { Candidate } from "../../../actors/runtime/mod.ts";
import {
  pct,
  pos,
  ReplayError,
  replayOf,
  simulate,
  type StepRecord,
} from "../../../actors/simulation/mod.ts";
import { createVirtualClock } from "../../../actors/simulation/machine/virtual_clock.ts";

function candidate(seq: number, actor = "a"): Candidate {
  return { actor, from: `from-${seq}`, lane: "data", type: "Note", seq, nth: 0 };
}

Deno.test("pos: those that race with the chosen message draw again, the others do not", () => {
  /** Of three messages, which come first and second. */
  const order = (seed: number, actors: readonly string[]) => {
    const strategy = pos();
    strategy.begin({ seed, run: 0, expectedSteps: 3 });
    const left = actors.map((actor, seq) => candidate(seq, actor));
    return [0, 1].map((step) => left.splice(strategy.choose(left, step, () => 0), 1)[0]!.seq);
  };
  let first = 0, second = 0;
  const seeds = 200;
  for (let seed = 0; seed < seeds; seed++) {
    // Messages to three actors do not race: they come in the order of what was drawn at first.
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
      return new Set(
        Array.from({ length: 100 }, (_, step) => strategy.choose(edges, step, () => 0)),
      ).size;
    });
    assert.equal(Math.max(...edgesChosen), depth);
    // Two moments may be one, but not in most of the runs.
    assert.ok(edgesChosen.filter((count) => count === depth).length > 25, `${edgesChosen}`);
  }
});

Deno.test("a strict replay refuses a candidate more, or one less, though the chosen one is there", () => {
  const record: StepRecord = {
    n: 0,
    isolate: 0,
    t: 0,
    actor: "a",
    from: "from-0#0",
    type: "Note",
    payload: "",
    choice: 0,
    arity: 2,
    did: [],
    chain: "",
    hash: "",
  };
  const three = [0, 1, 2].map((seq) => candidate(seq));
  assert.equal(replayOf([record]).choose(three.slice(0, 2), 0, () => 0), 0);
  for (const [some, received] of [[three, 3], [three.slice(0, 1), 1]] as const) {
    assert.throws(() => replayOf([record]).choose(some, 0, () => 0), (error) => {
      assert.ok(error instanceof ReplayError);
      assert.equal(error.expected, "one of 2 candidates");
      assert.equal(error.received, `one of ${received}`);
      return true;
    });
  }
});

Deno.test("timers of one moment fire in the order in which they were started", async () => {
  const clock = createVirtualClock(), fired: string[] = [];
  for (const name of ["a", "b", "c"]) clock.after(5, () => void fired.push(name));
  clock.after(3, () => void fired.push("first"));
  while (clock.advance());
  assert.deepEqual(fired, ["first", "a", "b", "c"]);

  const module = `data:text/javascript,export const timed = (ctx) => {
    const seen = [];
    ctx.expose(() => seen);
    for (let n = 0; n < 5; n++) ctx.after(10, { type: "Fired", n });
    return { Fired({ n }) { seen.push(n); } };
  }`;
  let seen: unknown;
  await simulate({}, async ({ system, idle, atEnd }) => {
    system.spawn({ module, export: "timed" }, undefined, { id: "timed" });
    atEnd("seen", ({ state }) => void (seen = state("timed")));
    await idle();
  });
  assert.deepEqual(seen, [0, 1, 2, 3, 4]);
});
