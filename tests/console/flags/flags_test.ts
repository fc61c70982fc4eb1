/** Names, help and refusals of every command follow from the declarations of its flags. */

import assert from "node:assert/strict";
import { exploreCommand } from "../../../console/commands/explore.ts";
import { generateCommand } from "../../../console/commands/generate.ts";
import { replayCommand } from "../../../console/commands/replay.ts";
import { boundsOf, type CommandSyntax, flagsOf } from "../../../console/flag.ts";
import * as quantities from "../../../actors/options/limits.ts";
import { planCommand } from "../../../console/commands/plan.ts";
import { profileCommand } from "../../../console/commands/profile.ts";
import { bashCompletion } from "../../../console/completion.ts";
import { helpOf, parseArguments, readKeptFlags } from "../../../console/parse.ts";
import { SCHEDULE_SYNTAX } from "../../../console/commands/schedule_flags.ts";
import { TRAIN_FLAGS, TRAIN_SYNTAX } from "../../../console/train/flags.ts";
import { readTrainFlags } from "../../../console/train/request.ts";
import about from "../../../deno.json" with { type: "json" };
import { printedHere, refusal, refusedHere, refuses } from "../command.ts";
import ELSEWHERE from "./elsewhere.json" with { type: "json" };
import QUANTITIES from "./quantities.json" with { type: "json" };

const SYNTAXES: readonly CommandSyntax[] = [
  TRAIN_SYNTAX,
  generateCommand.syntax,
  SCHEDULE_SYNTAX,
  exploreCommand.syntax,
  replayCommand.syntax,
];

Deno.test("command lines of nanoGPT and Hugging Face mean the same flags", () => {
  for (const [theirs, ours] of ELSEWHERE as [string, string][]) {
    assert.deepEqual(train(theirs), train(ours));
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
      const told = [flag.help, flag.default, flag.otherwise, flag.maximum, flag.below, flag.must];
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

Deno.test("a misspelled flag is refused with the one that was probably meant", async () => {
  const meant = { "--setps": "--steps", "--n_layers": "--n-layer", "--scheduel=a": "--schedule" };
  for (const [flag, name] of Object.entries(meant)) {
    const see = `${flag} is not one of them; run with --help to see them all`;
    assert.equal(await refusal([flag]), `Cannot read flags: ${see}; did you mean ${name}?`);
  }
  await refuses(["--nonesuch"], /run with --help to see them all$/);
  const backwards = readTrainFlags(["--trace", "t", "--trace-steps", "9-7"]);
  await assert.rejects(backwards, /a range of steps/);
});

const train = (flags: string) => parseArguments(flags.split(" "), TRAIN_FLAGS).flags;

Deno.test("a switch is true or false, and --no sets it to false", () => {
  const lines: [flags: string, expected: object][] = [
    ["--json --tie --no-json", { tie: true }],
    ["--fp16 --fp16=false", {}],
    ["--fp16=true --lr 1 --lr 2", { precision: "fp16", lr: 2 }],
    ["--tie=true --json true", { json: true, tie: true }],
  ];
  for (const back of ["--no_tie", "--no-tie_word_embeddings", "--tie=false", "--tie false"]) {
    lines.push([`--tie --json ${back}`, { json: true }]);
  }
  for (const [flags, expected] of lines) assert.deepEqual(train(flags), expected, flags);
  assert.throws(() => train("--no-steps"), /--no-steps is not one of them/);
  for (const value of ["no", ""]) {
    assert.throws(() => train(`--tie=${value}`), {
      name: "RangeError",
      message: `Cannot use --tie: it must be true or false, received "${value}"`,
    });
    assert.throws(() => train(`--fp16=${value || "1"}`), /--precision: it must/);
  }
});

Deno.test("a former name of a flag is read, from files too, and not shown", () => {
  const size = { "micro-batch-size": 4 };
  for (const flags of ["--micro-batch 4", "--micro_batch=4 --micro-batch-size 4"]) {
    assert.deepEqual(train(flags), size, flags);
  }
  const refusal = /must have its value, received .*=4 .*=5$/;
  assert.throws(() => train("--micro-batch 4 --micro-batch-size 5"), refusal);
  assert.deepEqual(readKeptFlags({ "micro-batch": 4 }, TRAIN_FLAGS, "config.json"), size);
  assert.throws(() => train("--micro-batc 4"), /did you mean --micro-batches\?$/);
  for (const syntax of [TRAIN_SYNTAX, planCommand.syntax, profileCommand.syntax]) {
    assert.match(helpOf(syntax), /--micro-batch-size /);
    assert.doesNotMatch(helpOf(syntax) + bashCompletion([syntax]), /--micro-batch[ ,)]/);
  }
});

Deno.test("quantities are read as people write them, and nothing else is", () => {
  for (const [name, texts] of Object.entries(QUANTITIES)) {
    const read = quantities[name as keyof typeof QUANTITIES];
    for (const [text, expected] of Object.entries(texts)) {
      const found = JSON.stringify(read(text) ?? null);
      assert.equal(found, JSON.stringify(expected), `${name} of "${text}"`);
    }
  }
});

Deno.test("numbers of flags have bounds, which are within them", () => {
  for (const flags of ["--steps 1", "--steps 2147483647", "--beta1 0", "--seed 0"]) train(flags);
  const refused = {
    "--steps 0": /it must be a whole number from 1, received "0"$/,
    "--steps 2147483648": /it must be at most 2147483647, received "2147483648"$/,
    "--steps 1e3": /it must be a whole number from 1, received "1e3"$/,
    "--beta1 1": /it must be a number from 0 and below 1, received "1"$/,
    "--lr 0x1": /it must be .*, received "0x1"$/,
    "--runtime thread": /it must be one of workers, .*, received "thread"$/,
  };
  for (const [flags, why] of Object.entries(refused)) assert.throws(() => train(flags), why, flags);
});

Deno.test("a value may begin with a dash, and words may come beside flags", () => {
  const flags = {
    prompt: { kind: "text", help: "" },
    help: { kind: "switch", aliases: ["h"], help: "" },
  } as const;
  const read = (...args: string[]) => parseArguments(args, flags, { takesWords: true });
  assert.deepEqual(read("--prompt", "-h"), { flags: { prompt: "-h" }, words: [] });
  assert.deepEqual(read("a", "-h", "7"), { flags: { help: true }, words: ["a", "7"] });
  assert.deepEqual(read("--", "--prompt"), { flags: {}, words: ["--prompt"] });
  assert.deepEqual(read("--", "--help=7"), { flags: {}, words: ["--help=7"] });
  assert.throws(() => parseArguments(["--", "a"], flags), /every argument must be a flag/);
});

Deno.test("every command answers -h and -V first; other commands are refused", async () => {
  const usage = await printedHere("help");
  const names = Array.from(usage.matchAll(/^ {2}(\w+) {2}/gm), ([, name]) => name!);
  assert.equal(names.length, 21);
  for (const name of names) {
    for (const args of [[name, "--nonesuch", "-h"], ["help", name]]) {
      const help = await printedHere(...args);
      assert.match(help, new RegExp(`^Usage: deno task troupe ${name} `));
      assert.match(help, /^ {2}--version, -V/m);
    }
    assert.equal(await printedHere(name, "--nonesuch", "-V"), `troupe ${about.version}\n`);
  }
  assert.equal(await printedHere("version"), `troupe ${about.version}\n`);
  const slip = /the command must be one of train, .*; did you mean schedule\?$/;
  await refusedHere(["shedule"], slip);
});
