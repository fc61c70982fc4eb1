/** `--resume`: the bits of a run that was cut in two, and what its checkpoint may decide. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { readTrainFlags } from "../../../console/train/train_request.ts";
import { folderTest } from "../../in_folder.ts";
import {
  bitsOf,
  inFolder,
  jsonLines,
  refusal,
  refusedHere,
  runHere,
  savedIn,
  someTokens,
  TINY,
  TINY_MODEL,
  trainHere,
  writeTokens,
} from "../command.ts";
import { type Config, copyFolder, forgeConfig, forgeTensors } from "../forged.ts";
import { assertRefusals } from "../refusals.ts";

const HOW = ["--device", "reference", "--runtime", "serial"];
const SAME = "In the beginning was the word. ".repeat(8);

/** The two kinds of data: in order and by heart, or shuffled and again in each epoch. */
const SOURCES: Readonly<Record<string, (folder: string) => Promise<string[]>>> = {
  "tokens": async (folder) => ["--tokens", await writeTokens(folder, someTokens(200))],
  "a text": async (folder) => {
    await Deno.writeTextFile(join(folder, "text.txt"), SAME);
    return ["--text", join(folder, "text.txt")];
  },
};

for (const [name, source] of Object.entries(SOURCES)) {
  folderTest(`3 steps on ${name}, resumed to 6, have the bits of 6 steps`, async (folder) => {
    const data = await source(folder);
    const [whole, half, on] = ["whole", "half", "on"].map((run) => join(folder, run)) as string[];
    const rate = ["--lr_scheduler_type", "linear", "--min_lr", "1e-4", "--warmup", "2"];
    const train = [...TINY, ...data, ...name === "tokens" ? ["--warmup", "2", "--lr", "0.01"] : []];
    const uninterrupted = await trainHere([
      ...[...train, "--steps", "6", "--out", whole!, "--checkpoint-every", "3"],
      ...name === "tokens" ? [] : rate,
    ]);
    const expected = bitsOf(uninterrupted.lines, 4), to6 = ["--steps", "6", ...data];
    assert.equal(expected.length, 4);
    const elsewhere = ["--workers", "3", "--schedule", "gpipe", "--layout", "E|.5|.5,H"];
    const step = join(whole!, "step-00000003");
    const stepOn = await trainHere([
      ...[...to6, "--resume", step, "--out", on!, "--device", "reference", ...elsewhere],
    ]);
    assert.deepEqual(bitsOf(stepOn.lines), expected, "from one step's folder, elsewhere");
    assert.equal(stepOn.last.checkpoint, join(on!, "step-00000006"));
    if (name !== "tokens") return;
    const begun = await trainHere([...train, "--steps", "3", "--out", half!]);
    assert.deepEqual(bitsOf(begun.lines).slice(0, 3), bitsOf(uninterrupted.lines).slice(0, 3));
    const folderOn = await trainHere([...HOW, ...to6, "--resume", half!]);
    assert.deepEqual(bitsOf(folderOn.lines), expected, "from the folder of the run");
    assert.equal(folderOn.last.checkpoint, join(half!, "step-00000006"));
    for (const file of ["model.safetensors", "optimizer.safetensors"]) {
      const [one, other] = await Promise.all(
        [half!, whole!].map((run) => Deno.readFile(join(run, "step-00000006", file))),
      );
      assert.deepEqual(one, other, file);
    }
  });
}

folderTest(
  "an empty or missing folder starts at step 1, says so, and takes the checkpoint",
  async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100));
    const train = [
      "train",
      ...TINY,
      "--runtime",
      "serial",
      "--tokens",
      tokens,
      "--steps",
      "1",
      "--json",
    ];
    const [empty, missing] = [join(folder, "empty"), join(folder, "not", "there")];
    await Deno.mkdir(empty);
    for (const path of [empty, missing]) {
      const { code, stdout, stderr } = await runHere([...train, "--resume", path]);
      assert.deepEqual([code, stderr], [
        0,
        `There is no checkpoint in ${path}: starting at step 1.\n`,
      ]);
      const lines = jsonLines(stdout);
      assert.deepEqual([lines[0]!.step, lines.at(-1)!.checkpoint], [
        1,
        join(path, "step-00000001"),
      ]);
    }
  },
);

folderTest(
  "--resume says where it continues, overrides --weights, and is done when all steps are",
  async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100));
    const run = await trainHere([...TINY, "--tokens", tokens, "--steps", "1", "--out", folder]);
    const resume = [...HOW, "--resume", folder, "--tokens", tokens];
    const again = await trainHere([...resume, "--steps", "1"]);
    assert.equal(again.lines.length, 1);
    const { steps, weightsHash, checkpoint } = again.last;
    assert.deepEqual(
      [steps, weightsHash, basename(checkpoint as string)],
      [1, run.last.weightsHash, "step-00000001"],
    );
    const { code, stdout, stderr } = await runHere([
      ...[
        "train",
        ...resume,
        "--steps",
        "2",
        "--json",
        "--weights",
        join(folder, "none.safetensors"),
      ],
    ]);
    assert.deepEqual(
      [code, stderr],
      [0, `Going on from ${join(folder, "step-00000001")}, after step 1.\n`],
    );
    assert.deepEqual(jsonLines(stdout).map(({ step }) => step), [2, undefined]);
  },
);

folderTest(
  "a torn checkpoint is passed over for the newest whole one, and named",
  async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100)), out = join(folder, "out");
    const train = [...TINY, "--tokens", tokens, "--out", out, "--checkpoint-every", "1"];
    const whole = await trainHere([...train, "--steps", "3"]);
    const [torn, half] = [join(out, "step-00000003"), `.step-00000004-${crypto.randomUUID()}`];
    await Deno.truncate(join(torn, "optimizer.safetensors"), 1000);
    await Deno.mkdir(join(out, half));
    const { code, stdout, stderr } = await runHere([
      ...[
        "train",
        ...HOW,
        "--resume",
        out,
        "--steps",
        "3",
        "--keep",
        "2",
        "--json",
        "--tokens",
        tokens,
      ],
    ]);
    assert.equal(code, 0, stderr);
    const lines = stderr.trimEnd().split("\n");
    assert.deepEqual(lines.map((line) => line.replace(/must have the hash .*;/, "...")), [
      `Cannot read the checkpoint ${
        join(out, half)
      }: it must have been written to its end, received a part; it is passed over`,
      `Cannot read the checkpoint ${torn}: optimizer.safetensors ... it is passed over`,
      `Going on from ${join(out, "step-00000002")}, after step 2.`,
    ]);
    assert.deepEqual(bitsOf(jsonLines(stdout)), bitsOf(whole.lines, 3));
    assert.deepEqual(await savedIn(out), ["step-00000002", "step-00000003"]);
  },
);

folderTest("a checkpoint of another model, of more steps, or torn, is refused", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(100)), run = join(folder, "run");
  await trainHere([...TINY, "--tokens", tokens, "--steps", "2", "--out", run]);
  const step = join(run, "step-00000002"), resume = [...HOW, "--resume", run, "--tokens", tokens];
  const refuse = (words: string[]) => refusal([...resume, ...words]);
  await assertRefusals("resume", refuse, { FOLDER: folder });
  await Deno.remove(join(step, "manifest.json"));
  const torn = /manifest.json: a whole checkpoint must have this file, received No such file/;
  assert.match(await refusal(resume), torn);
  assert.match(await refusal([...HOW, "--resume", step]), torn);
});

folderTest(
  "other data takes the place of built-in data, and must then be named again",
  async (folder) => {
    const tokens = await writeTokens(folder, someTokens(100));
    await trainHere([...TINY, "--data", "moby-dick", "--steps", "1", "--out", folder]);
    await trainHere([...HOW, "--resume", folder, "--steps", "2"]);
    await trainHere([...HOW, "--resume", folder, "--steps", "3", "--tokens", tokens]);
    const path = join(folder, "step-00000003", "config.json");
    const { flags, files } = JSON.parse(await Deno.readTextFile(path));
    const { text, tokens: kept } = flags;
    assert.deepEqual([text, kept, Object.keys(files)], [undefined, undefined, ["tokens"]]);
    assert.match(await refusal([...HOW, "--resume", folder, "--steps", "4"]), /--tokens must name/);
  },
);

/** A run of two steps, and how to resume from a copy of its checkpoint that was changed. */
interface Run {
  readonly folder: string;
  readonly tokens: string;
  readonly step: string;
  /** Copies the checkpoint, changes the copy, and gives the arguments that resume from it. */
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

runTest(
  "paths and flags of how a run runs are not inherited: nothing is opened or written",
  async ({ folder, resume }) => {
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
    const { code, stdout, stderr } = await runHere(["train", ...args, "--json"]);
    assert.equal(code, 0, stderr);
    assert.deepEqual(bitsOf(jsonLines(stdout)), bitsOf(honest.lines));
    assert.match(stderr, /passed over: journal, out, weights, resume, keep$/m);
    assert.equal(await Deno.readTextFile(victim), "mine");
    await assert.rejects(Deno.stat(elsewhere), Deno.errors.NotFound);
  },
);

runTest(
  "dropout is inherited, by any of its names, and none is unless it was asked for",
  async ({ folder, tokens, step }) => {
    const config = JSON.parse(await Deno.readTextFile(join(step, "config.json")));
    assert.equal(config.flags.dropout, undefined);
    const out = join(folder, "dropping"), run = [...TINY, ...HOW, "--tokens", tokens];
    const dropping = [...run, "--resid_pdrop", "0.5", "--steps", "3", "--out", out];
    const { lines: whole } = await trainHere([...dropping, "--checkpoint-every", "2"]);
    const from = ["--resume", join(out, "step-00000002"), "--out", join(folder, "on")];
    const { lines: resumed } = await trainHere([
      ...HOW,
      ...from,
      "--tokens",
      tokens,
      "--steps",
      "3",
    ]);
    assert.deepEqual(bitsOf(resumed), bitsOf(whole, 3));
    assert.notDeepEqual(bitsOf((await trainHere([...run, "--steps", "3"])).lines), bitsOf(whole));
  },
);

runTest(
  "a switch that is taken back is not inherited; one of the model cannot be",
  async ({ folder, resume }) => {
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
    assert.match(await refusal([...args, "--no-tie"]), untied);
  },
);

runTest(
  "inherited flags are converted and bounded as if they had been typed",
  async ({ resume }) => {
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
      const args = await resume((step) =>
        forgeConfig(step, (config) => void (config.flags = flags))
      );
      assert.match(await refusal(args), /^Cannot use the flags of /);
    }
  },
);

runTest(
  "a run on your own file continues when the same bytes are named again",
  async ({ folder, tokens, step, resume }) => {
    const unnamed = [...HOW, "--resume", step, "--steps", "3"];
    const typed = `type: deno task train ${unnamed.join(" ")} --tokens ${tokens}`;
    assert.ok((await refusal(unnamed)).endsWith(typed));
    const changed = await writeTokens(folder, someTokens(201), "changed.bin");
    assert.match(
      await refusal([...unnamed, "--tokens", changed]),
      /--tokens must name the file that its run read, with SHA-256 [0-9a-f]{64}, received ".*" with/,
    );
    assert.match(await refusal([...unnamed, "--data", "sotu"]), /--tokens must name the file/);
    const moved = await writeTokens(folder, someTokens(200), "moved.bin");
    await trainHere([...unnamed, "--tokens", moved, "--out", join(folder, "moved")]);
    // Troupe 0.1 kept the path among the flags, without a hash.
    const old = (config: Config) => {
      delete config.files;
      config.flags.tokens = tokens;
    };
    const args = await resume((copy) => forgeConfig(copy, old));
    assert.match(await refusal(args.slice(0, -2)), /--tokens must name the file/);
    const run = await runHere(["train", ...args, "--json"]);
    assert.equal(run.code, 0, run.stderr);
    assert.match(run.stderr, /does not say what its tokens held: .*tokens.bin is taken unseen/);
  },
);

folderTest(
  "a run on action lists continues with the same lists, or a schedule that is named",
  async (folder) => {
    const tokens = await writeTokens(folder, someTokens(200)), file = join(folder, "mine.csv");
    await Deno.writeTextFile(file, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    const data = [...HOW, "--tokens", tokens], out = join(folder, "run");
    const lists = ["--schedule-file", file];
    await trainHere([...TINY_MODEL, ...data, ...lists, "--steps", "1", "--out", out]);
    const resume = [...data, "--resume", join(out, "step-00000001"), "--steps", "2"];
    const elsewhere = (name: string) => ["--out", join(folder, name)];
    assert.match(await refusal(resume), /--schedule-file must name .* --schedule-file .*mine.csv$/);
    const same = await trainHere([...resume, ...lists, ...elsewhere("same")]);
    const named = await trainHere([...resume, "--schedule", "1f1b", ...elsewhere("named")]);
    assert.deepEqual(bitsOf(same.lines), bitsOf(named.lines));
    await Deno.writeTextFile(file, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
    assert.match(await refusal([...resume, ...lists]), /with SHA-256 /);
  },
);

const QKV = "transformer.h.0.attn.c_attn.weight";
type Tensors = Parameters<Parameters<typeof forgeTensors>[2]>[0];

/** Checkpoints that `train` refuses: a file, its change, and the reason. */
const FORGED: readonly [file: "model" | "optimizer", (tensors: Tensors) => void, RegExp][] = [
  [
    "model",
    (all) => all.set(QKV, { ...all.get(QKV)!, shape: all.get(QKV)!.shape.toReversed() }),
    /"transformer.h.0.attn.c_attn.weight" must have shape \[16,48\], received \[48,16\]/,
  ],
  ["model", (all) => all.delete(QKV), /c_attn.weight" must have shape \[16,48\], received none/],
  [
    "model",
    (all) => all.set("b\nx", all.get(QKV)!),
    /each must be a parameter of the model, received "b\\nx"/,
  ],
  [
    "model",
    (all) => all.set(QKV, { ...all.get(QKV)!, data: new Float32Array(16 * 48).fill(NaN) }),
    /weights and moments must be finite, received NaN in "transformer.h.0.attn.c_attn.weight"/,
  ],
  [
    "optimizer",
    (all) => all.clear(),
    /these moments of adamw: "transformer.wte.weight.exp_avg" must have .* received none/,
  ],
  [
    "optimizer",
    (all) => [...all.keys()].forEach((name) => name.endsWith("_sq") && all.delete(name)),
    /"transformer.wte.weight.exp_avg_sq" must have shape \[256,16\], received none/,
  ],
  [
    "optimizer",
    (all) => {
      const name = `${QKV}.exp_avg_sq`;
      all.set(name, { ...all.get(name)!, data: new Float32Array(16 * 48).fill(-1) });
    },
    /means of squares must be at least 0/,
  ],
];

runTest(
  "weights and moments are exactly those of the model, in shape, name and number",
  async ({ resume }) => {
    for (const [file, change, reason] of FORGED) {
      const args = await resume((step) =>
        forgeTensors(step, `${file}.safetensors`, (tensors) => void change(tensors))
      );
      assert.match(await refusal(args), reason);
    }
    const late = await resume((step) => forgeConfig(step, (one) => one.progress.update = 9));
    assert.match(await refusal(late), /must be that of a run, received \{"step":2,"update":9,/);
  },
);

runTest("generate checks a checkpoint as train does, and what it prints", async ({ resume }) => {
  const [, change, reason] = FORGED[0]!;
  const cases: readonly [(step: string) => Promise<void>, RegExp][] = [
    [(step) => forgeTensors(step, "model.safetensors", (all) => void change(all)), reason],
    ...([
      ["hidden", 2 ** 32, /hidden must be at most 65536, received 4294967296/],
      ["layers", "1", /its layers must be a whole number, received "1"/],
      ["architecture", "a\u001b[2J", /must be of a gpt or a llama, received a\\u001b\[2J in /],
      ["tokenizer", "../x", /must be bytes, gpt2, tokenizer.json or none, received "\.\.\/x"/],
    ] as const).map(([key, value, reason]): typeof cases[number] => [
      (step) => forgeConfig(step, (config) => (config as Record<string, unknown>)[key] = value),
      reason,
    ]),
  ];
  for (const [change, reason] of cases) {
    const from = (await resume(change))[HOW.length + 1]!;
    await refusedHere(["generate", "--from", from, "--device", "reference"], reason);
  }
});
