/** The files of this repository. */

import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The repository's folder. */
export const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Files that runs and tools leave behind. */
const MADE = new Set(["node_modules", "runs", "coverage"]);

/**
 * Files below a folder, by their sorted paths from there. Hidden ones are left out, and what runs
 * leave behind.
 */
export function filesBelow(folder: string): string[] {
  const files: string[] = [];
  for (const { name, isDirectory } of Deno.readDirSync(folder)) {
    if (name.startsWith(".") || MADE.has(name)) continue;
    if (!isDirectory) files.push(name);
    else files.push(...filesBelow(join(folder, name)).map((path) => `${name}/${path}`));
  }
  return files.sort();
}
