/** Names of actors and parts in the files of a user, and data that is read by other names. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { openRegistry, preparePart, removePart } from "../../../actors/mod.ts";
import { mapData } from "../../../actors/parts/map_data.ts";
import { type Batches, isSource } from "../../../actors/run/data/data.ts";
import { hashGraph } from "../../../actors/runtime/packages/hash_module.ts";
import type { Batch } from "../../../kernels/mod.ts";
import { inFolder, namesIn } from "../../in_folder.ts";

const write = (folder: string, name: string, value: unknown) =>
  Deno.writeTextFile(
    join(folder, name),
    typeof value === "string" ? value : JSON.stringify(value),
  );

Deno.test("names come from the nearest file upward, and a troupe.json goes before a deno.json", () =>
  inFolder(async (folder) => {
    const inner = join(folder, "inner", "most");
    await Deno.mkdir(inner, { recursive: true });
    await write(folder, "deno.json", { actors: { a: { from: "./outer.ts" } } });
    assert.equal(openRegistry(inner).find("actor", "a").from, `${pathToFileURL(folder)}/outer.ts`);
    await write(
      join(folder, "inner"),
      "deno.jsonc",
      '{ // mine\n"actors": { "a": { "from": "jsr:@x/y@1" } } }',
    );
    assert.equal(openRegistry(inner).find("actor", "a").from, "jsr:@x/y@1");
    await write(inner, "deno.json", { imports: {} });
    assert.equal(openRegistry(inner).find("actor", "a").from, "jsr:@x/y@1");
    await write(join(folder, "inner"), "troupe.json", { actors: { b: { from: "npm:b@2" } } });
    const registry = openRegistry(inner);
    assert.equal(registry.path, join(folder, "inner", "troupe.json"));
    assert.equal(registry.find("actor", "b").from, "npm:b@2");
    assert.throws(() => registry.find("actor", "a"), RangeError);
  }));

Deno.test("a wrong entry is refused in a sentence that says what was meant", () =>
  inFolder(async (folder) => {
    const cases: readonly (readonly [unknown, RegExp])[] = [
      ["{", /must be JSON/],
      [[], /must be a record with the key "actors"/],
      [{ actor: {} }, /keys must be \$schema and actors, received "actor"; did you mean actors\?$/],
      [{ actors: [] }, /"actors" must be a record, received \[\]$/],
      [{ actors: { a: "jsr:@x/y" } }, /the entry "a" must be a record with "from"/],
      [{ actors: { a: { form: "jsr:@x/y" } } }, /received "form"; did you mean from\?$/],
      [{ actors: { a: {} } }, /must have a text as "from", received nothing$/],
      [{ actors: { a: { from: "ftp://x/y" } } }, /a specifier must begin with .*"ftp:/],
      [{ actors: { a: { from: "y.ts" } } }, /a specifier must begin with \.\//],
      [{ actors: { a: { from: "./a\u001b[2J.ts" } } }, /a specifier must begin with/],
      [{ actors: { "./a": { from: "./a.ts" } } }, /a name must be at most 100 letters/],
      [{ actors: { a: { from: "./a.ts", kind: "modle" } } }, /did you mean model\?$/],
      [{ actors: { a: { from: "./a.ts", integrity: "sha256-x" } } }, /integrity of sha256-/],
      [`{ "actors": {} ${" ".repeat(2 ** 20)}}`, /more than 1048576/],
    ];
    for (const [value, sentence] of cases) {
      await write(folder, "troupe.json", value);
      assert.throws(() => openRegistry(folder), (error: Error) => {
        assert.match(error.message, /^Cannot read [^\n]+$/);
        // deno-lint-ignore no-control-regex
        assert.doesNotMatch(error.message, /[\u0000-\u001f]/);
        assert.match(error.message, sentence);
        return true;
      });
    }
  }));

Deno.test("a specifier stands for itself, and an unknown name is refused with the name that was meant", () =>
  inFolder(async (folder) => {
    await write(folder, "troupe.json", { actors: { counter: { from: "./counter.ts" } } });
    const registry = openRegistry(folder);
    assert.deepEqual(registry.find("model", "jsr:@you/model@1"), {
      name: "jsr:@you/model@1",
      kind: "model",
      from: "jsr:@you/model@1",
      isBuiltIn: false,
    });
    assert.equal(registry.find("actor", "./x.ts").from, `${pathToFileURL(folder)}/x.ts`);
    assert.throws(() => registry.find("actor", "countre"), /; did you mean counter\?$/);
    assert.throws(() => registry.find("model", "counter"), RangeError);
  }));

const SUM = 'import n from "./n.json" with { type: "json" };\n' +
  'import note from "./note.txt" with { type: "text" };\nexport { n, note };\n';

Deno.test("a hash changes with each of its modules, and not with the folder that they are in", () =>
  inFolder(async (folder) => {
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
    for (
      const [name, text] of [
        ["lib/n.json", "2"],
        ["lib/note.txt", "2"],
        ["lib/sum.ts", `${SUM}export { n as m };`],
        ["actor.ts", 'import "./lib/sum.ts"; import "npm:fast-check@4.10.2";\n'],
      ] as const
    ) {
      await write(join(folder, "other"), name, text);
      hashes.push(await hash("other"));
    }
    assert.equal(new Set(hashes).size, hashes.length);
    const integrity = first;
    const entry = { from: "./actor.ts", integrity };
    await write(join(folder, "one"), "troupe.json", { actors: { a: entry } });
    const registry = openRegistry(join(folder, "one")), part = registry.find("actor", "a");
    assert.equal((await registry.verify(part)).isIntact, true);
    await write(join(folder, "one"), "lib/n.json", "3");
    assert.equal((await registry.verify(part)).isIntact, false);
  }));

Deno.test("a package of npm counts with its version and its integrity", async () => {
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

Deno.test("a broken lock file is refused, and the lock of a name that is gone does no harm", () =>
  inFolder(async (folder) => {
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
    await removePart("a", folder);
    assert.ok(!(await namesIn(folder)).includes("troupe.lock"), "the last lock takes its file");
  }));

Deno.test("names that are added at the same time are all there, whatever they are called", () =>
  inFolder(async (folder) => {
    await write(folder, "mod.js", "export const actor = {};");
    const names = ["__proto__", "constructor", "toString", "a", "b", "c"];
    const prepared = await Promise.all(
      ["a", ...names].map((name) =>
        preparePart({ name, specifier: "./mod.js", kind: "actor" }, folder)
      ),
    );
    const written = await Promise.allSettled(prepared.map((part) => part.write()));
    const refused = written.flatMap((one) => one.status === "rejected" ? [`${one.reason}`] : []);
    assert.equal(refused.length, 1);
    assert.match(refused[0]!, /^RangeError: Cannot add "a": its name must be new/);
    const own = openRegistry(folder).list().filter((part) => !part.isBuiltIn);
    assert.deepEqual(own.map(({ name }) => name), names.sort());
    for (const name of names) await removePart(name, folder);
    assert.deepEqual(await namesIn(folder), ["mod.js", "troupe.json"]);
  }));

const renamed = ({ at }: Batch): Batch => ({ place: at! });

Deno.test("data that begins anywhere still does by other names, with the state that it had", async () => {
  const seen: unknown[] = [];
  const source = {
    last: 0,
    *from(microBatch: number, state?: unknown) {
      seen.push([microBatch, state]);
      for (;;) yield { at: Int32Array.of(this.last = Number(state) + 1) };
    },
    state() {
      return this.last;
    },
  };
  const data = mapData(source, renamed);
  assert.ok(isSource(data));
  for await (const batch of data.from(3, 6)) {
    assert.deepEqual(batch, { place: Int32Array.of(7) });
    break;
  }
  assert.deepEqual([seen, data.state!()], [[[3, 6]], 7]);
});

Deno.test("an iterable by other names is closed when no more of it is read", async () => {
  let isClosed = false;
  const batches = (function* () {
    try {
      for (let i = 0;; i++) yield { at: Int32Array.of(i) };
    } finally {
      isClosed = true;
    }
  })();
  const data = mapData(batches, renamed) as Batches;
  assert.ok(!isSource(data));
  for await (const batch of data) {
    assert.deepEqual(batch, { place: Int32Array.of(0) });
    break;
  }
  assert.ok(isClosed);
});
