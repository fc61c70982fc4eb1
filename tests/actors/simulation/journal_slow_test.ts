/** Journals of several isolates, and of a program that is killed. */

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { atDepth } from "../../depth.ts";
import { readJournal, replayInbox, replayJournal } from "../../../testing.ts";
import {
  checksummed,
  parseJournal,
  PLAYERS,
  realJournal,
  recordsOf,
  refusedLine,
} from "./forged.ts";
import { Running } from "../../console/running.ts";
import { ASKER, playAsker, SUM } from "./players.ts";

const ISOLATES = ["worker", "process"] as const;

const texts = new Map<string, Promise<string>>();

/** The journal of real actors in an isolate, recorded once. */
const textOf = (isolate: typeof ISOLATES[number]) =>
  texts.getOrInsertComputed(isolate, () => realJournal(isolate));

for (const isolate of ISOLATES) {
  Deno.test(`${isolate}: a journal of real actors replays simulated, and each actor alone`, async () => {
    const journal = parseJournal(await textOf(isolate)), { steps } = journal;
    const played = steps.filter(({ actor }) => actor !== "system");
    assert.equal(new Set(played.map((step) => step.isolate)).size, 2);
    const chains = new Map<string, string>();
    await replayJournal(journal, ({ system }) => playAsker(system), {
      actors: [PLAYERS],
      onStep: ({ actor, chain }) => void chains.set(actor, chain),
    });
    for (const spec of [SUM, ASKER]) {
      const mine = steps.filter(({ actor }) => actor === spec.export);
      const last = mine.findLast(({ type }) => type !== "finish")!;
      assert.equal(chains.get(spec.export), last.chain);
      const replayed = await replayInbox(spec, journal);
      assert.deepEqual([replayed.steps, replayed.states], [mine.length, mine.length]);
      if (spec === ASKER) assert.equal(replayed.compared, 43);
    }
  });
}

Deno.test("a line that was changed, left out, doubled or moved is refused, whatever was in it", async () => {
  const text = await textOf("worker"), lines = text.split("\n").slice(0, -1);
  assert.equal(refusedLine(text), 0);
  const isolateOf = (line: string) => JSON.parse(line).isolate;
  const refused = (lines: readonly string[]) => refusedLine(`${lines.join("\n")}\n`);
  for (const [at, line] of lines.entries()) {
    // Some of the lines; of some of these one character of the name and of the value of every field.
    if (at % atDepth(3, 1) !== 0) continue;
    for (const { index } of at % atDepth(9, 4) === 0 ? line.matchAll(/"\w+":/g) : []) {
      for (const changed of [index + 1, line.indexOf(":", index) + 2]) {
        const other = line[changed] === "7" ? "8" : "7";
        const wrong = line.slice(0, changed) + other + line.slice(changed + 1);
        assert.equal(refused([...lines.slice(0, at), wrong]), at + 1, `${line} at ${changed}`);
      }
    }
    assert.ok(refused(lines.toSpliced(at, 0, line)) > 0, `doubled ${line}`);
    const later = lines.findIndex((other, to) => to > at && isolateOf(other) === isolateOf(line));
    if (later < 0) continue;
    assert.ok(refused(lines.toSpliced(at, 1)) > 0, `left out ${line}`);
    assert.ok(refused(lines.with(at, lines[later]!).with(later, line)) > 0, `moved ${line}`);
  }
  // The header of another journal.
  const moved = lines.with(0, checksummed([{ ...recordsOf(lines[0]!)[0]!, seed: 8 }]).trimEnd());
  assert.equal(refused(moved), 2);
});

/** Writes a journal until it is killed, and prints a line when 2,000 steps are flushed. */
const WRITER = `
  import { simulate, writeJournal } from "${import.meta.resolve("../../../testing.ts")}";
  import { playRing } from "${PLAYERS}";
  const { onStep } = await writeJournal({ path: Deno.args[0], flushMs: 0 });
  const watched = (step) => {
    onStep(step);
    if (step.n === 2000) Deno.stdout.writeSync(new TextEncoder().encode("going"));
  };
  const ring = { nodes: 8, tokens: 8, hops: 1e6 };
  await simulate({ onStep: watched }, (world) => playRing(world, ring));`;

Deno.test("a journal survives the kill of its program, up to the last flush", async () => {
  const path = await Deno.makeTempFile();
  const config = fileURLToPath(import.meta.resolve("../../../deno.json"));
  const module = `data:text/javascript,${encodeURIComponent(WRITER)}`;
  const program = new Running(["run", "-A", "--no-check", "--config", config, module, path]);
  await program.printed("stdout", /going/);
  program.kill();
  await program.end();
  const { steps, unfinished } = await readJournal(path);
  await Deno.remove(path);
  assert.ok(steps.length >= 2000, `${steps.length} steps`);
  assert.deepEqual(steps.slice(-3).map(({ n }) => n - steps.length), [-3, -2, -1]);
  assert.deepEqual(unfinished, [0]);
});
