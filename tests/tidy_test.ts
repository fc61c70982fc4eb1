/** The house rules that a machine can check. */

import assert from "node:assert/strict";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Which rooms a room may import; a room may always import itself. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  "kernels": [],
  "schedules": [],
  "actors/runtime": [],
  "actors/simulation": ["actors/runtime", "deno.json"],
  "actors": ["actors/runtime", "actors/simulation", "schedules", "kernels"],
  "console": [
    "actors",
    "actors/runtime",
    "actors/simulation",
    "schedules",
    "kernels",
    "deno.json",
  ],
  "examples": ["mod.ts", "testing.ts"],
  "mod.ts": ["actors", "schedules", "kernels"],
  "testing.ts": ["actors/simulation"],
  "lint": ["actors/simulation"],
  "cli.ts": ["console"],
};

const LINES_MAX = 500;
const MOD_LINES_MAX = 80;
const EXAMPLE_LINES_MAX = 120;

/** Files that a command makes: nobody reads or edits them. */
const GENERATED = /_pb\.ts$/;

/** The room of a path from the root. */
function roomOf(path: string): string {
  for (const room of ["actors/runtime", "actors/simulation"]) {
    if (path.startsWith(`${room}/`)) return room;
  }
  return path.includes("/") ? path.slice(0, path.indexOf("/")) : path;
}

async function sourceFiles(folder = ""): Promise<string[]> {
  const files: string[] = [];
  for await (const { name, isDirectory } of Deno.readDir(join(ROOT, folder))) {
    const path = folder === "" ? name : `${folder}/${name}`;
    if (name.startsWith(".") || ["node_modules", "runs", "coverage"].includes(name)) continue;
    if (isDirectory) files.push(...await sourceFiles(path));
    else if (name.endsWith(".ts") && !GENERATED.test(name)) files.push(path);
  }
  return files.sort();
}

/** Relative imports of a file, doc comments excluded, as paths from the root. */
function importsOf(path: string, text: string): string[] {
  const code = text.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/^\s*\/\/.*$/gm, "");
  const found = code.matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*|new URL\(\s*)"(\.{1,2}\/[^"]+)"/g);
  return [...found].map(([, specifier]) =>
    relative(ROOT, join(ROOT, dirname(path), specifier!)).replaceAll("\\", "/")
  );
}

Deno.test("imports run one way: no room reaches into one that it must not know", async () => {
  const wrong: string[] = [];
  for (const path of await sourceFiles()) {
    const room = roomOf(path), allowed = MAY_IMPORT[room];
    if (!allowed) continue;
    for (const target of importsOf(path, await Deno.readTextFile(join(ROOT, path)))) {
      const to = roomOf(target);
      if (to !== room && !allowed.includes(to)) wrong.push(`${path} imports ${target}`);
    }
  }
  assert.deepEqual(wrong, []);
});

Deno.test("nothing but tests imports cli.ts", async () => {
  for (const path of await sourceFiles()) {
    if (path.startsWith("tests/")) continue;
    const targets = importsOf(path, await Deno.readTextFile(join(ROOT, path)));
    assert.ok(!targets.includes("cli.ts"), `${path} imports cli.ts`);
  }
});

Deno.test("files stay short enough to be one idea", async () => {
  for (const path of await sourceFiles()) {
    const lines = (await Deno.readTextFile(join(ROOT, path))).split("\n").length - 1;
    const limit = path === "mod.ts"
      ? MOD_LINES_MAX
      : path.startsWith("examples/")
      ? EXAMPLE_LINES_MAX
      : LINES_MAX;
    assert.ok(lines <= limit, `${path} has ${lines} lines, at most ${limit} are allowed`);
  }
});

Deno.test("every source file says in its first lines what it is", async () => {
  for (const path of await sourceFiles()) {
    if (path.startsWith("tests/") || path.startsWith("compat/")) continue;
    const text = await Deno.readTextFile(join(ROOT, path));
    assert.ok(text.startsWith("/**"), `${path} must start with a doc comment`);
  }
});

Deno.test("no source file is unfinished, bound to one machine, or prints past the console room", async () => {
  const banned = [/\bTODO\b/, /\bFIXME\b/, /\bXXX\b/, /Deno\.test\.(only|ignore)/, /\/root\//];
  for (const path of await sourceFiles()) {
    if (path === "tests/tidy_test.ts") continue;
    const text = await Deno.readTextFile(join(ROOT, path));
    for (const pattern of banned) assert.doesNotMatch(text, pattern, path);
  }
});
