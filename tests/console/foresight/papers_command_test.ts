import assert from "node:assert/strict";
import { describePapers } from "../../../console/foresight/describe_papers.ts";
import { papersCommand } from "../../../console/foresight/papers_command.ts";
import { rowsOf, uncovered } from "../../../actors/foresight/papers/rows/paper_row.ts";
import { readProfile } from "../../../actors/foresight/profile/read_profile.ts";
import { join } from "node:path";

const context = { begin() {}, signal: new AbortController().signal };

Deno.test("a row shows what is stated, what comes out, by how much it is off, and why", () => {
  const lines = describePapers([
    ...rowsOf("chimera", "simulated", [
      ["4.2", "speedup", "×", 2, 1.5, "messages are dear"],
      ["4.2", "speedup of another", "×", 2, 1.95],
    ]),
    ...rowsOf("hanayo", "formula", [["5.3", "best waves", "", 2, 4, "messages are dear"]]),
    ...uncovered("axonn", [["VII", "over others", "×", 1.18, "nobody knows"]]),
  ]);
  const text = lines.join("\n");
  assert.match(text, /4\.2 {6}speedup +2 × +1\.5 × +-25\.0 % +\* +simulated +\[1\]/);
  assert.match(text, /speedup of another +2 × +1\.95 × +-2\.5 % +simulated\n/);
  assert.match(text, /VII +over others +1\.18 × +not covered +\[2\]/);
  assert.match(text, /\[1\] messages are dear\n\[2\] nobody knows/);
  assert.match(text, /4 figures: 3 computed, of which 2 miss .*; 0 fitted; 1 not covered$/);
});

Deno.test("what is no format, and a folder that is there, are refused before anything is done", () => {
  assert.throws(() => papersCommand(["--format", "xml"], context), {
    message: 'Cannot use --format: it must be one of table, json, received "xml"',
  });
  assert.throws(() => papersCommand(["more"], context), TypeError);
  const folder = Deno.makeTempDirSync();
  try {
    assert.throws(
      () => papersCommand(["--profiles", folder], context),
      /Cannot write profiles to .*: it must be a folder that can be made/,
    );
    const within = join(folder, "profiles");
    assert.equal(papersCommand(["--profiles", within], context), 0);
    const names = Array.from(Deno.readDirSync(within), ({ name }) => name);
    assert.ok(names.length >= 10 && names.includes("piz_daint_gpt_2.json"));
    for (const name of names) assert.equal(readProfile(join(within, name)).source, "stated");
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
});
