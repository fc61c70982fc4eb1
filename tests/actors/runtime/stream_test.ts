import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { framePieces } from "../../../actors/runtime/transports/stream/frame_head.ts";
import {
  closeRendezvous,
  connect,
  listen,
  openRendezvous,
} from "../../../actors/runtime/transports/process/rendezvous.ts";
import { Outbox, receiveFrames } from "../../../actors/runtime/transports/stream/stream.ts";

/** A socket to oneself that takes and gives as many bytes at a time as `portions` say. */
function loopback(portions: readonly number[], bytesMax = Infinity): Deno.Conn {
  let turn = 0, taken = 0, isEnded = false;
  const portion = () => portions[turn++ % portions.length]!;
  const bytes: number[] = [];
  const tick = () => new Promise((resolve) => setTimeout(resolve, 0));
  const conn = {
    write(from: Uint8Array) {
      const part = from.subarray(0, portion());
      bytes.push(...part);
      return Promise.resolve(part.length);
    },
    closeWrite() {
      isEnded = true;
      return Promise.resolve();
    },
    async read(into: Uint8Array) {
      while (bytes.length === 0 && !isEnded) await tick();
      const part = bytes.splice(0, Math.min(portion(), into.length, bytesMax - taken));
      into.set(part);
      taken += part.length;
      return part.length || null;
    },
    close() {},
  };
  return conn as unknown as Deno.Conn;
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
    { numRuns: 50 },
  ));

Deno.test("a frame whose sender dies on the way is dropped, and those before it are not", () =>
  fc.assert(
    fc.asyncProperty(fc.nat(250), async (bytesMax) => {
      const messages = [1, 2, 3].map((n) => ({ n, tensor: new Uint8Array(50).fill(n) }));
      const conn = loopback([7], bytesMax), outbox = new Outbox();
      outbox.attach(conn);
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
    { numRuns: 50 },
  ));

Deno.test("buffers that left over a socket are used again, and only for their own size", async () => {
  const conn = loopback([100_000]), outbox = new Outbox(), length = 70_000;
  outbox.attach(conn);
  for (const fill of [1, 2, 3]) {
    for (const bytes of [length, length + 1]) {
      const { buffer } = new Uint8Array(bytes).fill(fill);
      outbox.post({ buffer }, [buffer]);
    }
  }
  outbox.finish();
  const heard: Uint8Array[] = [];
  await receiveFrames(conn, (value) => {
    heard.push(new Uint8Array((value as { buffer: ArrayBuffer }).buffer));
  });
  assert.deepEqual(heard.map((bytes) => bytes.length - length), [0, 1, 0, 1, 0, 1]);
  assert.deepEqual(heard.map((bytes) => [bytes[0], bytes.at(-1)]), [
    ...[[1, 1], [1, 1], [2, 2], [2, 2], [3, 3], [3, 3]],
  ]);
  assert.equal(new Set(heard.map(({ buffer }) => buffer)).size, heard.length);
});

Deno.test("who does not know the token is not let in", async () => {
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
  closeRendezvous(rendezvous);
  assert.deepEqual(callers, [3]);
});
