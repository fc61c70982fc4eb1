/** `--resume`: a resumed run has the same bits, and inherits only some flags. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { readTrainFlags } from "../../../console/train/request.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import {
  bitsOf,
  inFolder,
  jsonLines,
  readJson,
  refusal,
  refusalHere,
  refuses,
  runHere,
  savedIn,
  someTokens,
  TINY,
  TINY_MODEL,
  trainHere,
  words,
  writeTokens,
} from "../command.ts";
import { copyFolder, forgeConfig, forgeTensors } from "../forged.ts";
import { assertRefusals, assertSentences } from "../refusals.ts";

const HOW = words`--device reference --runtime serial`;

/** The kinds of data: tokens in order, a text that is shuffled in each epoch, or its documents. */
for (const kind of ["tokens", "text", "documents"]) {
  folderTest(`3 steps on ${kind}, resumed to 6 elsewhere, have the bits of 6`, async (folder) => {
    const [whole, on, text] = ["whole", "on", "text.txt"].map((name) => join(folder, name));
    const last = kind === "documents" ? "\n\n" : " ";
    await Deno.writeTextFile(text!, `In the beginning was the word.${last}`.repeat(8));
    const [data, rate] = kind === "tokens"
      ? [["--tokens", await writeTokens(folder, someTokens(200))], "--warmup 2 --lr 0.01"]
      : kind === "text"
      ? [["--text", text!], "--lr_scheduler_type linear --min_lr 1e-4 --warmup 2"]
      : [["--text", text!], "--lengths true --group-by-length --lr 0.01"];
    const train = words`${TINY} ${data} ${rate.split(" ")} --steps 6 --checkpoint-every 3`;
    const { lines } = await trainHere(words`${train} --out ${whole!}`);
    const elsewhere = kind === "tokens"
      ? words`--workers 3 --schedule gpipe --layout E|.5|.5,H --device reference`
      : words`--workers 2 --chunks 2 --activation-limit 4 --weight-backlog all --device reference`;
    const from = words`--resume ${join(whole!, "step-00000003")} --out ${on!} --steps 6 ${data}`;
    const resumed = await trainHere([...from, ...elsewhere]);
    assert.deepEqual(bitsOf(resumed.lines), bitsOf(lines, 4));
    for (const file of ["model.safetensors", "optimizer.safetensors"]) {
      const paths = [on!, whole!].map((run) => join(run, "step-00000006", file));
      const [one, other] = await Promise.all(paths.map((path) => Deno.readFile(path)));
      assert.deepEqual(one, other, file);
    }
  });
}

/** Trains successfully; returns the lines and standard error. */
async function trainSaying(args: readonly string[]) {
  const { code, stdout, stderr } = await runHere(["train", ...args, "--json"]);
  assert.equal(code, 0, stderr);
  return { lines: jsonLines(stdout), stderr };
}

folderTest("an empty folder starts at step 1, and a missing one is refused", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(100)), begun = join(folder, "gpt-1");
  const empty = join(folder, "empty");
  for (const path of [empty, begun]) await Deno.mkdir(path);
  await Deno.writeTextFile(join(begun, "metrics.jsonl"), "");
  const places = { FOLDER: folder }, names = await namesIn(folder);
  const refuse = (words: string[]) => refusal([...TINY, "--steps", "1", ...words]);
  await assertRefusals("missing_runs", refuse, places);
  assert.deepEqual(await namesIn(folder), names);
  await Deno.remove(join(begun, "metrics.jsonl"));
  for (const path of [empty, begun]) {
    const train = words`${TINY} --runtime serial --tokens ${tokens} --steps 1 --resume ${path}`;
    const { lines, stderr } = await trainSaying(train), { checkpoint } = lines.at(-1)!;
    assert.equal(stderr, `There is no checkpoint in ${path}: starting at step 1.\n`);
    assert.deepEqual([lines[0]!.step, checkpoint], [1, join(path, "step-00000001")]);
  }
});

folderTest("--resume overrides --weights, and ends if all steps are done", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(100)), step = join(folder, "step-00000001");
  const run = await trainHere(words`${TINY} --tokens ${tokens} --steps 1 --out ${folder}`);
  const resume = words`${HOW} --resume ${folder} --tokens ${tokens}`;
  const again = await trainHere(words`${resume} --steps 1`);
  const { steps, weightsHash, checkpoint } = again.last;
  assert.deepEqual([again.lines.length, steps, weightsHash], [1, 1, run.last.weightsHash]);
  assert.equal(basename(checkpoint as string), basename(step));
  const weights = join(folder, "none.safetensors");
  const { lines, stderr } = await trainSaying(words`${resume} --steps 2 --weights ${weights}`);
  assert.equal(stderr, `Resuming from ${step}, after step 1.\n`);
  assert.deepEqual(lines.map(({ step }) => step), [2, undefined]);
});

folderTest("a damaged checkpoint is reported, and the newest whole one is used", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(100)), out = join(folder, "out");
  const train = words`${TINY} --tokens ${tokens} --out ${out} --checkpoint-every 1 --steps 3`;
  const whole = await trainHere(train), torn = join(out, "step-00000003");
  const half = join(out, `.step-00000004-${crypto.randomUUID()}`);
  await Deno.truncate(join(torn, "optimizer.safetensors"), 1000);
  await Deno.mkdir(half);
  const resume = words`${HOW} --resume ${out} --steps 3 --keep 2 --tokens ${tokens}`;
  const { lines, stderr } = await trainSaying(resume);
  assert.equal(
    stderr.replace(/must have the hash .*;/, "...").replaceAll("Cannot read the checkpoint ", ""),
    `${half}: it must have been written to its end, received a part; it is passed over
${torn}: optimizer.safetensors ... it is passed over
Resuming from ${join(out, "step-00000002")}, after step 2.\n`,
  );
  assert.deepEqual(bitsOf(lines), bitsOf(whole.lines, 3));
  assert.deepEqual(await savedIn(out), ["step-00000002", "step-00000003"]);
});

folderTest("a checkpoint of another model, of more steps or damaged is refused", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(100)), run = join(folder, "run");
  await trainHere([...TINY, "--tokens", tokens, "--steps", "2", "--out", run]);
  const step = join(run, "step-00000002"), resume = [...HOW, "--resume", run, "--tokens", tokens];
  const refuse = (words: string[]) => refusal([...resume, ...words]);
  await assertRefusals("resume", refuse, { FOLDER: folder });
  await Deno.remove(join(step, "manifest.json"));
  const torn = /manifest.json: a whole checkpoint must have this file, received no such file/;
  await refuses(resume, torn);
  await refuses([...HOW, "--resume", step], torn);
});

folderTest("other data replaces built-in data, and must be named on resume", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(100));
  await trainHere([...TINY, "--data", "moby-dick", "--steps", "1", "--out", folder]);
  await trainHere([...HOW, "--resume", folder, "--steps", "2"]);
  await trainHere([...HOW, "--resume", folder, "--steps", "3", "--tokens", tokens]);
  const { flags, files } = await readJson(folder, "step-00000003", "config.json");
  const { text, tokens: kept } = flags;
  assert.deepEqual([text, kept, Object.keys(files)], [undefined, undefined, ["tokens"]]);
  await refuses([...HOW, "--resume", folder, "--steps", "4"], /--tokens must name/);
});

/** A run of two steps, with a function that resumes from a changed copy of its checkpoint. */
interface Run {
  readonly folder: string;
  readonly tokens: string;
  readonly step: string;
  /** Copies the checkpoint and changes the copy; returns the arguments that resume from it. */
  resume(change: (step: string) => Promise<void>): Promise<string[]>;
}

/** Registers a test with the run, which trains once. */
function runTest(name: string, fn: (run: Run) => Promise<void>): void {
  Deno.test(name, () =>
    inFolder(async (folder) => {
      const tokens = await writeTokens(folder, someTokens(200)), out = join(folder, "run");
      await trainHere([...TINY, ...HOW, "--tokens", tokens, "--steps", "2", "--out", out]);
      const step = join(out, "step-00000002");
      let copies = 0;
      const resume = async (change: (step: string) => Promise<void>) => {
        const copy = await copyFolder(step, join(folder, `copy-${copies++}`, basename(step)));
        await change(copy);
        return [...HOW, "--resume", copy, "--steps", "3", "--tokens", tokens];
      };
      await fn({ folder, tokens, step, resume });
    }));
}

runTest("paths and flags of how a run executes are not inherited", async ({ folder, resume }) => {
  const victim = join(folder, "victim"), elsewhere = join(folder, "elsewhere");
  await Deno.writeTextFile(victim, "mine");
  const honest = await trainHere(await resume(() => Promise.resolve()));
  const args = await resume((step) =>
    forgeConfig(step, ({ flags }) =>
      Object.assign(flags, {
        ...{ journal: victim, out: elsewhere, weights: victim, resume: elsewhere, keep: 1 },
        ...{ "schedule": "nonesuch", "steps": 1, "memory-limit": 1, "journal-messages": true },
      }))
  );
  const { lines, stderr } = await trainSaying(args);
  assert.deepEqual(bitsOf(lines), bitsOf(honest.lines));
  assert.match(stderr, /passed over: journal, out, weights, resume, keep$/m);
  assert.equal(await Deno.readTextFile(victim), "mine");
  await assert.rejects(Deno.stat(elsewhere), Deno.errors.NotFound);
});

runTest("dropout is inherited, and is 0 by default", async ({ folder, tokens, step }) => {
  assert.equal((await readJson(step, "config.json")).flags.dropout, undefined);
  const out = join(folder, "dropping"), run = words`${TINY} ${HOW} --tokens ${tokens} --steps 3`;
  const dropping = words`${run} --resid_pdrop 0.5 --out ${out} --checkpoint-every 2`;
  const { lines: whole } = await trainHere(dropping);
  const from = ["--resume", join(out, "step-00000002"), "--out", join(folder, "on")];
  const { lines: resumed } = await trainHere(words`${HOW} ${from} --tokens ${tokens} --steps 3`);
  assert.deepEqual(bitsOf(resumed), bitsOf(whole, 3));
  assert.notDeepEqual(bitsOf((await trainHere(run)).lines), bitsOf(whole));
});

runTest("--no-FLAG takes back a switch, unless it is the model's", async ({ folder, resume }) => {
  const args = await resume((step) =>
    forgeConfig(step, ({ flags }) => Object.assign(flags, { "drop-last": true, tie: true }))
  );
  const config = join(folder, "back.toml");
  await Deno.writeTextFile(config, "drop-last = false\n");
  const dropsLast = async (...more: string[]) =>
    (await readTrainFlags([...args, ...more])).flags["drop-last"];
  assert.equal(await dropsLast(), true);
  assert.equal(await dropsLast("--no-drop-last"), undefined);
  assert.equal(await dropsLast("--config", config), undefined);
  assert.equal(await dropsLast("--config", config, "--drop-last"), true);
  const untied = /--tie must be true, as in this checkpoint, received false$/;
  await refuses([...args, "--no-tie"], untied);
});

runTest("inherited flags are checked as if they were typed", async ({ resume }) => {
  // Each command is a name and the JSON of its value.
  await assertRefusals("inherited_flags", async ([name = "", ...json]) => {
    const args = await resume((step) =>
      forgeConfig(step, (config) => {
        config.flags[name] = JSON.parse(json.join(" "));
        if (name === "data") delete config.files;
      })
    );
    const given = name === "data" ? args.slice(0, -2) : args;
    return (await refusal(given)).replace(/\S*copy-[^:]*/, "STEP");
  });
  for (const flags of [7, "lr", [1]]) {
    const args = await resume((step) => forgeConfig(step, (config) => void (config.flags = flags)));
    await refuses(args, /^Cannot use the flags of /);
  }
});

runTest("a user's file must be named again, with the same bytes", async (run) => {
  const { folder, tokens, step, resume } = run;
  const unnamed = [...HOW, "--resume", step, "--steps", "3"];
  const typed = `type: deno task train ${unnamed.join(" ")} --tokens ${tokens}`;
  assert.ok((await refusal(unnamed)).endsWith(typed));
  const changed = await writeTokens(folder, someTokens(201), "changed.bin");
  const sameBytes =
    /--tokens must name the file that its run read, with SHA-256 [0-9a-f]{64}, received ".*" with/;
  await refuses([...unnamed, "--tokens", changed], sameBytes);
  await refuses([...unnamed, "--data", "sotu"], /--tokens must name the file/);
  const moved = await writeTokens(folder, someTokens(200), "moved.bin");
  await trainHere([...unnamed, "--tokens", moved, "--out", join(folder, "moved")]);
  // Troupe 0.1 kept the path among the flags, without a hash.
  const args = await resume((copy) =>
    forgeConfig(copy, (config) => {
      delete config.files;
      config.flags.tokens = tokens;
    })
  );
  await refuses(args.slice(0, -2), /--tokens must name the file/);
  const unseen = /does not say what its tokens held: .*tokens.bin is taken unseen/;
  assert.match((await trainSaying(args)).stderr, unseen);
});

folderTest("a run on lists continues with them, or a named schedule", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(200)), file = join(folder, "mine.csv");
  await Deno.writeTextFile(file, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const data = [...HOW, "--tokens", tokens], out = join(folder, "run");
  const lists = ["--schedule-file", file];
  await trainHere([...TINY_MODEL, ...data, ...lists, "--steps", "1", "--out", out]);
  const resume = [...data, "--resume", join(out, "step-00000001"), "--steps", "2"];
  const elsewhere = (name: string) => ["--out", join(folder, name)];
  await refuses(resume, /--schedule-file must name .* --schedule-file .*mine.csv$/);
  const same = await trainHere([...resume, ...lists, ...elsewhere("same")]);
  const named = await trainHere([...resume, "--schedule", "1f1b", ...elsewhere("named")]);
  assert.deepEqual(bitsOf(same.lines), bitsOf(named.lines));
  await Deno.writeTextFile(file, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
  await refuses([...resume, ...lists], /with SHA-256 /);
});

folderTest("--schedule auto fits layers and memory, and a resumed run keeps it", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(2000)), out = join(folder, "run");
  const base = words`--layers 2 --hidden 32 --heads 2 --seq 32 --vocab 256 --micro-batch-size 2
    --micro-batches 8 --workers 2 --device native --tokens ${tokens} --steps 1`;
  const flagsOf = async (run: string) => {
    const { schedule, order, chunks, ["activation-limit"]: limit } = (await readCheckpoint(run))!
      .config.run as Record<string, unknown>;
    return { schedule, order, chunks, "activation-limit": limit };
  };
  const said = (flags: Record<string, unknown>) =>
    Object.entries(flags).flatMap(([name, value]) =>
      value === undefined ? [] : [`--${name}=${value}`]
    );
  const first = await trainHere([...base, "--schedule", "auto", "--out", join(folder, "free")]);
  const free = await flagsOf(join(folder, "free"));
  const refused = await refusal([...base, ...said(free), "--memory-limit", "1KiB"]);
  const [, mebibytes] = /received (?:up to )?([\d.]+) MiB/.exec(refused)!;
  const limit = Math.floor(0.98 * Number(mebibytes) * 2 ** 20);
  const bounded = [...base, "--schedule", "auto", "--memory-limit", `${limit}`];
  const { lines } = await trainHere([...bounded, "--out", out]);
  const chosen = await flagsOf(out);
  assert.notDeepEqual(chosen, free);
  assert.equal(lines.at(-1)!.weightsHash, first.last.weightsHash);
  const resume = words`--resume ${out} --tokens ${tokens} --device native --workers 2 --steps 2`;
  const { stderr } = await trainSaying([...resume, "--micro-batches", "8", "--schedule", "auto"]);
  assert.match(stderr, /: as before$/m);
  assert.deepEqual(await flagsOf(out), chosen);
  const none = [...base, "--schedule", "auto", "--memory-limit", "1KiB"];
  assert.match(await refusal(none), /one of \d+ must fit the layers .* received none that does/);
});

const QKV = "transformer.h.0.attn.c_attn.weight";
type Tensors = Parameters<Parameters<typeof forgeTensors>[2]>[0];

/** Replaces the values of a tensor. */
const filled = (all: Tensors, name: string, value: number) =>
  void all.set(name, { ...all.get(name)!, data: new Float32Array(16 * 48).fill(value) });

/** Changes of a file of a checkpoint that `train` refuses. */
const FORGED: readonly [about: string, file: "model" | "optimizer", (all: Tensors) => void][] = [
  ["another shape", "model", (all) => all.set(QKV, { ...all.get(QKV)!, shape: [48, 16] })],
  ["a missing weight", "model", (all) => all.delete(QKV)],
  ["a strange name", "model", (all) => all.set("b\nx", all.get(QKV)!)],
  ["NaN", "model", (all) => filled(all, QKV, NaN)],
  ["no moments", "optimizer", (all) => all.clear()],
  ["no means of squares", "optimizer", (all) => {
    for (const name of [...all.keys()]) if (name.endsWith("_sq")) all.delete(name);
  }],
  ["negative means of squares", "optimizer", (all) => filled(all, `${QKV}.exp_avg_sq`, -1)],
];

runTest("weights and moments must be exactly those of the model", async ({ resume }) => {
  const found: [string, string][] = [];
  const refuse = async (about: string, change: (step: string) => Promise<void>) => {
    const sentence = await refusal(await resume(change));
    found.push([about, sentence.replace(/\S*copy-[^:]*/, "STEP")]);
  };
  for (const [about, file, change] of FORGED) {
    await refuse(about, (step) => forgeTensors(step, `${file}.safetensors`, change));
  }
  await refuse("more updates", (step) => forgeConfig(step, (one) => one.progress.update = 9));
  await assertSentences("forged_weights", found);
});

runTest("generate checks a checkpoint as train does, and says no controls", async ({ resume }) => {
  const found: [string, string][] = [];
  const refuse = async (about: string, change: (step: string) => Promise<void>) => {
    const from = (await resume(change))[HOW.length + 1]!;
    const sentence = await refusalHere(words`generate --from ${from} --device reference`);
    found.push([about, sentence.replaceAll(from, "STEP")]);
  };
  await refuse("another shape", (step) => forgeTensors(step, "model.safetensors", FORGED[0]![2]));
  const values = { hidden: 2 ** 32, layers: "1", architecture: "a\u001b[2J", tokenizer: "../x" };
  for (const [key, value] of Object.entries(values)) {
    await refuse(key, (step) => forgeConfig(step, (config) => void (config[key] = value)));
  }
  await assertSentences("forged_generate", found);
});
