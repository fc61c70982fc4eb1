/** Bad input: told in one sentence before anything is written, exit code 2. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { gpuTest } from "../../gpu.ts";
import {
  inFolder,
  refusal,
  runGenerate,
  runTrain,
  someTokens,
  TINY,
  TINY_MODEL,
  writeTokens,
} from "../command.ts";

/** What is wrong with the flags, and what the refusal says of it. */
const FLAGS: readonly [string, RegExp][] = [
  ["--nonesuch 3", /--nonesuch is not one of them; run with --help to see them all/],
  ["-x", /-x is not one of them; run with --help/],
  ["corpus.txt", /every argument must be a flag, received "corpus.txt"/],
  ["--steps", /--steps must have a value/],
  ["--steps --json", /--steps must have a value/],
  ["--steps ten", /--steps: it must be a whole number from 1, received "ten"/],
  ["--steps 0", /--steps: it must be a whole number from 1, received "0"/],
  ["--steps 1.5", /--steps: it must be a whole number from 1, received "1.5"/],
  ["--lr fast", /--lr: it must be a number from 0, received "fast"/],
  ["--lr -0.1", /--lr: it must be a number from 0, received "-0.1"/],
  ["--lr Infinity", /--lr: it must be a number from 0, received "Infinity"/],
  ["--beta1 1", /--beta1: it must be a number from 0 and below 1, received "1"/],
  ["--warmup -3", /--warmup: it must be a whole number from 0, received "-3"/],
  ["--micro-batches 0", /--micro-batches: it must be a whole number from 1/],
  [
    "--device gpu",
    /--device: it must be one of auto, native, webgpu, webgpu:N, wasm, reference, received "gpu"/,
  ],
  ["--model bert", /"bert" as model: it must be a specifier or one of gpt, /],
  ["--schedule pipedreams", /--schedule: it must be one of gpipe, 1f1b, .*received "pipedreams"/],
  ["--schedule-file none.csv", /--schedule-file: it must name a file .* \(no such file\)/],
  ["--policy fast", /--policy: it must be one of list, elastic, received "fast"/],
  ["--pipelines 0", /--pipelines: it must be a whole number from 1, received "0"/],
  ["--scale halved", /--scale: it must be one of direct, doubling, halving, received "halved"/],
  ["--activation-limit -1", /--activation-limit: it must be a number from 0, received "-1"/],
  ["--weight-limit all", /--weight-limit: it must be a number from 0, received "all"/],
  ["--overlap x", /--overlap: it must be a number from 0, received "x"/],
  ["--forward 1,", /--forward: it must be a number from 0, or several .*, received "1,"/],
  ["--backward -2", /--backward: it must be a number from 0, or several .*, received "-2"/],
  ["--input 1,x", /--input: it must be a number from 0, or several .*, received "1,x"/],
  ["--weight model", /--weight: it must be a number from 0, or several .*, received "model"/],
  ["--send 1;2", /--send: it must be a number from 0, or several .*, received "1;2"/],
  ["--replicas 0", /--replicas: it must be a whole number from 1, received "0"/],
  ["--sync soon", /--sync: it must be one of end, eager, eager-opt, received "soon"/],
  ["--reduce ring", /--reduce: it must be one of deterministic, fast, mpi, received "ring"/],
  ["--reduce mpi", /^Cannot train with reduce mpi: the runtime must be mpi, received workers/],
  ["--bucket-size 64KiB", /--bucket-size: it must be a whole number from 1, received "64KiB"/],
  ["--coarsening 0.5", /--coarsening: it must be a whole number from 1, received "0.5"/],
  ["--precision bf16", /--precision: it must be one of fp32, fp16, received "bf16"/],
  ["--loss-scale 0", /--loss-scale: it must be a number above 0, or dynamic, received "0"/],
  ["--loss-scale static", /--loss-scale: it must be a number above 0, or dynamic, received "sta/],
  ["--clip -1", /--clip: it must be a number from 0, received "-1"/],
  ["--clip Infinity", /--clip: it must be a number from 0, received "Infinity"/],
  [
    "--lr-schedule linear --min-lr 0.01",
    /^Cannot train: the learning rate at the end must be at most the first, 0.002, received 0.01$/,
  ],
  ["--min-lr 0.001", /at the end must be left out where it is constant, received 0.001$/],
  ["--patience 2", /^Cannot use --patience: --eval-every must say when .*, received none$/],
  ["--keep-best --patience 0", /--patience: it must be a whole number from 1, received "0"/],
  ["--recompute-interval 0", /--recompute-interval: it must be a whole number from 1/],
  ["--memory-limit 2GB", /--memory-limit: it must be a size .* such as 512MiB,.*received "2GB"/],
  ["--memory-limit 0.1", /--memory-limit: it must be a size of at least one byte/],
  ["--memory-limit GiB", /--memory-limit: it must be a size/],
  ["--emulate-link 50", /--emulate-link: it must be a latency in µs .*, received "50"/],
  ["--emulate-link 50,0", /--emulate-link: .* GB\/s above 0, such as 50,1.25, received "50,0"/],
  ["--emulate-link -1,1", /--emulate-link: it must be a latency in µs from 0/],
  ["--emulate-link 1,2,3", /--emulate-link: it must be a latency in µs from 0/],
  ["--tie yes", /every argument must be a flag, received "yes"/],
  ["--offload --memory --drop-last 1", /every argument must be a flag, received "1"/],
  ["--order lifo", /--order: it must be one of fifo, backward-first, auto, received "lifo"/],
  ["--heads 3", /hidden must be divisible by heads, received hidden 16 and heads 3/],
  ["--workers 5", /into 5 stages: .*between 1 and its 4 layers/],
  [
    "--schedule 1f1b --waves 3",
    /schedule 1f1b: it does not read waves; schedules that do: hanayo,/,
  ],
  ["--send 1", /the schedule message-driven: it does not read costs; schedules that do: .*search/],
  ["--schedule chimera --workers 3", /the schedule chimera: workers must be even, received 3/],
  ["--schedule hanayo --micro-batches 3", /microBatches must be a multiple of the 2 workers/],
  ["--text a.txt", /the data must come from one file, received --text and --tokens/],
  [
    "--model mlp",
    /^Cannot train mlp on tokens: the data must say its inputs and classes, received vocab$/,
  ],
  ["--optimizer adam", /"adam" as optimizer: .* one of adamw, sgd; did you mean adamw\?$/],
  ["--model ./none.ts", /^Cannot .*none\.ts.*/],
];

Deno.test("bad flags are each refused in one sentence", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000)), out = join(folder, "out");
    const train = [...TINY, "--tokens", tokens, "--steps", "1", "--out", out];
    for (const [flags, reason] of FLAGS) {
      assert.match(await refusal([...train, ...flags.split(" ")]), reason, flags);
    }
    assert.deepEqual((await Array.fromAsync(Deno.readDir(folder))).length, 1, "only the tokens");
  }));

Deno.test("what is asked of evaluations is refused where nobody asks for them, or nothing is kept", () =>
  inFolder(async (folder) => {
    const text = join(folder, "a.txt"), train = [...TINY, "--text", text, "--json"];
    await Deno.writeTextFile(text, "In the beginning was the word. ".repeat(80));
    for (const flags of [["--patience", "2"], ["--keep-best", "--out", join(folder, "out")]]) {
      assert.equal(
        await refusal([...train, ...flags]),
        `Cannot use ${
          flags[0]
        }: --eval-every must say when held-out data is evaluated, received none`,
      );
    }
    assert.equal(
      await refusal([...train, "--eval-every", "2", "--keep-best"]),
      "Cannot use --keep-best: --out must say where checkpoints go, received none",
    );
  }));

Deno.test("files that cannot be read or written are refused by the name of their flag", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000)), none = join(folder, "none");
    for (const flag of ["tokens", "text"]) {
      for (const [path, what] of [[none, "no such file"], [folder, "a folder"]] as const) {
        assert.equal(
          await refusal([...TINY, `--${flag}`, path]),
          `Cannot use --${flag}: it must name a file that can be read, received "${path}" (${what})`,
        );
      }
    }
    const train = [...TINY, "--tokens", tokens, "--steps", "1"];
    assert.match(await refusal([...train, "--weights", none]), /--weights: .* \(no such file\)$/);
    const link = join(folder, "link");
    await Deno.symlink(join(folder, "nowhere"), link);
    const files = [tokens, join(tokens, "below"), join(tokens, "far", "below")];
    for (const out of [...files, link, join(link, "below")]) {
      assert.match(
        await refusal([...train, "--out", out]),
        /^Cannot write checkpoints to .*: it must be a folder that can be written, received /,
      );
    }
    assert.match(
      await refusal([...TINY, "--data", "shakespeare"]),
      /"shakespeare" as data: it must be a specifier or one of mnist, moby-dick, /,
    );
    const empty = join(folder, "empty.txt");
    await Deno.writeTextFile(empty, "");
    assert.match(
      await refusal([...TINY, "--text", empty]),
      /must have at least 17 tokens.* received 0/,
    );
  }));

Deno.test("no file is written that is read, and none twice, by whatever name", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000)), link = join(folder, "link");
    await Deno.symlink(tokens, link);
    const train = [...TINY, "--tokens", tokens, "--steps", "1"], none = join(folder, "none");
    for (const flag of ["trace", "journal"]) {
      for (const path of [tokens, link, join(folder, ".", "link")]) {
        assert.equal(
          await refusal([...train, `--${flag}`, path]),
          `Cannot write --${flag}: it must name a file of its own, received that of --tokens`,
        );
      }
    }
    assert.match(
      await refusal([...train, "--trace", none, "--journal", join(folder, ".", "none")]),
      /^Cannot write --trace: .* received that of --journal$/,
    );
  }));

/** Files of action lists, and what the refusal says of each. */
const LISTS: readonly [string, RegExp][] = [
  ["", /the CSV must have a row for each worker, received no row/],
  ["0F0,0X0\n", /an action: it must be like 2F0, .*received "0X0" in row 1, cell 2$/],
  [
    "0F0,0B0\n0F1,0B1\n1F0,1B0\n",
    /each of 2 micro-batches must have a forward of each of 2 stages/,
  ],
  ["0F0,0B0,0F1\n1F0,1B0,1F1,1B1\n", /must be complete and in order, .*worker 0 never runs 0B1/],
  ["0B0,0F0\n1F0,1B0\n", /worker 0 runs 0B0 before 0F0/],
  ["0F0,0F1,0B1,0B0\n1F0,1F1,1B0,1B1\n", /worker 0 runs 0B0 after a later micro-batch/],
  ["0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", /worker 0 waits at 0B0 for 1B0, which worker 1 runs/],
];

Deno.test("action lists that cannot run are refused, and flags that say something else", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000)), file = join(folder, "mine.csv");
    const train = [...TINY_MODEL, "--tokens", tokens, "--schedule-file", file];
    for (const [lists, reason] of LISTS) {
      await Deno.writeTextFile(file, lists);
      assert.match(await refusal(train), reason, lists);
    }
    await Deno.writeTextFile(file, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
    const other =
      `Cannot use --schedule-file: --FLAG must be 2, as in "${file}", or left out, received 3`;
    for (const flag of ["workers", "micro-batches"]) {
      assert.equal(await refusal([...train, `--${flag}`, "3"]), other.replace("FLAG", flag));
    }
    assert.match(
      await refusal([...train, "--schedule", "1f1b"]),
      /the schedule must come from one place, received --schedule and --schedule-file/,
    );
    assert.match(
      await refusal([...train, "--waves", "2", "--steps", "1"]),
      /schedule mine: it does not read waves;/,
    );
    const { code, stderr } = await runTrain([...train, "--workers", "3"]);
    assert.deepEqual([code, stderr], [2, other.replace("FLAG", "workers") + "\n"]);
  }));

Deno.test("evaluations that were asked for need data; those that nobody asked for do not", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(33));
    const train = [...TINY, "--tokens", tokens, "--steps", "1"];
    assert.match(
      await refusal([...train, "--eval-every", "1"]),
      /there must be at least 2 held-out rows of 8 tokens, received 0/,
    );
    const { code, stderr } = await runTrain([...train, "--out", join(folder, "out")]);
    assert.equal(code, 0, stderr);
  }));

Deno.test("bad input ends a process with exit code 2 and one line on standard error", () =>
  inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(3000)), out = join(folder, "out");
    const train = [...TINY, "--out", out, "--json"];
    const refused = await Promise.all([
      runTrain([...train, "--tokens", tokens, "--workers", "9"]),
      runTrain([...train, "--tokens", tokens, "--steps", "1000"]),
      runTrain([...train, "--tokens", tokens, "--out", join(tokens, "below"), "--device", "auto"]),
      runTrain([...train, "--tokens", tokens, "--nonesuch"]),
      runTrain([...train, "--tokens", join(folder, "none"), "--resume", join(folder, "no-run")]),
      runTrain([
        ...[...train, "--tokens", tokens, "--steps", "1", "--dashboard"],
        ...["--trace", join(tokens, "below")],
      ]),
      runGenerate(["--from", folder]),
    ]);
    for (const { code, stdout, stderr } of refused) {
      assert.equal(code, 2, stderr);
      assert.equal(stdout, "");
      assert.match(stderr, /^Cannot [^\n]+\n$/);
    }
    const left = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name);
    assert.deepEqual(left, ["tokens.bin"]);
  }));

gpuTest(
  "FP16 is refused before anything begins where the adapter does not compute in it",
  async () => {
    const fp16 = [...TINY, "--steps", "1", "--precision", "fp16"];
    for (const device of ["webgpu", "webgpu:0"]) {
      assert.match(
        await refusal([...fp16, "--device", device]),
        /^Cannot use the webgpu device in fp16: .* \(shader-f16\), received SwiftShader.* without it; use precision fp32, or other adapters$/,
      );
    }
  },
);
