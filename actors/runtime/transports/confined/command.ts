/**
 * The command line of a confined process.
 *
 * @module
 */

import { grantFlags, type Grants } from "./grants.ts";
import { ENTRY, NO_CONFIG, NO_CONFIG_ENV, type PackageGraph } from "./package_graph.ts";

/** Room for young objects, in MiB: see the command of other processes. */
const YOUNG_MB = 2;

/** What Deno needs of the environment to find what is in its cache. */
const CACHE_VARIABLES = ["HOME", "NPM_CONFIG_REGISTRY", "JSR_URL"];

/**
 * The command that starts a process.
 *
 * @param audit path of the file in which Deno notes what permissions are asked for.
 */
export function confinedCommand(
  graph: PackageGraph,
  grants: Grants,
  memoryLimitMb: number,
  audit: string,
): Deno.Command {
  return new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      ...NO_CONFIG,
      "--no-prompt",
      "--cached-only",
      "--frozen",
      `--lock=${graph.lock}`,
      `--import-map=${graph.importMap}`,
      ...grantFlags(grants),
      `--v8-flags=--max-old-space-size=${memoryLimitMb},--max-semi-space-size=${YOUNG_MB}`,
      ENTRY,
    ],
    clearEnv: true,
    env: { ...environment(grants), DENO_AUDIT_PERMISSIONS: audit, DENO_DIR: graph.cache },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  });
}

/** What the process may read of the environment, and what Deno needs of it. */
function environment({ env }: Grants): Record<string, string> {
  if (env === true) return { ...Deno.env.toObject(), ...NO_CONFIG_ENV };
  const known = CACHE_VARIABLES.filter((name) =>
    Deno.permissions.querySync({ name: "env", variable: name }).state === "granted"
  );
  const values = [...known, ...env].flatMap((name) => {
    const value = Deno.env.get(name);
    return value === undefined ? [] : [[name, value]];
  });
  return { ...Object.fromEntries(values), ...NO_CONFIG_ENV };
}
