/** Flags are declared once: the names, the help and the refusals of every command come from it. */

import assert from "node:assert/strict";
import { EXPLORE_SYNTAX } from "../../../console/commands/explore.ts";
import { GENERATE_SYNTAX } from "../../../console/commands/generate.ts";
import { REPLAY_SYNTAX } from "../../../console/commands/replay.ts";
import { type CommandSyntax, flagsOf } from "../../../console/flags/command_syntax.ts";
import { boundsOf } from "../../../console/flags/values.ts";
import { helpOf, parseArguments, parseFlags } from "../../../console/mod.ts";
import { SCHEDULE_SYNTAX } from "../../../console/schedule/schedule_command_flags.ts";
import { TRAIN_FLAGS, TRAIN_SYNTAX } from "../../../console/train/train_flags.ts";
import about from "../../../deno.json" with { type: "json" };
import { refusal, runTroupe } from "../command.ts";

const SYNTAXES: readonly CommandSyntax[] = [
  TRAIN_SYNTAX,
  GENERATE_SYNTAX,
  SCHEDULE_SYNTAX,
  EXPLORE_SYNTAX,
  REPLAY_SYNTAX,
];

/** Command lines of nanoGPT and Hugging Face, and what they say here. */
const ELSEWHERE: readonly [string, string][] = [
  [
    "--n_layer=6 --n_head=6 --n_embd=384 --block_size=256 --batch_size=12 --max_iters=2000 " +
    "--learning_rate=1e-3 --weight_decay=0.1 --beta1=0.9 --beta2=0.95 --grad_clip=1.0 --seed 7 " +
    "--gradient_accumulation_steps=5 --out_dir=out",
    "--layers 6 --heads 6 --hidden 384 --seq 256 --micro-batch 12 --steps 2000 --lr 1e-3 " +
    "--weight-decay 0.1 --beta1 0.9 --beta2 0.95 --clip 1.0 --seed 7 --micro-batches 5 --out out",
  ],
  [
    "--num_hidden_layers 6 --num_attention_heads 6 --hidden_size 384 --vocab_size 300 --fp16 " +
    "--per_device_train_batch_size 12 --max_steps 2000 --adam_beta1 0.8 --adam_beta2 0.95 " +
    "--max_grad_norm 1 --output_dir out --save_steps 10 --save_total_limit 3 --eval_steps 5 " +
    "--max_position_embeddings 256 --tie_word_embeddings --resume_from_checkpoint out",
    "--layers 6 --heads 6 --hidden 384 --vocab 300 --precision fp16 --micro-batch 12 " +
    "--steps 2000 --beta1 0.8 --beta2 0.95 --clip 1 --out out --checkpoint-every 10 --keep 3 " +
    "--eval-every 5 --seq 256 --tie --resume out",
  ],
];

Deno.test("command lines of nanoGPT and Hugging Face are read as the flags that mean the same", () => {
  for (const [theirs, ours] of ELSEWHERE) {
    assert.deepEqual(
      parseFlags(theirs.split(" "), TRAIN_FLAGS),
      parseFlags(ours.split(" "), TRAIN_FLAGS),
    );
  }
});

Deno.test("no name or alias of a command stands for two flags", () => {
  for (const syntax of SYNTAXES) {
    const names = Object.entries(flagsOf(syntax)).flatMap(([name, { aliases = [] }]) => [
      name,
      ...aliases.map((alias) => typeof alias === "string" ? alias : alias.name),
    ]).map((name) => name.replaceAll("_", "-"));
    assert.deepEqual(names.length, new Set(names).size, syntax.name);
  }
});

Deno.test("the help of a command lists each flag once, with its default, its bounds and other names", () => {
  for (const syntax of SYNTAXES) {
    const help = helpOf(syntax);
    for (const [name, flag] of Object.entries(flagsOf(syntax))) {
      const found = [...help.matchAll(new RegExp(`^ {2}--${name}\\b(?!-).*(\\n {6,}.*)?`, "gm"))];
      assert.equal(found.length, 1, `${syntax.name} --${name}`);
      const [line] = found[0]!, [minimum] = boundsOf(flag);
      const told = [flag.default, flag.otherwise, flag.maximum, flag.below, flag.must];
      for (const value of told) {
        if (value === undefined || value === Number.MAX_SAFE_INTEGER) continue;
        assert.ok(line.includes(String(value)), `${line} says ${value}`);
      }
      if (flag.kind === "integer") {
        assert.match(line, new RegExp(`\\b(from ${minimum}\\b|${minimum} to \\d)`));
      }
      for (const alias of flag.aliases ?? []) {
        assert.ok(line.includes(`-${typeof alias === "string" ? alias : alias.name}`), line);
      }
    }
  }
});

Deno.test("a slip of the pen is answered with what was probably meant", async () => {
  for (
    const [flag, meant] of [["--setps", "--steps"], ["--n_layers", "--n-layer"], [
      "--micro-bathces=3",
      "--micro-batches",
    ], ["--scheduel", "--schedule"]] as const
  ) {
    assert.equal(
      await refusal([flag]),
      `Cannot read flags: ${flag} is not one of them; run with --help to see them all; did you mean ${meant}?`,
    );
  }
  assert.match(await refusal(["--nonesuch"]), /run with --help to see them all$/);
});

Deno.test("a switch is taken back by --no, and no other flag is", () => {
  assert.deepEqual(parseFlags(["--json", "--tie", "--no-json"], TRAIN_FLAGS), { tie: true });
  assert.throws(() => parseFlags(["--no-steps"], TRAIN_FLAGS), /--no-steps is not one of them/);
  for (const back of ["--no-tie", "--no_tie", "--no-tie_word_embeddings", "--tie=false"]) {
    assert.deepEqual(parseFlags(["--tie", "--json", back], TRAIN_FLAGS), { json: true }, back);
  }
  assert.deepEqual(parseFlags(["--fp16", "--fp16=false"], TRAIN_FLAGS), {});
});

Deno.test("a switch is true or false, and nothing else is taken for true", () => {
  for (const value of ["no", "0", "maybe", ""]) {
    assert.throws(() => parseFlags([`--tie=${value}`], TRAIN_FLAGS), {
      name: "RangeError",
      message: `Cannot use --tie: it must be true or false, received "${value}"`,
    });
    assert.throws(
      () => parseFlags([`--fp16=${value || "1"}`], TRAIN_FLAGS),
      /--precision: it must/,
    );
  }
  assert.deepEqual(parseFlags(["--tie=true", "--json", "true"], TRAIN_FLAGS), {
    json: true,
    tie: true,
  });
});

Deno.test("values that begin with a dash are values, and words stand beside flags where they may", () => {
  const flags = {
    prompt: { kind: "text", help: "" },
    help: { kind: "switch", aliases: ["h"], help: "" },
  } as const;
  const read = (...args: string[]) => parseArguments(args, flags, { takesWords: true });
  assert.deepEqual(read("--prompt", "-h"), { flags: { prompt: "-h" }, words: [] });
  assert.deepEqual(read("a", "-h", "7"), { flags: { help: true }, words: ["a", "7"] });
  assert.deepEqual(read("--", "--prompt"), { flags: {}, words: ["--prompt"] });
  assert.throws(() => parseArguments(["--", "a"], flags), /every argument must be a flag/);
});

Deno.test("every command answers -h and -V whatever else it is told; other commands are refused", async () => {
  const names = [
    ...["train", "generate", "schedule", "explore", "replay", "journal", "devices", "completion"],
  ];
  await Promise.all(names.map(async (name) => {
    const [help, version] = await Promise.all([
      runTroupe([name, "--nonesuch", "-h"]),
      runTroupe([name, "-V"]),
    ]);
    assert.deepEqual([help.code, help.stderr], [0, ""], name);
    assert.match(help.stdout, new RegExp(`^Usage: deno task troupe ${name} `));
    assert.match(help.stdout, /^ {2}--version, -V/m);
    assert.equal(version.stdout, `troupe ${about.version}\n`);
  }));
  const slip = await runTroupe(["shedule"]);
  assert.equal(slip.code, 2);
  assert.match(slip.stderr, /the command must be one of train, .*; did you mean schedule\?\n$/);
});
