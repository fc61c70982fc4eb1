/** Packages in processes: they are inspected and hashed before they run. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import {
  type Ask,
  createSystem,
  hashModule,
  inspectActor,
  type InspectOptions,
  type PackageSpec,
} from "../../../../actors/mod.ts";
import { folderTest, inFolder } from "../../../in_folder.ts";

const FROM = import.meta.resolve("./fixtures/counter.ts");

type Counter = { type: "Add"; by: number } | { type: "Read" } & Ask<number>;

const CREATE = "create() { throw new Error('never called'); }";

/** Inspects a module with this text. */
const inspect = (text: string, options?: InspectOptions) =>
  inFolder(async (folder) => {
    const path = join(folder, "actor.ts");
    await Deno.writeTextFile(path, text);
    return await inspectActor(pathToFileURL(path).href, options);
  });

Deno.test("an inspection gives the definition of an actor with its hash, and does not make it", async () => {
  const { hashed, ...definition } = await inspectActor(FROM);
  assert.deepEqual(definition, {
    ...{ name: "counter", protocol: 1, permissions: {}, denied: [] },
    messages: {
      Add: { properties: { by: { type: "number" } }, required: ["by"] },
      Read: {},
    },
  });
  assert.equal(hashed.integrity, (await hashModule(FROM)).integrity);
  const reads = `for (const path of ["/etc/hostname", "/etc/\\u001b[2J"]) {
    try { Deno.readTextFileSync(path); } catch { /* as expected */ }
  }`;
  const net = 'permissions: { net: ["example.org"] }';
  const other = await inspect(
    `${reads} export const echo = { name: "e", protocol: 2, messages: {}, ${net}, ${CREATE} };`,
    { export: "echo" },
  );
  assert.deepEqual([other.protocol, other.permissions], [2, { net: ["example.org"] }]);
  assert.deepEqual(other.denied, ['read "/etc/hostname"', 'read "/etc/\\u001b[2J"']);
});

const actor = (fields: string) => `export const actor = { name: "a", ${fields}, ${CREATE} };`;

const MANY = "Object.fromEntries(Array.from('x'.repeat(257), (_, i) => [i, {}]))";

/** Modules that no inspection accepts, and the end of the sentence that says why. */
const REFUSED: readonly (readonly [text: string, sentence: RegExp])[] = [
  ["for (;;);", /one step must take at most 500 ms$/],
  ["export const actor = { get name() { for (;;); } };", /one step must take at most 500 ms$/],
  [
    "const all = []; for (;;) all.push(new Uint8Array(2 ** 24).fill(1));",
    /must hold at most 128 MiB of memory, and held \d+$/,
  ],
  ["Deno.exit(0);", /exited with code 0$/],
  ["Deno.stdout.writeSync(new Uint8Array(1e5).fill(65));", /it broke the protocol: Cannot rec/],
  ["export const one = 1, other = 2;", /received undefined; it exports one, other$/],
  [
    "export const actor = { get name() { throw new Error('\\x1b[2J\\nforged'); } };",
    /: \\u001b\[2J\\nforged$/,
  ],
  [actor("protocol: 1.5, messages: {}"), /its protocol must be a positive integer/],
  [actor("protocol: 1, messages: { A: true }"), /the schema of "A" must be a record/],
  [actor("protocol: 1, messages: {}, permissions: 'all'"), /its permissions must be a record/],
  [
    actor("protocol: 1, messages: {}, permissions: { read: ['/' + 'x'.repeat(200)] }"),
    /of at most 200 characters$/,
  ],
  [actor(`protocol: 1, messages: ${MANY}`), /at most 256 of each kind/],
  [actor("protocol: 1, messages: { A: { $: 'x'.repeat(2 ** 20) } }"), /at most 1048576 charac/],
  ['import "./nowhere.ts";', /Module not found/],
  ['import "/dev/zero";', /received more than 1024 MiB$/],
  ['import all from "/dev/zero" with { type: "text" };', /\/dev\/zero: it must be a file/],
];

Deno.test("a package that cannot be inspected is refused in one sentence", async () => {
  for (const [text, sentence] of REFUSED) {
    await assert.rejects(
      inspect(text, { timeLimitMs: 500, memoryLimitMb: 128 }),
      ({ message }: Error) => {
        assert.match(message, /^Cannot (inspect|use|fetch|hash) [^\n]+$/);
        assert.match(message, sentence);
        return true;
      },
    );
  }
});

folderTest("a package whose modules have another hash never runs", async (folder) => {
  const path = `${folder}/actor.ts`, from = pathToFileURL(path).href;
  const text = await Deno.readTextFile(new URL(FROM)), edited = `console.log("runs");\n${text}`;
  for (const permissions of ["inherit", {}] as const) {
    await Deno.writeTextFile(path, text);
    const { integrity } = await hashModule(from);
    const spec: PackageSpec<number, Counter> = { from, integrity };
    await using system = createSystem();
    const counter = system.spawn(spec, 40, { id: "counter", permissions });
    assert.notEqual(counter.isolate, 0);
    system.send(counter, { type: "Add", by: 2 });
    assert.equal(await system.ask(counter, { type: "Read" }), 42);
    await system.stop(counter);
    await Deno.writeTextFile(path, edited);
    const { integrity: received } = await hashModule(from);
    system.failed.catch(() => {}); // it is part of the answer
    const changed = system.spawn(spec, 1, { id: "edited", permissions });
    const sentence = `Cannot use ${from}: its hash must be ${integrity}, received ${received}`;
    await assert.rejects(
      system.ask(changed, { type: "Read" }),
      ({ message }: Error) => message.startsWith('Actor "edited"') && message.endsWith(sentence),
    );
  }
});
