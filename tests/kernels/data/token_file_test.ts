/** Files of tokens larger than memory: read row by row, and refused after a change. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { decodeTokens, readTokens } from "../../../kernels/data/token_file.ts";
import {
  heldOutBatches,
  openTokenFile,
  type ReadableDisk,
  tokenBatches,
} from "../../../kernels/mod.ts";
import { knowFile } from "../../../kernels/data/files.ts";
import fc from "../../fast_check.ts";
import { folderTest } from "../../in_folder.ts";
import { assertRefused } from "../graph/refused.ts";

const CUT = { seq: 4, vocabularySize: 1000, microBatch: 2, microBatches: 2 };

/** A disk that counts bytes read and open files; `trouble` may change the result of a read. */
function countingDisk(trouble: (read: number) => void = () => {}) {
  const counts = { bytes: 0, reads: 0, open: 0 };
  const disk: ReadableDisk = {
    openSync(path) {
      const file = Deno.openSync(path);
      counts.open++;
      return {
        seekSync: (offset, whence) => file.seekSync(offset, whence),
        statSync: () => file.statSync(),
        readSync(into) {
          trouble(++counts.reads);
          // As a disk may: fewer bytes than were asked for.
          const read = file.readSync(into.subarray(0, Math.max(1, into.length >> 1)));
          counts.bytes += read ?? 0;
          return read;
        },
        close: () => (counts.open--, file.close()),
      };
    },
  };
  return Object.assign(disk, { counts });
}

async function written(folder: string, ids: Uint16Array | Uint32Array, name = "ids.bin") {
  const path = join(folder, name);
  await Deno.writeFile(path, new Uint8Array(ids.buffer as ArrayBuffer));
  return path;
}

folderTest("a file gives the micro-batches that its tokens in memory give", async (folder) => {
  const ids = fc.array(fc.nat(999), { minLength: 17, maxLength: 200 });
  await fc.assert(
    fc.asyncProperty(
      ...[ids, fc.nat(12), fc.boolean(), fc.boolean()] as const,
      async (ids, skipped, lastIsSmaller, isWide) => {
        const narrow = Uint16Array.from(ids), disk = countingDisk();
        const path = isWide
          ? await written(folder, Uint32Array.from(ids), "ids.u32")
          : await written(folder, narrow);
        const tokens = await openTokenFile(await knowFile(path), disk);
        const plan = { ...CUT, lastIsSmaller }, batches = tokenBatches({ ...plan, tokens });
        const right = [...tokenBatches({ ...plan, tokens: narrow })];
        assert.deepEqual([...batches], right);
        assert.deepEqual([...batches.from(skipped)], right.slice(skipped));
        const held = { ...CUT, microBatch: 1, count: 3 };
        assert.deepEqual(
          heldOutBatches({ ...held, tokens: tokens.from(4) }),
          heldOutBatches({ ...held, tokens: narrow.subarray(4) }),
        );
        assert.equal(disk.counts.open, 0);
      },
    ),
    { numRuns: 25 },
  );
});

folderTest("of 512 MiB a step reads its rows alone, anywhere in the file", async (folder) => {
  const path = join(folder, "sparse.bin"), bytes = 2 ** 29;
  using file = await Deno.create(path);
  await file.truncate(bytes);
  // Its hash is not of interest here.
  const known = { path, bytes, modifiedMs: (await file.stat()).mtime!.getTime(), sha256: "" };
  const disk = countingDisk(), tokens = await openTokenFile(known, disk);
  const rowBytes = 2 * (CUT.seq + 1), stepRows = CUT.microBatch * CUT.microBatches;
  const batches = tokenBatches({ ...CUT, tokens, lastIsSmaller: true });
  const all = Math.floor((bytes / 2 - 1) / CUT.seq / CUT.microBatch);
  for (const skipped of [0, 1000, all - CUT.microBatches]) {
    disk.counts.bytes = 0;
    const read = [...batches.from(skipped).take(CUT.microBatches)];
    assert.deepEqual([read.length, disk.counts.bytes], [CUT.microBatches, stepRows * rowBytes]);
  }
  assert.equal([...batches.from(all)].length, 0);
});

folderTest("a file's hash takes no more memory than a piece of it", async (folder) => {
  const path = join(folder, "sparse.bin");
  using file = await Deno.create(path);
  await file.truncate(2 ** 28);
  const before = Deno.memoryUsage(), { sha256 } = await knowFile(path), after = Deno.memoryUsage();
  assert.equal(sha256, "a6d72ac7690f53be6ae46ba88506bd97302a093f7108472bd9efc3cefda06484");
  const grown = after.external + after.heapTotal - before.external - before.heapTotal;
  assert.ok(grown < 2 ** 26, `${grown} bytes`);
});

folderTest("an id outside the vocabulary is refused with its step and position", async (folder) => {
  const ids = new Uint16Array(81).fill(7);
  ids[50] = 1000;
  const path = await written(folder, ids), whole = await openTokenFile(path);
  assert.deepEqual(whole.largest, { id: 1000, position: 50 });
  const tokens = await openTokenFile(await knowFile(path));
  const batches = tokenBatches({ ...CUT, tokens });
  assert.equal([...batches.from(0).take(6)].length, 6);
  await assertRefused("token_ids", [
    ["the whole file", () => tokenBatches({ ...CUT, tokens: whole })],
    ["from the first micro-batch", () => [...batches.from(0)]],
    ["from the seventh", () => [...batches.from(6)]],
    ["from token 40", () => [...tokenBatches({ ...CUT, tokens: tokens.from(40) })]],
  ]);
});

/** Changes of a file during a run, with their refusals. */
const TROUBLE: Readonly<Record<string, readonly [(path: string) => void, RegExp]>> = {
  "is cut short": [
    (path) => Deno.truncateSync(path, 90),
    /must stay as it was when the run began, received 90 bytes instead of 162$/,
  ],
  "grows": [
    (path) => Deno.writeFileSync(path, new Uint8Array(2), { append: true }),
    /must stay as it was when the run began, received 164 bytes instead of 162$/,
  ],
  "is written over": [
    (path) => {
      Deno.writeFileSync(path, new Uint8Array(162));
      Deno.utimeSync(path, new Date(), new Date(Date.now() + 5000));
    },
    /must stay as it was when the run began, received a file written at 20\d\d-/,
  ],
  "is on a disk that fails": [
    () => {
      throw new Error("Input/output error (os error 5)");
    },
    /cannot read .*ids\.bin: Input\/output error \(os error 5\)$/,
  ],
};

for (const [what, [happen, message]] of Object.entries(TROUBLE)) {
  folderTest(`a file that ${what} is refused in the step that would read it`, async (folder) => {
    const path = await written(folder, new Uint16Array(81).fill(7));
    // Half of a row comes at a time.
    const disk = countingDisk((read) => read === 25 && happen(path));
    const batches = tokenBatches({
      ...CUT,
      tokens: await openTokenFile(await knowFile(path), disk),
    });
    let seen = 0;
    const readAll = () => {
      for (const { ids } of batches) seen += Number(ids.every((id) => id === 7));
    };
    const start = /^\w+: Cannot make micro-batch [01] of step [123]: /;
    assert.throws(readAll, new RegExp(`${start.source}.*${message.source}`));
    assert.deepEqual([seen > 0, disk.counts.open], [true, 0]);
  });
}

folderTest("a file that is replaced or gone before it is read is refused", async (folder) => {
  const path = await written(folder, new Uint16Array(81)), tokens = await openTokenFile(path);
  const first = () => [...tokenBatches({ ...CUT, tokens }).take(1)];
  await Deno.remove(path);
  assert.throws(first, /^Error: Cannot read .*ids\.bin: /);
  await written(folder, new Uint16Array(80));
  assert.throws(first, /160 bytes instead of 162$/);
});

folderTest("files of half an id are refused by width, empty ones by the plan", async (folder) => {
  const path = join(folder, "odd.u32");
  await Deno.writeFile(path, new Uint8Array(6));
  const wide = /size must be a multiple of 4 \(32-bit tokens\), received 6/;
  await assert.rejects(openTokenFile(path), wide);
  await Deno.writeFile(path, new Uint8Array(5));
  await assert.rejects(readTokens(path), /^RangeError: .*odd\.u32.* must be .*received 5 bytes$/);
  const odd = /must be even .* received 3 bytes$/;
  assert.throws(() => decodeTokens(new Uint8Array(3), "a.bin"), odd);
  await Deno.writeFile(path, new Uint8Array(0));
  const tokens = await openTokenFile(path);
  const plan = { ...CUT, tokens, steps: 1 };
  assert.throws(() => tokenBatches(plan), /at least 17 tokens, received 0$/);
  assert.equal((await readTokens(path)).length, 0);
});
