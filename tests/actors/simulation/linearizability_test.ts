import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  checkLinearizable,
  explore,
  History,
  type Operation,
  type Scenario,
  type SequentialModel,
} from "../../../actors/simulation/mod.ts";

type Input = { readonly key: string; readonly write?: number };

/** What an operation returns: a write nothing, a read what is there. */
const outputOf = (state: number, { write }: Input) => write === undefined ? state : 0;

/** Registers by key. */
const REGISTERS: SequentialModel<number, Input, number> = {
  initial: 0,
  apply: (state, input) => ({ state: input.write ?? state, output: outputOf(state, input) }),
  objectOf: ({ key }) => key,
};

/** The definition itself: some order that keeps what did not overlap explains all outputs. */
function isLinearizableByDefinition(all: readonly Operation<Input, number>[]): boolean {
  const extend = (
    left: readonly Operation<Input, number>[],
    states: Map<string, number>,
  ): boolean => {
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

Deno.test("the order of two writes shows only when somebody reads", () => {
  for (const [first, second] of [[1, 2], [2, 1]] as const) {
    const history = new History<Input, number>();
    const writes = [1, 2].map((write) => history.call(`${write}`, { key: "x", write }));
    for (const returned of writes) returned(0);
    history.call("reader", { key: "x" })(second);
    const { isLinearizable, orders } = checkLinearizable(REGISTERS, history.operations);
    assert.ok(isLinearizable);
    assert.deepEqual(orders.get("x")!.map(({ client }) => client), [
      `${first}`,
      `${second}`,
      "reader",
    ]);
    history.call("reader", { key: "x" })(first);
    assert.ok(!checkLinearizable(REGISTERS, history.operations).isLinearizable);
  }
});

Deno.test("twelve clients at once are judged, as no state is looked at twice", () => {
  const history = new History<Input, number>();
  const calls = Array.from(
    { length: 12 },
    (_, n) => history.call(`${n}`, n % 2 ? { key: "x" } : { key: "x", write: 1 }),
  );
  for (const [n, returned] of calls.entries()) returned(n % 2);
  assert.ok(checkLinearizable(REGISTERS, history.operations).isLinearizable);
  history.call("late", { key: "x" })(2);
  const { isLinearizable, stuck } = checkLinearizable(REGISTERS, history.operations);
  assert.equal(isLinearizable, false);
  assert.deepEqual(stuck.map(({ client }) => client), ["late"]);
});

Deno.test("a history with too many states is refused", () => {
  const history = new History<Input, number>();
  for (let n = 1; n <= 12; n++) history.call(`${n}`, { key: "x", write: n });
  history.call("late", { key: "x" })(99);
  assert.throws(() => checkLinearizable(REGISTERS, history.operations, 1000), {
    name: "RangeError",
    message: "Cannot check a history of 13 operations: it must have at most 1000 states",
  });
});

/** A register of two copies: a write goes to both, a read asks one. */
const COPIES = `data:text/javascript,
  export const first = (ctx, { other, isPlanted }) => {
    let value = 0;
    return {
      async Write({ to }) {
        value = to;
        if (isPlanted) ctx.send(other, { type: "Copy", to });
        else await ctx.ask(other, { type: "Copy", to });
        ctx.reply(to);
      },
    };
  };
  export const second = (ctx) => {
    let value = 0;
    return { Copy({ to }) { value = to; ctx.reply(value); }, Read() { ctx.reply(value); } };
  };`;

const twoCopies = (isPlanted: boolean): Scenario => async ({ system, settle }) => {
  type Second = { type: "Copy"; to: number } | { type: "Read" };
  const second = system.spawn<undefined, Second>(
    { module: COPIES, export: "second" },
    undefined,
    { id: "second" },
  );
  const first = system.spawn<object, { type: "Write"; to: number }>(
    { module: COPIES, export: "first" },
    { other: second, isPlanted },
    { id: "first" },
  );
  await settle();
  const history = new History<number | "read", number>();
  const write = history.call("writer", 1);
  const read = async (client: string) => {
    const returned = history.call(client, "read");
    returned(await system.ask<Second, number>(second, { type: "Read" }));
  };
  await Promise.all([
    system.ask<never, number>(first, { type: "Write", to: 1 } as never).then(write),
    read("a"),
  ]);
  await read("b");
  const model: SequentialModel<number, number | "read", number> = {
    initial: 0,
    apply: (state, input) =>
      input === "read" ? { state, output: state } : { state: input, output: input },
  };
  const { isLinearizable } = checkLinearizable(model, history.operations);
  if (!isLinearizable) throw new Error("somebody has read the old value after the new one");
};

Deno.test("copies that are written one after the other are found out under simulation", async () => {
  const { failed } = await explore({ runs: 100 }, twoCopies(true));
  assert.match(failed?.failure.message ?? "none", /somebody has read the old value/);
  assert.equal((await explore({ runs: 100 }, twoCopies(false))).failed, undefined);
});
