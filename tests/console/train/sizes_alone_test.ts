/** Sizes that would take all memory, refused before anything is allocated; alone, as memory is measured. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { inFolder, refusal, someTokens, TINY, writeTokens } from "../command.ts";

/** Sizes, each for itself or together, and what the refusal says of them. */
const SIZES: readonly [string, RegExp][] = [
  ["--replicas 2147483648", /--replicas: it must be at most 256, received "2147483648"/],
  ["--replicas 0x10", /--replicas: it must be a whole number from 1, received "0x10"/],
  ["--steps 1e3", /--steps: it must be a whole number from 1, received "1e3"/],
  ["--lr 0x1p3", /--lr: it must be a number from 0, received "0x1p3"/],
  ["--vocab 1e15", /--vocab: it must be a whole number from 1, received "1e15"/],
  ["--vocab 1000000000000000", /--vocab: it must be at most 16777216/],
  ["--hidden 4294967296", /--hidden: it must be at most 65536/],
  ["--layers 99999999999999999999", /--layers: it must be at most 1024/],
  ["--stall-timeout 2147484", /--stall-timeout: it must be at most 2000000/],
  ["--emulate-link 1e300,1", /--emulate-link: it must be a latency in µs from 0 to 6e7/],
  ["--hidden 65536 --heads 1", /at most 2147483647 elements, received shape \[65536,196608\]/],
  ["--vocab 16777216 --hidden 128", /at most 2147483647 elements, received shape \[16777216,128\]/],
  ["--hidden 8192 --layers 1024", /its parameters must be at most 2147483647 numbers/],
  [
    "--replicas 256 --workers 2",
    /workers times replicas must be at most 256, received 2 times 256/,
  ],
  ["--micro-batches 65536 --replicas 2", /microBatches times replicas must be at most 65536/],
  ["--micro-batches 65536 --workers 32", /workers times microBatches must be at most 1048576/],
  ["--schedule interleaved --chunks 2147483647", /stages of all its pipelines, must be at most/],
  ["--schedule hanayo --waves 2147483647", /stages of all its pipelines, must be at most 1048576/],
  ["--schedule chimera --pipelines 2147483647", /Cannot make the schedule chimera: pipelines/],
  ["--schedule search --workers 256 --micro-batches 512", /workers times microBatches must be/],
];

Deno.test("sizes are bounded before anything is allocated, each for itself and together", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000));
    const train = [...TINY, "--tokens", tokens, "--steps", "1", "--out", join(folder, "out")];
    const before = Deno.memoryUsage();
    for (const [flags, reason] of SIZES) {
      assert.match(await refusal([...train, ...flags.split(" ")]), reason, flags);
    }
    const { external, rss } = Deno.memoryUsage();
    assert.ok(external - before.external < 2 ** 26, `${external - before.external} bytes`);
    assert.ok(rss - before.rss < 2 ** 29, `${rss - before.rss} bytes`);
  }));
