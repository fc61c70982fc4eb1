/** `deno task troupe export --format hf`: a folder that transformers reads. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { exportCommand } from "../../../console/mod.ts";
import { readSafetensors } from "../../../kernels/mod.ts";
import { inFolder, runTroupe, TINY, trainJson } from "../command.ts";

const context = { begin: () => {} };

Deno.test("a run is exported whole or not at all, and never over anything", () =>
  inFolder(async (folder) => {
    const run = join(folder, "run"), out = join(folder, "out");
    await trainJson([...TINY, "--steps", "1", "--out", run]);
    const done = await runTroupe(["export", run, "--format", "hf", "--out", out]);
    assert.deepEqual([done.code, done.stderr], [0, ""]);
    const { tensors, metadata } = await readSafetensors(join(out, "model.safetensors"));
    assert.deepEqual(metadata, { format: "pt" });
    assert.deepEqual(tensors.get("transformer.h.0.mlp.c_proj.weight")!.shape, [64, 16]);
    const refusals: readonly [string[], RegExp][] = [
      [[run, "--format", "hf", "--out", out], /must be a folder that is not there yet/],
      [[run, "--format", "hf"], /--out must name a new folder, received none$/],
      [[run, "--out", join(folder, "b")], /--format must be one of hf.*, received none$/],
      [["--format", "hf", "--out", join(folder, "b")], /number of runs must be 1, received 0$/],
      [
        [join(folder, "none"), "--format", "hf", "--out", join(folder, "b")],
        /RUN must hold a checkpoint/,
      ],
    ];
    const before = { begin: () => assert.fail("bad input must not begin anything") };
    for (const [args, message] of refusals) {
      await assert.rejects(exportCommand(args, before), { message });
    }
    assert.deepEqual([...Deno.readDirSync(folder)].map(({ name }) => name).sort(), ["out", "run"]);
    await exportCommand(
      [run, "--format", "hf", "--dtype", "bf16", "--out", join(folder, "b")],
      context,
    );
  }));
