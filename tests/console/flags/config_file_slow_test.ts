/** `--config`: flags of a user's file count as typed, those of a checkpoint are untrusted data. */

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { readTrainFlags } from "../../../console/train/request.ts";
import { folderTest } from "../../in_folder.ts";
import {
  bitsOf,
  jsonLines,
  printedHere,
  refusal,
  refusedHere,
  refuses,
  someTokens,
  TINY,
  trainHere,
  words,
  writeTokens,
} from "../command.ts";
import { forgeConfig } from "../forged.ts";
import { assertRefusals } from "../refusals.ts";

/** The same flags in each notation. */
const FILES: Readonly<Record<string, string>> = {
  "run.json": '{ "layers": 2, "learning_rate": 0.01, "tie": true, "memory-limit": "1.5GiB" }',
  "run.jsonc": `{
    // a model of two blocks
    "n_layer": 2, "lr": 1e-2, /* as text, too */ "tie": true, "memory_limit": "1.5GiB",
  }`,
  "run.toml": `# a model of two blocks
n_layer = 2
lr = 1e-2
tie = true
json = false
memory_limit = "1.5GiB"
`,
  "edited.toml": '\uFEFFlayers = 2\r\nlr = 0.01\r\ntie = true\r\nmemory_limit = "1.5GiB"\r\n',
};

folderTest("JSON, JSONC and TOML give the same flags, and typed ones win", async (folder) => {
  for (const [name, text] of Object.entries(FILES)) {
    const path = join(folder, name);
    await Deno.writeTextFile(path, text);
    const { flags } = await readTrainFlags(["--config", path]);
    const { layers, lr, tie, json, "memory-limit": limit } = flags;
    assert.deepEqual([layers, lr, tie, json], [2, 0.01, true, undefined], name);
    assert.equal(limit, 1.5 * 2 ** 30);
    const typed = ["--n_layer", "3", "--config", path, "--no-tie"];
    const { flags: mixed } = await readTrainFlags(typed);
    assert.deepEqual([mixed.layers, mixed.lr, mixed.tie], [3, 0.01, undefined], name);
  }
});

folderTest("a typed flag replaces flags of a file that exclude it", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(200)), lists = join(folder, "mine.csv");
  const config = join(folder, "run.toml");
  await Deno.writeTextFile(lists, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  await Deno.writeTextFile(config, 'schedule = "gpipe"\nworkers = 3\ntext = "none.txt"\n');
  const args = ["--config", config, "--schedule-file", lists, "--tokens", tokens];
  const { flags, schedule } = await readTrainFlags(args);
  assert.deepEqual([schedule.name, schedule.workers, flags.text], ["mine", 2, undefined]);
  await Deno.writeTextFile(config, 'adapters = "0,1"\ndevice = "webgpu"\n');
  const typed = async (...more: string[]) =>
    (await readTrainFlags(["--config", config, ...more])).flags;
  assert.equal((await typed("--device", "native")).adapters, undefined);
  assert.equal((await typed("--adapters", "1")).device, "auto");
  assert.deepEqual((await typed()).adapters, [0, 1]);
  await Deno.writeTextFile(config, 'runtime = "mpi"\nmap = "0,0"\n');
  assert.equal((await typed("--runtime", "local")).runtime, "local");
});

folderTest("the flags of a file are checked as if they were typed", async (folder) => {
  // Each command is the name of a file and the JSON of its text.
  await assertRefusals("config_files", async ([name = "", ...json]) => {
    const path = join(folder, name);
    await Deno.writeTextFile(path, JSON.parse(json.join(" ")));
    return await refusal(["--config", path]);
  }, { FOLDER: folder });
  using huge = await Deno.create(join(folder, "huge.toml"));
  await huge.truncate(20 * 2 ** 30);
  await assertRefusals("config_paths", (path) => refusal(["--config", ...path]), {
    FOLDER: folder,
  });
});

folderTest("the configuration of a checkpoint gives the same run again", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(3000));
  const run = words`${TINY} --schedule 1f1b --runtime local --emulate-link 1,50 --clip 1 --tie
    --lr 0.01 --steps 3 --seed 5 --tokens ${tokens} --trace ${join(folder, "trace.json")}
    --trace-steps 2 --journal-full stop --journal ${join(folder, "journal")}`;
  const { lines, last } = await trainHere([...run, "--out", join(folder, "run")]);
  const config = join(String(last.checkpoint), "config.json");
  const args = ["--config", config, "--tokens", tokens];
  const again = await printedHere("train", ...args, "--json");
  assert.deepEqual(bitsOf(jsonLines(again)), bitsOf(lines));
  const { flags, out } = await readTrainFlags(args);
  const { "emulate-link": link, schedule, runtime } = flags;
  assert.deepEqual([link?.latencyUs, schedule, runtime, out], [1, "1f1b", "local", undefined]);

  const unnamed = await refusal(["--config", config]);
  assert.ok(unnamed.endsWith(`type: deno task train --config ${config} --tokens ${tokens}`));
  const other = await writeTokens(folder, someTokens(2999), "other.bin");
  const sameFile =
    /^Cannot repeat the run of .* must name the file that its run read, with SHA-256 [0-9a-f]{64}/;
  await refuses(["--config", config, "--tokens", other], sameFile);
  const weights = join(dirname(config), "model.safetensors");
  const begun = await trainHere([...run, "--weights", weights, "--out", join(folder, "begun")]);
  const weighted = join(String(begun.last.checkpoint), "config.json");
  const weightsFile =
    /--weights must name the file that its run read, .* --weights \S+model.safetensors$/;
  await refuses(["--config", weighted, "--tokens", tokens], weightsFile);
});

folderTest("a repeated run that drains its pipeline must name a folder", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(3000));
  const how = ["--schedule", "pipedream", "--checkpoint-every", "1", "--steps", "3"];
  const run = [...TINY, ...how, "--tokens", tokens, "--out", join(folder, "run")];
  const { lines, last } = await trainHere(run);
  const args = ["--config", join(String(last.checkpoint), "config.json"), "--tokens", tokens];
  await refuses(args, /--out must say where its checkpoints go, .* received none$/);
  const again = await trainHere([...args, "--out", join(folder, "again")]);
  assert.deepEqual(bitsOf(again.lines), bitsOf(lines));
});

folderTest("an untrusted checkpoint names no file to open or to write", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(200)), victim = join(folder, "victim");
  const run = [...TINY, "--steps", "1", "--runtime", "serial", "--out", join(folder, "run")];
  const { last } = await trainHere([...run, "--tokens", tokens]);
  const step = String(last.checkpoint), config = join(step, "config.json");
  const honest = await Deno.readTextFile(config);
  const no = /config of a checkpoint must name no file or folder, received --/;
  const refuse = () => refuses(["--config", config, "--tokens", tokens], no);
  for (const path of ["journal", "out", "weights", "resume", "text", "output_dir"]) {
    const named = { [path]: victim };
    await Deno.writeTextFile(config, honest);
    await forgeConfig(step, (forged) => Object.assign(forged.flags, named));
    await refuse();
    await forgeConfig(step, (forged) => void ([forged.run, forged.flags] = [forged.flags, {}]));
    await refuse();
    // Not even if it looks like a user's file, next to the manifest of a checkpoint.
    await Deno.writeTextFile(config, JSON.stringify(named));
    await refuse();
  }
  await assert.rejects(Deno.stat(victim), Deno.errors.NotFound);
});

folderTest("a journal of a run with a file of flags replays without it", async (folder) => {
  const config = join(folder, "run.toml"), journal = join(folder, "run.jsonl");
  const text = join(folder, "text.txt");
  await Deno.writeTextFile(text, "It was the best of times, it was the worst of times. ".repeat(9));
  await Deno.writeTextFile(config, `text = ${JSON.stringify(text)}\nlr = 0.5\nsteps = 2\n`);
  const { last } = await trainHere([...TINY, "--config", config, "--journal", journal]);
  await Deno.remove(config);
  await refusedHere(["replay", journal], /--text must name the file that the run read/);
  const said = await printedHere("replay", journal, "--text", text);
  assert.ok(said.includes(String(last.weightsHash)), said);
});
