/** Values on their way: copies within an isolate, frames of bytes between processes, and streams of them. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { snapshot } from "../../../actors/runtime/observer.ts";
import { decodeFrame, readValue, writeValue } from "../../../actors/transports/codec.ts";
import {
  closeRendezvousFolder,
  connect,
  listen,
  openRendezvous,
} from "../../../actors/transports/rendezvous.ts";
import { framePieces, Outbox, receiveFrames } from "../../../actors/transports/stream.ts";
import { atDepth } from "../../depth.ts";
import type { Any } from "./players.ts";

/** Returns a value after a round trip through frames, as a socket's receiver gets it. */
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
    { numRuns: atDepth(200, 3000), examples: [[["\xff", "\u0100", "a\u0fff", "\ud800"]]] },
  );
});

/** Both ways of copying a value. */
const COPIES = { frame: sent, snapshot } as const;

for (const [way, copy] of Object.entries(COPIES)) {
  Deno.test(`${way}: objects that come twice, and those in themselves, arrive as they were`, () => {
    const shared = { n: 1 }, buffer = new ArrayBuffer(16), large = new Float64Array(1000);
    const value: Any = { one: shared, other: [shared], map: new Map(), __proto__: { a: 1 } };
    value.self = value;
    value.map.set(value, new Set([shared, value]));
    value.views = [new Int32Array(buffer, 4, 2), new Uint8Array(buffer), large, large.subarray(3)];
    const got = copy(value) as Any, [ints, bytes, doubles, part] = got.views;
    assert.deepStrictEqual(got, structuredClone(value));
    assert.equal(got.self, got);
    assert.equal(got.other[0], got.one);
    assert.notEqual(got.one, shared);
    assert.equal(ints.buffer, bytes.buffer);
    assert.notEqual(ints.buffer, buffer);
    assert.equal(doubles.buffer, part.buffer);
    // None of these is in itself.
    const plain = copy({ one: shared, other: new Map([[1, shared]]) }) as Any;
    assert.equal(plain.other.get(1), plain.one);
    const [first, again] = copy([large, large]) as Float64Array[];
    assert.equal(first, again);
    const [all, same] = copy([large, new Uint8Array(large.buffer)]) as [Float64Array, Uint8Array];
    assert.equal(all.buffer, same.buffer);
  });

  Deno.test(`${way}: buffers that move are the sender's no longer, in any company`, () => {
    for (const company of [{}, { at: new Date(5) }, { in: new Set([1]) }]) {
      const tensor = Float32Array.of(1, 2, 3), empty = new ArrayBuffer(0);
      const { buffer } = tensor, unused = new ArrayBuffer(8);
      const value = { tensor, again: tensor.subarray(1), empty, company };
      const got = copy(value, [buffer, empty, unused]) as typeof value;
      assert.ok([buffer, empty, unused].every(({ detached }) => detached));
      assert.deepStrictEqual(got.tensor, Float32Array.of(1, 2, 3));
      assert.equal(got.again.buffer, got.tensor.buffer);
      assert.deepStrictEqual(got.company, company);
      assert.throws(() => copy(tensor), { name: "DataCloneError" });
    }
  });

  Deno.test(`${way}: what cannot be cloned is refused, and nothing has moved`, () => {
    const detached = new ArrayBuffer(1), view = new Uint8Array(detached);
    detached.transfer();
    const record = { deep: [{ f() {} }] }, own = Object.assign(new (class Own {})(), { f() {} });
    const getter = {
      get x() {
        throw new RangeError("mine");
      },
    };
    const buffer = new SharedArrayBuffer(4), array = new Int32Array(buffer);
    const promise = Promise.resolve(), blob = new Blob(["x"]), proxy = new Proxy(new Date(), {});
    const wrong: unknown[] = [() => {}, Symbol(), record, own, detached, view, new WeakMap()];
    if (way === "frame") wrong.push(getter, buffer, array, promise, blob, proxy);
    for (const one of wrong) {
      const moved = new ArrayBuffer(4);
      for (const value of [{ one, moved }, [new Set([1]), one, moved]]) {
        assert.throws(() => copy(value, [moved]), { name: "DataCloneError" }, String(typeof one));
        assert.ok(way === "snapshot" || !moved.detached);
      }
    }
  });
}

Deno.test("a function or a symbol is refused in the same words everywhere", () => {
  const wordsOf = (copy: (value: unknown) => unknown, value: unknown) => {
    try {
      copy(value);
    } catch (error) {
      return (error as Error).message;
    }
  };
  for (const one of [() => {}, Symbol("one")]) {
    const words = wordsOf(structuredClone, [one]);
    for (const copy of Object.values(COPIES)) assert.equal(wordsOf(copy, [one]), words);
  }
});

Deno.test("a getter that sends does not disturb the current send", () => {
  const outer = { before: "a".repeat(100), after: "c" }, inner = { inner: "b".repeat(200) };
  const value = Object.defineProperty({ ...outer }, "inner", {
    enumerable: true,
    get: () => sent(inner),
  });
  assert.deepStrictEqual(sent(value), { ...outer, inner });
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
    { numRuns: atDepth(600, 20_000) },
  );
  for (const wrong of [Uint8Array.of(...bytes, 0), bytes.slice(0, -1)]) {
    assert.throws(() => readValue(wrong, copies), SyntaxError);
  }
  assert.deepEqual(readValue(bytes, copies), readValue(bytes, copies));
  // Tags of an array of four sparse ones, each with the length 2^25 - 1 and no entries.
  const sparse = [11, 0xff, 0xff, 0xff, 0x0f, 0], { heapTotal } = Deno.memoryUsage();
  const lists = readValue(Uint8Array.of(10, 4, ...[1, 2, 3, 4].flatMap(() => sparse)));
  assert.deepEqual((lists as unknown[][]).map(({ length }) => length), Array(4).fill(2 ** 25 - 1));
  assert.ok(Deno.memoryUsage().heapTotal - heapTotal < 2 ** 27);
});

Deno.test("a snapshot equals the platform's own clone, of prototype keys and classes too", () => {
  const types = { withBigInt: true, withDate: true, withMap: true, withSet: true };
  const cloneable = fc.anything({ ...types, withTypedArray: true, maxDepth: 8 });
  const strange = JSON.parse('{"__proto__": {"a": 1}}');
  const point = Object.assign(new (class Point {})(), { x: 1 });
  const holed = Object.assign([1, , 3], { x: 1 }), sparse = Object.assign([], { 4e9: 1 });
  fc.assert(
    fc.property(
      cloneable,
      (value) => assert.deepStrictEqual(snapshot(value), structuredClone(value)),
    ),
    { examples: [[strange], [point], [[1, , 3]], [holed], [sparse]] },
  );
});

/** A loopback socket that reads and writes `portions` bytes at a time. */
function loopback(portions: readonly number[], bytesMax = Infinity): Deno.Conn {
  let turn = 0, taken = 0, isEnded = false;
  const portion = () => portions[turn++ % portions.length]!;
  const bytes: number[] = [];
  const conn = {
    write(from: Uint8Array) {
      const part = from.subarray(0, portion());
      bytes.push(...part);
      return Promise.resolve(part.length);
    },
    closeWrite: () => Promise.resolve(void (isEnded = true)),
    async read(into: Uint8Array) {
      while (bytes.length === 0 && !isEnded) await new Promise((resolve) => setTimeout(resolve, 0));
      const part = bytes.splice(0, Math.min(portion(), into.length, bytesMax - taken));
      into.set(part);
      taken += part.length;
      return part.length || null;
    },
    close() {},
  };
  return conn as unknown as Deno.Conn;
}

function attached(portions: readonly number[], bytesMax?: number) {
  const conn = loopback(portions, bytesMax), outbox = new Outbox();
  outbox.attach(conn);
  return { conn, outbox };
}

const tensors = fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 4 });

Deno.test("frames arrive whole and in order, however a socket cuts them", () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(tensors, { maxLength: 6 }),
      fc.array(fc.integer({ min: 1, max: 500 }), { minLength: 1, maxLength: 5 }),
      async (messages, portions) => {
        const conn = loopback(portions), outbox = new Outbox();
        for (const [n, parts] of messages.entries()) {
          const copies = parts.map((part) => part.slice());
          outbox.post({ n, parts: copies }, n % 2 ? copies.map(({ buffer }) => buffer) : []);
          assert.ok(n % 2 === 0 || copies.every(({ buffer }) => buffer.detached));
          if (n === 2) outbox.attach(conn);
        }
        outbox.attach(conn);
        const finished = outbox.finish(), heard: unknown[] = [];
        await receiveFrames(conn, (value) => heard.push(value));
        await finished;
        assert.deepEqual(heard, messages.map((parts, n) => ({ n, parts })));
      },
    ),
    { numRuns: atDepth(30, 300) },
  ));

Deno.test("a frame whose sender dies on the way is dropped, and those before it are not", () =>
  fc.assert(
    fc.asyncProperty(fc.nat(250), async (bytesMax) => {
      const messages = [1, 2, 3].map((n) => ({ n, tensor: new Uint8Array(50).fill(n) }));
      const { conn, outbox } = attached([7], bytesMax);
      const sizes = messages.map((message) =>
        framePieces(structuredClone(message), []).reduce((sum, { length }) => sum + length, 0)
      );
      for (const message of messages) outbox.post(message);
      outbox.finish();
      const heard: unknown[] = [];
      await receiveFrames(conn, (value) => heard.push(value));
      let count = 0;
      for (let sum = 0; count < 3 && (sum += sizes[count]!) <= bytesMax;) count++;
      assert.deepEqual(heard, messages.slice(0, count));
    }),
    { numRuns: atDepth(30, 300) },
  ));

Deno.test("buffers that left over a socket are used again, and only for their own size", async () => {
  const { conn, outbox } = attached([100_000]), length = 70_000;
  for (const fill of [1, 2, 3]) {
    for (const bytes of [length, length + 1]) {
      const { buffer } = new Uint8Array(bytes).fill(fill);
      outbox.post({ buffer }, [buffer]);
    }
  }
  outbox.finish();
  const heard: Uint8Array[] = [];
  await receiveFrames(conn, (value) => heard.push(new Uint8Array((value as Any).buffer)));
  const seen = heard.map((bytes) => [bytes.length - length, bytes[0], bytes.at(-1)].join());
  assert.deepEqual(seen, ["0,1,1", "1,1,1", "0,2,2", "1,2,2", "0,3,3", "1,3,3"]);
  assert.equal(new Set(heard.map(({ buffer }) => buffer)).size, heard.length);
});

Deno.test("a caller that does not know the token is refused", async () => {
  const rendezvous = openRendezvous(), callers: number[] = [];
  const endpoint = listen(rendezvous, "1", (conn, caller) => {
    callers.push(caller);
    conn.close();
  });
  const stranger = { ...rendezvous, token: crypto.randomUUID() };
  for (const [key, caller] of [[stranger, 2], [rendezvous, 3]] as const) {
    const conn = await connect(key, endpoint.address, caller);
    assert.equal(await conn.read(new Uint8Array(1)), null);
    conn.close();
  }
  endpoint.close();
  closeRendezvousFolder(rendezvous.directory);
  assert.deepEqual(callers, [3]);
});
