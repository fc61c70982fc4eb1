/** Actors from registries on this machine: added by name, inspected, locked, and spawned confined. */

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { ENVIRONMENT, jsonLines, type Outcome, ROOT } from "../../console/command.ts";
import { inFolder } from "../../in_folder.ts";
import { openNpmRegistry } from "../../package/npm_registry.ts";
import { openRegistry } from "../../package/registry.ts";
import { serveFolder, trustingEnvironment } from "../../package/served.ts";

const COUNTER = await Deno.readTextFile(
  new URL("../runtime/packages/fixtures/counter.ts", import.meta.url),
);

type Environment = Readonly<Record<string, string>>;

/** Runs a script of this repository where a user is at work. */
async function run(cwd: string, env: Environment, ...args: readonly string[]): Promise<Outcome> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", `--config=${join(ROOT, "deno.json")}`, "--no-lock", ...args],
    ...{ cwd, env: { ...ENVIRONMENT, ...env }, stdin: "null" },
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

const CLI = join(ROOT, "cli.ts"), ASK = join(ROOT, "tests/actors/registry/ask_counter.ts");

/** Adds what a specifier stands for, and asks it; gives what its entry says. */
async function addAndAsk(own: string, env: Environment, specifier: string) {
  const added = await run(own, env, CLI, "actors", "add", "counter", specifier, "--json");
  assert.equal(added.code, 0, added.stderr);
  assert.equal((await run(own, env, ASK, "counter")).stdout, "42\n");
  return jsonLines(added.stdout)[0]! as { from: string; integrity: string };
}

/** Whether the hash is the one of the entry, in an environment of one's own. */
async function isIntact(own: string, env: Environment): Promise<boolean> {
  const { code, stdout, stderr } = await run(own, env, CLI, "actors", "verify", "--json");
  const { isIntact, error } = jsonLines(stdout)[0]!;
  assert.equal(error, undefined, stderr);
  assert.equal(code, isIntact ? 0 : 1);
  return isIntact as boolean;
}

/** Runs a test with a folder of the user's and one for what is served. */
const withFolders = (test: (own: string, served: string) => Promise<void>) =>
  inFolder(async (folder) => {
    const own = join(folder, "own"), served = join(folder, "served");
    await Deno.mkdir(own);
    await Deno.mkdir(served);
    await test(own, served);
  });

async function write(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, text] of Object.entries(files)) {
    await Deno.mkdir(dirname(join(folder, path)), { recursive: true });
    await Deno.writeTextFile(join(folder, path), text);
  }
}

Deno.test("an actor of https works without its server, and another text of it is refused before it runs", () =>
  withFolders(async (own, served) => {
    const server = serveFolder(served), env = await trustingEnvironment(served);
    await write(served, { "actor@2.1.0/mod.ts": COUNTER });
    const url = `${server.url}/actor@2.1.0/mod.ts`;
    const inspected = await run(own, env, CLI, "actors", "inspect", url);
    assert.match(inspected.stdout, /^version +2\.1\.0$/m);
    const { integrity } = await addAndAsk(own, env, url);

    await write(served, { "actor@2.1.0/mod.ts": `console.log("it runs");\n${COUNTER}` });
    const elsewhere = await trustingEnvironment(served);
    assert.equal(await isIntact(own, elsewhere), false);
    const refused = await run(own, elsewhere, ASK, "counter");
    const sentence = `Cannot use ${url}: its hash must be ${integrity}, received sha256-`;
    assert.ok(refused.stdout.includes(sentence), refused.stdout + refused.stderr);
    assert.doesNotMatch(refused.stdout + refused.stderr, /it runs/);

    await server[Symbol.asyncDispose]();
    assert.equal(await isIntact(own, env), true);
    assert.equal((await run(own, env, ASK, "counter")).stdout, "42\n");
  }));

Deno.test("an actor of JSR keeps its version and those of what it imports, also on another machine", () =>
  withFolders(async (own, served) => {
    await using registry = openRegistry(served);
    const publish = (name: string, version: string, text: string) =>
      write(join(served, "@you", name, version), {
        "deno.json": JSON.stringify({ exports: { ".": "./mod.ts" } }),
        "mod.ts": text,
      });
    await publish("sum", "1.0.0", "export const sum = (a: number, b: number): number => a + b;\n");
    const counter = 'import { sum } from "jsr:@you/sum@^1";\n' +
      COUNTER.replace("void (count += by)", "void (count = sum(count, by))");
    await publish("counter", "1.0.0", counter);
    const environment = async () => ({
      ...await trustingEnvironment(served),
      JSR_URL: registry.url,
    });
    const { from } = await addAndAsk(own, await environment(), "jsr:@you/counter@1");
    assert.equal(from, "jsr:@you/counter@1.0.0");

    await publish("sum", "1.1.0", "export const sum = () => -1;\n");
    await publish("counter", "1.1.0", counter);
    const elsewhere = await environment();
    assert.equal(await isIntact(own, elsewhere), true);
    assert.equal((await run(own, elsewhere, ASK, "counter")).stdout, "42\n");
    // Without its lock it gets the newest of what it imports, which is something else.
    await Deno.remove(join(own, "troupe.lock"));
    assert.equal(await isIntact(own, await environment()), false);
  }));

Deno.test("an actor of npm is held to the integrity that its registry gave", () =>
  withFolders(async (own, served) => {
    const text = COUNTER.replaceAll(
      /interface Context \{[^}]*\}|: (Context|number|\{ by: number \})/g,
      "",
    );
    await write(served, {
      "package.json": JSON.stringify({
        ...{ name: "@you/counter", version: "3.0.1", type: "module", exports: "./mod.js" },
      }),
      "mod.js": text,
    });
    await using registry = await openNpmRegistry(served);
    await Deno.writeTextFile(join(served, ".npmrc"), `@you:registry=${registry.url}\n`);
    const env = { ...await trustingEnvironment(served), HOME: served };
    try {
      const { from } = await addAndAsk(own, env, "npm:@you/counter@^3");
      assert.equal(from, "npm:@you/counter@3.0.1");
      const { stdout } = await run(own, env, CLI, "actors", "inspect", "counter");
      assert.match(stdout, /^version +3\.0\.1$/m);
      assert.equal(await isIntact(own, env), true);
    } finally {
      // All packages of npm are in one cache, and this one is nobody's any more.
      await Deno.remove(join(env.DENO_DIR, "npm", new URL(registry.url).port), { recursive: true });
    }
  }));
