/**
 * The folder that belongs to a package of files, and what the names mean that its modules import.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { parse } from "jsonc-parser";

const CONFIGS = ["deno.json", "deno.jsonc", "package.json"];

/** What names stand for, as in an import map. */
export type Imports = Readonly<Record<string, string>>;

/** A folder of modules. */
export interface PackageFolder {
  /** Its absolute path, symbolic links followed. */
  readonly path: string;
  /** What the names mean that its modules import. */
  readonly imports: Imports;
}

/**
 * The nearest folder above a module that says it is a package, as its configuration has `exports`;
 * else the module's own.
 */
export async function packageFolder(module: string): Promise<PackageFolder> {
  const own = dirname(await Deno.realPath(module).catch(() => module)); // told where it is read
  for (let path = own;; path = dirname(path)) {
    for (const name of CONFIGS) {
      const config = await readConfig(join(path, name));
      if (config?.exports) return { path, imports: importsOf(config, join(path, name)) };
    }
    if (dirname(path) === path) return { path: own, imports: {} };
  }
}

type Config = Readonly<Record<string, unknown>>;

async function readConfig(path: string): Promise<Config | undefined> {
  try {
    const config = parse(await Deno.readTextFile(path));
    return typeof config === "object" && config !== null ? config as unknown as Config : undefined;
  } catch {
    return undefined;
  }
}

/** As Deno reads them: a name of a package stands for what is below it, too. */
function importsOf({ imports }: Config, config: string): Imports {
  const base = pathToFileURL(config), read: Record<string, string> = {};
  for (const [name, target] of Object.entries(imports ?? {})) {
    if (typeof target !== "string") continue;
    read[name] = /^\.{0,2}\//.test(target) ? new URL(target, base).href : target;
    const [, scheme, rest] = /^(jsr:|npm:)\/?(.*[^/])$/.exec(target) ?? [];
    if (scheme && !name.endsWith("/")) read[`${name}/`] ??= `${scheme}/${rest}/`;
  }
  return read;
}
