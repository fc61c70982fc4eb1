/** Journals: `train --journal`, and the commands that replay, show, compare and explore. */

import { digestOf } from "../../../actors/simulation/digest.ts";
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { delay } from "@std/async/delay";
import {
  arraysOf,
  checkOf,
  digestOfMessage,
  layOut,
  makeBox,
  openBoxRecorder,
  readBlackBox,
} from "../../../actors/run/black_box.ts";
import type { Message } from "../../../actors/runtime/mod.ts";
import { decodePayload, encodePayload } from "../../../actors/simulation/journal.ts";
import { readJournal } from "../../../testing.ts";
import { checksummed, type Forged, recordsOf } from "../../actors/simulation/forged.ts";
import { childProcesses } from "../../actors/child_processes.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { folderTest, inFolder } from "../../in_folder.ts";
import {
  jsonLines,
  refusalHere,
  refusedHere,
  ROOT,
  runHere,
  runTroupe,
  runWithin,
  someTokens,
  TINY,
  trainHere,
  words,
  writeTokens,
} from "../command.ts";
import { assertRefusals, assertSentences } from "../refusals.ts";
import { Running, TRAIN } from "../running.ts";

/** Two workers that are threads, and two replicas of them, so that there is an all-reduce. */
const RUN = [...TINY, "--workers", "2", "--replicas", "2", "--steps", "2"];

/** Expects an exit code; returns the output. */
async function troupe(code: number, ...args: string[]): Promise<string> {
  const { stdout, stderr, ...outcome } = await runHere(args);
  assert.equal(outcome.code, code, `${args.join(" ")}: ${stdout}${stderr}`);
  return code === 0 ? stdout : stdout + stderr;
}

/** Trains on threads with a journal; returns where that is, and the hash of the weights. */
async function journalIn(folder: string, args: readonly string[], runtime = "workers") {
  const journal = join(folder, "run.jsonl");
  const how = ["--runtime", runtime, "--journal", journal, "--journal-messages"];
  const { last } = await trainHere([...args, ...how]);
  return { journal, hash: String(last.weightsHash) };
}

let threads: Promise<{ text: string; hash: string }> | undefined;

/** A journal of threads, which is made once; each test gets its own file. */
async function threadsIn(folder: string) {
  const { text, hash } = await (threads ??= (async () => {
    const { journal, hash } = await journalIn(folder, RUN);
    return { text: await Deno.readTextFile(journal), hash };
  })());
  const journal = join(folder, "threads.jsonl");
  await Deno.writeTextFile(journal, text);
  return { journal, text, hash };
}

folderTest("a journal of threads replays, and so does a single worker", async (folder) => {
  const { journal, hash } = await threadsIn(folder);
  assert.equal((await trainHere(RUN)).last.weightsHash, hash);
  const isolates = new Set((await readJournal(journal)).steps.map(({ isolate }) => isolate));
  assert.equal(isolates.size, 5);

  const whole = await troupe(0, "replay", journal);
  assert.match(whole, new RegExp(`"weightsHash":"${hash}"`));
  assert.match(whole, /\d+ steps as recorded, hash [0-9a-f]{16}/);
  for (const actor of ["worker-2", "supervisor"]) {
    const said = await troupe(0, "replay", journal, "--actor", actor);
    assert.match(said, new RegExp(`^${actor}: \\d+ messages, \\d+ actions and \\d+ states as`));
  }
  const alone = ["replay", journal, "--actor", "worker-2"];
  const until = await troupe(0, ...alone, "--until", "3");
  assert.match(until, /worker-2 < supervisor#0 init[^]*As recorded up to step 3\.\n$/);
  assert.equal(until.match(/worker-2 </g)!.length, 4, "steps 0 to 3");
  // Threads come in any order.
  const refuse = async (words: string[]) =>
    (await refusalHere(words)).replace(/one of .*worker-0.*, received/, "one of …, received");
  await assertRefusals("replay", refuse, { JOURNAL: journal });
  await refusedHere(["replay", "--actor"], /the first argument must be a JOURNAL/);
});

folderTest("a journal of PipeDream with a trace replays", async (folder) => {
  const trace = join(folder, "trace.json");
  const pipe = words`--schedule pipedream --workers 2 --steps 2 --trace ${trace}`;
  const { journal, hash } = await journalIn(folder, [...TINY, ...pipe], "local");
  assert.match(await troupe(0, "replay", journal), new RegExp(`"weightsHash":"${hash}"`));
  const alone = await troupe(0, "replay", journal, "--actor", "worker-1");
  assert.match(alone, /^worker-1: \d+ messages, \d+ actions and \d+ states as/);
});

folderTest("a changed journal is refused at the first difference", async (folder) => {
  const { text } = await threadsIn(folder), changed = join(folder, "changed.jsonl");
  const change = async (from: RegExp, to: string, toText = (text: string) => text) => {
    assert.match(text, from);
    await Deno.writeTextFile(changed, toText(text.replace(from, to)));
  };
  /** Changes it as a forger does, who makes all sums and hashes right. */
  const forge = (from: RegExp, to: string) =>
    change(from, to, (text) => checksummed(recordsOf(text)));
  await change(/"name":"0F1"/, '"name":"0F0"');
  const hash = /the hash of step \d+ of isolate \d in line \d+ must be/;
  await refusedHere(["replay", changed], hash);
  for (const [from, to] of [[/"seed":1/, '"seed":2'], [/"did":\["send /, '"did":["Send ']]) {
    await change(from as RegExp, to as string);
    const sum = /^Cannot read a journal: the sum of line \d+ must be /;
    await refusedHere(["replay", changed], sum);
  }
  await forge(/"package":"[^"]*"/, '"package":"0.0.1"');
  assert.match(await troupe(1, "replay", changed), /must be package version 0\.0\.1/);
  await troupe(0, "replay", changed, "--code-changed");
  for (const module of ["worker.ts", "stage/stage.ts", "console/train/train.ts"]) {
    const found = text.match(new RegExp(`"((?:[./\\w]*/)?${RegExp.escape(module)})":`));
    const name = RegExp.escape(found?.[1] ?? "");
    await forge(new RegExp(`"${name}":"[0-9a-f]*"`), `"${found?.[1]}":"00"`);
    const said = await troupe(1, "replay", changed);
    assert.match(said, new RegExp(`must be module ${name} with hash`));
  }
  const activation = "send worker-1 Activation ";
  await forge(new RegExp(`${activation}[0-9a-f]{16}`), activation + "0".repeat(16));
  const must = /must be "send worker-1 Activation 0{16}" \(worker-0 < worker-0#\d+/;
  assert.match(await troupe(1, "replay", changed), must);
});

folderTest("a journal is shown by time, and two are compared actor by actor", async (folder) => {
  const { journal, text } = await threadsIn(folder), other = join(folder, "other.jsonl");
  assert.equal(await troupe(0, "journal", "diff", journal, journal), "No difference.\n");
  const records = recordsOf(text);
  const at = records.findLastIndex(({ actor, type }) => actor === "worker-1" && type !== undefined);
  const none = "0".repeat(16);
  records[at] = { ...records[at], payload: none, chain: none };
  await Deno.writeTextFile(other, checksummed(records));
  const differs =
    /^worker-1 differs first at its step (\d+):\n {2}- < (\S+ \w+).*, message [1-9a-f]\w{15}, .*\n {2}\+ < \2.*, message 0{16}, /;
  assert.match(await troupe(1, "journal", "diff", journal, other), differs);
  await assertRefusals("journals", refusalHere, { JOURNAL: journal, FOLDER: folder });

  const shown = await troupe(0, "journal", "show", journal);
  const [head, ...steps] = shown.slice(shown.indexOf("time ms")).trim().split("\n");
  assert.match(shown, /seed 1, workers\n[^]* steps of \d isolates[^]*\nTimes are since the first/);
  assert.match(head!, /^time ms +isolate +step +actor +message +chain +what it did$/);
  const times = steps.map((line) => Number(line.trim().split(/ +/)[0]));
  assert.equal(times[0], 0);
  assert.deepEqual(times, times.toSorted((a, b) => a - b));
  const rows = [
    /^ *[\d.]+ +2 +\d+ +worker-1 +< worker-0#0 Activation +[0-9a-f]{16}$/,
    / Dispatch +[0-9a-f]{16} +0F0$/,
  ];
  for (const row of rows) assert.ok(steps.some((line) => row.test(line)), `${row}`);
});

folderTest("a journal survives kill -9 and replays to its end", async (folder) => {
  const journal = join(folder, "run.jsonl");
  const flags = [...TINY, "--workers", "2", "--steps", "100000", "--json", "--journal", journal];
  const run = new Running([...TRAIN, ...flags, "--journal-messages"]);
  await run.printed("stdout", /"step":4,.*\n/);
  /** Steps of training that each isolate has written down. */
  const begun = async () => {
    const { steps } = await readJournal(journal), deeds = steps.flatMap(({ did }) => did);
    const counts = ["worker-0", "worker-1"].map((id) =>
      steps.filter(({ actor, type }) => actor === id && type === "Begin").length
    );
    return Math.min(...counts, deeds.filter((deed) => deed.includes("send worker-0 Begin")).length);
  };
  while (await begun() < 4) await delay(100);
  run.kill();
  await run.end(HANG_LIMIT_MS);
  await troupe(0, "replay", journal, "--actor", "worker-0");
  const said = await troupe(0, "replay", journal);
  assert.match(said, /"step":2,[^]*\d+ steps as recorded; there the journal ends/);
});

folderTest("a full disk ends the journal, and on request the run", async (folder) => {
  if (Deno.build.os === "windows") return;
  const journal = join(folder, "run.jsonl"),
    tokens = await writeTokens(folder, someTokens(4000, 16));
  const run = words`${TINY} --vocab 16 --tokens ${tokens} --steps 20`;
  const flags = [...run, "--runtime", "local", "--json", "--journal", journal];
  const sentence = /^Cannot write the journal \S+run\.jsonl: its file must be writable, /;
  const { code, stdout, stderr } = await runWithin(300, ["train", ...flags]);
  assert.equal(code, 0, stderr);
  assert.match(stderr, sentence);
  assert.match(stderr, /^[^\n]+; the run continues without a journal\n$/);
  const plain = await trainHere(run);
  assert.equal(jsonLines(stdout).at(-1)!.weightsHash, plain.last.weightsHash);
  const { steps, unfinished } = await readJournal(journal);
  assert.ok(steps.length > 50, `${steps.length}`);
  assert.ok(unfinished.includes(0), `${unfinished}`);

  const stop = ["--journal-full", "stop", "--out", join(folder, "out")];
  const stopped = await runWithin(300, ["train", ...flags, ...stop]);
  assert.equal(stopped.code, 1, stopped.stderr);
  assert.match(stopped.stderr, sentence);
  const ended = /the run ended after step (\d+), with the checkpoint (\S+)\n$/;
  const [, step, saved] = ended.exec(stopped.stderr) ?? [];
  assert.ok((await Deno.stat(saved!)).isDirectory);
  assert.ok(saved!.endsWith(step!));
});

Deno.test("--journal is refused without actors or with an invalid file", async () => {
  const train = words`train ${TINY} --steps 1 --journal`;
  await assertRefusals("journal_files", (words) => refusalHere([...train, ...words]));
});

folderTest("the exit code of explore is the kind of failure, which replays", async (folder) => {
  const journal = join(folder, "failed.jsonl"), scenario = "tests/console/explored.ts";
  const all = await troupe(0, "explore", "chimera", "--seeds", "4", "--strategy", "pos");
  assert.match(all, /^4 runs, \d+ of them different, .*\n1 end:\n {2}4 × .*weightsHash/);
  const failed = await troupe(1, "explore", scenario, "--journal", journal);
  assert.match(failed, /simulationTest\(.*deviations: \[\{.*"choice":\d\}\]/);
  const named = /type: deno task troupe replay .* --module tests\/console\/explored\.ts$/;
  await refusedHere(["replay", journal], named);
  const again = await troupe(0, "replay", journal, "--module", scenario);
  assert.match(again, /it failed as then: they came as/);
  const stuck = await troupe(3, "explore", "tests/console/stuck.ts");
  assert.match(stuck, /"system" waits for "mute" to answer "Why"/);
  const once = await troupe(0, "explore", "pipedream", "--seeds", "2", "--seed", "7", "--once");
  assert.match(once, /^2 runs, .*\n1 end:\n {2}2 × .*weightsHash/);
  const faults = ["--seeds", "8", "--faults", "crash-before,site"];
  const lost = await troupe(0, "explore", "1f1b", ...faults);
  assert.match(lost, /lost: 'worker-\d failed in step 1: "worker-\d" was made to crash'/);
  await assertRefusals("explore", (words) => refusalHere(["explore", ...words]), { ROOT });
});

/** Refused in one sentence, before anything is begun. */
const refused = (pattern: RegExp, ...args: string[]) => refusedHere(["replay", ...args], pattern);

/** Writes a journal; returns its path. */
async function write(folder: string, records: readonly Forged[]): Promise<string> {
  const path = join(folder, "strange.jsonl");
  await Deno.writeTextFile(path, checksummed(records));
  return path;
}

/** Writes a journal of this configuration and no steps. */
const writeEmpty = (folder: string, configuration: unknown) =>
  write(folder, [
    {
      ...{ format: "troupe-journal", version: 3, package: "0.1.0", seed: 1, strategy: "workers" },
      ...{ configuration, actors: {}, device: "reference", deno: "2.9.6" },
    },
    { end: 0, isolate: 0 },
  ]);

folderTest("a journal imports no module that its reader has not named", async (folder) => {
  const trap = join(folder, "trap.ts"), sprung = join(folder, "sprung");
  const text = `Deno.writeTextFileSync(${JSON.stringify(sprung)}, "");
    export const scenario = ({ idle }) => idle();`;
  await Deno.writeTextFile(trap, text);
  const modules = [trap, pathToFileURL(trap).href, `data:text/javascript,${encodeURI(text)}`];
  const asks = (explore: string) => writeEmpty(folder, { explore, configuration: {}, faults: [] });
  for (const module of [...modules, "http://127.0.0.1:9/trap.ts", "npm:left-pad"]) {
    await refused(/--module must name the file that the run read/, await asks(module));
    await assert.rejects(Deno.stat(sprung), Deno.errors.NotFound);
  }
  await troupe(0, "replay", await asks(trap), "--module", trap, "--code-changed");
  await Deno.stat(sprung);
});

folderTest("a journal opens no file that its reader has not named", async (folder) => {
  for (const flag of ["text", "tokens", "tokenizer", "weights", "schedule-file", "resume"]) {
    const path = await writeEmpty(folder, { train: [...TINY, `--${flag}`, "/dev/zero"] });
    await refused(new RegExp(`--${flag} must name the file .* --${flag} /dev/zero$`), path);
  }
  const text = ["--text", "/dev/zero"];
  const path = await writeEmpty(folder, { train: [...TINY, "--steps", "1"] });
  await refused(/--text must be left out, as in the recorded run/, path, ...text);
  const rehearsed = { explore: "1f1b", configuration: { schedule: "1f1b" }, faults: [] };
  await refused(/--text must be left out/, await writeEmpty(folder, rehearsed), ...text);
});

folderTest("a run on a named file replays and writes no file", async (folder) => {
  const text = join(folder, "my text.txt"), out = join(folder, "out");
  await Deno.writeTextFile(text, "It was the best of times, it was the worst. ".repeat(40));
  const args = [...TINY, "--steps", "2", "--out", out, "--text", text];
  const { journal, hash } = await journalIn(folder, args, "local");
  const before = await Deno.readTextFile(journal);
  await Deno.remove(out, { recursive: true });
  await refused(/--text '.*my text\.txt'$/, journal);
  assert.ok((await troupe(0, "replay", journal, "--text", text)).includes(hash));
  assert.equal(await Deno.readTextFile(journal), before);
  await assert.rejects(Deno.stat(out), Deno.errors.NotFound);
});

const plan = (more: object) => ({
  ...{ explore: "1f1b", configuration: { schedule: "1f1b", ...more }, faults: [] },
});

const faulty = (faults: unknown) => ({ ...plan({}), faults });

/** Configurations that no journal of a run has. */
const STRANGE: readonly unknown[] = [
  ...[null, 7, { train: "--steps 1" }, { train: [7] }, { train: Array(1000).fill("--json") }],
  ...["--lr -5", "--steps 1e99", "--no-such-flag", "rest"].map((train) => ({
    train: train.split(" "),
  })),
  ...[{ explore: 7 }, plan({ workers: 1e9 }), plan({ workers: "4" }), plan({ schedule: "gpipe" })],
  ...[plan({ steps: 1000, microBatches: 1000 }), plan({ options: { chunks: 1e9 } })],
  ...[faulty("crash"), faulty([{ step: -1, kind: "crash-before", target: "worker-0" }])],
  faulty([{ step: 1, kind: {}, target: "worker-0" }]),
];

folderTest("the configuration of a journal is checked and bounded", async (folder) => {
  const found: [string, string][] = [];
  for (const configuration of STRANGE) {
    const path = await writeEmpty(folder, configuration);
    const about = JSON.stringify(configuration).slice(0, 120);
    found.push([about, await refusalHere(["replay", path])]);
  }
  await assertSentences("strange_journals", found, { FOLDER: folder });
  const large = ["--hidden", "2048", "--layers", "12", "--heads", "16", "--seq", "8"];
  const path = await writeEmpty(folder, { train: [...large, "--device", "reference"] });
  const limit = /Cannot train within the memory limit: each worker must need at most 2048/;
  assert.match(await troupe(1, "replay", path, "--code-changed"), limit);
});

folderTest("a single actor takes no device, faults or models from a journal", async (folder) => {
  const { journal } = await journalIn(folder, [...TINY, "--steps", "1"], "local");
  const records = recordsOf(await Deno.readTextFile(journal));
  const { payloads, steps } = await readJournal(journal);
  const first = steps.find(({ actor }) => actor === "worker-0")!;
  // deno-lint-ignore no-explicit-any -- It is a forger who writes here.
  const forge = async (change: (init: any) => void): Promise<string> => {
    const message = structuredClone(payloads.get(first.payload)) as { init: unknown };
    change(message.init);
    // The digest is of the message after it was sent.
    const decoded = decodePayload(message), payload = digestOf(decoded);
    const forged = (record: Forged) => ({
      ...{ ...record, payload, ..."is" in record && { is: encodePayload(decoded) } },
    });
    return await write(
      folder,
      records.map((record) => record.payload === first.payload ? forged(record) : record),
    );
  };
  const alone = ["--actor", "worker-0"], library = join(folder, "evil.so");
  await Deno.writeTextFile(library, "not a library");
  const tame = await forge((init) => {
    init.device.library = library;
    init.fault = { worker: 0, kind: "exit", afterActions: 0 };
  });
  const said = await troupe(0, "replay", tame, ...alone);
  assert.match(said, /^worker-0: \d+ messages, \d+ actions and \d+ states as recorded/);
  const native = await forge((init) => init.device = { name: "native", library });
  // In a process, which unloads the real library.
  const { stdout, stderr } = await runTroupe(["replay", native, ...alone]);
  assert.doesNotMatch(stdout + stderr, /evil|not a library|invalid ELF|file too short/);
  const elsewhere = await forge((init) => {
    const model = new TextEncoder().encode("\x0a\x08location\x12\x05/etc/");
    init.held[0].program.programs[0].models.forward = encodePayload(model);
  });
  await refused(/a model of the journal must hold its data/, elsewhere, ...alone);
  const huge = await forge((init) => {
    init.held[0].program.programs[0].parameters[0].shape = [2 ** 40];
  });
  await refused(/must need at most 4294967296 bytes/, huge, ...alone);
});

/** Runs until weights become infinite in step 1; returns what the folder then has. */
async function failIn(folder: string, ...args: string[]): Promise<string[]> {
  const failing = words`--workers 2 --replicas 2 --steps 9 --lr 1e30 --clip 0 --out ${folder}/run`;
  const { code } = await runHere(["train", ...TINY, ...failing, ...args]);
  assert.equal(code, 1);
  return Array.from(Deno.readDirSync(join(folder, "run")), ({ name }) => name);
}

let failed: Promise<Uint8Array> | undefined;

/** The black box of a failed run whose actions are long enough to have one; it is made once. */
async function boxIn(folder: string): Promise<string> {
  const box = join(folder, "black-box");
  await Deno.writeFile(
    box,
    await (failed ??= inFolder(async (folder) => {
      await failIn(folder, ...words`--hidden 128 --seq 32 --micro-batch-size 16 --device wasm`);
      return await Deno.readFile(join(folder, "run", "black-box"));
    })),
  );
  return box;
}

/** Changes a bit of the first activation that worker 1 has received, as a fault of memory does. */
function withFlippedBit(path: string): Buffer {
  const received = readBlackBox(path).last.get("worker-1")!;
  // The digests of evaluations are 0.
  const record = received.find(({ type, digest }) => type === "Activation" && digest[1] !== 0)!;
  const { buffer } = arraysOf(record.message!)[0]!, file = Buffer.from(Deno.readFileSync(path));
  const words = (...values: number[]) => Buffer.from(Int32Array.from(values).buffer);
  const at = file.indexOf(Buffer.from(buffer)),
    head = file.lastIndexOf(words(...record.digest), at) - 12;
  file[at + 3]! ^= 8; // in the exponent
  new Uint8Array(buffer)[3]! ^= 8;
  words(...digestOfMessage(record.message!)).copy(file, head + 12);
  words(checkOf(file.subarray(head, head + 24))).copy(file, head + 24);
  return file;
}

folderTest("a black box tells where the first value is that is not finite", async (folder) => {
  const box = await boxIn(folder);
  for (const worker of ["worker-1", "worker-3"]) {
    const said = await troupe(0, "replay", box, "--actor", worker);
    assert.match(said, /\nstep 2: Abort from supervisor\n/);
    assert.match(said, /\nThe first value that is not finite is in Loss to supervisor in step 2\n/);
    assert.match(said, /\nWhat the other actors sent is the same when computed again\.\n$/);
  }
});

folderTest("a black box that was cut or changed is refused in a sentence", async (folder) => {
  const box = await boxIn(folder), bytes = await Deno.readFile(box), bad = join(folder, "bad");
  const { facts } = readBlackBox(box);
  assert.ok(bytes.length <= 2 ** 26);
  const replaced = (at: number, value: number) => bytes.with(at, value);
  const version = new TextDecoder("latin1").decode(bytes.subarray(0, 4096)).indexOf(facts.package);
  const cases = [
    [bytes.subarray(0, 20), /it must have 36 to 67108864 bytes, received 20/],
    [bytes.subarray(0, -1), /it must have \d+ bytes, received \d+/],
    [replaced(36, 0), /its head must hold the facts of a run, received other bytes/],
    [replaced(23, 0x7f), /its first step must be a whole number, received /],
    [replaced(version, 0x39), /its package version must be .*, received 9/],
    // A record of the supervisor, who is the first, from another worker than those of the run.
    [replaced(4096 + 4, 9), /its records must be as they were written, received other bytes/],
  ] as const;
  for (const [changed, sentence] of cases) {
    await Deno.writeFile(bad, changed);
    await refusedHere(["replay", bad, "--actor", "worker-1"], sentence);
  }
  await refusedHere(["replay", box, "--actor", "worker-9"], /must be one of worker-0, .* worker-9/);
  await refusedHere(["replay", box], /--actor must name a worker, received none/);
  // From the first step on, so that no steps before it are repeated.
  await Deno.writeFile(bad, bytes.slice().fill(0, 16, 24));
  const small = await troupe(1, "replay", bad, ...words`--actor worker-1 --memory-limit 1000`);
  assert.match(
    small,
    /\nCannot replay worker-1: the run must begin again; Cannot train within the/,
  );
});

folderTest("workers of a loss and of a kill replay, and a changed bit is found", async (folder) => {
  const out = join(folder, "run"), moved = join(folder, "moved"), box = join(moved, "black-box");
  const how = words`--workers 2 --replicas 2 --steps 99999 --checkpoint-every 4 --out ${out}`;
  const recorded = words`--isolation process --json --black-box=1`;
  const run = new Running([...TRAIN, ...TINY, ...how, ...recorded]);
  await run.printed("stdout", /"step":16,/);
  Deno.kill(childProcesses(run.pid)[3]!, "SIGKILL");
  // The processes that remain write the next file.
  await run.printed("stderr", /the run continues on 4 workers/);
  const seen = run.stdout.split("\n").length;
  await run.printed("stdout", new RegExp(`(.*\n){${seen + 8}}`));
  run.kill();
  await run.end(HANG_LIMIT_MS);
  await Deno.rename(out, moved);
  const lost = await troupe(0, "replay", `${box}.lost`, "--actor", "worker-0");
  assert.match(lost, /^(step \d+: .*\n)+worker-0: \d+ messages .*\nWhat the other actors .*\n$/);
  const said = await troupe(0, "replay", box, "--actor", "worker-1");
  assert.match(said, /\nworker-1: \d+ messages of steps \d+ to \d+, .*; [1-9]\d* answers as /);
  assert.doesNotMatch(said, /\nAt the last message it fails/);
  assert.match(said, /\nWhat the other actors sent is the same when computed again\.\n$/);
  await Deno.writeFile(box, withFlippedBit(box));
  const flipped = await troupe(1, "replay", box, "--actor", "worker-1");
  const told = /\nDifferent from the record: (Loss to supervisor|Gradient to worker-0) in /;
  assert.match(flipped, told);
  const sentence = /\n1 messages differ .* the first is Activation from worker-0 to worker-1 /;
  assert.match(flipped, sentence);
});

for (
  const [what, flag, told] of [
    [
      "sums that threads share are computed again for the recorded round",
      "--replicas=2",
      /, [1-9]\d* of them computed again; [1-9]\d* answers as recorded\n/,
    ],
    [
      "a worker is replayed without the mirror that it had",
      "--buddy",
      /, all kept; [1-9]\d* answers as recorded\nWhat the other/,
    ],
  ] as const
) {
  folderTest(what, async (folder) => {
    const how = words`--workers 2 ${flag} --steps 99999 --checkpoint-every 4 --out ${folder}`;
    const run = new Running([...TRAIN, ...TINY, ...how, "--json", "--black-box=1"]);
    await run.printed("stdout", /"step":10,/);
    run.kill();
    await run.end(HANG_LIMIT_MS);
    const said = await troupe(0, "replay", join(folder, "black-box"), "--actor", "worker-1");
    assert.match(said, told);
  });
}

folderTest("a run that ends well or has short actions leaves no black box", async (folder) => {
  assert.ok(!(await failIn(folder)).includes("black-box"));
  const out = join(folder, "well"), refuse = (...args: string[]) => ["train", ...TINY, ...args];
  await troupe(0, ...words`train ${TINY} --workers 1 --steps 2 --out ${out} --black-box=5`);
  assert.ok(!Array.from(Deno.readDirSync(out)).some(({ name }) => name === "black-box"));
  const box = words`--black-box 5 --steps 1`, cannot = /^Cannot keep a black box: the /;
  await refusedHere(refuse(...box, ...words`--runtime serial --out ${out}2`), cannot);
  await refusedHere(refuse(...box, ...words`--schedule pipedream --out ${out}2`), cannot);
});

/** Records three steps of a worker, of which the last is not ended. */
function recordIn(folder: string): void {
  const facts = { package: "1", train: [], after: 0, workers: 1, steps: 2, stepBytes: 2 ** 16 };
  const layout = layOut(join(folder, "black-box"), facts), at = { isolate: 0, serial: 0 };
  makeBox(layout, facts);
  const recorder = openBoxRecorder(0, layout), ref = { id: "worker-0", ...at };
  const actor = { ref, activity: "", expose: undefined };
  const send = (nth: number, message: Message) =>
    recorder.begins(actor, { from: { id: "supervisor", ...at }, nth, message }, 0);
  const output = (step: number) => new Float32Array(2000).fill(step);
  send(0, { type: "init" });
  for (const step of [0, 1, 2]) {
    send(2 * step + 1, { type: "Activation", output: output(step) } as Message);
    send(2 * step + 2, { type: "Dispatch" });
    if (step < 2) recorder.did(actor, { kind: "send", value: { type: "StepDone" } });
    recorder.ends(actor);
  }
  recorder.closes();
  const { last, records } = readBlackBox(layout.path);
  assert.deepEqual(
    last.get("worker-0")!.map(({ segment, nth, message }) => [segment, nth, message]),
    [1, 2].flatMap((step) => [
      [step, 2 * step + 1, { type: "Activation", output: output(step) }],
      [step, 2 * step + 2, { type: "Dispatch" }],
    ]),
  );
  assert.deepEqual(records.get("worker-0")!.map(({ nth }) => nth), [0, 1, 2, 3, 4]);
}

for (const [where, ffi] of [["in mapped memory", true], ["without FFI", false]] as const) {
  const permissions = { ffi, read: true, write: true };
  const fn = () => inFolder((folder) => Promise.resolve(recordIn(folder)));
  Deno.test({ name: `a black box is written ${where}`, permissions, fn });
}
