/** What must come true in the end, and what clients saw of an object. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  checkLinearizable,
  History,
  type Operation,
  type SequentialModel,
  simulate,
} from "../../../actors/simulation/mod.ts";
import { spawnText } from "./players.ts";

type Work = Readonly<Record<"asked" | "done", number>>;

/** Does what it is asked 10 ms later, but for one thing. */
const WORKER = `(ctx, { missed }) => {
  let asked = 0, done = 0;
  ctx.expose(() => ({ asked, done }));
  return {
    Ask({ n }) { asked++; if (n !== missed) ctx.after(10, { type: "Done" }); },
    Done() { done = asked; },
  };
}`;

/** How a worker fails that must do within some time each thing that it is asked. */
async function playWorker(missed: number, options: { withinMs?: number; withinSteps?: number }) {
  const run = await simulate({}, async ({ system, eventually, idle }) => {
    const worker = spawnText(system, "worker", WORKER, { missed });
    const isOpen = ({ asked, done }: Work) => asked > done;
    eventually(
      "what is asked is done",
      ({ state }) => isOpen(state<Work>("worker")!) ? "not done" : undefined,
      { ...options, when: ({ state }) => isOpen(state<Work>("worker") ?? { asked: 0, done: 0 }) },
    );
    for (let n = 0; n < 3; n++) {
      system.send(worker, { type: "Ask", n });
      await idle();
    }
  });
  return run.failure && `${run.failure.kind} ${run.failure.name}: ${run.failure.message}`;
}

Deno.test("what must follow each time is due each time, in the time and the steps that are given", async () => {
  const unmet =
    /^liveness what is asked is done: not done \d+ ms and \d+ steps after it became due$/;
  // What was missed is made up for by the next, where that is soon enough.
  const cases = [[{ withinSteps: 1 }, false], [{ withinMs: 10 }, true], [{}, true]] as const;
  for (const [within, isMadeUp] of cases) {
    assert.equal(await playWorker(-1, within), undefined);
    assert.match(await playWorker(2, within) ?? "", unmet);
    assert.equal(await playWorker(1, within) === undefined, isMadeUp);
  }
  assert.match(await playWorker(-1, { withinMs: 9 }) ?? "", / not done 10 ms and 0 steps /);
  assert.match(await playWorker(-1, { withinSteps: 0 }) ?? "", / it came true 10 ms and 1 steps /);
});

type Input = { readonly key: string; readonly write?: number };

/** The result of an operation: of a write nothing, of a read what is there. */
const outputOf = (state: number, { write }: Input) => write === undefined ? state : 0;

/** Registers by key. */
const REGISTERS: SequentialModel<number, Input, number> = {
  initial: 0,
  apply: (state, input) => ({ state: input.write ?? state, output: outputOf(state, input) }),
  objectOf: ({ key }) => key,
};

const check = ({ operations }: History<Input, number>, most?: number) =>
  checkLinearizable(REGISTERS, operations, most);

/** The definition itself: some order that keeps what did not overlap explains all outputs. */
function isLinearizableByDefinition(all: readonly Operation<Input, number>[]): boolean {
  type Left = readonly Operation<Input, number>[];
  const extend = (left: Left, states: Map<string, number>): boolean => {
    if (left.every(({ returned }) => !returned)) return true;
    const first = Math.min(...left.map(({ returned }) => returned?.at ?? Infinity));
    return left.some((operation) => {
      const { call, input, returned } = operation, state = states.get(input.key) ?? 0;
      if (call > first || returned && returned.output !== outputOf(state, input)) return false;
      const next = new Map(states).set(input.key, input.write ?? state);
      return extend(left.filter((other) => other !== operation), next);
    });
  };
  return extend(all, new Map());
}

const histories = fc.array(
  fc.record({
    client: fc.constantFrom("a", "b", "c"),
    key: fc.constantFrom("x", "y"),
    write: fc.option(fc.integer({ min: 1, max: 2 }), { nil: undefined, freq: 1 }),
    output: fc.integer({ min: 0, max: 2 }),
    call: fc.integer({ min: 0, max: 20 }),
    takes: fc.option(fc.integer({ min: 1, max: 10 }), { nil: undefined }),
  }),
  { maxLength: 6 },
).map((list) =>
  list.map(({ client, key, write, output, call, takes }, n): Operation<Input, number> => ({
    client,
    input: { key, ...write !== undefined && { write } },
    // No two events at one moment.
    call: call * 100 + n,
    ...takes !== undefined && { returned: { at: (call + takes) * 100 + 50 + n, output } },
  }))
);

Deno.test("the search agrees with the definition, for any history", () => {
  const counts = { yes: 0, no: 0 };
  fc.assert(
    fc.property(histories, (history) => {
      const { isLinearizable, orders, stuck } = checkLinearizable(REGISTERS, history);
      assert.equal(isLinearizable, isLinearizableByDefinition(history));
      counts[isLinearizable ? "yes" : "no"]++;
      assert.equal(stuck.length > 0, !isLinearizable);
      if (!isLinearizable) return;
      for (const order of orders.values()) {
        let state = 0;
        for (const { input, returned } of order) {
          if (returned) assert.equal(returned.output, outputOf(state, input));
          state = input.write ?? state;
        }
      }
    }),
    { numRuns: 2000 },
  );
  assert.ok(counts.yes > 100 && counts.no > 100, JSON.stringify(counts));
});

Deno.test("operations that touch at one moment overlap", () => {
  const write = { client: "a", input: { key: "x", write: 1 }, call: 0 };
  const read = { client: "b", input: { key: "x" }, returned: { at: 9, output: 0 } };
  const judge = (call: number) =>
    checkLinearizable(REGISTERS, [
      { ...write, returned: { at: 5, output: 0 } },
      { ...read, call },
    ]).isLinearizable;
  assert.deepEqual([judge(4), judge(5), judge(6)], [true, true, false]);
});

Deno.test("twelve clients at once are judged, as no state is looked at twice", () => {
  const history = new History<Input, number>();
  const calls = Array.from(
    { length: 12 },
    (_, n) => history.call(`${n}`, n % 2 ? { key: "x" } : { key: "x", write: 1 }),
  );
  for (const [n, returned] of calls.entries()) returned(n % 2);
  assert.ok(check(history).isLinearizable);
  history.call("late", { key: "x" })(2);
  const { isLinearizable, stuck } = check(history);
  assert.deepEqual([isLinearizable, stuck.map(({ client }) => client)], [false, ["late"]]);
});

Deno.test("a history with too many states is refused", () => {
  const history = new History<Input, number>();
  for (let n = 1; n <= 12; n++) history.call(`${n}`, { key: "x", write: n });
  history.call("late", { key: "x" })(99);
  const message = "Cannot check a history of 13 operations: it must have at most 1000 states";
  assert.throws(() => check(history, 1000), { name: "RangeError", message });
});
