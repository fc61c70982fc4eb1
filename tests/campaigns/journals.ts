/**
 * Journals that were changed, by accident or by a forger who makes every sum and hash right, and
 * journals whose header asks for modules, files and memory. Each is refused in one sentence, or says
 * what the journal said; a tail that is cut is told. Nothing is imported, opened or taken.
 *
 *     deno task campaign journals [--cases N] [--seed N]
 *
 * @module
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { parseArgs } from "@std/cli/parse-args";
import { print } from "../../console/print.ts";
import { rehearsal } from "../../actors/mod.ts";
import { createSystem } from "../../actors/runtime/mod.ts";
import { substream } from "../../actors/runtime/world/random.ts";
import { hashedOf } from "../../actors/simulation/journal/journal_lines.ts";
import {
  beginJournal,
  type Journal,
  pos,
  readJournal,
  replayInbox,
  replayJournal,
  type Scenario,
  simulate,
  writeJournal,
} from "../../testing.ts";
import { RECORDED_PLAN } from "../actors/rehearsal/recorded_plan.ts";
import { type Forged, recordsOf, sealed } from "../actors/simulation/forged.ts";
import { ASKER, playAsker, SUM } from "../actors/simulation/players.ts";
import { runTroupe } from "../console/command.ts";

const NAME = "journals";
const DEFAULT_CASES = 2000;

/** Most bytes by which this program may grow. */
const MAX_GROWTH = 2 ** 30;

const { cases, seed } = parseArgs(Deno.args, {
  string: ["cases", "seed"],
  default: { cases: String(DEFAULT_CASES), seed: "1" },
});
const draw = substream(Number(seed), NAME);
const below = (count: number) => Math.floor(draw() * count);
const oneOf = <T>(values: readonly T[]): T => values[below(values.length)]!;

/** A journal and all that it can be replayed with. */
interface Source {
  readonly name: string;
  readonly text: string;
  readonly journal: Journal;
  readonly replays: readonly ((journal: Journal) => Promise<unknown>)[];
}

const folder = await Deno.makeTempDir({ prefix: "troupe-journals-" });
const path = join(folder, "case.jsonl");

async function sources(): Promise<Source[]> {
  const asker: Scenario = ({ system }) => playAsker(system), options = { mayHaveChanged: true };
  const askerReplays = [
    (journal: Journal) => replayJournal(journal, asker, options),
    (journal: Journal) => replayInbox(SUM, journal),
    (journal: Journal) => replayInbox(ASKER, journal),
  ];
  const rehearsed = { configuration: RECORDED_PLAN, ...options };
  const rehearsals = [(journal: Journal) => replayJournal(journal, rehearsal, rehearsed)];
  const found: Source[] = [];
  const add = async (name: string, from: string, replays: Source["replays"]) => {
    const journal = await readJournal(from);
    found.push({ name, text: await Deno.readTextFile(from), journal, replays });
  };
  {
    await using system = createSystem({ observer: await beginJournal({ path, payloads: true }) });
    await playAsker(system, "worker");
  }
  await add("real workers", path, askerReplays);
  const { close, ...pen } = await writeJournal({ path, seed: 1, payloads: true });
  await simulate({ seed: 1, strategy: pos(), configuration: RECORDED_PLAN, ...pen }, rehearsal);
  close();
  await add("rehearsal", path, rehearsals);
  const old = new URL("../fixtures/journals/", import.meta.url).pathname;
  await add("0.1.0 asker", join(old, "0.1.0_asker.jsonl"), askerReplays);
  await add("0.1.0 rehearsal", join(old, "0.1.0_rehearsal.jsonl"), rehearsals);
  return found;
}

/** Fails unless an error is one that a person can read. */
function assertSentence(error: unknown): void {
  assert.ok(error instanceof Error);
  assert.match(error.message, /^Cannot [^\n]+$/);
}

/** What a journal promises: of version 1 the parts that its hashes cover. */
function promisedBy({ header, steps, payloads }: Journal): Map<number | string, unknown[]> {
  const isSealed = header.version > 1;
  const promised = new Map<number | string, unknown[]>(
    [...Map.groupBy(steps, ({ isolate }) => isolate)]
      .map(([isolate, own]) => [isolate, own.map((step) => isSealed ? step : hashedOf(step))]),
  );
  if (isSealed) promised.set("header", [header]);
  return promised.set("messages", [...payloads.keys()].toSorted());
}

/** A journal that is read must say what it said, or the beginning of it and that the rest is gone. */
function assertSame(changed: Journal, { journal, text }: Source, changedText: Uint8Array): void {
  const before = promisedBy(journal), now = promisedBy(changed);
  let isWhole = true;
  for (const [isolate, steps] of before) {
    const own = now.get(isolate) ?? [];
    isWhole &&= own.length === steps.length;
    if (isolate === "messages") assert.ok(own.every((one) => steps.includes(one)));
    else assert.deepEqual(own, steps.slice(0, own.length), `isolate ${isolate}`);
  }
  const isTold = changed.isTorn || changed.unfinished.length > 0;
  const isCut = changedText.length < new TextEncoder().encode(text).length;
  if (journal.header.version > 1) assert.ok(isWhole || (isTold && isCut), "a cut must be told");
}

/** Changes bytes, or lines as they are. */
function mutated({ text }: Source): { what: string; bytes: Uint8Array<ArrayBuffer> } {
  const bytes = new TextEncoder().encode(text), lines = text.split("\n").slice(0, -1);
  const at = below(lines.length), line = lines[at]!;
  const join = (what: string, changed: readonly string[]) => ({
    what: `${what} line ${at + 1}`,
    bytes: new TextEncoder().encode(changed.map((line) => `${line}\n`).join("")),
  });
  switch (below(7)) {
    case 0: {
      const where = below(bytes.length), bit = below(8);
      bytes[where]! ^= 1 << bit;
      return { what: `flip bit ${bit} of byte ${where}`, bytes };
    }
    case 1:
      return join("leave out", lines.toSpliced(at, 1));
    case 2:
      return join("double", lines.toSpliced(below(lines.length), 0, line));
    case 3:
      return join("swap", lines.with(at, lines[0]!).with(0, line));
    case 4: {
      const next = Math.min(at + 1, lines.length - 1);
      return join("swap neighbours of", lines.with(at, lines[next]!).with(next, line));
    }
    case 5: {
      const length = below(bytes.length);
      return { what: `cut after ${length} bytes`, bytes: bytes.slice(0, length) };
    }
    default: {
      const record = JSON.parse(line) as Forged, name = oneOf(Object.keys(record));
      const value = oneOf(VALUES), changed = JSON.stringify({ ...record, [name]: value });
      return join(`${name} = ${JSON.stringify(value)} in`, lines.with(at, changed));
    }
  }
}

/** Values of every type. */
const VALUES: readonly unknown[] = [
  ...[
    null,
    true,
    false,
    0,
    1,
    -1,
    0.5,
    1e300,
    2 ** 53,
    "",
    "x",
    "x#1",
    "0".repeat(16),
    "\u001b[2J",
  ],
  ...[[], [null], ["send a b"], ["spawned a 1/1"], {}, { $: ["Map", 7] }, {
    $: ["Float32Array", 1],
  }],
  ...[{ type: "init" }, { type: "Add", by: null }, { $: 7 }, { length: 2 ** 32 }, undefined],
];

/** Changes a field as a forger does. */
function forged({ text }: Source): { what: string; bytes: Uint8Array<ArrayBuffer> } {
  const records = recordsOf(text), at = below(records.length), record = records[at]!;
  const name = oneOf(Object.keys(record)), value = oneOf(VALUES);
  const changed = records.with(at, { ...record, [name]: value });
  let bytes = text;
  try {
    bytes = records[0]!["version"] === 1
      ? changed.map((one) => `${JSON.stringify(one)}\n`).join("")
      : sealed(changed);
  } catch {
    // What cannot be sealed, no forger seals.
  }
  const what = `forge ${name} = ${JSON.stringify(value)} in line ${at + 1}`;
  return { what, bytes: new TextEncoder().encode(bytes) };
}

/** Reads a changed journal, and replays what is read of a forged one. */
async function examine(source: Source, isForged: boolean): Promise<[string, string | undefined]> {
  const { what, bytes } = isForged ? forged(source) : mutated(source);
  const name = `${source.name}: ${what}`;
  try {
    await Deno.writeFile(path, bytes);
    const journal = await readJournal(path).catch((error) => error as Error);
    if (journal instanceof Error) assertSentence(journal);
    else if (!isForged) assertSame(journal, source, bytes);
    else {
      for (const replay of source.replays) {
        await replay(journal).catch(assertSentence);
      }
    }
    return [name, undefined];
  } catch (error) {
    return [name, (error as Error).message];
  }
}

/** Headers that ask for what no journal may have. */
function* demands(trap: string, url: string): Generator<unknown> {
  const rest = { configuration: {}, faults: [] };
  for (const explore of [trap, `file://${trap}`, url, "data:text/javascript,Deno.exit(7)"]) {
    yield { explore, ...rest };
  }
  for (const flag of ["text", "tokens", "weights", "schedule-file", "resume"]) {
    for (const file of ["/dev/zero", "/etc/passwd", trap, url]) {
      yield { train: [`--${flag}=${file}`] };
    }
  }
  const flags = ["hidden", "layers", "heads", "seq", "vocab", "micro-batch", "micro-batches"];
  for (const flag of [...flags, "replicas", "workers", "chunks", "steps", "lr", "no-such"]) {
    for (const value of ["1e15", "4294967296", "-5", "NaN", "0x10"]) {
      yield { train: ["--device", "reference", `--${flag}`, value] };
    }
  }
  for (
    const field of ["workers", "microBatches", "replicas", "steps", "options", "clip", "schedule"]
  ) {
    for (const value of [1e9, -1, "4", null, {}]) {
      const configuration = { schedule: "1f1b", [field]: value };
      yield { explore: "1f1b", configuration, faults: [] };
    }
  }
}

/** What the command says of a journal with such a header. */
async function demand(configuration: unknown): Promise<[string, string | undefined]> {
  const name = `header ${JSON.stringify(configuration)}`;
  const records: Forged[] = [{
    ...{ format: "troupe-journal", version: 2, package: "0.1.0", seed: 1, strategy: "workers" },
    ...{ configuration, actors: {}, device: "reference", deno: "2.9.6" },
  }, { end: 0, isolate: 0 }];
  await Deno.writeTextFile(path, sealed(records));
  const { code, stderr } = await runTroupe(["replay", path]);
  // 1 where a person could have typed it: then it is the program that is not the recorded one.
  const isRefused = (code === 1 || code === 2) && /^Cannot [^\n]+\n$/.test(stderr);
  return [name, isRefused ? undefined : `ended with ${code}: ${stderr}`];
}

async function campaign(): Promise<void> {
  const all = await sources(), before = Deno.memoryUsage().rss;
  const trap = join(folder, "trap.ts"), sprung = join(folder, "sprung");
  await Deno.writeTextFile(trap, `Deno.writeTextFileSync(${JSON.stringify(sprung)}, "");`);
  let requests = 0, done = 0, survived = 0;
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, () => {
    requests++;
    return new Response("export const scenario = () => {};");
  });
  const count = ([name, problem]: [string, string | undefined]) => {
    done++;
    if (problem === undefined) survived++;
    else print(`${name}: ${problem}`);
  };
  for (const configuration of demands(trap, `http://127.0.0.1:${server.addr.port}/trap.ts`)) {
    count(await demand(configuration));
  }
  print(`${done} headers asked for what no journal may have; now journals are changed`);
  for (let n = 0; n < Number(cases); n++) count(await examine(oneOf(all), n % 2 === 1));
  const growth = Deno.memoryUsage().rss - before;
  const isImported = await Deno.stat(sprung).then(() => true, () => false);
  await server.shutdown();
  await Deno.remove(folder, { recursive: true });
  count(["nothing is imported or fetched", isImported || requests > 0 ? "it was" : undefined]);
  count(["memory is bounded", growth > MAX_GROWTH ? `it grew by ${growth} bytes` : undefined]);
  print(`memory grew by ${(growth / 2 ** 20).toFixed(0)} MiB`);
  print(`${NAME}: ${done} cases, ${survived} survived`);
  Deno.exit(done === survived ? 0 : 1);
}

await campaign();
