/** The house rules that a machine can check. */

import assert from "node:assert/strict";
import { dirname, join, posix } from "node:path";
import { filesBelow, ROOT } from "./repository.ts";

/**
 * The rooms, from the bottom up: a file imports files of its own room and of rooms below. What
 * carries actors to other places knows the runtime only, and schedules know no kernels.
 */
const LAYERS = [
  "kernels",
  "schedules",
  "actors/runtime",
  "actors/transports",
  "actors/sandbox",
  "actors/simulation",
  "actors/gradients",
  "actors/checkpoints",
  "actors/pipeline",
  "actors/options",
  "actors/run_folder",
  "actors/run",
  "actors/registry",
  "actors/planner",
  "actors/simulated_training",
  "actors",
  "console",
];

/** Rooms that import less than all rooms below them. */
const ONLY: Readonly<Record<string, readonly string[]>> = {
  "schedules": [],
  "actors/runtime": [],
  "actors/transports": ["actors/runtime"],
  "actors/sandbox": ["actors/runtime", "actors/transports"],
  "actors/simulation": ["actors/runtime", "actors/transports", "actors/sandbox"],
  "actors/gradients": ["kernels", "schedules"],
  "actors/checkpoints": ["kernels"],
  "examples": [], // they are copied out of the repository
  "mod.ts": ["actors", "schedules", "kernels"],
  "predict.ts": ["actors/options", "actors/run"],
  "testing.ts": ["actors/runtime", "actors/simulation"],
  "lint": ["actors/simulation"],
  "cli.ts": ["console"],
};

const LINES_MAX = 700;
const MOD_LINES_MAX = 80;
const EXAMPLE_LINES_MAX = 120;
const FUNCTION_LINES_MAX = 70;

/** Generated files. */
const GENERATED = /_pb\.ts$/;

const PATHS = filesBelow(ROOT).filter((path) => path.endsWith(".ts"));

/** Written files, by path from the root. */
const SOURCES: ReadonlyMap<string, string> = new Map(
  PATHS.filter((path) => !GENERATED.test(path))
    .map((path) => [path, Deno.readTextFileSync(join(ROOT, path))]),
);

/** The room of a path from the root. */
function roomOf(path: string): string {
  const [room, inner, file] = path.split("/");
  if (room === "actors" && file !== undefined) return `${room}/${inner}`;
  return path.includes("/") ? path.slice(0, path.indexOf("/")) : path;
}

const IMPORT = /(?:\bfrom\s*|\bimport\s*\(?\s*)"(\.{1,2}\/[^"]+)"/g;
const IMPORT_OR_URL = /(?:\bfrom\s*|\bimport\s*\(?\s*|new URL\(\s*)"(\.{1,2}\/[^"]+)"/g;

/** Files that a file names by relative paths outside comments, as paths from the root. */
function namedIn(path: string, text: string, pattern: RegExp): string[] {
  const code = text.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/^\s*\/\/.*$/gm, "");
  return Array.from(code.matchAll(pattern), ([, name]) => posix.join(dirname(path), name!));
}

Deno.test("imports go down: no room imports one above it", () => {
  const wrong: string[] = [];
  for (const [path, text] of SOURCES) {
    const room = roomOf(path), at = LAYERS.indexOf(room);
    const allowed = ONLY[room] ?? (at < 0 ? undefined : LAYERS.slice(0, at));
    if (!allowed) continue;
    for (const target of namedIn(path, text, IMPORT_OR_URL)) {
      const to = roomOf(target);
      if (to === room || to === "deno.json") continue;
      if (!allowed.includes(to)) wrong.push(`${path} imports ${target}`);
    }
  }
  assert.deepEqual(wrong, []);
});

Deno.test("imports of files run in no circle, those of types neither", () => {
  const imports = new Map(
    Array.from(SOURCES, ([path, text]) => [path, namedIn(path, text, IMPORT)]),
  );
  assert.deepEqual(circleIn(imports), []);
});

/** Files each of which imports the next, and the last the first, if there are any. */
function circleIn(imports: ReadonlyMap<string, readonly string[]>): string[] {
  const left = new Set(imports.keys());
  const next = (path: string) => imports.get(path)!.find((target) => left.has(target));
  // A file that imports none of the remaining files is in no cycle.
  for (let before = Infinity; left.size < before;) {
    before = left.size;
    for (const path of left) if (next(path) === undefined) left.delete(path);
  }
  const walk: string[] = [];
  let [path] = left;
  for (; path !== undefined && !walk.includes(path); path = next(path)) walk.push(path);
  return path === undefined ? [] : walk.slice(walk.indexOf(path));
}

Deno.test("what pages load looks up Node's modules instead of importing them", () => {
  const alone = ["kernels/data/tokenizer_worker.ts", "kernels/devices/cpu/build_simd.ts"];
  const kernels = SOURCES.keys().filter((path) => path.startsWith("kernels/"));
  const loaded = new Set(["predict.ts", ...kernels.filter((path) => !alone.includes(path))]);
  for (const path of loaded) { // those that are added, too
    const text = (SOURCES.get(path) ?? "").replaceAll(/^(import|export) type [^;]*;$/gm, "");
    assert.doesNotMatch(text, /^import .* "node:|^} from "node:/m, path);
    for (const target of namedIn(path, text, IMPORT)) loaded.add(target);
  }
  assert.ok(loaded.has("actors/checkpoints/weights.ts"));
});

Deno.test("only tests import cli.ts", () => {
  for (const [path, text] of SOURCES) {
    if (path.startsWith("tests/")) continue;
    assert.ok(!namedIn(path, text, IMPORT_OR_URL).includes("cli.ts"), `${path} imports cli.ts`);
  }
});

Deno.test("files stay short enough to be one idea", () => {
  for (const [path, text] of SOURCES) {
    const lines = text.split("\n").length - 1;
    const limit = path === "mod.ts"
      ? MOD_LINES_MAX
      : path.startsWith("examples/")
      ? EXAMPLE_LINES_MAX
      : LINES_MAX;
    assert.ok(lines <= limit, `${path} has ${lines} lines, at most ${limit} are allowed`);
  }
});

Deno.test("functions stay short enough to be seen whole", () => {
  const long = [...SOURCES].flatMap(([path, text]) => longFunctions(path, text));
  assert.deepEqual(long, []);
});

/** Functions with too many lines; what a test file hands to others is a test, of any length. */
function longFunctions(path: string, text: string): string[] {
  const found: string[] = [];
  const look = (
    node:
      | Deno.lint.FunctionDeclaration
      | Deno.lint.FunctionExpression
      | Deno.lint.ArrowFunctionExpression,
  ) => {
    if (path.startsWith("tests/") && node.parent.type === "CallExpression") return;
    const [from, to] = node.range, lines = text.slice(from, to).split("\n").length;
    const line = text.slice(0, from).split("\n").length;
    if (lines > FUNCTION_LINES_MAX) found.push(`${path}:${line} has ${lines} lines`);
  };
  const long: Deno.lint.Rule = {
    create: () => ({
      FunctionDeclaration: look,
      FunctionExpression: look,
      ArrowFunctionExpression: look,
    }),
  };
  Deno.lint.runPlugin({ name: "tidy", rules: { long } }, path, text);
  return found;
}

Deno.test("no room has more code lines than its budget, and the whole no more files and folders", () => {
  const budgets: Record<string, number> = JSON.parse(
    Deno.readTextFileSync(join(ROOT, "tests", "budgets.json")),
  );
  const found: Record<string, number> = {}, folders = new Set<string>();
  const add = (name: string, count: number) => found[name] = (found[name] ?? 0) + count;
  for (const path of PATHS.filter((path) => !/^(compat|docs|examples)\//.test(path))) {
    const lines = codeLines(Deno.readTextFileSync(join(ROOT, path)));
    const [top, second] = path.split("/");
    const isRoom = path.split("/").length > 2 && /^(actors|console|kernels|schedules)$/.test(top!);
    if (top !== "tests") {
      add("files", 1);
      folders.add(dirname(path));
    }
    add(path.includes("/") ? isRoom ? `${top}/${second}` : top! : ".", lines);
  }
  found.folders = folders.size;
  if (Deno.env.has("TROUPE_UPDATE")) {
    const rows = Object.entries(found).sort().map(([name, count]) => `  "${name}": ${count}`);
    Deno.writeTextFileSync(join(ROOT, "tests", "budgets.json"), `{\n${rows.join(",\n")}\n}\n`);
    return;
  }
  const over = Object.entries(found).filter(([name, count]) => count > (budgets[name] ?? 0));
  assert.deepEqual(over, [], "tests/budgets.json has the limits");
});

/** Returns the lines of a file that are neither blank, comments, imports nor re-exports. */
function codeLines(text: string): number {
  const code = text
    .replaceAll(/^\s*\/\*[\s\S]*?\*\/[ \t]*$/gm, "")
    .replaceAll(/^(import|export (type )?[{*])[\s\S]*?;$/gm, "")
    .replaceAll(/^\s*\/\/.*$/gm, "");
  return code.split("\n").filter((line) => line.trim() !== "").length;
}

Deno.test("test files that open the GPU are those that run alone", () => {
  for (const [path, text] of SOURCES) {
    if (!path.endsWith("_test.ts") || path.endsWith("_alone_test.ts")) continue;
    assert.doesNotMatch(text, /\bopenWebgpu\(|\("webgpu"[,)]|\bdevice: "(webgpu|auto)/, path);
  }
});

Deno.test("every source file starts with a comment about its contents", () => {
  for (const [path, text] of SOURCES) {
    if (path.startsWith("tests/") || path.startsWith("compat/")) continue;
    assert.ok(text.startsWith("/**"), `${path} must start with a doc comment`);
  }
});

Deno.test("no source file is unfinished, bound to one machine, or prints past the console room", () => {
  const banned = [/\bTODO\b/, /\bFIXME\b/, /\bXXX\b/, /Deno\.test\.(only|ignore)/, /\/root\//];
  for (const [path, text] of SOURCES) {
    if (path === "tests/tidy_test.ts") continue;
    for (const pattern of banned) assert.doesNotMatch(text, pattern, path);
  }
});
