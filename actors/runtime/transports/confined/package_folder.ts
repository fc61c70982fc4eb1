/**
 * The folder that belongs to a package of files.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { parse } from "@std/jsonc/parse";

const CONFIGS = ["deno.json", "deno.jsonc", "package.json"];

/**
 * The nearest folder above a module that says it is a package, as its configuration has `exports`;
 * else the module's own. Symbolic links are followed.
 */
export async function packageFolder(module: string): Promise<string> {
  const own = dirname(await Deno.realPath(module));
  for (let folder = own;; folder = dirname(folder)) {
    for (const name of CONFIGS) if (await saysPackage(join(folder, name))) return folder;
    if (dirname(folder) === folder) return own;
  }
}

async function saysPackage(config: string): Promise<boolean> {
  try {
    const content = parse(await Deno.readTextFile(config));
    return typeof content === "object" && content !== null && "exports" in content;
  } catch {
    return false;
  }
}
