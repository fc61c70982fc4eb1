import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { decodeFrame } from "../../../actors/runtime/transports/codec/codec.ts";
import { framePieces } from "../../../actors/runtime/transports/stream/frame_head.ts";
import { readValue } from "../../../actors/runtime/transports/codec/value_reader.ts";
import { writeValue } from "../../../actors/runtime/transports/codec/value_writer.ts";

/** What comes out at the other end of a socket. */
function sent(value: unknown, transfer: readonly ArrayBuffer[] = []): unknown {
  const [head, body, ...rest] = framePieces(value, transfer);
  const [bodyBytes, count, ...lengths] = new Float64Array(head!.buffer);
  assert.deepEqual([bodyBytes, count], [body!.length, lengths.length]);
  const buffers = lengths.map((length) =>
    length === 0 ? new ArrayBuffer(0) : rest.shift()!.buffer.slice()
  );
  return decodeFrame(body!.slice(), buffers);
}

const numbers = fc.oneof(
  fc.double(),
  fc.integer({ min: -(2 ** 31) - 2, max: 2 ** 31 + 2 }),
  fc.constantFrom(-0, NaN, 2 ** 31, -(2 ** 31), 2 ** 53, -Infinity),
);
const views = fc.oneof(
  fc.uint8Array({ maxLength: 40 }),
  fc.float32Array({ maxLength: 40 }),
  fc.array(fc.float(), { maxLength: 5 }).map((list) => Float16Array.from(list)),
  fc.uint16Array({ minLength: 2, maxLength: 9 }).map((one) => one.subarray(1)),
  fc.bigInt64Array({ maxLength: 4 }),
  fc.integer({ min: 4090, max: 4100 }).map((length) => new Uint8Array(length).fill(7)),
  fc.uint8Array({ minLength: 3, maxLength: 9 }).map(({ buffer }) => new DataView(buffer, 1, 2)),
);
const leaves = fc.oneof(
  numbers,
  fc.string({ unit: "binary", maxLength: 300 }),
  fc.string({ unit: "grapheme-ascii" }),
  fc.bigInt(),
  fc.boolean(),
  fc.constantFrom(undefined, null),
  views,
  fc.date({ noInvalidDate: false }),
  fc.constantFrom(/a(?<b>c)*\n/giu, new RangeError("r", { cause: [1] }), new Error()),
  fc.constantFrom(Object(1), Object("s"), Object(false), Object(5n)),
  fc.constantFrom([1, , 3], Object.assign(["x"], { name: 1 }), Object.assign([1, , 3], { x: 1 })),
);
const { value: anything } = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: "medium", withCrossShrink: true },
    leaves,
    fc.array(tie("value"), { maxLength: 5 }),
    fc.dictionary(
      fc.oneof(fc.string(), fc.constantFrom("__proto__", "0", "constructor", "type")),
      tie("value"),
      { maxKeys: 5, noNullPrototype: false },
    ),
    fc.array(fc.tuple(tie("value"), tie("value")), { maxLength: 4 }).map((list) => new Map(list)),
    fc.array(tie("value"), { maxLength: 4 }).map((list) => new Set(list)),
  ),
}));

Deno.test("whatever structured clone makes of a value arrives", () => {
  fc.assert(
    fc.property(anything, (value) => assert.deepStrictEqual(sent(value), structuredClone(value))),
    { numRuns: 500 },
  );
});

Deno.test("objects that come twice, and those in themselves, arrive as they were", () => {
  const shared = { n: 1 }, buffer = new ArrayBuffer(16), large = new Float64Array(1000);
  const value: Record<string, unknown> = { one: shared, other: [shared], map: new Map() };
  value.self = value;
  (value.map as Map<unknown, unknown>).set(value, new Set([shared, value]));
  value.views = [new Int32Array(buffer, 4, 2), new Uint8Array(buffer), large, large.subarray(3)];
  const got = sent(value) as Record<string, unknown>;
  assert.deepStrictEqual(got, value);
  assert.equal(got.self, got);
  assert.equal((got.other as unknown[])[0], got.one);
  const [ints, bytes, doubles, part] = got.views as [Int32Array, Uint8Array, Float64Array, never];
  assert.equal(ints.buffer, bytes.buffer);
  assert.equal(doubles.buffer, (part as Float64Array).buffer);
});

Deno.test("buffers that move are the sender's no longer, in any company", () => {
  for (const company of [{}, { at: new Date(5) }, { in: new Set([1]) }]) {
    const tensor = Float32Array.of(1, 2, 3),
      empty = new ArrayBuffer(0),
      unused = new ArrayBuffer(8);
    const value = { tensor, again: tensor.buffer, empty, company };
    const got = sent(value, [tensor.buffer, empty, unused]) as typeof value;
    assert.ok(tensor.buffer.detached && empty.detached && unused.detached);
    assert.deepStrictEqual(got.tensor, Float32Array.of(1, 2, 3));
    assert.equal(got.again, got.tensor.buffer);
    assert.deepStrictEqual(got.company, company);
  }
});

Deno.test("what cannot be cloned is refused, and nothing has moved", () => {
  class Hidden {
    get secret(): never {
      throw new RangeError("mine");
    }
  }
  const thrower = Object.defineProperty({}, "x", {
    enumerable: true,
    get: () => {
      throw new RangeError("mine");
    },
  });
  const detached = new ArrayBuffer(1);
  const view = new Uint8Array(detached);
  detached.transfer();
  const wrong = [
    () => {},
    Symbol(),
    thrower,
    Object.assign(new Hidden(), { f: () => {} }),
    detached,
    view,
    new WeakMap(),
    Promise.resolve(),
    new SharedArrayBuffer(4),
    new Int32Array(new SharedArrayBuffer(4)),
    new Blob(["x"]),
    new Proxy(new Date(), {}),
  ];
  for (const one of wrong) {
    const moved = new ArrayBuffer(4);
    for (const value of [{ one, moved }, [new Set([1]), one, moved]]) {
      assert.throws(
        () => framePieces(value, [moved]),
        { name: "DataCloneError" },
        String(typeof one),
      );
      assert.ok(!moved.detached);
    }
  }
});

Deno.test("a getter that sends does not disturb what is being sent", () => {
  const value = {
    before: "a".repeat(100),
    get inner() {
      return sent({ inner: "b".repeat(200) });
    },
    after: "c",
  };
  assert.deepStrictEqual(sent(value), {
    before: value.before,
    inner: { inner: "b".repeat(200) },
    after: "c",
  });
});

Deno.test("bytes that are no value are refused, and nothing large is made of them", () => {
  const { bytes, copies } = writeValue({
    list: [1, "two", 3n, new Map([[{}, new Set([-1.5])]])],
    views: [new Uint8Array(9), new Float32Array(2000)],
    error: new TypeError("wrong"),
    at: [new Date(0), /x/g],
  });
  fc.assert(
    fc.property(fc.nat(bytes.length - 1), fc.nat(255), fc.boolean(), (at, byte, isCut) => {
      const changed = isCut ? bytes.slice(0, at) : bytes.with(at, byte);
      try {
        readValue(changed, copies);
      } catch (error) {
        assert.ok(error instanceof SyntaxError || error instanceof RangeError, String(error));
      }
    }),
    { numRuns: 2000 },
  );
  assert.deepEqual(readValue(bytes, copies), readValue(bytes, copies));
});

Deno.test("a hundred thousand messages leave no memory behind", () => {
  const message = { type: "Activation", to: { id: "worker-1", isolate: 2 }, microBatch: 3 };
  const pass = (count: number) => {
    for (let n = 0; n < count; n++) {
      const tensor = new Float32Array(16);
      sent({ ...message, tensor }, [tensor.buffer]);
      sent({ ...message, at: new Date(n) });
    }
  };
  // What leaks grows every time; a heap that finds its size does not.
  const grown = Array.from({ length: 5 }, () => {
    const before = Deno.memoryUsage().rss;
    pass(10_000);
    return (Deno.memoryUsage().rss - before) / 2 ** 20;
  });
  // A kilobyte a message would be twenty.
  assert.ok(Math.min(...grown) < 10, `grown by ${grown} MiB`);
});
