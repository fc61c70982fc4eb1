import assert from "node:assert/strict";
import { readSpan, readStep, type TracedAction } from "../../../../actors/mod.ts";

/** An action in so many milliseconds, with what else is known of it. */
const act = (name: string, start: number, end: number, more: Partial<TracedAction> = {}) =>
  ({ name, start, end, ...more }) as TracedAction;

/** The gaps of each worker, as `start-end cause`. */
const gapsIn = (traces: readonly (readonly TracedAction[])[], replicas?: number) =>
  readStep(traces, replicas).workers.map(({ gaps }) =>
    gaps.map(({ start, end, cause }) => `${start}-${end} ${cause}`)
  );

const TWO = [
  [
    act("0F0", 0, 4, { sent: 3.5 }),
    act("0F1", 4, 8, { sent: 7.5 }),
    act("0B0", 17, 21, { arrived: 16 }),
    act("optimizer", 30, 31),
    act("optimizer", 32, 33),
  ],
  [
    act("1F0", 5, 9, { arrived: 4.5 }),
    act("1B0", 9, 15, { sent: 15 }),
    act("1F1", 15, 19, { arrived: 9 }),
    act("1B1", 19, 29),
  ],
];

Deno.test("a gap says for whom the worker waited, for its message, or that nothing was to do", () => {
  assert.deepEqual(gapsIn(TWO), [[
    "8-15 waits for worker 1: 1B0",
    "15-16 waits for the message of worker 1: 1B0",
    "16-17 between two actions",
    "21-30 optimizer: waits for worker 1: 1B1",
    "31-32 between two actions",
  ], [
    "0-3.5 waits for worker 0: 0F0",
    "3.5-4.5 waits for the message of worker 0: 0F0",
    "4.5-5 between two actions",
    "29-33 nothing to do",
  ]]);
});

Deno.test("what a worker did and its gaps fill the step, and are counted by why", () => {
  const { start, end, workers, flows } = readStep(TWO);
  assert.deepEqual([start, end], [0, 33]);
  for (const { busyMs, reduceMs, optimizerMs, gapMs } of workers) {
    const gaps = Object.values(gapMs).reduce((sum, ms) => sum + ms, 0);
    assert.equal(busyMs + reduceMs + optimizerMs + gaps, end - start);
  }
  const [first, last] = workers;
  assert.deepEqual([first!.busyMs, first!.optimizerMs, last!.busyMs], [12, 2, 24]);
  assert.deepEqual([first!.gapMs.input, first!.gapMs.message, last!.gapMs.idle], [7, 1, 4]);
  assert.deepEqual(flows.map(({ from, to }) => `${from.name}-${to.name}`), [
    "1B0-0B0",
    "0F0-1F0",
    "0F1-1F1",
  ]);
});

Deno.test("stage 0 waits for the next micro-batch, and the all-reduce for another copy", () => {
  const traces = [
    [act("0F0", 0, 2, { arrived: -1 }), act("0B0", 2, 4), act("0F1", 7, 9, { arrived: 6 })],
    [act("0F0", 0, 3, { arrived: -1 }), act("0B0", 3, 8)],
  ].map((trace) => [
    ...trace,
    act("reduce 0", 12, 13),
    act("reduce 0", 14, 15, { stage: 0, chunk: 1 }),
  ]);
  traces[1]![2] = act("reduce 0", 13, 14);
  assert.deepEqual(gapsIn(traces, 2), [[
    "4-6 waits for the next micro-batch: 0F1",
    "6-7 between two actions",
    "9-12 between two actions",
    "13-14 all-reduce of stage 0: waits for worker 1: reduce 0",
  ], [
    "8-13 all-reduce of stage 0: waits for worker 0: 0F1",
  ]]);
});

Deno.test("halves, doubled forwards and overlaps take what was sent to them", () => {
  const { flows } = readStep([
    [act("0F0+1", 0, 2), act("0B0.0", 9, 10), act("0B0.1", 10, 11), act("0B1", 12, 13)],
    [act("1F0", 2, 3), act("1B0&1F1", 3, 6), act("1B1.0", 6, 8), act("1B1.1", 8, 9)],
  ]);
  assert.deepEqual(flows.map(({ from, to }) => `${from.name}-${to.name}`), [
    "1B0&1F1-0B0.0",
    "1B0&1F1-0B0.1",
    "1B1.0-0B1",
    "1B1.1-0B1",
    "0F0+1-1F0",
    "0F0+1-1B0&1F1",
  ]);
});

Deno.test("a replica has its own micro-batches of the same names", () => {
  const one = [act("0F0", 0, 2)], other = [act("1F0", 3, 4, { arrived: 3 })];
  const { flows } = readStep([one, other, one, other], 2);
  assert.deepEqual(flows.map(({ from, to }) => `${from.worker}-${to.worker}`), ["0-1", "2-3"]);
});

Deno.test("the clock of a host that is behind is put right by messages to and fro", () => {
  const behind = TWO[1]!.map(({ start, end, arrived, sent, ...rest }) => ({
    ...rest,
    start: start - 5,
    end: end - 5,
    ...arrived !== undefined && { arrived: arrived - 5 },
    ...sent !== undefined && { sent: sent - 5 },
  }));
  // To and fro, the fastest messages take 1 ms each.
  assert.deepEqual(gapsIn([TWO[0]!, behind]), gapsIn(TWO));
  const ahead = TWO[0]!.map((one) => ({ ...one, start: one.start + 0.5, end: one.end + 0.5 }));
  assert.equal(readStep([ahead, TWO[1]!]).workers[1]!.spans[0]!.start, 5, "nothing seems wrong");
});

Deno.test("a step without traces has workers that did nothing", () => {
  assert.deepEqual(readStep([]).workers, []);
  assert.deepEqual(readStep([[], []]).workers.map(({ gaps }) => gaps), [[], []]);
});

Deno.test("the name of an action says what it was", () => {
  const kinds = ["2F0", "0F4+5", "0B4.0", "3W1", "0F1&7B0", "reduce 0,1", "reduce 3", "optimizer"];
  assert.deepEqual(
    kinds.map((name) => readSpan(act(name, 0, 1), 0)).map(({ kind, stages }) => [kind, stages]),
    [
      ["F", [2]],
      ["F", [0]],
      ["B", [0]],
      ["W", [3]],
      ["F&B", [0, 7]],
      ["reduce", [0, 1]],
      ["reduce", [3]],
      ["optimizer", []],
    ],
  );
  assert.equal(readSpan(act("optimizer", 0, 1, { stage: 4 }), 0).stages[0], 4);
  assert.throws(() => readSpan(act("0F1x", 0, 1), 0), SyntaxError);
});
