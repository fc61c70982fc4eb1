/** A folder of checkpoints belongs to one run: other runs neither write to it nor mix their files in. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import type { TrainOptions } from "../../../actors/options/train_options.ts";
import { stepName } from "../../../actors/checkpoints/format.ts";
import { isInUse, lockFolder } from "../../../actors/checkpoints/lock.ts";
import { folderTest, inFolder, namesIn } from "../../in_folder.ts";
import { type Sizes, SMALL } from "../runs.ts";
import { trained } from "../pipeline/trained.ts";

/** Registers a test of features that Windows lacks. */
const unixTest = (name: string, fn: (folder: string) => Promise<void>) =>
  Deno.test({ name, ignore: Deno.build.os === "windows", fn: () => inFolder(fn) });

folderTest("a locked folder is refused by the name of its holder until its end", async (folder) => {
  for (let round = 0; round < 2; round++) {
    using _lock = lockFolder(folder);
    const holder = `pid ${Deno.pid} on ${Deno.hostname()}`;
    assert.equal(Deno.readTextFileSync(join(folder, ".lock")), `${holder}\n`);
    assert.equal(isInUse(folder), true);
    assert.throws(() => lockFolder(folder), {
      name: "RangeError",
      message:
        `Cannot write checkpoints to ${folder}: it must not be in use by another run, received ` +
        `${holder}; wait for its end, or name another folder`,
    });
  }
  assert.equal(isInUse(folder), false);
  assert.deepEqual(await namesIn(folder), []);
});

folderTest("a lock that is removed is taken again, but not from another run", (folder) => {
  const out = join(folder, "out"), path = join(out, ".lock"), lines: string[] = [];
  const announce = (line: string) => void lines.push(line);
  using lock = lockFolder(out);
  Deno.removeSync(out, { recursive: true });
  for (const _ of [1, 2]) lock.renew(announce);
  assert.deepEqual(lines, [`${out} or its lock was removed during the run: it is made again`]);
  assert.throws(() => lockFolder(out), /in use by another run/);
  Deno.removeSync(path);
  using _other = lockFolder(out);
  assert.throws(() => lock.renew(announce), /^RangeError: .* must not be in use by another run/);
  return Promise.resolve();
});

folderTest("empty folders that were made for a lock are removed at its end", async (folder) => {
  const out = join(folder, "a/b/c");
  lockFolder(out)[Symbol.dispose]();
  assert.deepEqual(await namesIn(folder), []);
  const lock = lockFolder(out);
  Deno.mkdirSync(join(folder, "a/other"));
  lock[Symbol.dispose]();
  assert.deepEqual(await namesIn(join(folder, "a")), ["other"]);
});

unixTest("each folder made for a lock is made durable in the one above it", async (folder) => {
  const { syncSync } = Deno.FsFile.prototype, synced: (number | null)[] = [];
  Deno.FsFile.prototype.syncSync = function () {
    synced.push(this.statSync().ino);
  };
  using _lock = lockFolder(join(folder, "a/b"));
  Deno.FsFile.prototype.syncSync = syncSync;
  const above = await Promise.all([folder, join(folder, "a")].map((path) => Deno.stat(path)));
  assert.deepEqual(synced, above.map(({ ino }) => ino));
});

folderTest("a dead run's lock is overwritten, and no invalid holder repeated", async (folder) => {
  const path = join(folder, ".lock");
  Deno.writeTextFileSync(path, "pid 1 on a-host-with-a-long-name\n".repeat(9));
  lockFolder(folder)[Symbol.dispose]();
  for (
    const text of ["", "\x1b[31mpid 7", "pid 7 on x; rm -rf /\n", "pid 7 on x\npid 8 on y\n"]
  ) {
    await Deno.writeTextFile(path, text);
    using file = Deno.openSync(path);
    file.lockSync(true);
    assert.throws(() => lockFolder(folder), /received an unnamed process; wait/);
  }
});

unixTest("a lock path that is not a file is neither written nor waited for", async (folder) => {
  const lock = join(folder, ".lock"), mine = join(folder, "mine");
  await Deno.writeTextFile(mine, "precious");
  const kinds = [
    () => Deno.symlink(mine, lock),
    () => Deno.symlink("/nowhere/at/all", lock),
    () => Deno.mkdir(lock),
    () => new Deno.Command("mkfifo", { args: [lock] }).output(),
  ];
  for (const make of kinds) {
    await make();
    assert.throws(() => lockFolder(folder), {
      name: "RangeError",
      message: /^Cannot write checkpoints to [^\n]+, received something that is no file at /,
    });
    await Deno.remove(lock);
  }
  assert.equal(await Deno.readTextFile(mine), "precious");
});

folderTest("a run that has lost its lock or its folder leaves the files there", async (folder) => {
  const first = lockFolder(folder);
  Deno.removeSync(join(folder, ".lock")); // as someone may who tidies up
  const second = lockFolder(folder), text = Deno.readTextFileSync(join(folder, ".lock"));
  first[Symbol.dispose]();
  assert.equal(Deno.readTextFileSync(join(folder, ".lock")), text);
  second[Symbol.dispose]();
  const out = join(folder, "out"), third = lockFolder(out);
  Deno.removeSync(out, { recursive: true });
  Deno.writeTextFileSync(out, "");
  third[Symbol.dispose]();
  assert.deepEqual(await namesIn(folder), ["out"]);
});

const SIZES: Sizes = { ...SMALL, layers: 1, hidden: 8, heads: 2, seq: 4, microBatches: 1 };

type To = Omit<NonNullable<TrainOptions["checkpoint"]>, "config">;

/** Trains, with a checkpoint after each step. */
const run = (checkpoint: To, steps: number, resume?: TrainOptions["resume"], weights?: string) =>
  trained({ ...SIZES, steps: 4 }, {
    ...{ steps, device: "reference", runtime: "local", resume, weights },
    checkpoint: { every: 1, ...checkpoint, config: {} },
  });

const steps = (...of: number[]) => of.map(stepName);

const REFUSED =
  /^RangeError: Cannot write checkpoints to .*: the folder must have no checkpoints of another run, received one of step \d+; /;

folderTest("a folder with checkpoints is refused, resumed, or overwritten", async (directory) => {
  await run({ directory }, 2);
  await assert.rejects(run({ directory }, 1), REFUSED);
  const lock = lockFolder(directory);
  await assert.rejects(run({ directory, overwrite: true }, 1), /must not be in use by another run/);
  lock[Symbol.dispose]();
  await run({ directory }, 3, await readCheckpoint(directory));
  assert.deepEqual(await namesIn(directory), steps(1, 2, 3));

  // A state without a path can be resumed in any folder.
  const { path: _, ...unnamed } = (await readCheckpoint(directory))!;
  await run({ directory }, 4, unnamed);

  const second = await readCheckpoint(join(directory, stepName(2)));
  await run({ directory, overwrite: true }, 3, second);
  assert.deepEqual(await namesIn(directory), steps(1, 2, 3));
  await run({ directory, overwrite: true }, 1);
  assert.deepEqual(await namesIn(directory), steps(1));
});

folderTest("no weights are removed that the run begins with", async (folder) => {
  const directory = join(folder, "run"), link = join(folder, "link");
  await run({ directory }, 1);
  await Deno.symlink(directory, link);
  for (const from of [directory, link]) {
    const weights = join(from, stepName(1), "model.safetensors");
    const refusal =
      /^RangeError: Cannot overwrite .*: its checkpoints must not hold the weights to begin with/;
    await assert.rejects(run({ directory, overwrite: true }, 1, undefined, weights), refusal);
  }
  assert.deepEqual(await namesIn(directory), steps(1));
  const copy = join(folder, "copy.safetensors");
  await Deno.copyFile(join(directory, stepName(1), "model.safetensors"), copy);
  await run({ directory, overwrite: true }, 2, undefined, copy);
  assert.deepEqual(await namesIn(directory), steps(1, 2));
});

folderTest("a best checkpoint that is gone is not that of the next run", async (directory) => {
  const best = { step: 1, loss: 0, checkpoint: stepName(1) };
  await Deno.writeTextFile(join(directory, "best.json"), JSON.stringify(best));
  await run({ directory, keep: 1 }, 2);
  assert.deepEqual((await namesIn(directory)).filter((name) => !name.startsWith(".")), steps(2));
});

folderTest("a run resumed from another folder needs a fresh folder", async (folder) => {
  const [from, to] = [join(folder, "from"), join(folder, "to")];
  await run({ directory: from }, 1);
  const resume = await readCheckpoint(from);
  await run({ directory: to }, 2, resume);
  await assert.rejects(run({ directory: to }, 2, resume), REFUSED);
  await run({ directory: to, overwrite: true }, 3, resume);
  assert.deepEqual([await namesIn(from), await namesIn(to)], [steps(1), steps(2, 3)]);
});

folderTest("only full folders count, and only those of a run are removed", async (directory) => {
  const unfinished = `.${stepName(3)}-${crypto.randomUUID()}`;
  for (const name of [stepName(7), unfinished, "step-mine"]) Deno.mkdirSync(join(directory, name));
  await run({ directory }, 1);
  await Deno.writeTextFile(join(directory, stepName(7), "model.safetensors"), "torn");
  await assert.rejects(run({ directory, overwrite: false }, 1), /received one of step 7;/);
  await Deno.writeTextFile(join(directory, "notes"), "mine");
  await run({ directory, overwrite: true }, 1);
  assert.deepEqual(await namesIn(directory), ["notes", ...steps(1), "step-mine"]);
});
