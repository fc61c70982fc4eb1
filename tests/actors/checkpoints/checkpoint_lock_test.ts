import assert from "node:assert/strict";
import { join } from "node:path";
import { lockFolder } from "../../../actors/checkpoints/checkpoint_lock.ts";
import { inFolder } from "../../console/command.ts";

const namesIn = (folder: string) => [...Deno.readDirSync(folder)].map(({ name }) => name).sort();

/** Tests with files, without an await. */
const test = (name: string, fn: (folder: string) => void) =>
  Deno.test(name, () => inFolder((folder) => Promise.resolve(fn(folder))));

test("a folder that is locked is refused by the name of its holder, and free afterwards", (folder) => {
  for (let round = 0; round < 2; round++) {
    using _lock = lockFolder(folder);
    const holder = `pid ${Deno.pid} on ${Deno.hostname()}`;
    assert.equal(Deno.readTextFileSync(join(folder, ".lock")), `${holder}\n`);
    assert.throws(() => lockFolder(folder), {
      name: "RangeError",
      message:
        `Cannot write checkpoints to ${folder}: it must not be in use by another run, received ` +
        `${holder}; wait for its end, or name another folder`,
    });
  }
  assert.deepEqual(namesIn(folder), []);
});

test("folders made for a lock are removed as far as they are empty at its end", (folder) => {
  const out = join(folder, "a/b/c");
  lockFolder(out)[Symbol.dispose]();
  assert.deepEqual(namesIn(folder), []);
  const lock = lockFolder(out);
  Deno.mkdirSync(join(folder, "a/other"));
  lock[Symbol.dispose]();
  assert.deepEqual(namesIn(join(folder, "a")), ["other"]);
});

Deno.test({
  name: "each folder that is made for a lock is made durable in the one above it",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder((folder) => {
      const { syncSync } = Deno.FsFile.prototype, synced: (number | null)[] = [];
      Deno.FsFile.prototype.syncSync = function () {
        synced.push(this.statSync().ino);
        syncSync.call(this);
      };
      try {
        using _lock = lockFolder(join(folder, "a/b"));
        const above = [folder, join(folder, "a")].map((path) => Deno.statSync(path).ino);
        assert.deepEqual(synced, above);
      } finally {
        Deno.FsFile.prototype.syncSync = syncSync;
      }
      return Promise.resolve();
    }),
});

test("what a dead run has left in the file is written over", (folder) => {
  Deno.writeTextFileSync(join(folder, ".lock"), "pid 1 on a-host-with-a-long-name\n".repeat(9));
  using _lock = lockFolder(folder);
  assert.match(Deno.readTextFileSync(join(folder, ".lock")), /^pid \d+ on [^\n]+\n$/);
});

test("a file that says something else is not repeated", (folder) => {
  for (const text of ["", "\x1b[31mpid 7", "pid 7 on x; rm -rf /\n", "pid 7 on x\npid 8 on y\n"]) {
    Deno.writeTextFileSync(join(folder, ".lock"), text);
    using file = Deno.openSync(join(folder, ".lock"));
    file.lockSync(true);
    assert.throws(() => lockFolder(folder), /received one that has not said who it is; wait/);
  }
});

Deno.test({
  name: "what is no file is neither written to nor waited for",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder(async (folder) => {
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
    }),
});

test("a folder that has made way for a file is no error, and the file stays", (folder) => {
  const out = join(folder, "out"), lock = lockFolder(out);
  Deno.removeSync(out, { recursive: true });
  Deno.writeTextFileSync(out, "");
  lock[Symbol.dispose]();
  assert.deepEqual(namesIn(folder), ["out"]);
});

test("a run that was not the holder any more leaves the next one's file alone", (folder) => {
  const first = lockFolder(folder);
  Deno.removeSync(join(folder, ".lock")); // as someone may who tidies up
  const second = lockFolder(folder), text = Deno.readTextFileSync(join(folder, ".lock"));
  first[Symbol.dispose]();
  assert.equal(Deno.readTextFileSync(join(folder, ".lock")), text);
  second[Symbol.dispose]();
});
