/** The command `train` on ranks: its output, its journal and its checkpoints. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { bitsOf, jsonLines, printedHere, trainHere } from "../../../console/command.ts";
import { inFolder, namesIn } from "../../../in_folder.ts";
import { mpiTest, RANK_TRAIN, runCommand, runJob, TRAIN } from "./launchers.ts";

mpiTest(
  "rank 0 alone prints, and its journal replays without ranks",
  (launcher) =>
    inFolder(async (folder) => {
      const journal = join(folder, "journal.jsonl"), out = ["--out", join(folder, "out")];
      const args = RANK_TRAIN.filter((arg) => arg !== "--json");
      const more = ["--schedule", "chimera", ...out, "--journal", journal, "--journal-messages"];
      const output = await runJob(launcher, [2, ...args, ...more]);
      assert.equal(output.code, 0, output.stderr);
      const lines = output.stdout.trimEnd().split("\n"), done = JSON.parse(lines.at(-1)!);
      assert.deepEqual([done.done, done.runtime], [true, "mpi"]);
      assert.equal(lines.filter((line) => line.startsWith("schedule chimera")).length, 1);
      const replayed = await printedHere("replay", journal);
      assert.match(replayed, /^\d{3} steps as recorded, hash [0-9a-f]{16}$/m);
      assert.ok(replayed.includes(`"weightsHash":"${done.weightsHash}"`), replayed);
    }),
);

mpiTest(
  "ranks without a folder in common are refused, unless rank 0 gathers",
  ({ command, args }) =>
    inFolder(async (folder) => {
      const folders = ["one", "two"].map((name) => join(folder, name)) as [string, string];
      for (const one of folders) await Deno.mkdir(one);
      // Each rank has another working directory, so that a path means another file in each.
      const rank = [Deno.execPath(), ...RANK_TRAIN, "--out", "/proc/self/cwd/out"];
      const run = (...flags: string[]) => {
        const [one, two] = folders.map((folder) => ["-n", "1", "-wdir", folder, ...rank, ...flags]);
        return runCommand([command, ...args, ...one!, ":", ...two!]);
      };
      const refused = await run();
      assert.equal(refused.code, 2, refused.stderr);
      assert.equal(refused.stdout, "");
      assert.match(
        refused.stderr,
        /every rank must see the files of rank 0.*received on rank 1.*--gather/,
      );
      assert.equal(refused.stderr.match(/^Cannot/gm)?.length, 1, refused.stderr);
      assert.deepEqual(await namesIn(folders[0]), [], "nothing was trained");

      const gathered = await run("--gather");
      assert.equal(gathered.code, 0, gathered.stderr);
      assert.deepEqual(bitsOf(jsonLines(gathered.stdout)), bitsOf((await trainHere(TRAIN)).lines));
      const [saved] = (await namesIn(join(folders[0], "out"))).filter((name) => /^step/.test(name));
      assert.ok((await namesIn(join(folders[0], "out", saved!))).includes("model.safetensors"));
      assert.deepEqual(await namesIn(folders[1]), []);
    }),
);
