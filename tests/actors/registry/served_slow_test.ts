/** Actors from registries on this machine: added by name, inspected, locked, and spawned in a sandbox. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { jsonLines } from "../../console/command.ts";
import { folderTest } from "../../in_folder.ts";
import {
  type Environment,
  openJsr,
  openNpm,
  runCommands,
  serveFolder,
  trustingEnvironment,
  writeFiles,
} from "../../package/packages.ts";

const COUNTER = await Deno.readTextFile(new URL("../sandbox/fixtures/counter.ts", import.meta.url));

/** Adds the counter of a specifier and asks it; returns its entry. */
async function addAndAsk(own: string, env: Environment, specifier: string) {
  const add = `actors add counter ${specifier} --json`;
  const [added, answer] = await runCommands(own, [add, "ask counter"], env);
  assert.equal(added!.code, 0, added!.stderr);
  assert.equal(answer!.stdout, "42");
  return jsonLines(added!.stdout)[0]! as { from: string; integrity: string };
}

/** Hashes again and asks the counter; returns whether it is intact, and all output. */
async function verifyAndAsk(own: string, env: Environment) {
  const [verified, answer] = await runCommands(own, ["actors verify --json", "ask counter"], env);
  const { isIntact, error } = jsonLines(verified!.stdout)[0]!;
  assert.equal(error, undefined, verified!.stderr);
  assert.equal(verified!.code, isIntact ? 0 : 1);
  return { isIntact, said: answer!.stdout };
}

/** Registers a test with a folder of the user and a folder of the server. */
const servedTest = (name: string, test: (own: string, served: string) => Promise<void>) =>
  folderTest(name, async (folder) => {
    await writeFiles(folder, { "own/a": "", "served/a": "" });
    await test(join(folder, "own"), join(folder, "served"));
  });

servedTest(
  "an actor of https works without its server, and is refused before it runs if its text differs",
  async (own, served) => {
    const server = serveFolder(served), env = await trustingEnvironment(served);
    await writeFiles(served, { "actor@2.1.0/mod.ts": COUNTER });
    const url = `${server.url}actor@2.1.0/mod.ts`;
    const { integrity } = await addAndAsk(own, env, url);

    await writeFiles(served, { "actor@2.1.0/mod.ts": `console.log("it runs");\n${COUNTER}` });
    const { isIntact, said } = await verifyAndAsk(own, await trustingEnvironment(served));
    assert.equal(isIntact, false);
    const sentence = `Cannot use ${url}: its hash must be ${integrity}, received sha256-`;
    assert.ok(said.includes(sentence), said);
    assert.doesNotMatch(said, /it runs/);

    await server[Symbol.asyncDispose]();
    assert.deepEqual(await verifyAndAsk(own, env), { isIntact: true, said: "42" });
  },
);

servedTest(
  "an actor of JSR keeps its version and those of its imports, also on another machine",
  async (own, served) => {
    await using registry = openJsr(served);
    const publish = (name: string, version: string, text: string) =>
      writeFiles(join(served, "@you", name, version), {
        "deno.json": JSON.stringify({ exports: { ".": "./mod.ts" } }),
        "mod.ts": text,
      });
    await publish("sum", "1.0.0", "export const sum = (a: number, b: number): number => a + b;\n");
    const counter = 'import { sum } from "jsr:@you/sum@^1";\n' +
      COUNTER.replace("void (count += by)", "void (count = sum(count, by))");
    await publish("counter", "1.0.0", counter);
    const urls = { JSR_URL: registry.url };
    const environment = async () => ({ ...await trustingEnvironment(served), ...urls });
    const { from } = await addAndAsk(own, await environment(), "jsr:@you/counter@1");
    assert.equal(from, "jsr:@you/counter@1.0.0");

    await publish("sum", "1.1.0", "export const sum = () => -1;\n");
    await publish("counter", "1.1.0", counter);
    const other = await environment();
    assert.deepEqual(await verifyAndAsk(own, other), { isIntact: true, said: "42" });
    // Without the lock, its imports resolve to their newest versions, which differ.
    await Deno.remove(join(own, "troupe.lock"));
    assert.equal((await verifyAndAsk(own, await environment())).isIntact, false);
  },
);

servedTest("an actor of npm must have the integrity of the npm registry", async (own, served) => {
  const types = /interface Context \{[^}]*\}|: (Context|number|\{ by: number \})/g;
  await writeFiles(served, {
    "package.json":
      '{ "name": "@you/counter", "version": "3.0.1", "type": "module", "exports": "./mod.js" }',
    "mod.js": COUNTER.replaceAll(types, ""),
  });
  await using registry = await openNpm(served);
  await writeFiles(served, { ".npmrc": `@you:registry=${registry.url}\n` });
  const env = { ...await trustingEnvironment(served), HOME: served };
  try {
    const { from } = await addAndAsk(own, env, "npm:@you/counter@^3");
    assert.equal(from, "npm:@you/counter@3.0.1");
    assert.deepEqual(await verifyAndAsk(own, env), { isIntact: true, said: "42" });
  } finally {
    // All packages of npm are in one cache, and nothing needs this one any more.
    await Deno.remove(join(env.DENO_DIR, "npm", new URL(registry.url).port), { recursive: true });
  }
});
