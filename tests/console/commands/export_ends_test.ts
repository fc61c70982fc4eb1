/** An export that is cut short leaves nothing under its name: a full disk, Ctrl-C, `kill -9`. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { delay } from "@std/async/delay";
import { readGpt2Config, readWeights, writeGpt2Folder } from "../../../actors/mod.ts";
import { gpt2Parameters } from "../../../kernels/mod.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { inFolder, ROOT, runTroupe, TINY } from "../command.ts";
import { Running, TRAIN } from "../running.ts";

/** A model of 30 MB. */
const CONFIG = { layers: 1, hidden: 256, heads: 2, seq: 8, vocab: 13_000, tie: false };

async function writeModel(path: string): Promise<void> {
  const weights = new Map(
    gpt2Parameters(CONFIG).map(({ name, shape }) => [
      name,
      new Float32Array(shape.reduce((a, b) => a * b)).fill(0.5),
    ]),
  );
  await writeGpt2Folder(path, { config: CONFIG, weights });
}

/** What is in a folder but for the model. */
const leftIn = (folder: string): string[] =>
  Array.from(Deno.readDirSync(folder), ({ name }) => name).filter((name) => name !== "model");

const exportOf = (folder: string) => [
  ...["export", join(folder, "model"), "--format", "hf", "--out", join(folder, "out")],
];

Deno.test({
  name: "a full disk ends an export with code 1 and one sentence, and leaves nothing",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder(async (folder) => {
      await writeModel(join(folder, "model"));
      // No file may grow beyond 4 MiB; the signal that tells so by default is ignored.
      const limited = `trap '' XFSZ; ulimit -f 8192; exec "$0" run -A cli.ts "$@"`;
      const { code, stdout, stderr } = await new Deno.Command("sh", {
        args: ["-c", limited, Deno.execPath(), ...exportOf(folder)],
        cwd: ROOT,
        signal: AbortSignal.timeout(HANG_LIMIT_MS),
      }).output();
      const [out, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
      assert.deepEqual([code, out], [1, ""], errors);
      assert.match(
        errors!,
        /^Cannot write .*out: its disk must have room .*, received File too large .*; nothing is left there\n$/,
      );
      assert.deepEqual(leftIn(folder), []);
    }),
});

Deno.test({
  name: "Ctrl-C ends an export with code 130 and leaves nothing; after kill -9 it is made anew",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder(async (folder) => {
      await writeModel(join(folder, "model"));
      for (const signal of ["SIGINT", "SIGKILL"] as const) {
        const command = new Running(["run", "-A", "cli.ts", ...exportOf(folder)]);
        while (leftIn(folder).length === 0) await delay(1);
        command.interrupt("process", signal);
        const { code, stdout } = await command.end();
        if (code === 0) await Deno.remove(join(folder, "out"), { recursive: true }); // it was faster
        else assert.deepEqual([code, stdout], [signal === "SIGINT" ? 130 : 137, ""]);
        if (signal === "SIGINT") assert.deepEqual(leftIn(folder), []);
        assert.ok(!leftIn(folder).includes("out"), "half of it under its name");
      }
      const { code, stderr } = await runTroupe(exportOf(folder));
      assert.equal(code, 0, stderr);
      const out = join(folder, "out");
      assert.deepEqual(readGpt2Config(out), CONFIG);
      assert.equal((await readWeights(out, gpt2Parameters(CONFIG))).size, 17);
    }),
});

Deno.test("a run is exported while it goes on and removes its older checkpoints", () =>
  inFolder(async (folder) => {
    const run = join(folder, "run");
    const every = ["--checkpoint-every", "5", "--keep", "1", "--steps", "100000"];
    const training = new Running([...TRAIN, ...TINY, ...every, "--json", "--out", run]);
    try {
      await training.printed("stdout", /"step":6,/);
      for (const name of ["a", "b", "c"]) {
        const { code, stderr } = await runTroupe([
          ...["export", run, "--format", "hf", "--out", join(folder, name)],
        ]);
        assert.equal(code, 0, stderr);
        assert.equal(readGpt2Config(join(folder, name)).hidden, 16);
      }
    } finally {
      training.interrupt("process");
      assert.equal((await training.end()).code, 130);
    }
  }));
