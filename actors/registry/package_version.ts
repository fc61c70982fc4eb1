/**
 * The version of a package that was chosen, as its modules' URLs tell it.
 *
 * @module
 */

import type { ModuleGraph } from "../sandbox/mod.ts";

/** A specifier, and the URL that it stands for. */
export type Chosen = Pick<ModuleGraph, "specifier" | "root">;

/** The parts of a specifier of JSR: the package, and the path within it. */
const JSR = /^jsr:\/?(@[^/]+\/[^@/]+)(?:@[^/]*)?(\/.*)?$/;

/** The version of the package that a specifier stands for; undefined for a module of no package. */
export function packageVersion({ specifier, root }: Chosen): string | undefined {
  const [, name] = JSR.exec(specifier) ?? [];
  if (name !== undefined) return root.split(`/${name}/`)[1]?.split("/", 1)[0];
  // `npm:/@you/actor@1.2.0`, or `https://example.org/actor@1.2.0/mod.ts`
  return /^(?:npm|https?):.*[^/]@v?(\d+\.\d+[^/]*)/.exec(root)?.[1];
}

/** The same specifier for just that version. */
export function pinnedSpecifier({ specifier, root }: Chosen): string {
  if (specifier.startsWith("npm:")) return root.replace(/^npm:\//, "npm:");
  const [, name, path = ""] = JSR.exec(specifier) ?? [];
  return name === undefined ? root : `jsr:${name}@${packageVersion({ specifier, root })}${path}`;
}
