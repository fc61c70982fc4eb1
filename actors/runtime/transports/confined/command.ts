/**
 * The command line of a confined process.
 *
 * @module
 */

import { NO_CONFIG_ENV } from "../../packages/fetching.ts";
import { grantFlags, type Grants } from "./grants.ts";
import { ENTRY, NO_CONFIG, type PackageGraph } from "./package_graph.ts";

/** What Deno needs of the environment to find what is in its cache. */
const CACHE_VARIABLES = ["HOME", "NPM_CONFIG_REGISTRY", "JSR_URL"];

/** What one process has for itself: paths. */
export interface OwnFiles {
  readonly folder: string;
  /** Where Deno notes what permissions are asked for. */
  readonly audit: string;
  /** Its cache. */
  readonly cache: string;
}

/**
 * The command that starts a process.
 *
 * @param own what the process has for itself.
 */
export function confinedCommand(
  graph: PackageGraph,
  grants: Grants,
  memoryLimitMb: number,
  own: OwnFiles,
): Deno.Command {
  const isClosed = grants.import !== true && grants.import.length === 0;
  return new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      ...NO_CONFIG,
      "--no-prompt",
      // Whoever may import from elsewhere may import packages of npm from there, too.
      ...isClosed ? ["--cached-only", "--frozen"] : [],
      `--lock=${graph.lock}`,
      `--import-map=${graph.importMap}`,
      ...grantFlags(withModules(grants, graph)),
      `--v8-flags=--max-old-space-size=${memoryLimitMb}`,
      ENTRY,
    ],
    clearEnv: true,
    env: { ...environment(grants), DENO_AUDIT_PERMISSIONS: own.audit, DENO_DIR: own.cache },
    cwd: own.folder,
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  });
}

/** What was granted, and what the package itself is made of. */
export function withModules(grants: Grants, { files, hosts }: PackageGraph): Grants {
  const { read, import: imports } = grants;
  return {
    ...grants,
    read: read === true || [...read, ...files],
    import: imports === true || [...imports, ...hosts],
  };
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
