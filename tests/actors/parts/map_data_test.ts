/** Data that is read by other names begins where the data itself does, with its state. */

import assert from "node:assert/strict";
import { mapData } from "../../../actors/parts/map_data.ts";
import { type Batches, isSource } from "../../../actors/run/data/data.ts";
import type { Batch } from "../../../kernels/mod.ts";

const renamed = ({ at }: Batch): Batch => ({ place: at! });

Deno.test("what can be begun anywhere still can, with the state that it had", async () => {
  const seen: unknown[] = [];
  const source = {
    last: 0,
    *from(microBatch: number, state?: unknown) {
      seen.push([microBatch, state]);
      for (;;) yield { at: Int32Array.of(this.last = Number(state) + 1) };
    },
    state() {
      return this.last;
    },
  };
  const data = mapData(source, renamed);
  assert.ok(isSource(data));
  for await (const batch of data.from(3, 6)) {
    assert.deepEqual(batch, { place: Int32Array.of(7) });
    break;
  }
  assert.deepEqual([seen, data.state!()], [[[3, 6]], 7]);
});

Deno.test("an iterable is one still, and is closed when nobody wants more of it", async () => {
  let isClosed = false;
  const batches = (function* () {
    try {
      for (let i = 0;; i++) yield { at: Int32Array.of(i) };
    } finally {
      isClosed = true;
    }
  })();
  const data = mapData(batches, renamed) as Batches;
  assert.ok(!isSource(data));
  for await (const batch of data) {
    assert.deepEqual(batch, { place: Int32Array.of(0) });
    break;
  }
  assert.ok(isClosed);
});
