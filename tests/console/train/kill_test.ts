/** `kill -9` of the whole program: nothing is lost that was told, and the bits stay the same. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { delay } from "@std/async/delay";
import { readCheckpoint } from "../../../actors/mod.ts";
import { substream } from "../../../kernels/mod.ts";
import {
  bitsOf,
  inFolder,
  jsonLines,
  type Line,
  savedIn,
  TINY_MODEL,
  trainJson,
} from "../command.ts";
import { sideBySide } from "../../actors/runs.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { Running, TRAIN } from "../running.ts";

/** Kills for each of the ways to keep workers apart, of runs that go on side by side. */
const KILLS = { worker: [10, 10], process: [4] };

/** Every fourth kill comes while the program starts, the others after the first step. */
const STARTING_MS = 600;
const TRAINING_MS = 300;

/** Of the moments; `TROUPE_SEED` takes another one. */
const SEED = Number(Deno.env.get("TROUPE_SEED") ?? 1);

/** The lines that were printed whole before the end came. */
function linesOf(text: string): Line[] {
  const end = text.lastIndexOf("\n") + 1;
  return end === 0 ? [] : jsonLines(text.slice(0, end));
}

/** Kills a program, starts it again, and so on; returns what it told, and the moments in words. */
async function killAgainAndAgain(
  train: readonly string[],
  out: string,
  kills: number,
  stream: string,
) {
  const generator = substream(SEED, stream);
  const told: Line[] = [], moments: string[] = [];
  let newest = 0;
  for (let i = 0; i < kills; i++) {
    const part = (generator.next() >>> 0) / 2 ** 32, isStarting = i % 4 === 0;
    const afterMs = part * (isStarting ? STARTING_MS : TRAINING_MS);
    const run = new Running([...TRAIN, ...train, "--steps", "100000", "--json"]);
    if (!isStarting) await run.printed("stdout", /"step":\d+,.*\n/);
    await delay(afterMs);
    run.kill();
    const { stdout, stderr } = await run.end(HANG_LIMIT_MS), lines = linesOf(stdout);
    moments.push(`${afterMs.toFixed(1)} ms after the ${isStarting ? "start" : "first step"}`);
    const what = `seed ${SEED}, kill ${i + 1}, ${moments.at(-1)}: ${stderr}`;
    const step = (await readCheckpoint(out))?.step ?? 0;
    // At most one checkpoint is being written, while the next step runs.
    const printed = (lines.at(-1)?.step ?? 0) as number;
    assert.ok(step >= Math.max(newest, printed - 2), `${what}; ${step} after ${printed}`);
    if (lines.length > 0) assert.equal(lines[0]!.step, newest + 1, what);
    newest = step;
    told.push(...lines);
  }
  assert.ok(newest >= kills / 2, `there must be something to lose, and only ${newest} were done`);
  return { newest, told, moments };
}

/** A run that is killed so often tells and leaves what one that is left in peace does. */
async function assertSameAsInPeace(folder: string, isolation: string, kills: number, nth: number) {
  const text = join(folder, "text.txt"), out = join(folder, `out-${nth}`);
  const peace = [
    ...[...TINY_MODEL, "--device", "native", "--micro-batches", "2", "--workers", "2"],
    ...["--text", text],
  ];
  const train = [
    ...[...peace, "--isolation", isolation, "--resume", out],
    ...["--checkpoint-every", "1", "--keep", "2"],
  ];
  const stream = `moments of kill -9 ${nth}`;
  const { newest, told, moments } = await killAgainAndAgain(train, out, kills, stream);

  const to = ["--steps", `${newest + 5}`], what = `seed ${SEED}: ${moments.join("; ")}`;
  const rest = await trainJson([...train, ...to]), whole = await trainJson([...peace, ...to]);
  assert.deepEqual(bitsOf(rest.lines), bitsOf(whole.lines, newest + 1), what);
  // Whatever was told along the way was true, and no step was left out.
  const expected = new Map(whole.lines.map((line) => [line.step, line.loss]));
  for (const { step, loss } of told) {
    assert.equal(loss, expected.get(step), `step ${step}, ${what}`);
  }
  const steps = new Set([...told, ...rest.lines].map(({ step }) => step));
  assert.deepEqual(steps, new Set(expected.keys()), what);
  const kept = [4, 5].map((more) => `step-${String(newest + more).padStart(8, "0")}`);
  assert.deepEqual(await savedIn(out), kept, "and nothing half written is left");
}

for (const [isolation, runs] of Object.entries(KILLS)) {
  const kills = runs.reduce((sum, one) => sum + one);
  Deno.test({
    name:
      `a program with ${isolation} isolation, killed at ${kills} random moments, ends with the bits of one left in peace`,
    ignore: Deno.build.os === "windows",
    fn: () =>
      inFolder(async (folder) => {
        const text = "In the beginning was the word. ".repeat(20);
        await Deno.writeTextFile(join(folder, "text.txt"), text);
        await sideBySide(
          runs.map((kills, nth) => assertSameAsInPeace(folder, isolation, kills, nth)),
        );
      }),
  });
}
