/** Ctrl-C: the step is finished, the checkpoint written, exit code 130, and nothing is left. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/mod.ts";
import {
  bitsOf,
  inFolder,
  jsonLines,
  type Outcome,
  someTokens,
  TINY,
  trainJson,
  writeTokens,
} from "../command.ts";
import { Running, TRAIN } from "../running.ts";

/** More steps than a test waits for. */
const LONG = ["--steps", "2000", "--json"];

/** Worker processes notice within this time that their root is gone. */
const GRACE_MS = 10_000;

/** Checks that a run ended in good order after a few steps, and returns how many. */
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
  assert.equal(told[0], "Finishing the step under way; press Ctrl-C again to end at once.");
  assert.match(
    told[1]!,
    new RegExp(
      `^Interrupted after step ${step}; go on with: deno task train --resume ${
        RegExp.escape(path)
      } `,
    ),
  );
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

test("Ctrl-C finishes the step and writes the checkpoint; the run goes on with the same bits", async (folder) => {
  const train = await flags(folder), out = join(folder, "out");
  const run = new Running([...TRAIN, ...train, ...LONG]);
  await run.printed("stdout", /"step":2,/);
  run.interrupt("process");
  const outcome = await run.end();
  const step = await assertGoodOrder(outcome, out), steps = ["--steps", `${step + 1}`];

  const data = ["--tokens", join(folder, "tokens.bin")];
  const resumed = await trainJson(["--resume", out, ...data, "--device", "reference", ...steps]);
  const whole = await trainJson([...train, ...steps, "--out", join(folder, "whole")]);
  assert.deepEqual(
    [...bitsOf(jsonLines(outcome.stdout)).slice(0, -1), ...bitsOf(resumed.lines)],
    bitsOf(whole.lines),
  );
});

test("signals within a second count as one", async (folder) => {
  const run = new Running([...TRAIN, ...await flags(folder), ...LONG]);
  await run.printed("stdout", /"step":1,/);
  run.interrupt("process");
  run.interrupt("process");
  await assertGoodOrder(await run.end(), join(folder, "out"));
});

test("Ctrl-C in a terminal, which reaches `deno task` and its child, is one signal", async (folder) => {
  const run = new Running(["task", "train", ...await flags(folder), ...LONG]);
  await run.printed("stdout", /"step":1,/);
  run.interrupt("group");
  await assertGoodOrder(await run.end(), join(folder, "out"));
});

for (const signal of ["SIGTERM", "SIGHUP"] as const) {
  test(`${signal} ends a run as Ctrl-C does`, async (folder) => {
    const run = new Running([...TRAIN, ...await flags(folder), ...LONG]);
    await run.printed("stdout", /"step":1,/);
    run.interrupt("process", signal);
    await assertGoodOrder(await run.end(), join(folder, "out"));
  });
}

test("a terminal that hangs up on processes ends their run as Ctrl-C does", async (folder) => {
  const processes = ["--workers", "2", "--isolation", "process"];
  const run = new Running([...TRAIN, ...await flags(folder), ...LONG, ...processes]);
  await run.printed("stdout", /"step":1,/);
  run.interrupt("group", "SIGHUP");
  await assertGoodOrder(await run.end(GRACE_MS), join(folder, "out"));
});

test("under nohup a run goes on when its terminal hangs up", async (folder) => {
  const run = new Running([...TRAIN, ...await flags(folder), ...LONG], true);
  await run.printed("stdout", /"step":1,/);
  run.interrupt("group", "SIGHUP");
  await run.printed("stdout", /"step":40,/);
  run.interrupt("process");
  assert.ok(await assertGoodOrder(await run.end(), join(folder, "out")) >= 40);
});

for (const runtime of ["local", "serial"]) {
  test(`Ctrl-C is heard where the ${runtime} runtime computes without pause`, async (folder) => {
    const run = new Running([...TRAIN, ...await flags(folder), ...LONG, "--runtime", runtime]);
    await run.printed("stdout", /"step":1,/);
    run.interrupt("process");
    await assertGoodOrder(await run.end(), join(folder, "out"));
  });
}

const ENDLESS = ["run", "-A", "tests/console/endless_command.ts"];

test("a second Ctrl-C after more than a second ends the run at once", async () => {
  const run = new Running([...ENDLESS, "what never ends"]);
  await run.printed("stdout", /running/);
  run.interrupt("process");
  await run.printed("stderr", /Finishing what never ends; press Ctrl-C again to end at once/);
  await new Promise((resolve) => setTimeout(resolve, 500));
  run.interrupt("process");
  await new Promise((resolve) => setTimeout(resolve, 600));
  run.interrupt("process");
  assert.equal((await run.end()).code, 130);
});

test("Ctrl-C ends a command at once that has nothing to finish", async () => {
  const run = new Running(ENDLESS);
  await run.printed("stdout", /running/);
  run.interrupt("process");
  assert.deepEqual(await run.end(), { code: 130, stdout: "running\n", stderr: "" });
});
