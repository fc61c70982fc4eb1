/**
 * Corrupted and hostile checkpoints, each resumed and given to `generate`:
 *
 *     deno task campaign checkpoints [--cases N] [--seed N]
 *
 * Each is refused in one sentence before anything is written, or skipped in favour of an older one,
 * which is named, or gives the bits of the undisturbed run. Only the folder of the new run is written.
 * If a change has a hash that fits, so that it is another valid checkpoint, the run may have other bits,
 * or fail as with typed flags. One case in a hundred uses the real command.
 *
 * @module
 */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { generateCommand } from "../../console/commands/generate.ts";
import { trainCommand } from "../../console/train/train.ts";
import { runGenerate, runTrain, someTokens, TINY, writeTokens } from "../console/command.ts";
import { copyFolder } from "../console/forged.ts";
import { quietly } from "../package/commands_entry.ts";
import { drawing, runCampaign } from "./cases_helper.ts";
import { type Damage, damages } from "./checkpoints_helper.ts";

const HOW = ["--device", "reference", "--runtime", "serial"];

type Outcome = Awaited<ReturnType<typeof quietly>>;

const hashOf = async (path: string) =>
  createHash("sha256").update(await Deno.readFile(path)).digest("hex");

/** Checks that the text is a refusal in one sentence, after the skipped checkpoints. */
function assertRefused({ code, stdout, stderr, hasBegun }: Outcome): void {
  assert.equal(hasBegun, false, `it started, then: ${stderr}`);
  assert.deepEqual([code, stdout], [2, ""]);
  assert.match(stderr, /^(Cannot \P{Cc}+; it is passed over\n)*Cannot \P{Cc}+\n$/u);
  assert.ok(stderr.split("\n").at(-2)!.length < 1000, "a sentence has an end");
}

const begun = (outcome: Omit<Outcome, "hasBegun">): Outcome => ({
  ...outcome,
  hasBegun: outcome.code !== 2,
});

/** A run of three steps with a checkpoint after each, and all files that must not change. */
class Field {
  readonly #folder: string;
  readonly #tokens: string;
  readonly #victim: string;
  #bits = "";
  #texts: string[] = [];

  constructor(folder: string, tokens: string) {
    [this.#folder, this.#tokens, this.#victim] = [folder, tokens, join(folder, "victim")];
  }

  #path(...names: string[]): string {
    return join(this.#folder, ...names);
  }

  async open(): Promise<void> {
    await Deno.writeTextFile(this.#victim, "mine");
    const train = [...TINY, ...HOW, "--tokens", this.#tokens, "--json", "--checkpoint-every", "1"];
    const run = await runTrain([...train, "--steps", "3", "--out", this.#path("run")]);
    assert.equal(run.code, 0, run.stderr);
    this.#bits = await hashOf(this.#path("run", "step-00000003", "model.safetensors"));
    for (const step of [1, 2]) {
      const { stdout } = await this.#generate(this.#path("run", `step-0000000${step}`), false);
      this.#texts.push(stdout);
    }
  }

  async #generate(from: string, isReal: boolean): Promise<Outcome> {
    const args = ["--from", from, "--device", "reference", "--tokens", "8"];
    return isReal
      ? begun(await runGenerate(args))
      : await quietly((context) => generateCommand.run(args, context));
  }

  async #resume(from: string, out: string, isReal: boolean): Promise<Outcome> {
    const args = [...HOW, "--resume", from, "--tokens", this.#tokens, "--steps", "3", "--json"];
    args.push("--out", out);
    return isReal
      ? begun(await runTrain(args))
      : await quietly((context) => trainCommand(args, context));
  }

  /** Damages a copy of the checkpoints, and checks the result. */
  async try({ harm, isFree, isAlone }: Damage, isReal: boolean): Promise<void> {
    const copy = this.#path("copy"), out = this.#path("out");
    const step = await copyFolder(this.#path("run", "step-00000002"), join(copy, "step-00000002"));
    if (!isAlone) await copyFolder(this.#path("run", "step-00000001"), join(copy, "step-00000001"));
    try {
      await harm(step, this.#victim);
      const resumed = await this.#resume(copy, out, isReal);
      if (isFree && resumed.code === 1) {
        // A value that a user could type fails as if typed: a loss scale of 1e300.
        assert.match(resumed.stderr, /^(\P{Cc}+\n)*Cannot \P{Cc}+\n$/u);
        return;
      }
      if (resumed.code !== 0) {
        assertRefused(resumed);
        await assert.rejects(Deno.stat(out), Deno.errors.NotFound, "nothing is written");
      } else if (!isFree) {
        const bits = await hashOf(join(out, "step-00000003", "model.safetensors"));
        assert.equal(bits, this.#bits, "other bits");
        if (resumed.stderr.includes("after step 1")) assert.match(resumed.stderr, /passed over/);
      }
      const generated = await this.#generate(copy, isReal);
      if (generated.code !== 0) assertRefused(generated);
      else if (!isFree) assert.ok(this.#texts.includes(generated.stdout), "another text");
      assert.equal(await Deno.readTextFile(this.#victim), "mine", "the victim was written to");
      const names = await Array.fromAsync(Deno.readDir(this.#folder), ({ name }) => name);
      const known = ["copy", "out", "run", "tokens.bin", "victim"];
      assert.deepEqual(names.filter((name) => !known.includes(name)), [], "something was written");
    } finally {
      for (const path of [copy, out]) await Deno.remove(path, { recursive: true }).catch(() => {});
    }
  }
}

/** Number of cases from one with the real command to the next. */
const REAL_EVERY = 100;

await runCampaign("checkpoints", 600, async function* (count, seed) {
  const folder = await Deno.makeTempDir({ prefix: "campaign-" });
  try {
    const field = new Field(folder, await writeTokens(folder, someTokens(200)));
    await field.open();
    let nth = 0;
    for (const damage of damages(drawing(seed, "checkpoints"))) {
      if (nth++ === count) break;
      const isReal = nth % REAL_EVERY === 0;
      yield { name: damage.name, run: () => field.try(damage, isReal) };
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
