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
import fc, { forAll } from "../../fast_check.ts";
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
  const flags = [fc.boolean(), fc.boolean()] as const;
  await forAll(25, [ids, fc.nat(12), ...flags], async (ids, skipped, lastIsSmaller, isWide) => {
    const narrow = Uint16Array.from(ids), disk = countingDisk();
    const path = isWide
      ? await written(folder, Uint32Array.from(ids), "ids.u32")
      : await written(folder, narrow);
    const tokens = await openTokenFile(await knowFile(path), disk);
    const plan = { ...CUT, lastIsSmaller }, batches = tokenBatches({ ...plan, tokens });
    const right = [...tokenBatches({ ...plan, tokens: narrow })];
    assert.deepEqual([...batches], right);
    assert.deepEqual([...batches.from(skipped)], right.slice(skipped));
    const [held, wanted] = [tokens.from(4), narrow.subarray(4)].map((tokens) =>
      heldOutBatches({ ...CUT, microBatch: 1, count: 3, tokens })
    );
    assert.deepEqual(held, wanted);
    assert.equal(disk.counts.open, 0);
  });
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
  const path = await written(folder, new Uint16Array(81).fill(7).with(50, 1000));
  const whole = await openTokenFile(path), tokens = await openTokenFile(await knowFile(path));
  assert.deepEqual(whole.largest, { id: 1000, position: 50 });
  const batches = tokenBatches({ ...CUT, tokens });
  assert.equal([...batches.from(0).take(6)].length, 6);
  await assertRefused("token_ids", [
    ["the whole file", () => tokenBatches({ ...CUT, tokens: whole })],
    ["from the first micro-batch", () => [...batches.from(0)]],
    ["from the seventh", () => [...batches.from(6)]],
    ["from token 40", () => [...tokenBatches({ ...CUT, tokens: tokens.from(40) })]],
  ]);
});

const SEVENS = new Uint16Array(81).fill(7);

/** Changes of a file during a run. */
const TROUBLE: Readonly<Record<string, (path: string) => void>> = {
  "is cut short": (path) => Deno.truncateSync(path, 90),
  "grows": (path) => Deno.writeFileSync(path, new Uint8Array(2), { append: true }),
  "is written over": (path) => {
    Deno.writeFileSync(path, new Uint8Array(162));
    Deno.utimeSync(path, new Date(), new Date("2100-01-01T00:00:00Z"));
  },
  "is on a disk that fails": () => {
    throw new Error("Input/output error (os error 5)");
  },
};

folderTest("a file that changes is refused in the step that would read it", async (folder) => {
  const changes = Object.entries(TROUBLE).map(([what, happen]) =>
    [`it ${what}`, async () => {
      const path = await written(folder, SEVENS);
      // Half of a row comes at a time.
      const disk = countingDisk((read) => read === 25 && happen(path));
      const tokens = await openTokenFile(await knowFile(path), disk);
      let seen = 0;
      try {
        for (const { ids } of tokenBatches({ ...CUT, tokens })) {
          seen += Number(ids.every((id) => id === 7));
        }
      } finally {
        assert.deepEqual([seen > 0, disk.counts.open], [true, 0]);
      }
    }] as const
  );
  await assertRefused("changed_token_files", changes, { FOLDER: folder });
});

folderTest("files that are gone, replaced, odd or empty are refused", async (folder) => {
  const path = await written(folder, SEVENS), wide = join(folder, "odd.u32");
  const tokens = await openTokenFile(path);
  const first = (more: object = {}) => [...tokenBatches({ ...CUT, tokens, ...more }).take(1)];
  const sized = (bytes: number, read: (path: string) => unknown) => async () => {
    await Deno.writeFile(wide, new Uint8Array(bytes));
    return await read(wide);
  };
  await Deno.remove(path);
  await assertRefused("token_files", [
    ["gone", first],
    ["replaced", async () => (await written(folder, new Uint16Array(80)), first())],
    ["half an id", sized(6, openTokenFile)],
    ["a quarter more", sized(5, readTokens)],
    ["three bytes", () => decodeTokens(new Uint8Array(3), "a.bin")],
    ["empty", sized(0, async (path) => first({ tokens: await openTokenFile(path), steps: 1 }))],
  ], { FOLDER: folder });
  assert.equal((await readTokens(wide)).length, 0);
});
