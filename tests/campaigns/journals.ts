/**
 * Changed journals, accidental or forged with correct checksums and hashes, and journals whose header
 * names modules, files and memory. Each is refused in one sentence, or has the content of the original;
 * a truncated end is reported. Nothing is imported or opened, and memory is bounded.
 *
 *     deno task campaign journals [--cases N] [--seed N]
 *
 * @module
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { simulatedTraining } from "../../actors/simulated_training/simulated_training.ts";
import { createSystem } from "../../actors/transports/system.ts";
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
import { checksummed, type Forged, recordsOf } from "../actors/simulation/forged.ts";
import { ASKER, playAsker, SUM } from "../actors/simulation/players.ts";
import { troupe } from "../../console/mod.ts";
import { quietly } from "../package/commands_entry.ts";
import { type Case, type Draw, drawing, runCampaign } from "./cases_helper.ts";

/** Two copies of each stage, so that there is an all-reduce, and two steps. */
const PLAN = { schedule: "chimera", workers: 2, microBatches: 2, replicas: 1, steps: 2 };

/** Maximum growth of this program, in bytes. */
const MAX_GROWTH = 2 ** 30;

let draw: Draw;
const oneOf = <T>(values: readonly T[]): T => values[draw(values.length)]!;

/** A journal with everything for its replay. */
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
  const rehearsed = { configuration: PLAN, ...options };
  const rehearsals = [(journal: Journal) => replayJournal(journal, simulatedTraining, rehearsed)];
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
  await simulate({ seed: 1, strategy: pos(), configuration: PLAN, ...pen }, simulatedTraining);
  close();
  await add("rehearsal", path, rehearsals);
  return found;
}

/** Fails unless an error is one clear sentence. */
function assertSentence(error: unknown): void {
  assert.ok(error instanceof Error);
  assert.match(error.message, /^Cannot [^\n]+$/);
}

/** Content of a journal. */
function promisedBy({ header, steps, payloads }: Journal): Map<number | string, unknown[]> {
  return new Map<number | string, unknown[]>([
    ...Map.groupBy(steps, ({ isolate }) => isolate),
    ["header", [header]],
    ["messages", [...payloads.keys()].toSorted()],
  ]);
}

/** Checks that a journal has its original content, or a prefix and a report of the missing rest. */
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
  assert.ok(isWhole || (isTold && isCut), "a missing end must be reported");
}

const bytesOf = (text: string) => new TextEncoder().encode(text);

/** Changes bytes or lines, without new checksums. */
function mutated({ text }: Source): { what: string; bytes: Uint8Array<ArrayBuffer> } {
  const bytes = bytesOf(text), lines = text.split("\n").slice(0, -1);
  const at = draw(lines.length), next = Math.min(at + 1, lines.length - 1), line = lines[at]!;
  const ways: readonly (() => { what: string; lines?: readonly string[]; bytes?: typeof bytes })[] =
    [
      () => {
        const where = draw(bytes.length), bit = draw(8);
        bytes[where]! ^= 1 << bit;
        return { what: `flip bit ${bit} of byte ${where} near`, bytes };
      },
      () => ({ what: "leave out", lines: lines.toSpliced(at, 1) }),
      () => ({ what: "double", lines: lines.toSpliced(draw(lines.length), 0, line) }),
      () => ({ what: "swap with the first", lines: lines.with(at, lines[0]!).with(0, line) }),
      () => ({ what: "swap with its next", lines: lines.with(at, lines[next]!).with(next, line) }),
      () => ({ what: "cut somewhere near", bytes: bytes.slice(0, draw(bytes.length)) }),
      () => {
        const record = JSON.parse(line) as Forged, name = oneOf(Object.keys(record));
        const value = oneOf(VALUES), changed = JSON.stringify({ ...record, [name]: value });
        return { what: `${name} = ${JSON.stringify(value)} in`, lines: lines.with(at, changed) };
      },
    ];
  const { what, lines: changed = [], bytes: own } = oneOf(ways)();
  return {
    what: `${what} line ${at + 1}`,
    bytes: own ?? bytesOf(changed.map((line) => `${line}\n`).join("")),
  };
}

/** Values of every type. */
const VALUES: readonly unknown[] = [
  ...[null, true, false, 0, 1, -1, 0.5, 1e300, 2 ** 53, "", "x", "x#1", "0".repeat(16)],
  ...["\u001b[2J", [], [null], ["send a b"], ["spawned a 1/1"], {}, { $: ["Map", 7] }],
  ...[{ $: ["Float32Array", 1] }, { type: "init" }, { type: "Add", by: null }, { $: 7 }],
  ...[{ length: 2 ** 32 }, undefined],
];

/** Changes a field, with new checksums. */
function forged({ text }: Source): { what: string; bytes: Uint8Array<ArrayBuffer> } {
  const records = recordsOf(text), at = draw(records.length), record = records[at]!;
  const name = oneOf(Object.keys(record)), value = oneOf(VALUES);
  const changed = records.with(at, { ...record, [name]: value });
  let bytes = text;
  try {
    bytes = checksummed(changed);
  } catch {
    // Records without valid checksums cannot be forged.
  }
  const what = `forge ${name} = ${JSON.stringify(value)} in line ${at + 1}`;
  return { what, bytes: bytesOf(bytes) };
}

/** Reads a changed journal, and replays a forged one. */
function examine(source: Source, isForged: boolean): Case {
  const { what, bytes } = isForged ? forged(source) : mutated(source);
  return {
    name: `${source.name}: ${what}`,
    async run() {
      await Deno.writeFile(path, bytes);
      const journal = await readJournal(path).catch((error) => error as Error);
      if (journal instanceof Error) return assertSentence(journal);
      if (!isForged) return assertSame(journal, source, bytes);
      for (const replay of source.replays) await replay(journal).catch(assertSentence);
    },
  };
}

/** Headers with requests that no journal may make. */
function* demands(trap: string, url: string): Generator<unknown> {
  const rest = { configuration: {}, faults: [] };
  for (const explore of [trap, `file://${trap}`, url, "data:text/javascript,Deno.exit(7)"]) {
    yield { explore, ...rest };
  }
  for (const flag of ["text", "tokens", "weights", "schedule-file", "resume"]) {
    const files = ["/dev/zero", "/etc/passwd", trap, url];
    yield* files.map((file) => ({ train: [`--${flag}=${file}`] }));
  }
  const flags = ["hidden", "layers", "heads", "seq", "vocab", "micro-batch-size", "micro-batches"];
  for (const flag of [...flags, "replicas", "workers", "chunks", "steps", "lr", "no-such"]) {
    for (const value of ["1e15", "4294967296", "-5", "NaN", "0x10"]) {
      yield { train: ["--device", "reference", `--${flag}`, value] };
    }
  }
  const fields = ["workers", "microBatches", "replicas", "steps", "options", "clip", "schedule"];
  for (const field of fields) {
    for (const value of [1e9, -1, "4", null, {}]) {
      const configuration = { schedule: "1f1b", [field]: value };
      yield { explore: "1f1b", configuration, faults: [] };
    }
  }
}

/** The command refuses a journal with such a header. */
const demand = (configuration: unknown): Case => ({
  name: `header ${JSON.stringify(configuration)}`,
  async run() {
    const records: Forged[] = [{
      ...{ format: "troupe-journal", version: 2, package: "0.1.0", seed: 1, strategy: "workers" },
      ...{ configuration, actors: {}, device: "reference", deno: "2.9.6" },
    }, { end: 0, isolate: 0 }];
    await Deno.writeTextFile(path, checksummed(records));
    const { code, stderr } = await quietly((context) => troupe(["replay", path], context));
    // 1 if a user could have typed it: then the program differs from the recorded one.
    assert.ok(code === 1 || code === 2, `${code}: ${stderr}`);
    assert.match(stderr, /^Cannot [^\n]+\n$/);
  },
});

await runCampaign("journals", 2000, async function* (count, seed) {
  draw = drawing(seed, "journals");
  const all = await sources(), before = Deno.memoryUsage().rss;
  const trap = join(folder, "trap.ts"), sprung = join(folder, "sprung");
  await Deno.writeTextFile(trap, `Deno.writeTextFileSync(${JSON.stringify(sprung)}, "");`);
  let requests = 0;
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, () => {
    requests++;
    return new Response("export const scenario = () => {};");
  });
  const url = `http://127.0.0.1:${server.addr.port}/trap.ts`;
  for (const configuration of demands(trap, url)) yield demand(configuration);
  for (let nth = 0; nth < count; nth++) yield examine(oneOf(all), nth % 2 === 1);
  yield {
    name: "nothing is imported or fetched, and memory is bounded",
    async run() {
      const growth = Deno.memoryUsage().rss - before;
      await server.shutdown();
      assert.equal(requests, 0);
      await assert.rejects(Deno.stat(sprung), Deno.errors.NotFound);
      await Deno.remove(folder, { recursive: true });
      assert.ok(growth <= MAX_GROWTH, `it grew by ${growth} bytes`);
    },
  };
});
