import { atDepth } from "../../depth.ts";
import { delay } from "@std/async/delay";
import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { substream } from "../../../kernels/random.ts";
import { folderTest } from "../../in_folder.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import {
  bitsOf,
  inFolder,
  jsonLines,
  type Line,
  type Outcome,
  refusedHere,
  runHere,
  runProgram,
  runWithin,
  savedIn,
  someTokens,
  TINY,
  TINY_MODEL,
  trainHere,
  words,
  writeTokens,
} from "../command.ts";
import { Running, TRAIN } from "../running.ts";

/** Ctrl-C: the step is finished, the checkpoint written, the exit code 130, and no process left. */

/** More steps than any test waits for. */
const LONG = ["--steps", "2000", "--json"];

/** Worker processes notice within this time that the main process has ended. */
const GRACE_MS = 10_000;

/** Checks that a run ended cleanly after a few steps; returns their number. */
async function assertGoodOrder({ code, stdout, stderr }: Outcome, out: string): Promise<number> {
  assert.equal(code, 130, stderr);
  const lines = jsonLines(stdout), last = lines.at(-1)!, step = last.steps as number;
  assert.ok(step < 2000);
  assert.deepEqual(lines.map((line) => line.step), [
    ...Array.from({ length: step }, (_, i) => i + 1),
    undefined,
  ]);
  assert.equal(last.interrupted, true);
  const { path, step: saved } = (await readCheckpoint(out))!;
  assert.deepEqual([last.checkpoint, saved], [path, step]);
  const told = stderr.split("\n").filter((line) => !line.startsWith("Task train"));
  assert.equal(told[0], "Finishing the step under way; press Ctrl-C again to end immediately.");
  const on = `Interrupted after step ${step}; resume with: deno task train --resume ${path} `;
  assert.ok(told[1]!.startsWith(on) && told[1]!.includes(" --steps 2000"), told[1]);
  assert.deepEqual(told.slice(2), [""]);
  return step;
}

/** Tests with signals to groups, which Windows does not have. */
function test(name: string, fn: (folder: string) => Promise<void>): void {
  Deno.test({ name, ignore: Deno.build.os === "windows", fn: () => inFolder(fn) });
}

const flags = async (folder: string) => [
  ...TINY,
  ...["--tokens", await writeTokens(folder, someTokens(64_001)), "--out", join(folder, "out")],
];

test("Ctrl-C, pressed twice quickly, finishes and saves the step; the run resumes with the same bits", async (folder) => {
  const train = await flags(folder), out = join(folder, "out");
  const run = new Running([...TRAIN, ...train, ...LONG, "--runtime", "local"]);
  await run.printed("stdout", /"step":2,/);
  for (let i = 0; i < 2; i++) run.interrupt("process");
  const outcome = await run.end();
  const step = await assertGoodOrder(outcome, out), steps = ["--steps", `${step + 1}`];

  const data = ["--tokens", join(folder, "tokens.bin")];
  const resumed = await trainHere(["--resume", out, ...data, "--device", "reference", ...steps]);
  const whole = await trainHere([...train, ...steps, "--out", join(folder, "whole")]);
  assert.deepEqual(
    [...bitsOf(jsonLines(outcome.stdout)).slice(0, -1), ...bitsOf(resumed.lines)],
    bitsOf(whole.lines),
  );
});

/** Signals that end a run after its first printed step: receiver, signal and command line. */
const ENDS: Readonly<Record<string, string>> = {
  "Ctrl-C in a terminal, which reaches `deno task` and its child, is one signal":
    "group SIGINT task train",
  "SIGTERM ends a run as Ctrl-C does, also if it computes without pause":
    "process SIGTERM run -A cli.ts train --runtime serial",
  "SIGHUP of a closing terminal ends a run as Ctrl-C does":
    "group SIGHUP run -A cli.ts train --workers 2 --isolation process",
};

for (const [title, how] of Object.entries(ENDS)) {
  test(title, async (folder) => {
    const [to, signal, ...args] = how.split(" ") as ["process" | "group", Deno.Signal];
    const run = new Running([...args, ...await flags(folder), ...LONG]);
    await run.printed("stdout", /"step":1,/);
    run.interrupt(to, signal);
    await assertGoodOrder(await run.end(GRACE_MS), join(folder, "out"));
  });
}

test("under nohup a run continues when its terminal closes, or a file may not grow", async (folder) => {
  const train = [...await flags(folder), ...LONG, "--runtime", "local"];
  const run = new Running([...TRAIN, ...train], true);
  await run.printed("stdout", /"step":1,/);
  run.interrupt("group", "SIGHUP");
  run.interrupt("process", "SIGXFSZ");
  await run.printed("stdout", /"step":40,/);
  run.interrupt("process");
  assert.ok(await assertGoodOrder(await run.end(), join(folder, "out")) >= 40);
});

const ENDLESS = ["run", "-A", "tests/console/endless_command.ts"];

test("a second Ctrl-C after more than a second ends the run immediately", async () => {
  const run = new Running([...ENDLESS, "what never ends"]);
  await run.printed("stdout", /running/);
  run.interrupt("process");
  await run.printed("stderr", /Finishing what never ends; press Ctrl-C again to end immediately/);
  await new Promise((resolve) => setTimeout(resolve, 500));
  run.interrupt("process");
  await new Promise((resolve) => setTimeout(resolve, 600));
  run.interrupt("process");
  assert.equal((await run.end()).code, 130);
});

test("Ctrl-C immediately ends a command that has nothing to finish", async () => {
  const run = new Running(ENDLESS);
  await run.printed("stdout", /running/);
  run.interrupt("process");
  assert.deepEqual(await run.end(), { code: 130, stdout: "running\n", stderr: "" });
});

for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143]] as const) {
  test(`${signal} ends a computation that has no time for it, with its best result`, async (folder) => {
    const out = join(folder, "out");
    for (const to of [[], [out]]) {
      const run = new Running([...ENDLESS, "computing", ...to]);
      await run.printed("stdout", /running/);
      run.interrupt("process", signal);
      const ended = await run.end(), stdout = `running\n${to.length > 0 ? "" : "a result\n"}`;
      const stderr = `Ended by ${signal}: this is the best result so far.\n`;
      assert.deepEqual(ended, { code, stdout, stderr });
    }
    assert.equal(await Deno.readTextFile(out), "a result\n");
    const blocking = new Running([...ENDLESS, "blocking"]);
    await blocking.printed("stdout", /running/);
    blocking.interrupt("process", signal);
    assert.deepEqual(await blocking.end(), { code, stdout: "running\n", stderr: "" });
  });
}

test("a reader that exits ends a command quietly, a full disk with an error message", async () => {
  const list = "schedule compare --workers 4 --micro-batches 8 --format json";
  const shell = (script: string) =>
    runProgram("bash", ["-c", `set -o pipefail; ${script}`, Deno.execPath()]);
  for (const command of [list, "train --help", "schedule gpipe --workers 99 --micro-batches 999"]) {
    const { code, stderr } = await shell(`"$0" run -A cli.ts ${command} | true`);
    assert.deepEqual([code, stderr], [141, ""], command);
  }
  const full = await shell(`"$0" run -A cli.ts ${list} > /dev/full`);
  assert.equal(full.code, 2);
  const said = /^Cannot use standard output: .* No space left on device; free space [^\n]*\n$/;
  assert.match(full.stderr, said);
  const lines = "schedule list" + "' exhausted '" + list + " --out cli.tmp' 'plot gpt-1";
  const few = await shell(
    `ulimit -n 300; "$0" run -A tests/console/run_files/commands_entry.ts '${lines}'`,
  );
  const [, written, read] = JSON.parse(few.stdout) as Outcome[];
  assert.match(written!.stderr, /^Cannot use cli.tmp: .*Too many open files; .* ulimit -n\n$/);
  assert.match(read!.stderr, /^Cannot read the run .*Too many open files.* ulimit -n\n$/);
});

/** `kill -9` of the whole program: no reported checkpoint is lost, and the bits stay the same. */

/** Number of kills for each isolation. */
const KILLS = atDepth({ worker: 2, process: 1 }, { worker: 10, process: 4 });

/** Every fourth kill happens while the program starts, the others after three steps. */
const STARTING_MS = 600;
const TRAINING_MS = 300;

/** Seed of the moments, or the value of `TROUPE_SEED`. */
const SEED = Number(Deno.env.get("TROUPE_SEED") ?? 1);

/** Kills a program and restarts it repeatedly; returns its output, and its newest checkpoint. */
async function killAgainAndAgain(train: readonly string[], out: string, kills: number) {
  const generator = substream(SEED, "moments of kill -9"), told: Line[] = [];
  let newest = 0;
  for (let i = 0; i < kills; i++) {
    const part = (generator.next() >>> 0) / 2 ** 32, isStarting = i % 4 === 1;
    const run = new Running([...TRAIN, ...train, "--steps", "100000", "--json"]);
    if (!isStarting) await run.printed("stdout", /(.*\n){3}/);
    await delay(part * (isStarting ? STARTING_MS : TRAINING_MS));
    run.kill();
    const { stdout, stderr } = await run.end(HANG_LIMIT_MS);
    const whole = stdout.slice(0, stdout.lastIndexOf("\n") + 1);
    const lines = whole === "" ? [] : jsonLines(whole);
    const what = `seed ${SEED}, kill ${i + 1}: ${stderr}`;
    const step = (await readCheckpoint(out))?.step ?? 0;
    // At most one checkpoint is being written, while the next step runs.
    const printed = (lines.at(-1)?.step ?? 0) as number;
    assert.ok(step >= Math.max(newest, printed - 2), `${what}; ${step} after ${printed}`);
    if (lines.length > 0) assert.equal(lines[0]!.step, newest + 1, what);
    newest = step;
    told.push(...lines);
  }
  assert.ok(newest >= kills / 2, `a kill must follow some steps, received ${newest}`);
  return { newest, told };
}

for (const [isolation, kills] of Object.entries(KILLS)) {
  const name = `a program with ${isolation} isolation, killed at ${kills} random moments, ` +
    "ends with the bits of an undisturbed run";
  test(name, async (folder) => {
    const text = join(folder, "text.txt"), out = join(folder, "out");
    await Deno.mkdir(out);
    await Deno.writeTextFile(text, "In the beginning was the word. ".repeat(20));
    const peace = words`${TINY_MODEL} --device native --micro-batches 2 --workers 2 --text ${text}`;
    const train =
      words`${peace} --isolation ${isolation} --resume ${out} --checkpoint-every 1 --keep 2`;
    const { newest, told } = await killAgainAndAgain(train, out, kills);

    const to = ["--steps", `${newest + 5}`];
    const rest = await trainHere([...train, ...to]), whole = await trainHere([...peace, ...to]);
    assert.deepEqual(bitsOf(rest.lines), bitsOf(whole.lines, newest + 1), `seed ${SEED}`);
    // All output was correct, and no step was skipped.
    const expected = new Map(whole.lines.map((line) => [line.step, line.loss]));
    for (const { step, loss } of told) assert.equal(loss, expected.get(step), `step ${step}`);
    const steps = new Set([...told, ...rest.lines].map(({ step }) => step));
    assert.deepEqual(steps, new Set(expected.keys()));
    const kept = [4, 5].map((more) => `step-${String(newest + more).padStart(8, "0")}`);
    assert.deepEqual(await savedIn(out), kept, "and no partial checkpoint is left");
  });
}

/** Two programs with the same `--out`: one trains, the other is refused. */

test("a folder in use is refused, and is free after its program is killed", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(1_000_000)), out = join(folder, "out");
  const train = words`${TINY} --tokens ${tokens} --json`;
  const endless = words`--out ${out} --checkpoint-every 1 --keep 2 --steps 30000 --runtime local`;
  const first = new Running([...TRAIN, ...train, ...endless]);
  await first.printed("stdout", /"step":2,.*\n/);
  for (const flags of [["--out", out], ["--resume", out], ["--out", `${out}/../out/`]]) {
    const inUse = RegExp(
      "^Cannot write checkpoints to .+: it must not be in use by another run, received pid " +
        `${first.pid} on [\\w.-]+; wait for its end, or name another folder$`,
    );
    await refusedHere(["train", ...train, ...flags, "--steps", "3000"], inUse);
  }
  first.kill();
  const { stdout } = await first.end(60_000), told = stdout.split("\n").length - 1;
  const { step } = (await readCheckpoint(out))!;
  assert.ok(step >= told - 2, `${step} of ${told}`);
  const { last } = await trainHere(words`${train} --resume ${out} --steps ${step + 1}`);
  assert.equal(last.steps, step + 1);
  const names = await savedIn(out);
  assert.ok(names.every((name) => name.startsWith("step-")), `${names}`);
});

/** Runs that fail while training: exit code 1, and the last good checkpoint stays. */

/** Trains on tokens in a folder at a rate that diverges. */
async function trainAtRate(folder: string, rate: string, ...more: string[]) {
  const tokens = await writeTokens(folder, someTokens(3000)), out = join(folder, "out");
  const train = words`train ${TINY} --runtime local --tokens ${tokens} --lr ${rate} --json`;
  return { out, ...await runHere(words`${train} --out ${out} ${more}`) };
}

folderTest("a loss that is not finite ends the run; its checkpoint stays", async (folder) => {
  const how = words`--steps 9 --checkpoint-every 1`;
  const { out, code, stdout, stderr } = await trainAtRate(folder, "1e30", ...how);
  assert.equal(code, 1);
  const said =
    /^Cannot take step 2: loss and gradients must be finite, received loss .*; lower the learning rate, or resume from the last checkpoint\n$/;
  assert.match(stderr, said);
  assert.deepEqual(jsonLines(stdout).map(({ step }) => step), [1]);
  assert.deepEqual(await savedIn(out), ["step-00000001"]);
  assert.equal((await readCheckpoint(out))!.step, 1);
});

folderTest("weights that are not finite are never saved", async (folder) => {
  const { out, code, stderr } = await trainAtRate(folder, "1e300", "--steps", "1");
  assert.equal(code, 1);
  assert.match(stderr, /^Cannot keep step 1: weights and moments must be finite, received .+\n$/);
  assert.deepEqual(await savedIn(out), []);
});

test("a full disk ends the run with code 1; its checkpoint stays complete", async (folder) => {
  const tokens = await writeTokens(folder, someTokens(3000)), out = join(folder, "out");
  await trainHere(words`${TINY} --tokens ${tokens} --steps 2 --out ${out}`);
  // No file may grow beyond 64 KiB: the moments need 96 KiB, the weights 48.
  const resume = words`--resume ${out} --tokens ${tokens} --steps 4 --device reference --json`;
  const { code, stdout, stderr } = await runWithin(128, ["train", ...resume]);
  assert.equal(code, 1, stderr);
  const said =
    /\nCannot write the checkpoint .*step-00000004: its disk must have room .*, received File too large .*; the checkpoints before it stay\n$/;
  assert.match(stderr, said);
  assert.deepEqual(jsonLines(stdout).map(({ step }) => step), [3, 4]);
  assert.deepEqual(await savedIn(out), ["step-00000002"]);
  assert.equal((await readCheckpoint(out))!.step, 2);
});
