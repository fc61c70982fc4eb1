/** A run is a folder: its own, told from others, and gone on with only where that was asked. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/mod.ts";
import { makeRunFolder, nextRunFolder } from "../../../console/run_files/run_folder.ts";
import { readRecord } from "../../../console/run_files/read_record.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import {
  ENVIRONMENT,
  inFolder,
  refusal,
  ROOT,
  runTrain,
  savedIn,
  someTokens,
  TINY,
  trainJson,
  writeTokens,
} from "../command.ts";

/** A run on tokens, but for where it goes and how far. */
const trainIn = async (folder: string) => [
  ...TINY,
  ...["--tokens", await writeTokens(folder, someTokens(1000)), "--runtime", "local"],
];

/** Runs the command in a folder. */
async function trainFrom(cwd: string, args: readonly string[]) {
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", join(ROOT, "cli.ts"), "train", ...args],
    cwd,
    env: ENVIRONMENT,
  }).output();
  assert.equal(code, 0, new TextDecoder().decode(stderr));
}

folderTest("runs that are told of no folder get one each, also at once", async (folder) => {
  const train = [...await trainIn(folder), "--steps", "1"];
  await Promise.all([trainFrom(folder, train), trainFrom(folder, train)]);
  assert.deepEqual(await namesIn(join(folder, "runs")), ["gpt-1", "gpt-2"]);
  for (const name of ["gpt-1", "gpt-2"]) {
    const run = join(folder, "runs", name);
    assert.equal((await readCheckpoint(run))!.step, 1);
    assert.equal(readRecord(run)!.end!.reason, "finished");
  }
  await trainFrom(folder, [...train, "--json"]);
  assert.deepEqual(await namesIn(join(folder, "runs")), ["gpt-1", "gpt-2"], "nothing with --json");
});

folderTest("whoever makes folders at the same time has folders of its own", async (folder) => {
  const count = 50, parent = join(folder, "runs");
  const made = await Promise.all(Array.from({ length: 3 }, async () => {
    const worker = new Worker(new URL("./folders_entry.ts", import.meta.url), { type: "module" });
    const { promise, resolve, reject } = Promise.withResolvers<string[]>();
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => reject(new Error(message));
    worker.postMessage({ parent, count });
    return await promise.finally(() => worker.terminate());
  }));
  assert.equal(new Set(made.flat()).size, 3 * count);
});

folderTest("a refused run leaves no folder, and no number is used twice", async (folder) => {
  const runs = join(folder, "runs");
  {
    using first = makeRunFolder("gpt", runs);
    assert.equal(first.path, join(runs, "gpt-1"));
    await Deno.writeTextFile(join(first.path, "mine"), "");
    using _second = makeRunFolder("gpt", runs);
    await Deno.mkdir(join(runs, "gpt-41"));
  }
  assert.deepEqual(await namesIn(runs), ["gpt-1", "gpt-41"]);
  assert.equal(nextRunFolder("gpt", runs), join(runs, "gpt-42"));
  assert.equal(nextRunFolder("../../etc", runs), join(runs, "etc-1"));
  assert.equal(nextRunFolder("/", runs), join(runs, "run-1"));
  await Deno.writeTextFile(join(folder, "file"), "");
  assert.throws(
    () => makeRunFolder("gpt", join(folder, "file")),
    /^RangeError: Cannot begin a run: .*file must be a folder that can be written, .*Not a dir/,
  );
});

folderTest(
  "a folder with checkpoints is refused, and gone on with or overwritten",
  async (folder) => {
    const out = join(folder, "out"), train = [...await trainIn(folder), "--out", out];
    const every = ["--checkpoint-every", "1"];
    const first = await trainJson([...train, "--steps", "2", ...every]);
    await Deno.writeTextFile(join(out, "notes.txt"), "mine");
    assert.match(
      await refusal([...train, "--steps", "3"]),
      /^Cannot write checkpoints to \S+: it must hold none of another run, received one of step 2; go on from it with --resume \S+, remove what is there with --overwrite \(.*\), or name another folder$/,
    );
    const { code } = await runTrain([...train, "--steps", "3"]);
    assert.equal(code, 2);

    await trainJson([...train, "--steps", "3", "--resume", out, ...every]);
    assert.deepEqual(await savedIn(out), [
      ...["notes.txt", "step-00000001", "step-00000002", "step-00000003"],
    ]);
    assert.equal(readRecord(out)!.starts.length, 2);

    // From an earlier step there would be two runs side by side.
    const back = [...train, "--steps", "3", "--resume", join(out, "step-00000001")];
    assert.match(
      await refusal(back),
      /^Cannot resume from \S+: it must be the newest checkpoint of its folder, received one before step 3; name another folder with --out, or remove the later ones with --overwrite$/,
    );
    await trainJson([...back, "--steps", "2", "--overwrite"]);
    assert.deepEqual(await savedIn(out), ["notes.txt", "step-00000001", "step-00000002"]);

    const again = await trainJson([...train, "--steps", "2", "--overwrite"]);
    assert.equal(again.last.weightsHash, first.last.weightsHash);
    assert.deepEqual(await savedIn(out), ["notes.txt", "step-00000002"]);
    assert.equal(readRecord(out)!.starts.length, 1);
    assert.equal(await Deno.readTextFile(join(out, "notes.txt")), "mine");
  },
);

folderTest("what goes on from another folder begins a fresh one", async (folder) => {
  const [from, to] = [join(folder, "from"), join(folder, "to")], train = await trainIn(folder);
  await trainJson([...train, "--steps", "1", "--out", from]);
  const on = [...train, "--steps", "2", "--resume", from, "--out", to];
  await trainJson(on);
  const [start] = readRecord(to)!.starts;
  assert.deepEqual([start!.afterStep, start!.from], [1, join(from, "step-00000001")]);
  assert.deepEqual(await savedIn(from), ["step-00000001"]);
  assert.match(
    await refusal(on),
    /^Cannot write checkpoints to \S+to: it must hold none of another/,
  );
  // The same folder by another name is the same folder.
  await Deno.symlink(to, join(folder, "link"));
  const { last } = await trainJson([
    ...[...train, "--steps", "3", "--resume", join(folder, "link"), "--out", to],
  ]);
  assert.equal(last.steps, 3);
});

Deno.test("an empty folder, and a run that was started and left no checkpoint, are begun", () =>
  inFolder(async (out) => {
    const folder = await Deno.makeTempDir();
    try {
      const train = [...await trainIn(folder), "--out", out, "--steps", "1"];
      const failed = await runTrain([...train, "--lr", "1e300"]);
      assert.equal(failed.code, 1, failed.stderr);
      assert.deepEqual(await savedIn(out), []);
      assert.equal(readRecord(out)!.end, undefined);
      await trainJson(train);
      assert.deepEqual(await savedIn(out), ["step-00000001"]);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  }));
