/** Checkpoints: complete and durable, or not there at all. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import type { DiskFile } from "../../../actors/checkpoints/format.ts";
import type { Disk } from "../../../actors/checkpoints/format.ts";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { compileModel, gpt2 } from "../../../kernels/mod.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import { initialValues } from "../../../kernels/layers/layer.ts";
import { atDepth } from "../../depth.ts";
import fc from "../../fast_check.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { stateWith, writeCheckpoint } from "./write.ts";

const SIZES = { layers: 1, hidden: 8, heads: 2, seq: 4, vocab: 16 };
const CONFIG = { architecture: "gpt2", ...SIZES };
const { parameters } = compileModel(gpt2(SIZES, 1), "none");
const FILES = ["config.json", "manifest.json", "model.safetensors", "optimizer.safetensors"];

/** Weights drawn from a seed, with moments that identify it. */
const stateOf = (seed: number, of = parameters) =>
  stateWith(
    of.map(({ name }) => name),
    (name, n) => initialValues(of[n]!.spec, name, seed),
    (_, n, i) => new Float32Array(elementCount(of[n]!.shape)).fill(seed + i / 2),
  );

/** Copies the methods of a disk, so that tests can replace some. */
const diskOf = ({ open, readFile, readDir, mkdir, rename, remove }: Disk): Disk => ({
  ...{ open, readFile, readDir, mkdir, rename, remove },
});

/** Writes the checkpoint of a step; the step is the seed of its weights. */
const write = (directory: string, step: number, seed = step, of = parameters) =>
  writeCheckpoint(directory, { step, state: stateOf(seed, of), parameters: of, config: CONFIG });

folderTest("a checkpoint is read back bit for bit, by folder or by step", async (folder) => {
  await write(folder, 9);
  await write(folder, 10);
  for (const [path, step] of [[folder, 10], [join(folder, "step-00000009"), 9]] as const) {
    const checkpoint = (await readCheckpoint(path))!;
    assert.equal(checkpoint.step, step);
    assert.deepEqual(checkpoint.config, CONFIG);
    const { weights, moments } = stateOf(step), { state } = checkpoint;
    for (const [read, written] of [[state.weights, weights], [state.moments, moments]] as const) {
      assert.deepEqual([...read.keys()].sort(), [...written.keys()].sort());
      for (const [name, values] of written) assert.deepEqual(read.get(name), values, name);
    }
  }
});

folderTest("the newest whole checkpoint is taken, however a newer one was torn", async (folder) => {
  await write(folder, 5);
  const torn = join(folder, "step-00000006");
  const tears: Readonly<Record<string, () => Promise<void>>> = {
    "no manifest": () => Deno.remove(join(torn, "manifest.json")),
    "no weights": () => Deno.remove(join(torn, "model.safetensors")),
    "manifest of a later format": () =>
      Deno.writeTextFile(join(torn, "manifest.json"), `{"format":2,"step":6}`),
    "manifest without hashes": () =>
      Deno.writeTextFile(join(torn, "manifest.json"), `{"format":1,"step":6}`),
    "manifest of another step": async () => {
      const path = join(torn, "manifest.json"), text = await Deno.readTextFile(path);
      await Deno.writeTextFile(path, text.replace('"step": 6', '"step": 7'));
    },
  };
  for (const [name, tear] of Object.entries(tears)) {
    await write(folder, 6);
    assert.equal((await readCheckpoint(folder))!.step, 6, "whole before it is torn");
    await tear();
    const told: string[] = [];
    assert.equal((await readCheckpoint(folder, (line) => told.push(line)))!.step, 5, name);
    assert.equal(told.length, 1, name);
    assert.match(told[0]!, /^Cannot read .*step-00000006.*, received .*; it is passed over$/, name);
    await assert.rejects(readCheckpoint(torn), SyntaxError, name);
  }
  // If no checkpoint is complete, the error names the newest.
  await Deno.remove(join(folder, "step-00000005", "config.json"));
  await Deno.remove(join(await write(folder, 6), "config.json"));
  const refusal =
    /^SyntaxError: .*step-00000006.config.json: a whole checkpoint must have this file/;
  await assert.rejects(readCheckpoint(folder, (line) => assert.fail(line)), refusal);
});

folderTest("no bit can change and no byte be missing unnoticed, in any file", async (folder) => {
  // Two tensors cover every part of the files, and are read in a twentieth of the time.
  const few = parameters.slice(0, 2);
  await write(folder, 1, 1, few);
  const path = await write(folder, 2, 2, few);
  const contents = new Map(FILES.map((name) => [name, Deno.readFileSync(join(path, name))]));
  const harm = fc.record({
    file: fc.constantFrom(...FILES),
    at: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
    bit: fc.option(fc.nat(7), { nil: undefined }),
  });
  await fc.assert(
    fc.asyncProperty(harm, async ({ file, at, bit }) => {
      const whole = contents.get(file)!, position = Math.floor(at * whole.length);
      const torn = bit === undefined ? whole.slice(0, position) : whole.slice();
      if (bit !== undefined) torn[position]! ^= 1 << bit;
      // The last byte of a JSON file is the end of its last line.
      fc.pre(bit !== undefined || !file.endsWith(".json") || position < whole.length - 1);
      await Deno.writeFile(join(path, file), torn);
      try {
        assert.equal((await readCheckpoint(folder))!.step, 1);
      } finally {
        await Deno.writeFile(join(path, file), whole);
      }
    }),
    { numRuns: atDepth(60, 400) },
  );
  assert.equal((await readCheckpoint(folder))!.step, 2, "whole again");
});

folderTest("what a crash leaves behind, and files of others, do not matter", async (folder) => {
  await write(folder, 2);
  const whole = join(folder, "step-00000002");
  for (const name of [".step-00000003-1234", ".step-00000002-1234-old", "copy-of-step-00000009"]) {
    await Deno.mkdir(join(folder, name));
    for (const file of FILES) await Deno.copyFile(join(whole, file), join(folder, name, file));
  }
  assert.equal((await readCheckpoint(folder))!.path, whole);
  await write(folder, 3);
  assert.equal((await readCheckpoint(folder))!.step, 3);
});

folderTest("half a checkpoint is passed over; one just replaced is read", async (folder) => {
  await write(folder, 2);
  const id = crypto.randomUUID(), half = join(folder, `.step-00000003-${id}`);
  await Deno.mkdir(half);
  await Deno.copyFile(join(folder, "step-00000002", "config.json"), join(half, "config.json"));
  const told: string[] = [];
  assert.equal((await readCheckpoint(folder, (line) => told.push(line)))!.step, 2);
  assert.deepEqual(told, [
    `Cannot read the checkpoint ${half}: it must have been written to its end, received a part; it is passed over`,
  ]);
  // A crash between the two renames of a replacement.
  await Deno.rename(await write(folder, 4), join(folder, `.step-00000004-${id}-old`));
  assert.equal((await readCheckpoint(folder))!.step, 4);
  for (const seed of [7, 8]) {
    await write(folder, 4, seed);
    const { path, state } = (await readCheckpoint(folder))!;
    assert.equal(path, join(folder, "step-00000004"));
    assert.deepEqual(state.weights, stateOf(seed).weights);
    assert.deepEqual(await namesIn(path), FILES);
  }
});

folderTest("steps are compared as numbers, beyond eight digits too", async (folder) => {
  for (const step of [99_999_999, 100_000_000]) await write(folder, step);
  assert.equal((await readCheckpoint(folder))!.step, 100_000_000);
});

folderTest("a folder is listed again when a listed checkpoint is gone", async (folder) => {
  await write(folder, 1);
  let opened = 0;
  const moving: Disk = {
    ...diskOf(Deno),
    async open(path, options) {
      if (opened++ === 1) {
        await write(folder, 2);
        await Deno.remove(join(folder, "step-00000001"), { recursive: true });
      }
      return await Deno.open(path, options);
    },
  };
  const told: string[] = [];
  const checkpoint = await readCheckpoint(folder, (line) => told.push(line), moving);
  assert.equal(checkpoint!.step, 2);
  assert.match(told.join(), /step-00000001.*it is passed over$/);
});

folderTest("an empty or missing folder has no checkpoint", async (folder) => {
  assert.equal(await readCheckpoint(folder), undefined);
  assert.equal(await readCheckpoint(join(folder, "missing", "deep")), undefined);
});

folderTest("a folder that cannot be written is reported, and its files stay", async (folder) => {
  const file = join(folder, "file");
  await Deno.writeTextFile(file, "not a folder");
  const refusal =
    /^Error: Cannot write the checkpoint .*step-00000001: its disk must .*, received .*; the checkpoints before it stay$/;
  await assert.rejects(write(join(file, "run"), 1), refusal);
  assert.equal(await Deno.readTextFile(file), "not a folder");
});

/** The real disk, with a record of its calls: `write a`, `sync a`, `rename a b`. */
function recordingDisk(calls: string[]): Disk {
  const note = (what: string, ...paths: string[]) =>
    void calls.push([what, ...paths.map((path) => basename(path))].join(" "));
  return {
    ...diskOf(Deno),
    async open(path, options?): Promise<DiskFile> {
      const file = await (options ? Deno.open(path, options) : Deno.open(path));
      const { write, sync, syncData } = file;
      return Object.assign(file, {
        write: (bytes: Uint8Array<ArrayBuffer>) => (note("write", path), write.call(file, bytes)),
        sync: () => (note("sync", path), sync.call(file)),
        syncData: () => (note("sync", path), syncData.call(file)),
      });
    },
    rename: (from, to) => (note("rename", from, to), Deno.rename(from, to)),
  };
}

folderTest("files are synced, then their folder, its name and the one above", async (folder) => {
  if (Deno.build.os === "windows") return; // which has no such call for folders
  const directory = join(folder, "runs"), calls: string[] = [], few = parameters.slice(0, 1);
  for (let time = 0; time < 2; time++) { // the second replaces the first
    calls.length = 0;
    const checkpoint = { step: 7, state: stateOf(7, few), parameters: few, config: {} };
    await writeCheckpoint(directory, checkpoint, recordingDisk(calls));
    const named = calls.findIndex((call) => /^rename \.\S+ step-00000007$/.test(call));
    const temporary = calls[named]!.split(" ")[1]!,
      whole = calls.lastIndexOf(`sync ${temporary}`);
    const manifest = calls.findIndex((call) => call.startsWith("write manifest."));
    for (const name of ["model", "optimizer", "config", "manifest"]) {
      const last = calls.findLastIndex((call) => call.startsWith(`write ${name}.`));
      const synced = calls.findLastIndex((call) => call.startsWith(`sync ${name}.`));
      assert.ok(last >= 0 && last < synced, `${name} must be synced: ${calls}`);
      assert.ok(name === "manifest" || synced < manifest, `the manifest must be last: ${calls}`);
      assert.ok(synced < whole && whole < named, `${name} must be in a synced folder: ${calls}`);
    }
    assert.ok(calls.lastIndexOf("sync runs") > named, `the name must be synced: ${calls}`);
  }
});
