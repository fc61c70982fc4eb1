/** What a run leaves beside its checkpoints: `run.json` and `metrics.jsonl`, whatever befalls it. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { join } from "node:path";
import type { Metrics } from "../../../actors/mod.ts";
import { DIGITS_SHA256 } from "../../../kernels/mod.ts";
import { continueMetrics, createMetrics } from "../../../console/run_files/metrics_file.ts";
import { readMetrics } from "../../../console/run_files/read_metrics.ts";
import { readRecord } from "../../../console/run_files/read_record.ts";
import { createSchedule, formatCsv } from "../../../schedules/mod.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import {
  inFolder,
  jsonLines,
  type Outcome,
  refusal,
  ROOT,
  savedIn,
  someTokens,
  TINY,
  trainJson,
  writeTokens,
} from "../command.ts";
import { Running, TRAIN } from "../running.ts";
import { measured } from "./runs_helper.ts";

const trainIn = async (folder: string) => [
  ...TINY,
  ...["--tokens", await writeTokens(folder, someTokens(64_001)), "--out", join(folder, "out")],
];

const metricsIn = (out: string): Metrics[] => [...readMetrics(out)].map(({ metrics }) => metrics);

const stepsIn = (out: string) =>
  metricsIn(out).filter(({ type }) => type !== "evaluation").map(({ step }) => step);

const upTo = (steps: number) => Array.from({ length: steps }, (_, i) => i + 1);

/** Trains in a shell that lets no file grow beyond so many blocks of 512 bytes, as a full disk does. */
async function trainWithin(blocks: number, args: readonly string[]): Promise<Outcome> {
  const limited = `trap '' XFSZ; ulimit -f ${blocks}; exec "$0" run -A cli.ts train "$@"`;
  const { code, stdout, stderr } = await new Deno.Command("sh", {
    args: ["-c", limited, Deno.execPath(), ...args],
    cwd: ROOT,
    signal: AbortSignal.timeout(HANG_LIMIT_MS),
  }).output();
  const [out, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  return { code, stdout: out!, stderr: errors! };
}

folderTest(
  "run.json says what a run was told, where it ran, and what it came to",
  async (folder) => {
    const out = join(folder, "out"), train = await trainIn(folder);
    const how = ["--workers", "2", "--schedule", "1f1b", "--steps", "2", "--json"];
    const { last } = await trainJson([...train, ...how]), record = readRecord(out)!;
    const { lists } = createSchedule("1f1b", { workers: 2, microBatches: 2 });
    const sha256 = (bytes: string | Uint8Array) => createHash("sha256").update(bytes).digest("hex");
    assert.deepEqual(record.schedule, { name: "1f1b", hash: sha256(formatCsv(lists!)) });
    assert.deepEqual(record.data, {
      name: "tokens",
      hash: sha256(await Deno.readFile(join(folder, "tokens.bin"))),
    });
    const [start] = record.starts, { environment } = start!;
    assert.deepEqual([start!.command, start!.afterStep], [[...train, ...how, "--json"], 0]);
    assert.deepEqual([environment.deno, environment.device, environment.onnxruntime], [
      ...[Deno.version.deno, "reference", undefined],
    ]);
    assert.deepEqual([record.flags.hidden, record.flags.lr, record.flags.workers], [16, 0.002, 2]);
    assert.equal(record.plan.parameters, 11_632);
    const { reason, step, weightsHash } = record.end!;
    assert.deepEqual([reason, step, weightsHash], ["finished", 2, last.weightsHash]);
    const digits = join(folder, "digits"), small = ["--hidden", "8", "--micro-batch", "2"];
    const mlp = ["--model", "mlp", ...small, "--device", "reference", "--steps", "1"];
    await trainJson([...mlp, "--out", digits]);
    assert.deepEqual(readRecord(digits)!.data, { name: "mnist", hash: DIGITS_SHA256 });
  },
);

folderTest(
  "metrics.jsonl has each step once, with what was printed, killed and resumed",
  async (folder) => {
    const out = join(folder, "out"), train = await trainIn(folder);
    const every = ["--checkpoint-every", "3", "--json"];
    const run = new Running([...TRAIN, ...train, ...every, "--steps", "2000"]);
    await run.printed("stdout", /"step":10,/);
    run.kill();
    const { stdout } = await run.end(HANG_LIMIT_MS);
    const printed = jsonLines(stdout.slice(0, stdout.lastIndexOf("\n") + 1));
    const before = stepsIn(out);
    assert.deepEqual(before, upTo(before.length));
    assert.ok(
      before.length >= printed.length,
      `${before.length} of ${printed.length} that were told`,
    );
    // As a kill amid a line would leave it.
    await Deno.writeTextFile(join(out, "metrics.jsonl"), '{"type":"step","st', { append: true });
    const steps = ["--steps", `${before.length + 2}`], resume = ["--resume", out];
    const { lines } = await trainJson([...train, ...every, ...steps, ...resume]);
    assert.deepEqual(stepsIn(out), upTo(before.length + 2));
    const told = new Map([...printed, ...lines].map(({ step, loss }) => [step, loss]));
    for (const { step, loss } of metricsIn(out)) {
      assert.equal(loss, told.get(step) ?? loss, `step ${step}`);
    }
    const { starts, end } = readRecord(out)!;
    assert.deepEqual([starts.length, starts[1]!.afterStep % 3, end!.reason], [2, 0, "finished"]);
  },
);

folderTest(
  "what a run measures goes on where it goes on, and evaluations stand once",
  async (folder) => {
    const path = join(folder, "metrics.jsonl"), fail = (line: string) => assert.fail(line);
    const all = [
      ...[measured(0, 6, "evaluation"), measured(1, 5), measured(2, 4)],
      measured(2, 4.5, "evaluation"),
      ...[measured(3, 3), measured(4, 2)],
    ];
    {
      using file = createMetrics(path, fail);
      all.forEach(file.add);
    }
    assert.throws(() => createMetrics(path, fail), Deno.errors.AlreadyExists);
    {
      using file = continueMetrics(path, 2, fail);
      file.add(measured(2, 4.5, "evaluation")); // as a run that goes on begins
      file.add(measured(3, 3));
      file.add(measured(3, 3.5, "evaluation"));
    }
    assert.deepEqual(metricsIn(folder), [...all.slice(0, 5), measured(3, 3.5, "evaluation")]);
    await Deno.writeTextFile(path, "no line\n");
    assert.throws(() => continueMetrics(path, 2, fail), /^SyntaxError: .*each line must be a JSON/);
    assert.equal(await Deno.readTextFile(path), "no line\n");
  },
);

Deno.test({
  name: "a disk that is full for metrics lets training go on, and leaves whole lines",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder(async (folder) => {
      const out = join(folder, "out"), steps = 90;
      const tokens = await writeTokens(folder, someTokens(4000, 16));
      const small = ["--hidden", "8", "--vocab", "16", "--tokens", tokens, "--out", out];
      // 16 KiB: enough for a checkpoint, and not for so many lines.
      const { code, stderr } = await trainWithin(32, [
        ...[...TINY, ...small, "--steps", `${steps}`, "--runtime", "local", "--json"],
      ]);
      assert.equal(code, 0, stderr);
      assert.match(stderr, /^Cannot write \S+metrics.jsonl: .*; training goes on without it\n$/);
      const left = stepsIn(out);
      assert.ok(left.length > 30 && left.length < steps, `${left.length}`);
      assert.deepEqual(left, upTo(left.length));
      assert.ok((await Deno.readTextFile(join(out, "metrics.jsonl"))).endsWith("}\n"));
      assert.deepEqual(await savedIn(out), ["step-00000090"]);
      assert.equal(readRecord(out)!.end!.reason, "finished");
    }),
});

Deno.test({
  name: "a disk that is full for run.json is told at the door, and what was there stays",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder(async (folder) => {
      const out = join(folder, "out"), train = await trainIn(folder);
      await trainJson([...train, "--steps", "2"]);
      const before = await Deno.readTextFile(join(out, "run.json")), names = await namesIn(out);
      const resume = [...train, "--resume", out, "--steps", "4", "--json"];
      const { code, stdout, stderr } = await trainWithin(2, resume);
      assert.deepEqual([code, stdout], [2, ""], stderr);
      assert.match(stderr, /^Cannot begin the run in \S+: its disk must have room [^\n]+\n$/);
      assert.equal(await Deno.readTextFile(join(out, "run.json")), before);
      assert.deepEqual(await namesIn(out), names);
    }),
});

folderTest(
  "files of others that have a run's names are neither written to nor removed",
  async (folder) => {
    const out = join(folder, "out"), train = [...await trainIn(folder), "--steps", "1"];
    const victim = join(folder, "victim");
    const ways: readonly (readonly [name: string, make: (path: string) => Promise<void>])[] = [
      ["run.json", (path) => Deno.writeTextFile(path, `{"scripts":{}}`)],
      ["run.json", (path) => Deno.writeTextFile(path, `{"format":"troupe ru`)],
      ["metrics.jsonl", (path) => Deno.writeTextFile(path, "mine")],
      ["metrics.jsonl", (path) => Deno.symlink(victim, path)],
      ["timeline.jsonl", (path) => Deno.mkdir(path)],
      ["run.json", (path) => Deno.symlink(victim, path)],
    ];
    for (const [name, make] of ways) {
      await Deno.mkdir(out);
      await Deno.writeTextFile(victim, "mine");
      await make(join(out, name));
      for (const more of [[], ["--overwrite"], ["--resume", out]]) {
        assert.match(
          await refusal([...train, ...more]),
          new RegExp(`^Cannot begin a run in \\S+: ${name} there must be a run's, received `),
        );
      }
      assert.deepEqual(await namesIn(out), [name]);
      assert.equal(await Deno.readTextFile(victim), "mine");
      await Deno.remove(out, { recursive: true });
    }
    // A link in the place of what a run had left.
    await trainJson(train);
    await Deno.remove(join(out, "metrics.jsonl"));
    await Deno.symlink(victim, join(out, "metrics.jsonl"));
    assert.match(
      await refusal([...train, "--resume", out, "--steps", "2"]),
      /received what is no file/,
    );
    assert.equal(await Deno.readTextFile(victim), "mine");
  },
);

folderTest(
  "a record of another version is not gone on with, and may be overwritten",
  async (folder) => {
    const out = join(folder, "out"), train = await trainIn(folder), path = join(out, "run.json");
    await trainJson([...train, "--steps", "1"]);
    const { version: _, ...others } = JSON.parse(await Deno.readTextFile(path));
    await Deno.writeTextFile(path, JSON.stringify({ ...others, version: 2 }));
    assert.match(
      await refusal([...train, "--resume", out, "--steps", "2"]),
      /^Cannot read \S+run.json: its version must be 1, received "2"$/,
    );
    await trainJson([...train, "--steps", "1", "--overwrite"]);
    assert.equal(readRecord(out)!.version, 1);
  },
);

folderTest(
  "a run of Troupe 0.1 is gone on with, and has the files of a run from then on",
  async (folder) => {
    const out = join(folder, "out"), train = await trainIn(folder);
    await trainJson([...train, "--steps", "2"]);
    for (const name of ["run.json", "metrics.jsonl"]) await Deno.remove(join(out, name));
    await trainJson([...train, "--steps", "4", "--resume", out]);
    assert.deepEqual(stepsIn(out), [3, 4]);
    assert.deepEqual(readRecord(out)!.starts.map(({ afterStep }) => afterStep), [2]);
  },
);

folderTest("no file says that a run overwrites another", async (folder) => {
  const out = join(folder, "out"), train = await trainIn(folder);
  await trainJson([...train, "--steps", "1"]);
  await trainJson([...train, "--steps", "1", "--overwrite"]);
  const path = join(out, "step-00000001", "config.json");
  const config = JSON.parse(await Deno.readTextFile(path));
  assert.equal(config.run.overwrite, undefined);
  await Deno.writeTextFile(path, JSON.stringify({ ...config, run: { overwrite: true } }));
  assert.match(
    await refusal([...train, "--config", path]),
    /every name in it must be one of the flags, received "overwrite"/,
  );
});
