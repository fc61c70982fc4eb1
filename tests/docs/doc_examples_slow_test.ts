/**
 * Runs the examples of all doc comments and pages, each as a module with the exports of the file
 * that it documents in scope. `deno check --doc` checks their types.
 */

import { join } from "node:path";
import { pathToFileURL } from "node:url";
// Loads the libraries that modules load once, so that no example is said to leak them.
import "../../actors/mod.ts";
import { filesBelow, ROOT } from "../repository.ts";

const FENCE = /^(?<margin>[ *]*)```ts\n(?<code>[\s\S]*?)^\k<margin>```$/gm;
const DECLARED = /\b(?:const|let|class|function) (\w+)|\bimport (?:type )?\{([^}]*)\}/g;

/** The exports of a module that an example names and does not declare. */
async function importsOf(url: string, code: string): Promise<string> {
  const declared = [...code.matchAll(DECLARED)].flatMap((words) => words.join(" ").split(/\W+/));
  const used = new Set(code.match(/\w+/g)).difference(new Set(declared));
  const exported = Object.keys(await import(url)).filter((name) => used.has(name));
  return exported.length === 0 ? "" : `import { ${exported.join(", ")} } from "${url}";\n`;
}

/** Runs an example of a file. */
async function runExample(path: string, code: string): Promise<void> {
  const url = pathToFileURL(join(ROOT, path)).href;
  const absolute = code.replace(/(?<=from ")\.[^"]+/g, (to) => new URL(to, url).href);
  const imports = path.endsWith(".ts") ? await importsOf(url, code) : "";
  await import(`data:application/typescript,${encodeURIComponent(imports + absolute)}`);
}

for (const path of filesBelow(ROOT)) {
  if (!/\.(ts|md)$/.test(path)) continue;
  const text = Deno.readTextFileSync(join(ROOT, path));
  for (const { index, groups } of text.matchAll(FENCE)) {
    const { margin, code } = groups!;
    const lines = code!.split("\n").map((line) => line.slice(margin!.length)).join("\n");
    const line = text.slice(0, index).split("\n").length;
    Deno.test(`the example at ${path}:${line} runs`, () => runExample(path, lines));
  }
}
