/**
 * What a program is made of: the hash of each of its modules.
 *
 * @module
 */

import { posix } from "node:path";

/** Relative imports of a module's text, those in comments included, which do no harm. */
const IMPORTS = /(?:\bfrom|\bimport\s*\(?|\bnew URL\()\s*["'](\.{1,2}\/[^"']+)["']/g;

/**
 * Hashes modules and all that they import by relative paths, and so on. Modules on this machine may
 * change at any time; those of a registry only with its version, so of them none is fetched but those
 * that are named.
 *
 * @param modules absolute URLs.
 * @returns by name the SHA-256 of each text, in hexadecimal digits. A file's name is its path from
 * the folder of the first module: journals go from machine to machine.
 * @throws {TypeError} (as a rejection) when one of `modules` cannot be read.
 */
export async function hashModules(
  modules: readonly string[],
): Promise<Readonly<Record<string, string>>> {
  const base = modules.find((module) => module.startsWith("file:"));
  const hashes = new Map<string, string>();
  let found = [...new Set(modules)];
  for (const named = new Set(modules); found.length > 0;) {
    const read = await Promise.all(found.map(async (module) => {
      const text = await readModule(module);
      if (text === undefined && named.has(module)) {
        throw new TypeError(`Cannot write a journal: ${module} must be a module that can be read`);
      }
      return { module, text };
    }));
    const next = new Set<string>();
    for (const { module, text } of read) {
      if (text === undefined) continue;
      const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
      hashes.set(module, new Uint8Array(hash).toHex());
      for (const imported of importsOf(module, text)) next.add(imported);
    }
    found = [...next].filter((module) => !hashes.has(module));
  }
  const names = [...hashes].map(([module, hash]) => [nameOf(module, base), hash] as const);
  return Object.fromEntries(names.sort(([a], [b]) => a < b ? -1 : 1));
}

function importsOf(module: string, text: string): string[] {
  if (!module.startsWith("file:") || !/\.[cm]?[jt]sx?$/.test(module)) return [];
  return Array.from(text.matchAll(IMPORTS), ([, path]) => new URL(path!, module).href);
}

/** A module's text; undefined when there is none. Line ends count alike on all systems. */
async function readModule(module: string): Promise<string | undefined> {
  try {
    const response = await fetch(module);
    if (response.ok) return (await response.text()).replaceAll("\r\n", "\n");
    await response.body?.cancel();
  } catch {
    // A comment may speak of a module that is nowhere.
  }
  return undefined;
}

/** A module's name: of a file its path from the folder of another. */
function nameOf(module: string, base: string | undefined): string {
  if (base === undefined || !module.startsWith("file:")) return module;
  return posix.relative(posix.dirname(new URL(base).pathname), new URL(module).pathname);
}
