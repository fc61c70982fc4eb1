/**
 * Whether the workers of this program can be given fewer permissions than it has. Deno ends a program
 * that tries without the unstable option for it, so that is to be known before.
 *
 * [Note: the hole of workers] A worker without any permission may import packages of npm: they are
 * fetched, and run. Only the whole program can be kept from that, as it is started.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { parse } from "jsonc-parser";
import { nearestConfig } from "../../process/command.ts";

/** What a program cannot do, each as a sentence has it; undefined: it can. */
interface Lacks {
  /** Why its workers can have no permissions of their own. */
  readonly permissions?: string;
  /** Why code that is not its own cannot be confined in them. */
  readonly confinement?: string;
}

let known: Lacks | undefined;

/** Why the workers of this program cannot be given fewer permissions than it has. */
export const lackOfPermissions = (): string | undefined => (known ??= findLacks()).permissions;

/** Why code that is not this program's own cannot be confined in its workers. */
export function lackOfWorkers(): string | undefined {
  known ??= findLacks();
  return known.permissions ?? known.confinement;
}

function findLacks(): Lacks {
  const flags = ownFlags();
  if (!flags) return { permissions: "how the program was started cannot be read" };
  const has = (...names: string[]) => names.some((name) => flags.includes(name));
  const isOther = flags.some((flag) => /^(--config(=|$)|-c|--no-config$)/.test(flag));
  const config = isOther ? undefined : ownConfig();
  const unstable = config?.unstable, lock = config?.lock as { frozen?: unknown } | undefined;
  const hasOption = Array.isArray(unstable) && unstable.includes("worker-options");
  if (!has("--unstable-worker-options") && !hasOption) {
    return {
      permissions:
        'permissions of workers want the program to be started with --unstable-worker-options, or its deno.json to have "unstable": ["worker-options"]',
    };
  }
  const isFrozen = has("--frozen", "--frozen=true", "--no-npm") || lock?.frozen === true;
  if (has("--cached-only") && isFrozen) return {};
  return {
    confinement:
      "a worker may import any package of npm unless the program is started with --cached-only and --frozen, or --cached-only and --no-npm",
  };
}

/** The flags that this program was started with, its own arguments aside. */
function ownFlags(): readonly string[] | undefined {
  if (Deno.build.os !== "linux") return undefined;
  try {
    const words = Deno.readTextFileSync("/proc/self/cmdline").split("\0").slice(0, -1);
    return words.slice(0, words.length - Deno.args.length);
  } catch {
    return undefined;
  }
}

/** The configuration that this program was started with, where it is for certain that one. */
function ownConfig(): Readonly<Record<string, unknown>> | undefined {
  const path = nearestConfig();
  // In a workspace, that of its root counts.
  if (path === undefined || nearestConfig(join(dirname(path), "..")) !== undefined) {
    return undefined;
  }
  try {
    return parse(Deno.readTextFileSync(path)) as Record<string, unknown> | undefined;
  } catch {
    return undefined;
  }
}
