/** What a run looks like on terminals of any width, after Ctrl-C, without colours and in pipes. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { inFolder, runTrain, TINY } from "../command.ts";
import { CLEAR, hasTerminals, inTerminal } from "../terminal.ts";

/** A run on a text, so that it ends with a sample, with something to say between its steps. */
async function args(folder: string, steps: number): Promise<string[]> {
  const text = join(folder, "text.txt");
  await Deno.writeTextFile(text, "To be, or not to be, that is the question. ".repeat(2000));
  const paths = ["--text", text, "--out", join(folder, "out"), "--overwrite"];
  return ["train", ...TINY, ...paths, "--steps", String(steps), "--eval-every", "4"];
}

/** Control characters but line ends, and tabs, which a text may hold. */
const CONTROLS = /(?![\n\t])\p{Cc}/u;

/** All but line ends, as a terminal has them, and what takes the line back that changes. */
const strangeIn = (text: string) =>
  text.replaceAll(CLEAR, "").replaceAll("\r\n", "\n").match(CONTROLS);

/** The same in 24 columns. */
const WRAPPED = /^after step 4: held-out\n {2}loss [\d.]+$/m;

function test(name: string, fn: (folder: string) => Promise<void>): void {
  Deno.test({ name, ignore: !hasTerminals, fn: () => inFolder(fn) });
}

test("the line that changes never fills a row of 24, 60, 80 or 120 columns, and leaves nothing", async (folder) => {
  const least: Record<number, RegExp> = {
    24: /^\d+\/\d+ {2}loss \d\.\d+$/,
    60: /^step .* tokens\/s/,
    80: /░ {2}loss .* tokens\/s/,
    120: /░{8}.* {2}loss .* tokens\/s {2}[\dhms]+$/,
  };
  const shown = Object.keys(least).map(async (width) => {
    const columns = Number(width), out = join(folder, width);
    await Deno.mkdir(out);
    return { columns, ...await inTerminal(await args(out, 12), { columns }) };
  });
  for (const { columns, code, text, rows } of await Promise.all(shown)) {
    const pattern = least[columns]!;
    assert.equal(code, 0, text);
    assert.equal(strangeIn(text), null, text);
    const lines = text.split(CLEAR).slice(1).map((line) => line.split("\r\n")[0]!)
      .filter((line) => /\d\/12/.test(line));
    assert.ok(lines.length > 1 && lines.every((line) => [...line].length <= columns - 3), text);
    assert.ok(lines.some((line) => pattern.test(line)), `${columns}: ${lines.join("\n")}`);
    // What was said meanwhile stands there in words, and nothing of the line does.
    const said = rows.join("\n");
    assert.match(said, columns >= 60 ? /^after step 4: held-out loss [\d.]+$/m : WRAPPED);
    assert.doesNotMatch(said, /[█░]|\d\/12\b|tokens\/s/);
    assert.match(said, /^A sample:$/m);
  }
});

test("Ctrl-C amid the line that changes leaves whole rows, and no ^C", async (folder) => {
  for (const columns of [24, 80]) {
    const interruptAt = /\d+\/5000/;
    const { code, text, rows } = await inTerminal(await args(folder, 5000), {
      columns,
      interruptAt,
    });
    assert.equal(code, 130, text);
    assert.equal(strangeIn(text.replaceAll("^C", "")), null, text);
    const said = rows.join("\n");
    assert.doesNotMatch(said, /[█░]|\d\/5000|\^C/);
    assert.match(
      rows.join(" ").replace(/ +/g, " "),
      /Finishing the step under way; press Ctrl-C again/,
    );
    assert.match(said.replaceAll("\n", ""), /Interrupted after step \d+; go on with: /);
    assert.equal(said.replaceAll("\n", "").match(/checkpoint/g)!.length, 1);
    assert.equal(rows.at(-1), "", "the cursor is at the begin of a row");
  }
});

test("with NO_COLOR, on a dumb terminal and in a pipe there is no control character", async (folder) => {
  for (const env of [{ NO_COLOR: "1" }, { TERM: "dumb" }] as Record<string, string>[]) {
    const { code, text } = await inTerminal(await args(folder, 2), { columns: 60, env });
    assert.equal(code, 0, text);
    assert.equal(text.replaceAll("\r\n", "\n").match(CONTROLS), null, JSON.stringify(text));
    assert.match(text, /step 2\/2 {2}loss [\d.]+ {2}\d+ tokens\/s/);
  }
  const { code, stdout, stderr } = await runTrain((await args(folder, 2)).slice(1));
  assert.equal(code, 0, stderr);
  assert.equal((stdout + stderr).match(CONTROLS), null);
});
