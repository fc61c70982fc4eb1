import assert from "node:assert/strict";
import plugin from "../../lint/determinism.ts";
import { FORBIDDEN_GLOBALS } from "../../actors/simulation/determinism_guard.ts";
import { inFolder } from "../in_folder.ts";
import { deno, runDeno } from "../package/packages.ts";

const MAKES_ACTORS = 'import type { ActorFactory } from "@troupe/troupe/actors";\n';

function lint(code: string, head = MAKES_ACTORS) {
  return Deno.lint.runPlugin(plugin, "actor.ts", `${head}${code}`);
}

Deno.test("lint reports every forbidden name in a file that makes actors", () => {
  for (
    const { token, kind, instead } of FORBIDDEN_GLOBALS.filter(({ kind }) => kind !== "format")
  ) {
    const code = { call: `${token}();`, get: `${token}.value;`, new: `new ${token}();` }[
      kind === "date" ? "new" : kind as "call"
    ];
    const [found, ...more] = lint(code);
    assert.equal(found?.id, "determinism/no-ambient", token);
    assert.ok(found.message.includes(token) && found.message.includes(instead), found.message);
    assert.deepEqual(more, []);
    assert.equal(lint(code.replace(token, `globalThis.${token}`)).length, 1, token);
  }
});

/** Code, and the names in the findings about it. */
const CASES: Readonly<Record<string, readonly (readonly [string, ...string[]])[]>> = {
  "allows dates of a value, ctx, and tests beside actors": [
    ["new Date(0); ctx.now(); ctx.random('a'); Math.max(1, 2);"],
    ['Deno.test("a", () => { Deno.readTextFileSync("b"); });'],
  ],
  "reports the times of events and formats of dates": [
    ["const f = (event) => event.timeStamp;", "Event.timeStamp"],
    ["new Intl.DateTimeFormat().format();", "Intl.DateTimeFormat.format"],
    ["new Intl.DateTimeFormat().format(date); other.format();", "Intl.DateTimeFormat.format"],
    ["table.format();"],
  ],
  "reports imports from Node.js that no actor may use": [
    ['import { setTimeout } from "node:timers";', "node:timers.setTimeout"],
    ['import fs, { type Stats } from "node:fs";', "node:fs"],
    ['import { createHash, randomBytes } from "node:crypto";', "node:crypto.randomBytes"],
    ['import type { Stats } from "node:fs"; import { join } from "node:path";'],
  ],
  "knows a name that the file declares": [
    ["const performance = { now: () => 1 }; performance.now();"],
    ['import { fetch } from "./fetch.ts"; fetch();'],
    ["const other = 1; performance.now();", "performance.now"],
  ],
  "sees functions that are taken out of their object": [
    ["const { now } = performance;", "performance.now"],
    ["const now = Date.now;", "Date.now"],
    ["const { random, floor } = Math;", "Math.random"],
    ["const clock = { now: Date.now }; [1].map(Math.random);", "Date.now", "Math.random"],
    [
      "class Clock { now = Date.now; } let f; f = Math.random.bind(Math);",
      "Date.now",
      "Math.random",
    ],
    ["Math?.random?.(); (Date as Any).now(); Date!.now();", "Math.random", "Date.now", "Date.now"],
  ],
};

for (const [title, cases] of Object.entries(CASES)) {
  Deno.test(`lint ${title}`, () => {
    for (const [code, ...names] of cases) {
      assert.deepEqual(lint(code).map(({ message }) => message.split("`")[1]), names, code);
    }
  });
}

Deno.test("lint reports nothing in files that make no actors", () => {
  assert.deepEqual(lint("Date.now(); Math.random();", ""), []);
});

const IGNORE = "// deno-lint-ignore determinism/no-ambient";

Deno.test("an exception needs a reason", () => {
  const isReported = (ignore: string) =>
    lint(`${ignore}\nDate.now();`).some(({ id }) => id === "determinism/reasoned-ignore");
  assert.ok(isReported(IGNORE) && isReported(`${IGNORE} --`));
  assert.ok(!isReported(`${IGNORE} -- a figure that nothing depends on`));
});

Deno.test("deno lint itself takes an exception with a reason", () =>
  inFolder(async (folder) => {
    const url = new URL("../../lint/determinism.ts", import.meta.url);
    await Deno.writeTextFile(
      `${folder}/deno.json`,
      JSON.stringify({ lint: { plugins: [url.href] } }),
    );
    const write = (reason: string) =>
      Deno.writeTextFile(
        `${folder}/actor.ts`,
        `export type ActorFactory = 1;\n${IGNORE}${reason}\nexport const start = Date.now();\n`,
      );
    await write(" -- measured only");
    await deno(folder, ["lint", "actor.ts"]);
    await write("");
    assert.match((await runDeno(folder, ["lint", "actor.ts"])).stderr, /reasoned-ignore/);
  }));
