/** Links over messages that may be lost. */

import assert from "node:assert/strict";
import { BEAT, Link } from "../../../../actors/transports/nats/link.ts";
import { Outbox, receiveFrames } from "../../../../actors/transports/stream.ts";
import { substream } from "../../../../kernels/random.ts";
import { atDepth } from "../../../depth.ts";

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Sends frames from one end to the other, of whose messages each is lost with a probability. */
async function sendAll(frames: readonly unknown[], lostShare: number, seed: number, max: number) {
  const generator = substream(seed, "losses"), sizes: number[] = [], got: unknown[] = [];
  // As NATS does: what arrives is in order, and later than the call that has sent it.
  const carrier = (to: () => Link) => {
    let last = turn();
    return (message: Uint8Array<ArrayBuffer>) => {
      sizes.push(message.length);
      const copy = message.slice(), isLost = (generator.next() >>> 0) / 2 ** 32 < lostShare;
      last = last.then(() => isLost ? undefined : to().hear(copy));
    };
  };
  const near: Link = new Link(7, carrier(() => far), max);
  const far: Link = new Link(7, carrier(() => near), max);
  const outbox = new Outbox();
  outbox.attach(near);
  const heard = receiveFrames(far, (frame) => got.push(frame), 2 ** 24);
  for (const frame of frames) outbox.post(frame);
  for (let turns = 0; got.length < frames.length && turns < 50_000; turns++) {
    if (turns % 20 === 0) [near, far].forEach((end) => end.beat());
    await turn();
  }
  for (const end of [near, far]) end.close();
  await heard;
  return { got, sizes };
}

const FRAMES = Array.from(
  { length: 40 },
  (_, n) => ({ n, bytes: new Float32Array(n % 5 === 0 ? 3000 : n).fill(n) }),
);

Deno.test("link: frames arrive once, whole and in order, whichever messages are lost", async () => {
  for (let seed = 1; seed <= atDepth(12, 200); seed++) {
    for (const share of [0, 0.3]) {
      const { got } = await sendAll(FRAMES, share, seed, 500);
      assert.deepEqual(got, FRAMES, `seed ${seed}, share ${share}`);
    }
  }
});

Deno.test("link: no message is larger than the server's limit, and large frames travel in pieces", async () => {
  const frame = new Uint8Array(100_000).fill(3);
  const { got, sizes } = await sendAll([frame], 0, 1, 1000);
  assert.deepEqual(got, [frame]);
  assert.ok(Math.max(...sizes) === 1000 && sizes.length >= 100);
});

Deno.test("link: what the far end has not confirmed is bounded", async () => {
  const published: number[] = [];
  const link = new Link(1, (message) => published.push(message.length), 2 ** 20);
  const outbox = new Outbox();
  outbox.attach(link);
  outbox.post(new Uint8Array(2 ** 25));
  for (let turns = 0; turns < 100; turns++) await turn();
  const bytes = published.reduce((sum, one) => sum + one, 0);
  assert.ok(bytes >= 2 ** 22 && bytes < 2 ** 22 + 2 ** 21, `${bytes}`);
  link.close();
  await outbox.idle;
});

Deno.test("link: what no far end sends is refused", () => {
  const link = new Link(1, () => {}, 1000);
  const beat = (confirmed: number) => {
    const message = new Uint8Array(14), view = new DataView(message.buffer);
    view.setUint8(0, BEAT);
    view.setUint32(9, confirmed);
    return message;
  };
  link.hear(beat(0));
  assert.throws(() => link.hear(beat(1)), RangeError);
  for (const length of [9, 12, 13, 15]) {
    const message = new Uint8Array(length);
    message[0] = length === 15 ? BEAT : 0;
    assert.throws(() => link.hear(message), RangeError, `${length}`);
  }
});
