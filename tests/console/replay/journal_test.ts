/** `train --journal`, and the commands that read journals and explore orders. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { delay } from "@std/async/delay";
import { readJournal } from "../../../testing.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { recordsOf, sealed } from "../../actors/simulation/forged.ts";
import {
  ENVIRONMENT,
  inFolder,
  jsonLines,
  type Outcome,
  ROOT,
  runTroupe,
  TINY,
  trainJson,
} from "../command.ts";
import { Running, TRAIN } from "../running.ts";

/** Two workers that are real threads, and two replicas of them, so that there is an all-reduce. */
const RUN = [...TINY, "--workers", "2", "--replicas", "2", "--steps", "3"];

/** Ends as it should, and says so. */
async function troupe(code: number, ...args: string[]): Promise<Outcome> {
  const outcome = await runTroupe(args);
  assert.equal(outcome.code, code, `${args.join(" ")}: ${outcome.stdout}${outcome.stderr}`);
  return outcome;
}

Deno.test("a journal of real threads replays whole to the same weights, and one worker alone", async () => {
  await inFolder(async (folder) => {
    const journal = join(folder, "run.jsonl");
    const { last } = await trainJson([...RUN, "--journal", journal, "--journal-messages"]);
    const plain = await trainJson(RUN);
    assert.equal(last.weightsHash, plain.last.weightsHash);
    const isolates = new Set((await readJournal(journal)).steps.map(({ isolate }) => isolate));
    assert.equal(isolates.size, 5);

    const whole = await troupe(0, "replay", journal);
    assert.match(whole.stdout, new RegExp(`"weightsHash":"${last.weightsHash}"`));
    assert.match(whole.stdout, /\d+ steps as recorded, hash [0-9a-f]{16}/);
    for (const actor of ["worker-2", "supervisor"]) {
      const { stdout } = await troupe(0, "replay", journal, "--actor", actor);
      assert.match(stdout, new RegExp(`^${actor}: \\d+ messages, \\d+ doings and \\d+ states as`));
    }
    const { stdout } = await troupe(0, "replay", journal, "--actor", "worker-2", "--until", "3");
    assert.match(stdout, /worker-2 < supervisor#0 init[^]*As recorded up to step 3/);
  });
});

Deno.test("a journal of a run on wasm replays: what the module does of itself is no actor's doing", () =>
  inFolder(async (folder) => {
    const journal = join(folder, "run.jsonl"),
      flags = [...TINY, "--device", "wasm", "--steps", "1"];
    const { last } = await trainJson([...flags, "--journal", journal]);
    const { stdout } = await troupe(0, "replay", journal);
    assert.match(stdout, new RegExp(`"weightsHash":"${last.weightsHash}"`));
  }));

Deno.test("a journal of PipeDream on real threads, with the times of its trace, replays, and one worker alone", async () => {
  await inFolder(async (folder) => {
    const journal = join(folder, "run.jsonl"), trace = join(folder, "trace.json");
    const pipe = ["--schedule", "pipedream", "--workers", "2", "--steps", "3"];
    const flags = [...TINY, ...pipe, "--trace", trace];
    const { last } = await trainJson([...flags, "--journal", journal, "--journal-messages"]);
    const whole = await troupe(0, "replay", journal);
    assert.match(whole.stdout, new RegExp(`"weightsHash":"${last.weightsHash}"`));
    const { stdout } = await troupe(0, "replay", journal, "--actor", "worker-1");
    assert.match(stdout, /^worker-1: \d+ messages, \d+ doings and \d+ states as/);
    const { steps } = JSON.parse((await troupe(0, "trace", "summary", trace, "--json")).stdout);
    assert.equal(steps, 3);
  });
});

Deno.test("a changed journal, another version or a changed actor is refused at the first difference", async () => {
  await inFolder(async (folder) => {
    const journal = join(folder, "run.jsonl"), changed = join(folder, "changed.jsonl");
    await trainJson([...RUN, "--journal", journal]);
    const text = await Deno.readTextFile(journal);
    const change = async (from: RegExp, to: string) => {
      assert.match(text, from);
      await Deno.writeTextFile(changed, text.replace(from, to));
    };
    /** Changes it as a forger does, who makes all sums and hashes right. */
    const forge = async (from: RegExp, to: string) => {
      assert.match(text, from);
      await Deno.writeTextFile(changed, sealed(recordsOf(text.replace(from, to))));
    };
    await change(/"name":"0F1"/, '"name":"0F0"');
    const line = await troupe(2, "replay", changed);
    assert.match(line.stderr, /the hash of step \d+ of isolate \d in line \d+ must be/);
    for (const [from, to] of [[/"seed":1/, '"seed":2'], [/"did":\["send /, '"did":["Send ']]) {
      await change(from as RegExp, to as string);
      const { stderr } = await troupe(2, "replay", changed);
      assert.match(stderr, /^Cannot read a journal: the sum of line \d+ must be [^\n]+\n$/);
    }
    const program = ["--code-changed"];
    await forge(/"package":"[^"]*"/, '"package":"0.0.1"');
    assert.match((await troupe(1, "replay", changed)).stderr, /must be package version 0\.0\.1/);
    await troupe(0, "replay", changed, ...program);
    for (const module of ["worker.ts", "stage/stage.ts", "console/commands/train.ts"]) {
      const [, name = ""] = text.match(new RegExp(`"((?:[./\\w]*/)?${RegExp.escape(module)})":`)) ??
        [];
      await forge(new RegExp(`"${RegExp.escape(name)}":"[0-9a-f]*"`), `"${name}":"00"`);
      const { stderr } = await troupe(1, "replay", changed);
      assert.match(stderr, new RegExp(`must be module ${RegExp.escape(name)} with hash`));
    }
    await forge(
      /send worker-1 Activation [0-9a-f]{16}/,
      `send worker-1 Activation ${"0".repeat(16)}`,
    );
    const did = await troupe(1, "replay", changed);
    assert.match(did.stderr, /must be "send worker-1 Activation 0{16}" \(worker-0 < worker-0#\d+/);

    assert.match((await troupe(0, "journal", "diff", journal, journal)).stdout, /No difference/);
    const { stdout } = await troupe(0, "journal", "show", journal);
    const [head, ...steps] = stdout.slice(stdout.indexOf("time ms")).trim().split("\n");
    assert.match(
      stdout,
      /seed 1, workers\n[^]* steps of \d isolates[^]*\nTimes are since the first step/,
    );
    assert.match(head!, /^time ms +isolate +step +actor +message +chain +what it did$/);
    const times = steps.map((line) => Number(line.trim().split(/ +/)[0]));
    assert.equal(times[0], 0);
    assert.deepEqual(times, times.toSorted((a, b) => a - b));
    assert.ok(
      steps.some((line) =>
        /^ *[\d.]+ +2 +\d+ +worker-1 +< worker-0#0 Activation +[0-9a-f]{16}$/.test(line)
      ),
    );
    assert.ok(steps.some((line) => / Dispatch +[0-9a-f]{16} +0F0$/.test(line)));
  });
});

Deno.test("a journal survives kill -9 up to the last flush, and replays as far as it goes", async () => {
  await inFolder(async (folder) => {
    const journal = join(folder, "run.jsonl");
    const flags = [...RUN.slice(0, -1), "100000", "--json"];
    const run = new Running([...TRAIN, ...flags, "--journal", journal, "--journal-messages"]);
    await run.printed("stdout", /"step":20,.*\n/);
    await delay(200);
    run.kill();
    await run.end(HANG_LIMIT_MS);
    const { steps } = await readJournal(journal);
    const begun = steps.filter(({ actor, type }) => actor === "worker-0" && type === "Begin");
    assert.ok(begun.length >= 20, `${begun.length} steps of training are in the journal`);
    await troupe(0, "replay", journal, "--actor", "worker-0");
    const { stdout } = await troupe(0, "replay", journal);
    assert.match(stdout, /"step":15,[^]*\d+ steps as recorded; there the journal ends/);
  });
});

/** Runs a command whose files may have so many KiB and no more, as on a disk that is full then. */
async function trainOnSmallDisk(kibibytes: number, ...args: string[]): Promise<Outcome> {
  const limits = `trap '' XFSZ; ulimit -f ${kibibytes}; exec "$0" "$@"`;
  const command = new Deno.Command("bash", {
    args: ["-c", limits, Deno.execPath(), ...TRAIN, ...args],
    cwd: ROOT,
    env: ENVIRONMENT,
    stdin: "null",
  });
  const { code, stdout, stderr } = await command.output(), decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

Deno.test({
  name: "a disk that fills up ends the journal in one sentence, and the run only if asked to",
  ignore: Deno.build.os === "windows",
  async fn() {
    await inFolder(async (folder) => {
      const journal = join(folder, "run.jsonl"), out = join(folder, "out");
      const flags = [...TINY, "--workers", "2", "--json", "--journal", journal];
      const sentence =
        /^Cannot write the journal \S+run\.jsonl: its file must take what is written, /;
      const { code, stdout, stderr } = await trainOnSmallDisk(200, ...flags, "--steps", "30");
      assert.equal(code, 0, stderr);
      assert.match(stderr, sentence);
      assert.match(stderr, /; the run goes on without a journal\n$/);
      assert.equal(stderr.trimEnd().split("\n").length, 1);
      const plain = await trainJson([...TINY, "--workers", "2", "--steps", "30"]);
      assert.equal(jsonLines(stdout).at(-1)!.weightsHash, plain.last.weightsHash);
      const { steps, unfinished } = await readJournal(journal);
      assert.ok(steps.length > 100);
      assert.ok(unfinished.includes(0), `${unfinished}`);

      const stop = ["--steps", "100000", "--journal-full", "stop", "--out", out];
      const stopped = await trainOnSmallDisk(200, ...flags, ...stop);
      assert.equal(stopped.code, 1, stopped.stderr);
      assert.match(stopped.stderr, sentence);
      const [, step, saved] = /the run ended after step (\d+), with the checkpoint (\S+)\n$/
        .exec(stopped.stderr) ?? [];
      assert.ok((await Deno.stat(saved!)).isDirectory);
      assert.ok(saved!.endsWith(step!));
    });
  },
});

Deno.test("--journal is refused where there are no actors, or no file can be", async () => {
  const args = ["train", ...TINY, "--steps", "1", "--json", "--runtime", "serial"];
  const { stderr } = await troupe(2, ...args, "--journal", "nowhere.jsonl");
  assert.match(stderr, /Cannot write a journal: the runtime must have actors/);
  const nowhere = ["train", ...TINY, "--steps", "1", "--journal", "no/such/folder/run.jsonl"];
  const { stderr: why } = await troupe(2, ...nowhere);
  assert.match(why, /Cannot write a journal to no\/such\/folder\/run.jsonl: it must be a file/);
});

Deno.test("explore tells by its exit code how it ended, and its failure replays", async () => {
  await inFolder(async (folder) => {
    const journal = join(folder, "failed.jsonl");
    const all = await troupe(0, "explore", "chimera", "--seeds", "20", "--strategy", "pos");
    assert.match(all.stdout, /^20 runs, \d+ of them different, .*\n1 end:\n {2}20 × .*weightsHash/);
    const failed = await troupe(1, "explore", "tests/console/explored.ts", "--journal", journal);
    assert.match(failed.stdout, /simulationTest\(.*deviations: \[\{.*"choice":\d\}\]/);
    const untold = await troupe(2, "replay", journal);
    assert.match(
      untold.stderr,
      /type: deno task troupe replay .* --module tests\/console\/explored\.ts\n/,
    );
    const again = await troupe(0, "replay", journal, "--module", "tests/console/explored.ts");
    assert.match(again.stdout, /it failed as then: they came as/);
    const stuck = await troupe(3, "explore", "tests/console/stuck.ts");
    assert.match(stuck.stdout, /"system" waits for "mute" to answer "Why"/);
    const asynchronous = await troupe(0, "explore", "pipedream", "--seeds", "10");
    assert.match(asynchronous.stdout, /^10 runs, .*\n1 end:\n {2}10 × .*weightsHash/);
    const faulty = ["--seeds", "40", "--faults", "crash-before,site"];
    const lost = await troupe(0, "explore", "1f1b", ...faulty);
    assert.match(lost.stdout, /lost: 'worker-\d failed in step 1: "worker-\d" was made to crash'/);
    for (
      const args of [["pipedreams"], ["nowhere.ts"], ["1f1b", "--faults", "rain"], [
        "1f1b",
        "--strategy",
        "dfs",
        "--faults",
        "site",
      ]]
    ) {
      assert.match((await troupe(2, "explore", ...args)).stderr, /^Cannot /);
    }
  });
});
