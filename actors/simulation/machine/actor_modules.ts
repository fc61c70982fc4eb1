/**
 * Modules of actors, loaded once for all runs.
 *
 * @module
 */

import { exempt } from "../traps/guard.ts";

/** Modules that were loaded; an import that waits for nothing is still a turn. */
const modules = new Map<string, Record<string, unknown>>();

/** The exports of a module. What it does when it is first loaded is not part of any run. */
export async function loadModule(module: string): Promise<Record<string, unknown>> {
  if (!modules.has(module)) modules.set(module, await exempt(() => import(module)));
  return modules.get(module)!;
}
