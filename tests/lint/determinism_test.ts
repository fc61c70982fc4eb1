import assert from "node:assert/strict";
import plugin from "../../lint/determinism.ts";
import { TRAPPED } from "../../actors/simulation/mod.ts";

const MAKES_ACTORS = 'import type { ActorFactory } from "@troupe/troupe/actors";\n';

function lint(code: string, head = MAKES_ACTORS) {
  return Deno.lint.runPlugin(plugin, "actor.ts", `${head}${code}`);
}

for (const { token, kind, instead } of TRAPPED) {
  if (kind === "format") continue;
  Deno.test(`lint reports ${token} in a file that makes actors`, () => {
    const code = { call: `${token}();`, get: `${token}.value;`, new: `new ${token}();` }[
      kind === "date" ? "new" : kind
    ];
    const [found, ...more] = lint(code);
    assert.equal(found?.id, "determinism/no-ambient");
    assert.ok(found.message.includes(token) && found.message.includes(instead), found.message);
    assert.deepEqual(more, []);
    assert.equal(lint(code.replace(token, `globalThis.${token}`)).length, 1);
  });
}

Deno.test("lint lets other files, dates of something given, and ctx be", () => {
  assert.deepEqual(lint("Date.now(); Math.random();", ""), []);
  assert.deepEqual(lint("new Date(0); ctx.now(); ctx.random('a'); Math.max(1, 2);"), []);
});

Deno.test("lint reports times that events and formats of dates tell", () => {
  const ids = (code: string) => lint(code).map(({ message }) => message.split("`")[1]);
  assert.deepEqual(ids("const f = (event) => event.timeStamp;"), ["Event.timeStamp"]);
  assert.deepEqual(ids("new Intl.DateTimeFormat().format();"), ["Intl.DateTimeFormat.format"]);
  assert.deepEqual(ids("new Intl.DateTimeFormat().format(date); other.format();"), [
    "Intl.DateTimeFormat.format",
  ]);
  assert.deepEqual(ids("table.format();"), []);
});

Deno.test("lint reports what is imported from Node.js that no actor may use", () => {
  const ids = (code: string) => lint(code).map(({ message }) => message.split("`")[1]);
  assert.deepEqual(ids('import { setTimeout } from "node:timers";'), ["node:timers.setTimeout"]);
  assert.deepEqual(ids('import fs, { type Stats } from "node:fs";'), ["node:fs"]);
  assert.deepEqual(ids('import { createHash, randomBytes } from "node:crypto";'), [
    "node:crypto.randomBytes",
  ]);
  assert.deepEqual(
    ids('import type { Stats } from "node:fs"; import { join } from "node:path";'),
    [],
  );
});

Deno.test("lint lets tests beside actors be", () => {
  assert.deepEqual(lint('Deno.test("a", () => { Deno.readTextFileSync("b"); });'), []);
});

Deno.test("lint knows a name that the file declares itself", () => {
  assert.deepEqual(lint("const performance = { now: () => 1 }; performance.now();"), []);
  assert.deepEqual(lint('import { fetch } from "./fetch.ts"; fetch();'), []);
  assert.equal(lint("const other = 1; performance.now();").length, 1);
});

Deno.test("lint sees functions that are taken out of their object", () => {
  assert.equal(lint("const { now } = performance;").length, 1);
  assert.equal(lint("const now = Date.now;").length, 1);
  assert.equal(lint("const { random, floor } = Math;").length, 1);
});

Deno.test("an exception needs a reason", () => {
  const ignore = "// deno-lint-ignore determinism/no-ambient";
  const ids = (code: string) => lint(code).map(({ id }) => id);
  assert.ok(ids(`${ignore}\nDate.now();`).includes("determinism/reasoned-ignore"));
  assert.ok(ids(`${ignore} --\nDate.now();`).includes("determinism/reasoned-ignore"));
  const reasoned = ids(`${ignore} -- a figure that nothing depends on\nDate.now();`);
  assert.ok(!reasoned.includes("determinism/reasoned-ignore"));
});

Deno.test("deno lint itself takes an exception with a reason", async () => {
  const folder = await Deno.makeTempDir();
  const url = new URL("../../lint/determinism.ts", import.meta.url);
  const config = { lint: { plugins: [url.href] } };
  await Deno.writeTextFile(`${folder}/deno.json`, JSON.stringify(config));
  const code = (reason: string) =>
    `// deno-lint-ignore determinism/no-ambient${reason}\nexport const start = Date.now();\n`;
  const run = async (text: string) => {
    await Deno.writeTextFile(`${folder}/actor.ts`, `export type ActorFactory = 1;\n${text}`);
    const { code, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["lint", "--config", `${folder}/deno.json`, `${folder}/actor.ts`],
      env: { NO_COLOR: "1" },
    }).output();
    return { code, text: new TextDecoder().decode(stderr) };
  };
  const [good, bad] = [await run(code(" -- measured only")), await run(code(""))];
  await Deno.remove(folder, { recursive: true });
  assert.equal(good.code, 0, good.text);
  assert.match(bad.text, /determinism\/reasoned-ignore/);
});
