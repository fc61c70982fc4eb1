/** Sharded checkpoints: read as one, whatever the shards; refused if the files disagree. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { locateCheckpoint, readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { readWeights } from "../../../actors/checkpoints/weights.ts";
import { writeShard, writeShards } from "../../../actors/checkpoints/read.ts";
import {
  type HeldState,
  heldValues,
  parameterOf,
  readState,
} from "../../../actors/checkpoints/tensors.ts";
import { hashWeights } from "../../../actors/checkpoints/format.ts";
import { encodeSafetensors } from "../../../kernels/mod.ts";
import { assertSentences } from "../../console/refusals.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { stateWith } from "./write.ts";

/** Two parameters for each of two workers. */
const NAMES = ["a.weight", "b.weight", "c.weight", "d.weight"];
const SHAPE = [2, 3];
const PARAMETERS = NAMES.map((name) => ({ name, shape: SHAPE }));

/** @param averaged Weights of which there are averages. */
function stateOf(seed: number, averaged: readonly string[] = []) {
  const values = (n: number) => new Float32Array(6).map((_, i) => seed + n + i / 8);
  const state = stateWith(NAMES, (_, n) => values(n), (_, n, i) => values(i ? n : -n));
  const averages = averaged.map((name) =>
    [`${name}.ema`, values(100 + NAMES.indexOf(name))] as const
  );
  return { ...state, moments: new Map([...state.moments, ...averages]) };
}

/** Returns the part of such a state that one worker holds. */
function heldOf(
  seed: number,
  names: readonly string[],
  averaged: readonly string[] = [],
): HeldState {
  const { weights, moments } = stateOf(seed, averaged);
  const shapes = new Map(names.map((name) => [name, SHAPE]));
  const own = <T>(tensors: ReadonlyMap<string, T>, nameOf: (key: string) => string) =>
    new Map([...tensors].filter(([key]) => shapes.has(nameOf(key))));
  const held = { weights: own(weights, (name) => name), moments: own(moments, parameterOf) };
  return heldValues(held, shapes);
}

/** Writes a checkpoint from two workers, each with half of the state. */
const write = (directory: string, step: number, averaged: readonly string[] = []) =>
  writeShards(
    directory,
    { step, config: { by: "two" } },
    (folder) =>
      Promise.all([1, 2].map((nth) => {
        const names = NAMES.slice(2 * nth - 2, 2 * nth);
        return writeShard({ folder, nth, count: 2 }, heldOf(step, names, averaged));
      })),
  );

folderTest(
  "shards of two workers are one checkpoint, with names of Hugging Face",
  async (folder) => {
    const { path, state: placed } = await write(folder, 7);
    const kinds = ["model", "optimizer"].flatMap((kind) => [
      ...[1, 2].map((nth) => `${kind}-0000${nth}-of-00002.safetensors`),
      `${kind}.safetensors.index.json`,
    ]);
    assert.deepEqual(await namesIn(path), ["config.json", "manifest.json", ...kinds]);
    const index = JSON.parse(await Deno.readTextFile(join(path, "model.safetensors.index.json")));
    assert.equal(index.metadata.total_size, 4 * 6 * 4);
    assert.equal(index.weight_map["c.weight"], "model-00002-of-00002.safetensors");

    const expected = stateOf(7), checkpoint = (await readCheckpoint(folder))!;
    const located = (await locateCheckpoint(folder))!;
    for (const { step, config, shapes } of [checkpoint, located]) {
      assert.deepEqual({ step, config }, { step: 7, config: { by: "two" } });
      assert.deepEqual(shapes.moments.get("d.weight.exp_avg_sq"), SHAPE);
    }
    for (const state of [checkpoint.state, readState(located.state), readState(placed)]) {
      assert.deepEqual(new Map([...state.weights].sort()), expected.weights);
      assert.deepEqual(new Map([...state.moments].sort()), new Map([...expected.moments].sort()));
    }
    for (const weights of [located.state.weights, new Map([...expected.weights].reverse())]) {
      assert.equal(hashWeights(weights), hashWeights(expected.weights));
    }
    for (const from of [path, join(path, "model.safetensors.index.json")]) {
      const weights = await readWeights(from, PARAMETERS);
      assert.deepEqual(new Map([...weights].sort()), expected.weights);
    }
  },
);

folderTest("averages have files of their own, in the shards that have some", async (folder) => {
  const averaged = ["c.weight", "d.weight"], { moments } = stateOf(3, averaged);
  const { path, state: placed } = await write(folder, 3, averaged);
  const files = (await namesIn(path)).filter((name) => name.startsWith("ema"));
  const [shard, index] = ["ema-00002-of-00002.safetensors", "ema.safetensors.index.json"];
  assert.deepEqual(files, [shard, index]);
  const moved = await Deno.readTextFile(join(path, "optimizer.safetensors.index.json"));
  assert.doesNotMatch(moved, /ema/, "averages are in one file");
  const { state } = (await readCheckpoint(folder))!, sorted = new Map([...moments].sort());
  for (const found of [state, readState(placed)]) {
    assert.deepEqual(new Map([...found.moments].sort()), sorted);
  }
  const read = await readWeights(join(path, index!), PARAMETERS.slice(2));
  assert.deepEqual(read.get("d.weight"), moments.get("d.weight.ema"));
  await forge(path, { manifest: (files) => delete files[shard!] });
  const refusal = /tensor "c.weight" must be where ema.*received it in no shard/;
  await assert.rejects(readCheckpoint(folder), refusal);
});

/** Edits of a checkpoint's files: of the manifest, of an index, or of a shard. */
interface Forgery {
  readonly manifest?: (files: Record<string, unknown>) => void;
  readonly index?: (text: string) => string;
  readonly shard?: Uint8Array<ArrayBuffer>;
}

const SHARD = "model-00001-of-00002.safetensors";
const OTHER = "model-00002-of-00002.safetensors";

function moved(from: string, to: string): NonNullable<Forgery["manifest"]> {
  return (files) => {
    files[to] = files[from];
    delete files[from];
  };
}

/** An index with other contents. */
const said = (from: string, to: string) => ({ index: (text: string) => text.replace(from, to) });

const both = { dtype: "F32", shape: SHAPE, data: new Float32Array(6) } as const;

/** Checkpoints that must be refused although their hashes are right. */
const FORGERIES: Readonly<Record<string, Forgery>> = {
  "a shard above the folder": { manifest: moved(SHARD, `../${SHARD}`) },
  "a missing shard": { manifest: (files) => delete files[SHARD] },
  "no shard of the optimizer": {
    manifest: (files) => {
      for (const name of Object.keys(files)) if (/^opt.*-of-/.test(name)) delete files[name];
    },
  },
  "a file too many": {
    manifest: (files) => Object.assign(files, { "more.ts": files[SHARD], "x": files[SHARD] }),
  },
  "sizes without end": {
    manifest: (files) => Object.assign(files[SHARD] as object, { bytes: 1e300 }),
  },
  "a tensor said to be elsewhere": said(SHARD, OTHER),
  "a tensor in no shard": said('"a.weight"', `"z.weight": "${OTHER}", "a.weight"`),
  "a tensor that is not said": said('"a.weight"', '"A.weight"'),
  "a name twice": said('"a.weight"', `"a.weight": "${OTHER}", "a.weight"`),
  "no index": { index: () => '{"weight_map": []}' },
  "a tensor in two shards": {
    shard: encodeSafetensors(new Map(["a", "b", "c"].map((name) => [`${name}.weight`, both]))),
  },
};

/** Rewrites files of a checkpoint and updates sizes and hashes to match. */
async function forge(path: string, { manifest, index, shard }: Forgery): Promise<void> {
  const name = join(path, "manifest.json"), told = JSON.parse(await Deno.readTextFile(name));
  const rewrite = async (file: string, bytes: Uint8Array<ArrayBuffer>) => {
    await Deno.writeFile(join(path, file), bytes);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    told.files[file] = { bytes: bytes.length, sha256 };
  };
  const file = "model.safetensors.index.json", text = await Deno.readTextFile(join(path, file));
  if (index) await rewrite(file, new TextEncoder().encode(index(text)));
  if (shard) await rewrite(SHARD, shard);
  manifest?.(told.files);
  await Deno.writeTextFile(name, JSON.stringify(told));
}

folderTest("files that disagree are refused, and the checkpoint before is read", async (folder) => {
  await write(folder, 1);
  const found: [string, string][] = [];
  for (const [name, forgery] of Object.entries(FORGERIES)) {
    const { path } = await write(folder, 2);
    await forge(path, forgery);
    for (const read of [readCheckpoint, locateCheckpoint]) {
      const whole = () => assert.fail(`${name} must be refused`);
      found.push([`${name} (${read.name})`, await read(path).then(whole, String)]);
      const told: string[] = [];
      assert.equal((await read(folder, (line) => told.push(line)))!.step, 1, name);
      assert.match(told.join(), /step-00000002.*it is passed over$/, name);
    }
  }
  await assertSentences("shards", found, { FOLDER: folder });
});

folderTest("a located checkpoint is read unchanged, or not at all", async (folder) => {
  const { path } = await write(folder, 1), { state } = (await locateCheckpoint(folder))!;
  await Deno.copyFile(join((await write(folder, 2)).path, OTHER), join(path, OTHER));
  const refusal = /model-00002-of-00002.*must have the hash .*it was changed$/;
  assert.throws(() => readState(state), refusal);
  await Deno.remove(path, { recursive: true });
  assert.throws(() => readState(state), /must be readable by every worker that needs a part/);
});

folderTest("a worker that cannot write leaves the folder unchanged", async (folder) => {
  await write(folder, 1);
  const lost = new Error("worker-1 is gone");
  const writing = writeShards(folder, { step: 2, config: {} }, async (unfinished) => {
    await writeShard({ folder: unfinished, nth: 1, count: 2 }, heldOf(2, ["a.weight"]));
    throw lost;
  });
  await assert.rejects(writing, lost);
  assert.deepEqual(await namesIn(folder), ["step-00000001"]);
});

folderTest("a shard that the writer of the manifest cannot see is refused", async (folder) => {
  const elsewhere = await Deno.makeTempDir();
  const writing = writeShards(folder, { step: 1, config: {} }, async () => {
    return [await writeShard({ folder: elsewhere, nth: 1, count: 1 }, heldOf(1, NAMES))];
  });
  const refusal = /no bytes of model-00001-of-00001.safetensors .* that all hosts share/;
  await assert.rejects(writing, refusal);
  assert.deepEqual(await namesIn(folder), []);
  await Deno.remove(elsewhere, { recursive: true });
});

folderTest("a worker that cannot write says which file, and why", async (folder) => {
  const order = { folder: join(folder, "gone"), nth: 1, count: 2 };
  await assert.rejects(writeShard(order, heldOf(1, NAMES)), {
    message:
      /^Cannot write .*gone\/model-00001-of-00002\.safetensors: its disk must have room .*received No such file/,
  });
});
