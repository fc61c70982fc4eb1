/** Names of actors and components in files of the user, and converted data. */

import { type Batches, isSource } from "../../../actors/options/model_definition.ts";
import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import {
  openRegistry,
  prepareComponent,
  removeComponent,
} from "../../../actors/registry/registry.ts";
import { mapData } from "../../../actors/registry/task.ts";
import { packageVersion } from "../../../actors/registry/registry_file.ts";
import { hashGraph } from "../../../actors/sandbox/modules.ts";
import type { Batch } from "../../../kernels/mod.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import wrongEntries from "./wrong_entries.json" with { type: "json" };

const write = (folder: string, name: string, value: unknown) =>
  Deno.writeTextFile(join(folder, name), typeof value === "string" ? value : JSON.stringify(value));

folderTest("names come from the nearest file upward, first a troupe.json", async (folder) => {
  const inner = join(folder, "inner", "most");
  await Deno.mkdir(inner, { recursive: true });
  await write(folder, "deno.json", { actors: { a: { from: "./outer.ts" } } });
  assert.equal(openRegistry(inner).find("actor", "a").from, `${pathToFileURL(folder)}/outer.ts`);
  const mine = '{ // mine\n"actors": { "a": { "from": "jsr:@x/y@1" } } }';
  await write(join(folder, "inner"), "deno.jsonc", mine);
  assert.equal(openRegistry(inner).find("actor", "a").from, "jsr:@x/y@1");
  await write(inner, "deno.json", { imports: {} });
  assert.equal(openRegistry(inner).find("actor", "a").from, "jsr:@x/y@1");
  await write(join(folder, "inner"), "troupe.json", { actors: { b: { from: "npm:b@2" } } });
  const registry = openRegistry(inner);
  assert.equal(registry.path, join(folder, "inner", "troupe.json"));
  assert.equal(registry.find("actor", "b").from, "npm:b@2");
  assert.throws(() => registry.find("actor", "a"), RangeError);
});

folderTest("a wrong entry is refused in one sentence with a suggestion", async (folder) => {
  const long = ['{ "actors": {} ' + " ".repeat(2 ** 20), "more than 1048576"];
  for (const [value, sentence] of [...wrongEntries, long]) {
    await write(folder, "troupe.json", value);
    const text = RegExp.escape(sentence as string);
    // In one line, without what moves the cursor of a terminal.
    const whole = new RegExp(`^\\w+: Cannot read \\P{Cc}*${text}\\P{Cc}*$`, "u");
    assert.throws(() => openRegistry(folder), whole);
  }
});

folderTest("a specifier is its own name, and an unknown name is refused", async (folder) => {
  await write(folder, "troupe.json", { actors: { counter: { from: "./counter.ts" } } });
  const registry = openRegistry(folder);
  const name = "jsr:@you/model@1", part = { name, kind: "model", from: name, isBuiltIn: false };
  assert.deepEqual(registry.find("model", name), part);
  assert.equal(registry.find("actor", "./x.ts").from, `${pathToFileURL(folder)}/x.ts`);
  const url = "https://example.org/actor@2.1.0/mod.ts";
  assert.equal(packageVersion({ specifier: url, root: url }), "2.1.0");
  assert.throws(() => registry.find("actor", "countre"), /; did you mean counter\?$/);
  assert.throws(() => registry.find("model", "counter"), RangeError);
});

const SUM = 'import n from "./n.json" with { type: "json" };\n' +
  'import note from "./note.txt" with { type: "text" };\nexport { n, note };\n';

folderTest("a hash depends on each module, but not on the folder", async (folder) => {
  for (const copy of ["one", "other"]) {
    const at = join(folder, copy);
    await Deno.mkdir(join(at, "lib"), { recursive: true });
    await write(at, "actor.ts", 'import "./lib/sum.ts"; import "npm:pure-rand@8.4.2";\n');
    await write(at, "lib/sum.ts", SUM);
    await write(at, "lib/note.txt", "1");
    await write(at, "lib/n.json", "1");
    await write(at, "troupe.json", { actors: { a: { from: "./actor.ts" } } });
  }
  const hash = async (copy: string) => {
    const registry = openRegistry(join(folder, copy));
    return (await registry.verify(registry.find("actor", "a"))).integrity;
  };
  const first = await hash("one");
  assert.match(first, /^sha256-.{43}=$/);
  assert.equal(await hash("other"), first);
  const hashes = [first];
  const CHANGES = {
    "lib/n.json": "2",
    "lib/note.txt": "2",
    "lib/sum.ts": `${SUM}export { n as m };`,
    "actor.ts": 'import "./lib/sum.ts"; import "npm:fast-check@4.10.2";\n',
  };
  for (const [name, text] of Object.entries(CHANGES)) {
    await write(join(folder, "other"), name, text);
    hashes.push(await hash("other"));
  }
  assert.equal(new Set(hashes).size, hashes.length);
  const entry = { from: "./actor.ts", integrity: first };
  await write(join(folder, "one"), "troupe.json", { actors: { a: entry } });
  const registry = openRegistry(join(folder, "one")), part = registry.find("actor", "a");
  assert.equal((await registry.verify(part)).isIntact, true);
  await write(join(folder, "one"), "lib/n.json", "3");
  assert.equal((await registry.verify(part)).isIntact, false);
});

Deno.test("a hash depends on the version and integrity of npm packages", async () => {
  const graph = { specifier: "npm:a@1", root: "npm:/a@1.0.0", modules: [], npm: [] };
  const packages = [
    [],
    [{ id: "a@1.0.0", integrity: "sha512-x" }],
    [{ id: "a@1.0.0", integrity: "sha512-y" }],
    [{ id: "a@1.0.1", integrity: "sha512-x" }],
  ];
  const hashes = await Promise.all(packages.map((npm) => hashGraph({ ...graph, npm })));
  assert.equal(new Set(hashes).size, packages.length);
});

folderTest("a broken lock file is refused, and that of a removed name harmless", async (folder) => {
  await write(folder, "troupe.json", { actors: { a: { from: "jsr:@x/y@1.0.0" } } });
  const wrong = ["{", "[]", { version: "2", locks: {} }, { version: "1", locks: { a: "jsr" } }];
  for (const locks of wrong) {
    await write(folder, "troupe.lock", locks);
    assert.throws(() => openRegistry(folder), /^\w+: Cannot read [^\n]*troupe\.lock: it must be/);
  }
  const lock = { version: "5", specifiers: { "jsr:@x/z@^1": "1.0.0" } };
  await write(folder, "troupe.lock", { version: "1", locks: { a: lock, gone: {} } });
  assert.deepEqual(openRegistry(folder).spec("a"), { from: "jsr:@x/y@1.0.0", lock });
  await write(folder, "troupe.lock", { version: "1", locks: { a: lock } });
  await removeComponent("a", folder);
  assert.ok(!(await namesIn(folder)).includes("troupe.lock"), "the last lock takes its file");
});

folderTest("all names that are added at the same time are kept", async (folder) => {
  await write(folder, "mod.js", "export const actor = {};");
  const names = ["proto", "constructor", "toString", "a", "b", "c"];
  const prepared = await Promise.all(
    ["a", ...names].map((name) =>
      prepareComponent({ name, specifier: "./mod.js", kind: "actor" }, folder)
    ),
  );
  const written = await Promise.allSettled(prepared.map((part) => part.write()));
  const refused = written.flatMap((one) => one.status === "rejected" ? [`${one.reason}`] : []);
  assert.equal(refused.length, 1);
  assert.match(refused[0]!, /^RangeError: Cannot add "a": its name must be new/);
  const own = openRegistry(folder).list().filter((part) => !part.isBuiltIn);
  assert.deepEqual(own.map(({ name }) => name), names.sort());
  for (const name of names) await removeComponent(name, folder);
  assert.deepEqual(await namesIn(folder), ["mod.js", "troupe.json"]);
});

const renamed = ({ at }: Batch): Batch => ({ place: at! });

Deno.test("converted data starts anywhere with its state, and is closed after the last read", async () => {
  const seen: unknown[] = [];
  function* counting(first: number) {
    try {
      for (let i = first;; i++) yield { at: Int32Array.of(i) };
    } finally {
      seen.push("closed");
    }
  }
  const source = {
    from: (microBatch: number, state?: unknown) => counting(microBatch + Number(state)),
    state: () => "its state",
  };
  const firstOf = async (data: AsyncIterable<Batch> | Iterable<Batch>) => {
    for await (const batch of data) return batch;
  };
  const data = mapData(source, renamed), batches = mapData(counting(0), renamed);
  assert.ok(isSource(data) && !isSource(batches));
  assert.deepEqual(await firstOf(data.from(3, 6)), { place: Int32Array.of(9) });
  assert.equal(data.state!(), "its state");
  assert.deepEqual(await firstOf(batches as Batches), { place: Int32Array.of(0) });
  assert.deepEqual(seen, ["closed", "closed"]);
});
