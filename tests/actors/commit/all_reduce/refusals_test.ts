import assert from "node:assert/strict";
import {
  openReducer,
  type ReduceMessage,
  type ReducerOptions,
} from "../../../../actors/commit/all_reduce/mod.ts";

/** Rank 0 of three with two chunks, of 6 and of 3 elements. */
const OPTIONS: ReducerOptions = {
  rank: 0,
  size: 3,
  chunks: [{ offset: 0, length: 6 }, { offset: 6, length: 3 }],
  algorithm: "direct",
  dtype: "f32",
  read: (_, length) => Promise.resolve(new Float32Array(length)),
  write: () => {},
  send: () => {},
  onComplete: () => {},
};

const MESSAGE: ReduceMessage = {
  chunk: 0,
  phase: "scatter",
  from: 2,
  slice: 0,
  values: new Float32Array(2),
};

function refusal(message: ReduceMessage, options: Partial<ReducerOptions> = {}) {
  const reducer = openReducer({ ...OPTIONS, ...options });
  try {
    reducer.receive(message);
  } catch (error) {
    return String(error);
  }
}

Deno.test("a message that is due is taken, and refused when it comes again", async () => {
  const reducer = openReducer(OPTIONS);
  const again = {
    name: "RangeError",
    message:
      "Cannot reduce chunk 0: scatter of slice 0 from rank 2 must come once, received it again",
  };
  reducer.receive(MESSAGE);
  assert.throws(() => reducer.receive(MESSAGE), again);
  await reducer.start(0);
  reducer.receive({ ...MESSAGE, from: 1 });
  assert.throws(() => reducer.receive(MESSAGE), again);
  reducer.receive({ ...MESSAGE, phase: "gather", from: 1, slice: 1 });
  assert.equal(reducer.isComplete(0), false);
  reducer.receive({ ...MESSAGE, phase: "gather", from: 2, slice: 2 });
  assert.equal(reducer.isComplete(0), true);
  assert.throws(() => reducer.receive(MESSAGE), again);
});

Deno.test("a message that no rank should have sent is refused", () => {
  const due = "Cannot reduce chunk 0: a message must be one that rank 0 waits for, received";
  const cases: [Partial<ReduceMessage>, string][] = [
    [{ from: 0 }, `RangeError: ${due} scatter of slice 0 from rank 0`],
    [{ from: 3 }, `RangeError: ${due} scatter of slice 0 from rank 3`],
    [{ slice: 1 }, `RangeError: ${due} scatter of slice 1 from rank 2`],
    [{ phase: "gather", slice: 1 }, `RangeError: ${due} gather of slice 1 from rank 2`],
    [{ phase: "fold" }, `RangeError: ${due} fold of slice 0 from rank 2`],
    [
      { chunk: 2 },
      "RangeError: Cannot reduce chunk 2: the reducer must have it, received a reducer of 2 chunks",
    ],
  ];
  for (const [change, expected] of cases) {
    assert.equal(refusal({ ...MESSAGE, ...change }), expected);
  }
  assert.equal(
    refusal({ ...MESSAGE, from: 1 }, { algorithm: "ring" }),
    `RangeError: ${due} scatter of slice 0 from rank 1`,
  );
});

Deno.test("a message with other values than are due is refused", () => {
  const rule = "Cannot reduce chunk 0: scatter of slice 0 from rank 2 must hold 2 f32 values";
  const { values: _, ...bare } = MESSAGE;
  assert.equal(
    refusal({ ...bare, values: new Float32Array(3) }),
    `RangeError: ${rule}, received 3`,
  );
  assert.equal(
    refusal({ ...bare, values: new Float16Array(2) }),
    `TypeError: ${rule}, received Float16Array`,
  );
  assert.equal(refusal(bare), `TypeError: ${rule}, received none`);
  const shared = new SharedArrayBuffer(3 * 9 * 4);
  assert.equal(refusal(bare, { shared }), undefined);
  assert.equal(
    refusal(MESSAGE, { shared }),
    "RangeError: Cannot reduce chunk 0: scatter of slice 0 from rank 2 must leave its values in shared memory, received 2 values",
  );
});

Deno.test("a refused message leaves the chunk as it was", async () => {
  const reducer = openReducer({ ...OPTIONS, size: 2 });
  const values = new Float32Array(3);
  await reducer.start(0);
  const scatter = { chunk: 0, phase: "scatter", from: 1, slice: 0 } as const;
  assert.throws(() => reducer.receive({ ...scatter, values: new Float32Array(4) }));
  reducer.receive({ ...scatter, values });
  reducer.receive({ chunk: 0, phase: "gather", from: 1, slice: 1, values });
  assert.equal(reducer.isComplete(0), true);
});

Deno.test("a chunk starts once, and only one that there is", async () => {
  const reducer = openReducer(OPTIONS);
  await reducer.start(1);
  await assert.rejects(reducer.start(1), {
    name: "RangeError",
    message: "Cannot start chunk 1: a chunk must be started once, received it again",
  });
  await assert.rejects(reducer.start(2), { name: "RangeError" });
  assert.throws(() => reducer.isComplete(-1), { name: "RangeError" });
});

Deno.test("a device that reads another length is refused", async () => {
  const read = () => Promise.resolve(new Float32Array(5));
  await assert.rejects(openReducer({ ...OPTIONS, read }).start(0), {
    name: "RangeError",
    message: "Cannot reduce chunk 0: what is read must hold 6 f32 values, received 5",
  });
});

Deno.test("one copy alone is complete at once, untouched and without a message", async () => {
  const never = () => assert.fail("a copy alone has nothing to read, write or send");
  const reducer = openReducer({ ...OPTIONS, size: 1, read: never, write: never, send: never });
  await reducer.start(0);
  assert.deepEqual([reducer.isComplete(0), reducer.isComplete(1)], [true, false]);
});

Deno.test("options out of range are refused by name", () => {
  const shared = new SharedArrayBuffer(3 * 8 * 4);
  const cases: [Partial<ReducerOptions>, string][] = [
    [{ size: 0 }, "size must be a positive integer, received 0"],
    [{ rank: 3 }, "rank must be an integer from 0 to 2, received 3"],
    [{ rank: 0.5 }, "rank must be an integer from 0 to 2, received 0.5"],
    [
      { chunks: [{ offset: 0, length: -1 }] },
      "offset and length of a chunk must be integers from 0, received 0 and -1",
    ],
    [
      { chunks: [{ offset: 5, length: 5 }, { offset: 0, length: 6 }] },
      "a chunk must begin after the one before it, at 6 or later, received 5",
    ],
    [
      { shared, algorithm: "ring" },
      "the algorithm must be direct where memory is shared, received ring",
    ],
    [
      { shared },
      "shared memory must hold 3 equal rows of at least 9 f32 values, received 96 bytes",
    ],
  ];
  for (const [change, message] of cases) {
    assert.throws(() => openReducer({ ...OPTIONS, ...change }), {
      name: "RangeError",
      message: `Cannot open a reducer: ${message}`,
    });
  }
});
