import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { snapshot } from "../../../actors/runtime/snapshot.ts";

const cloneable = fc.anything({
  withBigInt: true,
  withDate: true,
  withMap: true,
  withSet: true,
  withTypedArray: true,
  withSparseArray: false,
  maxDepth: 8,
});

Deno.test("a snapshot equals the platform's own clone", () => {
  fc.assert(fc.property(cloneable, (value) => {
    assert.deepEqual(snapshot(value), structuredClone(value));
  }));
});

Deno.test("a snapshot shares nothing with the original", () => {
  const value = { list: [{ n: 1 }], bytes: new Uint8Array([1]) };
  const copy = snapshot(value);
  value.list[0]!.n = 2;
  value.bytes[0] = 2;
  assert.deepEqual(copy, { list: [{ n: 1 }], bytes: new Uint8Array([1]) });
});

Deno.test("a snapshot keeps cycles, prototype keys and holes as the platform does", () => {
  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  const copy = snapshot(cycle);
  assert.equal(copy.self, copy);
  const strange = JSON.parse('{"__proto__": {"a": 1}}');
  assert.deepEqual(Object.keys(snapshot(strange)), Object.keys(structuredClone(strange)));
  class Point {
    x = 1;
  }
  assert.deepEqual(Object.getPrototypeOf(snapshot(new Point())), Object.prototype);
});

Deno.test("a snapshot takes the buffers it is told to", () => {
  const bytes = new Float32Array([1, 2]);
  const copy = snapshot({ bytes }, [bytes.buffer]);
  assert.deepEqual(copy.bytes, new Float32Array([1, 2]));
  assert.equal(bytes.length, 0);
});

Deno.test("a buffer that two arrays share, or that is gone, is the platform's", () => {
  const both = new Float32Array([1, 2]), halves = { left: both.subarray(0, 1), both };
  const copy = snapshot(halves, [both.buffer]);
  assert.equal(copy.left.buffer, copy.both.buffer);
  assert.equal(both.length, 0);
  assert.throws(() => snapshot(both), { name: "DataCloneError" });
});

for (const value of [() => {}, Symbol("a"), { deep: [{ f() {} }] }, new WeakMap()]) {
  Deno.test(`what cannot be cloned is refused: ${String(value)}`, () => {
    assert.throws(() => snapshot(value), { name: "DataCloneError" });
  });
}
