/**
 * Two programs with one `--out`, started at random offsets: as long as one trains, the other says so
 * in a sentence and ends with code 2, and nothing of the first is lost. In every third case the first
 * is killed with `kill -9`, and the second goes on at once. Either way what is left is one whole
 * checkpoint of the bits of a run that was alone.
 *
 * @module
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { parseArgs } from "@std/cli/parse-args";
import { delay } from "@std/async/delay";
import { print, printError } from "../../console/print.ts";
import { readCheckpoint } from "../../actors/mod.ts";
import { substream } from "../../kernels/mod.ts";
import {
  inFolder,
  jsonLines,
  type Outcome,
  savedIn,
  someTokens,
  TINY,
  writeTokens,
} from "../console/command.ts";
import { Running, TRAIN } from "../console/running.ts";

const STEPS = 12;

/** Offsets: two in three are so short that both programs look for the folder at the same time. */
const SHORT_MS = 40, LONG_MS = 2000;

const REFUSED =
  /^Cannot write checkpoints to [^\n]+: it must (not be in use by another run, received (pid (\d+) on [\w.-]+|one that has not said who it is); wait for its end|hold none of another run, received one of step \d+; [^\n]+), or name another folder\n$/;

const flags = (tokens: string, out: string) => [
  ...[...TRAIN, ...TINY, "--tokens", tokens, "--json", "--steps", `${STEPS}`],
  ...["--resume", out, "--checkpoint-every", "1", "--keep", "2"],
];

/** Checks how a program ended; returns whether it was refused. */
function isRefused({ code, stdout, stderr }: Outcome, other: number): boolean {
  if (code === 0) return assert.equal(jsonLines(stdout).at(-1)!.steps, STEPS), false;
  assert.deepEqual({ code, stdout }, { code: 2, stdout: "" }, stderr);
  const holder = REFUSED.exec(stderr);
  assert.ok(holder, stderr);
  if (holder[3] !== undefined) assert.equal(Number(holder[3]), other, stderr);
  return true;
}

/** What is left must be whole, alone, and of these bits. */
async function assertLeft(out: string, weights: unknown): Promise<void> {
  const checkpoint = await readCheckpoint(out, (line) => assert.fail(line));
  assert.equal(checkpoint!.step, STEPS);
  assert.deepEqual(checkpoint!.state.weights, weights);
  assert.deepEqual(
    await savedIn(out),
    [STEPS - 1, STEPS].map((step) => `step-${String(step).padStart(8, "0")}`),
  );
}

interface Case {
  readonly tokens: string;
  readonly weights: unknown;
  /** From 0 to 1. */
  readonly random: () => number;
}

/** Two programs that both go to their ends; returns how many were refused. */
async function twoLive(out: string, { tokens, weights, random }: Case): Promise<number> {
  const offset = random() * (random() < 2 / 3 ? SHORT_MS : LONG_MS);
  const first = new Running(flags(tokens, out));
  await delay(offset);
  const second = new Running(flags(tokens, out));
  const [one, two] = await Promise.all([first.end(), second.end()]);
  const refused = [isRefused(one, second.pid), isRefused(two, first.pid)].filter(Boolean).length;
  assert.ok(refused < 2, "one of them must train");
  await assertLeft(out, weights);
  return refused;
}

/** The first is killed, the second goes on from where it was. */
async function oneKilled(out: string, { tokens, weights, random }: Case): Promise<number> {
  const first = new Running(flags(tokens, out));
  await delay(random() * LONG_MS);
  first.kill();
  const second = new Running(flags(tokens, out));
  await first.end(60_000);
  assert.equal(
    isRefused(await second.end(), first.pid),
    false,
    "the lock must die with its process",
  );
  await assertLeft(out, weights);
  return 0;
}

if (import.meta.main) {
  const { cases = "60", seed = "1" } = parseArgs(Deno.args, { string: ["cases", "seed"] });
  const generator = substream(Number(seed), "two programs, one folder");
  const random = () => (generator.next() >>> 0) / 2 ** 32;
  let survived = 0, refused = 0;
  await inFolder(async (folder) => {
    const tokens = await writeTokens(folder, someTokens(5000)), alone = join(folder, "alone");
    await new Running(flags(tokens, alone)).end();
    const { weights } = (await readCheckpoint(alone))!.state;
    for (let i = 0; i < Number(cases); i++) {
      const out = join(folder, `${i}`), run = i % 3 === 2 ? oneKilled : twoLive;
      try {
        refused += await run(out, { tokens, weights, random });
        survived++;
      } catch (error) {
        printError(`seed ${seed}, case ${i + 1}: ${(error as Error).message}`);
      }
      if ((i + 1) % 10 === 0) print(`${i + 1} cases, ${refused} programs refused`);
    }
  });
  print(`shared_folders: ${cases} cases, ${survived} survived`);
  Deno.exit(survived === Number(cases) ? 0 : 1);
}
