/** What a checkpoint, which may be a stranger's, can make of the run that goes on from it. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { readTrainFlags } from "../../../console/train/train_request.ts";
import {
  bitsOf,
  inFolder,
  refusal,
  runGenerate,
  runTrain,
  someTokens,
  TINY,
  TINY_MODEL,
  trainJson,
  writeTokens,
} from "../command.ts";
import { type Config, copyFolder, forgeConfig, forgeTensors } from "../forged.ts";

const HOW = ["--device", "reference", "--runtime", "serial"];

/** A run of two steps, and how to go on from a copy of its checkpoint that was changed. */
async function withRun(
  test: (run: {
    readonly folder: string;
    readonly tokens: string;
    readonly step: string;
    /** Copies the checkpoint, changes the copy, and gives the arguments that resume from it. */
    resume(change: (step: string) => Promise<void>): Promise<string[]>;
  }) => Promise<void>,
): Promise<void> {
  await inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(200)), out = join(folder, "run");
    await trainJson([...TINY, ...HOW, "--tokens", tokens, "--steps", "2", "--out", out]);
    const step = join(out, "step-00000002");
    let copies = 0;
    const resume = async (change: (step: string) => Promise<void>) => {
      const copy = await copyFolder(step, join(folder, `copy-${copies++}`, basename(step)));
      await change(copy);
      return [...HOW, "--resume", copy, "--steps", "3", "--tokens", tokens];
    };
    await test({ folder, tokens, step, resume });
  });
}

Deno.test("flags of how a run runs, and paths, are not inherited: nothing is opened or written", () =>
  withRun(async ({ folder, resume }) => {
    const victim = join(folder, "victim"), elsewhere = join(folder, "elsewhere");
    await Deno.writeTextFile(victim, "mine");
    const honest = await trainJson(await resume(() => Promise.resolve()));
    const args = await resume((step) =>
      forgeConfig(step, ({ flags }) =>
        Object.assign(flags, {
          ...{ journal: victim, out: elsewhere, weights: victim, resume: elsewhere, keep: 1 },
          ...{ "schedule": "nonesuch", "steps": 1, "memory-limit": 1, "journal-messages": true },
        }))
    );
    const { code, stdout, stderr } = await runTrain([...args, "--json"]);
    assert.equal(code, 0, stderr);
    const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(bitsOf(lines), bitsOf(honest.lines));
    assert.match(stderr, /passed over: journal, out, weights, resume, keep$/m);
    assert.equal(await Deno.readTextFile(victim), "mine");
    await assert.rejects(Deno.stat(elsewhere), Deno.errors.NotFound);
  }));

Deno.test("dropout is inherited, by any of its names, and none is unless it was asked for", () =>
  withRun(async ({ folder, tokens, step }) => {
    const config = JSON.parse(await Deno.readTextFile(join(step, "config.json")));
    assert.equal(config.flags.dropout, undefined);
    const out = join(folder, "dropping"), run = [...TINY, ...HOW, "--tokens", tokens];
    const dropping = [...run, "--resid_pdrop", "0.5"];
    const { lines: whole } = await trainJson([...dropping, "--steps", "3"]);
    await trainJson([...dropping, "--steps", "2", "--out", out]);
    const goOn = ["--resume", out, "--tokens", tokens, "--steps", "3"];
    const { lines: resumed } = await trainJson([...HOW, ...goOn]);
    assert.deepEqual(bitsOf(resumed).at(-1), bitsOf(whole).at(-1));
    assert.notDeepEqual(bitsOf((await trainJson([...run, "--steps", "3"])).lines), bitsOf(whole));
  }));

Deno.test("a switch that is taken back is not inherited; one of the model cannot be", () =>
  withRun(async ({ folder, resume }) => {
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
    assert.match(
      await refusal([...args, "--no-tie"]),
      /--tie must be true, as in this checkpoint, received false$/,
    );
  }));

/** Values of inherited flags that nobody could have typed, and what the refusal says. */
const VALUES: readonly [string, unknown, RegExp][] = [
  ["lr", -5, /--lr of .*: it must be a number from 0, received "-5"$/],
  ["lr", null, /--lr of .*: it must be text or a number, received "null"$/],
  ["replicas", 2 ** 31, /--replicas of .*: it must be at most 256, received "2147483648"$/],
  ["hidden", 2 ** 32, /--hidden of .*: it must be at most 65536, received "4294967296"$/],
  ["vocab", 1e15, /--vocab of .*: it must be at most 16777216, received "1000000000000000"$/],
  ["vocab", 1e300, /--vocab of .*: it must be a whole number from 1, received "1e\+300"$/],
  ["micro-batch", [8], /--micro-batch of .*: it must be text or a number, received "\[8\]"$/],
  ["micro-batches", 1.5, /--micro-batches of .*: it must be a whole number from 1/],
  ["tie", "yes", /--tie of .*: it must be true or false, received "yes"$/],
  ["clip", "a\u001b[2J\nb", /--clip of .*: it must be .*, received "a\\u001b\[2J\\nb"$/],
  ["precision", "fp8", /--precision of .*: it must be one of fp32, fp16, received "fp8"$/],
  [
    "data",
    "../../etc",
    /--data of .*: it must be one of mnist, moby-dick, .*sotu, received "..\/..\/etc"$/,
  ],
  [
    "model",
    "https://localhost/mod.ts",
    /--model of .*: it must be one of gpt, .*, received "http/,
  ],
  ["optimizer", "./mine.ts", /--optimizer of .*: it must be one of adamw, sgd, received ".\/mine/],
  ["heads", 4, /its heads must be that of its flags, 4, received "2"$/],
];

Deno.test("inherited flags are converted and bounded as if they had been typed", () =>
  withRun(async ({ resume }) => {
    for (const [name, value, reason] of VALUES) {
      const args = await resume((step) =>
        forgeConfig(step, (config) => {
          config.flags[name] = value;
          if (name === "data") delete config.files;
        })
      );
      const given = name === "data" ? args.slice(0, -2) : args;
      assert.match(await refusal(given), reason, name);
    }
    for (const flags of [7, "lr", [1], null]) {
      const args = await resume((step) =>
        forgeConfig(step, (config) => void (config.flags = flags))
      );
      if (flags !== null) assert.match(await refusal(args), /^Cannot use the flags of /);
    }
  }));

Deno.test("a run on a file of one's own goes on when the same bytes are named again", () =>
  withRun(async ({ folder, tokens, step, resume }) => {
    const unnamed = [...HOW, "--resume", step, "--steps", "3"];
    const { code, stderr } = await runTrain(unnamed);
    assert.equal(code, 2);
    assert.ok(
      stderr.trimEnd().endsWith(
        `type: deno task train ${unnamed.join(" ")} --tokens ${tokens}`,
      ),
      stderr,
    );
    const changed = await writeTokens(folder, someTokens(201), "changed.bin");
    assert.match(
      await refusal([...unnamed, "--tokens", changed]),
      /--tokens must name the file that its run read, with SHA-256 [0-9a-f]{64}, received ".*" with/,
    );
    assert.match(await refusal([...unnamed, "--data", "sotu"]), /--tokens must name the file/);
    const moved = await writeTokens(folder, someTokens(200), "moved.bin");
    await trainJson([...unnamed, "--tokens", moved, "--out", join(folder, "moved")]);
    // Troupe 0.1 kept the path among the flags, without a hash.
    const old = (config: Config) => {
      delete config.files;
      config.flags.tokens = tokens;
    };
    const args = await resume((copy) => forgeConfig(copy, old));
    assert.match(await refusal(args.slice(0, -2)), /--tokens must name the file/);
    const run = await runTrain([...args, "--json"]);
    assert.equal(run.code, 0, run.stderr);
    assert.match(run.stderr, /does not say what its tokens held: .*tokens.bin is taken unseen/);
  }));

Deno.test("a run on action lists goes on with the same lists, or a schedule that is named", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(200)), file = join(folder, "mine.csv");
    await Deno.writeTextFile(file, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    const data = [...HOW, "--tokens", tokens], out = join(folder, "run");
    const lists = ["--schedule-file", file];
    await trainJson([...TINY_MODEL, ...data, ...lists, "--steps", "1", "--out", out]);
    const resume = [...data, "--resume", join(out, "step-00000001"), "--steps", "2"];
    const elsewhere = (name: string) => ["--out", join(folder, name)];
    assert.match(await refusal(resume), /--schedule-file must name .* --schedule-file .*mine.csv$/);
    const same = await trainJson([...resume, ...lists, ...elsewhere("same")]);
    const named = await trainJson([...resume, "--schedule", "1f1b", ...elsewhere("named")]);
    assert.deepEqual(bitsOf(same.lines), bitsOf(named.lines));
    await Deno.writeTextFile(file, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
    assert.match(await refusal([...resume, ...lists]), /with SHA-256 /);
  }));

const QKV = "transformer.h.0.attn.c_attn.weight";

Deno.test("weights and moments are exactly those of the model, in shape, name and number", () =>
  withRun(async ({ resume }) => {
    const model = "model.safetensors", optimizer = "optimizer.safetensors";
    const cases: readonly [(step: string) => Promise<void>, RegExp][] = [
      [
        (step) =>
          forgeTensors(step, model, (tensors) => {
            const tensor = tensors.get(QKV)!;
            tensors.set(QKV, { ...tensor, shape: tensor.shape.toReversed() });
          }),
        /"transformer.h.0.attn.c_attn.weight" must have shape \[16,48\], received \[48,16\]/,
      ],
      [
        (step) => forgeTensors(step, model, (tensors) => void tensors.delete(QKV)),
        /c_attn.weight" must have shape \[16,48\], received none/,
      ],
      [
        (step) =>
          forgeTensors(step, model, (tensors) => void tensors.set("b\nx", tensors.get(QKV)!)),
        /each must be a parameter of the model, received "b\\nx"/,
      ],
      [
        (step) => forgeTensors(step, optimizer, (tensors) => tensors.clear()),
        /these moments of adamw: "transformer.wte.weight.exp_avg" must have .* received none/,
      ],
      [
        (step) =>
          forgeTensors(step, optimizer, (tensors) => {
            for (const name of [...tensors.keys()]) {
              if (name.endsWith(".exp_avg_sq")) tensors.delete(name);
            }
          }),
        /"transformer.wte.weight.exp_avg_sq" must have shape \[256,16\], received none/,
      ],
      [
        (step) =>
          forgeTensors(step, optimizer, (tensors) => {
            const name = `${QKV}.exp_avg_sq`, tensor = tensors.get(name)!;
            tensors.set(name, { ...tensor, data: new Float32Array(16 * 48).fill(-1) });
          }),
        /means of squares must be at least 0/,
      ],
      [
        (step) =>
          forgeTensors(step, model, (tensors) => {
            tensors.set(QKV, { ...tensors.get(QKV)!, data: new Float32Array(16 * 48).fill(NaN) });
          }),
        /weights and moments must be finite, received NaN in "transformer.h.0.attn.c_attn.weight"/,
      ],
      [
        (step) => forgeConfig(step, (config) => config.progress.update = 9),
        /the progress of step 2 must be that of a run, received \{"step":2,"update":9,"predictions":64\}$/,
      ],
    ];
    for (const [change, reason] of cases) {
      assert.match(await refusal(await resume(change)), reason);
    }
  }));

Deno.test("generate checks a checkpoint as train does, and what it prints", () =>
  withRun(async ({ resume }) => {
    const cases: readonly [(step: string) => Promise<void>, RegExp][] = [
      [
        (step) =>
          forgeTensors(step, "model.safetensors", (tensors) => {
            const tensor = tensors.get(QKV)!;
            tensors.set(QKV, { ...tensor, shape: tensor.shape.toReversed() });
          }),
        /c_attn.weight" must have shape \[16,48\], received \[48,16\]/,
      ],
      [
        (step) => forgeConfig(step, (config) => config.hidden = 2 ** 32),
        /hidden must be at most 65536, received 4294967296/,
      ],
      [
        (step) => forgeConfig(step, (config) => config.layers = "1"),
        /its layers must be a whole number, received "1"/,
      ],
      [
        (step) => forgeConfig(step, (config) => config.architecture = "a\u001b[2J"),
        /must be of a gpt or a llama, received a\\u001b\[2J in /,
      ],
      [
        (step) => forgeConfig(step, (config) => config.tokenizer = "../x"),
        /its tokenizer must be bytes, gpt2, tokenizer.json or none, received "\.\.\/x"/,
      ],
    ];
    for (const [change, reason] of cases) {
      const from = (await resume(change))[HOW.length + 1]!;
      const { code, stdout, stderr } = await runGenerate(["--from", from, "--device", "reference"]);
      assert.deepEqual([code, stdout], [2, ""], stderr);
      assert.match(stderr.trimEnd(), reason);
      assert.match(stderr, /^Cannot \P{Cc}+\n$/u);
    }
  }));
