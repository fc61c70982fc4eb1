import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { hashModule, inspectActor, type InspectOptions } from "../../../../actors/mod.ts";
import { inFolder } from "../../../in_folder.ts";

const COUNTER = import.meta.resolve("./fixtures/counter.ts");

const CREATE = "create() { throw new Error('never called'); }";

/** Inspects a module with this text. */
const inspect = (text: string, options?: InspectOptions) =>
  inFolder(async (folder) => {
    const path = join(folder, "actor.ts");
    await Deno.writeTextFile(path, text);
    return await inspectActor(pathToFileURL(path).href, options);
  });

Deno.test("what a package says of its actor is told with its hash, and its factory is not called", async () => {
  const { name, protocol, messages, permissions, denied, hashed } = await inspectActor(COUNTER);
  assert.deepEqual({ name, protocol, permissions, denied }, {
    ...{ name: "counter", protocol: 1, permissions: {}, denied: [] },
  });
  assert.deepEqual(messages, {
    Add: { properties: { by: { type: "number" } }, required: ["by"] },
    Read: {},
  });
  assert.equal(hashed.integrity, (await hashModule(COUNTER)).integrity);
  const net = 'permissions: { net: ["example.org"] }';
  const other = await inspect(
    `export const echo = { name: "e", protocol: 2, messages: {}, ${net}, ${CREATE} };`,
    { export: "echo" },
  );
  assert.deepEqual([other.protocol, other.permissions], [2, { net: ["example.org"] }]);
});

Deno.test("what a package asks for while it is inspected is denied, and told", async () => {
  const { denied } = await inspect(`
    for (const path of ["/etc/hostname", "/etc/\\u001b[2J"]) {
      try { Deno.readTextFileSync(path); } catch { /* as expected */ }
    }
    export const actor = { name: "a", protocol: 1, messages: {}, ${CREATE} };`);
  assert.deepEqual(denied, ['read "/etc/hostname"', 'read "/etc/\\u001b[2J"']);
});

Deno.test("a package that will not be inspected is refused in a sentence", async () => {
  const actor = (fields: string) => `export const actor = { name: "a", ${fields}, ${CREATE} };`;
  const cases: readonly (readonly [string, RegExp])[] = [
    ["for (;;);", /must take at most 1000 ms/],
    ["export const actor = { get name() { for (;;); } };", /must take at most 1000 ms/],
    [
      "const all = []; for (;;) all.push(new Uint8Array(2 ** 24).fill(1));",
      /must hold at most 128 MiB of memory/,
    ],
    ["Deno.exit(0);", /exited with code 0/],
    ["Deno.stdout.writeSync(new Uint8Array(1e5).fill(65));", /it broke the protocol/],
    ["export const one = 1, other = 2;", /received undefined; it exports one, other$/],
    [
      "export const actor = { get name() { throw new Error('\\x1b[2J\\nforged'); } };",
      /: \\u001b\[2J\\nforged$/,
    ],
    [actor("protocol: 1.5, messages: {}"), /its protocol must be a positive integer/],
    [actor("protocol: 1, messages: { A: true }"), /the schema of "A" must be a record/],
    [actor("protocol: 1, messages: {}, permissions: 'all'"), /its permissions must be a record/],
    [
      actor("protocol: 1, messages: {}, permissions: { read: ['/' + 'x'.repeat(300)] }"),
      /of at most 200 characters$/,
    ],
    [
      actor(
        "protocol: 1, messages: Object.fromEntries(Array.from('x'.repeat(999), (_, i) => [i, {}]))",
      ),
      /at most 256 of each kind/,
    ],
    [
      actor("protocol: 1, messages: { A: { description: 'x'.repeat(2e6) } }"),
      /at most 1048576 characters/,
    ],
    ['import "./nowhere.ts";', /Module not found/],
    ['import "/dev/zero";', /received more than 1024 MiB$/],
    ['import all from "/dev/zero" with { type: "text" };', /\/dev\/zero: it must be a file/],
  ];
  for (const [text, sentence] of cases) {
    await assert.rejects(
      inspect(text, { timeLimitMs: 1000, memoryLimitMb: 128 }),
      (error: Error) => {
        assert.match(error.message, /^Cannot (inspect|use|fetch|hash) [^\n]+$/);
        assert.match(error.message, sentence);
        return true;
      },
    );
  }
});
