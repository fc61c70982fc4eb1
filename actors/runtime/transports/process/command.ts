/**
 * The command line of a child process: this program's own, as far as a program can know it.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const CONFIGS = ["deno.json", "deno.jsonc"];

/**
 * How V8 keeps the heap of a process small. It doubles the room for young objects again and again, to
 * 32 MiB and more, however few survive, and lets what is old and dead lie until the heap has grown by
 * half or more: messages are short-lived, so a process would only hold more the longer it runs.
 */
export const HEAP_FLAGS = [
  "--max-semi-space-size=2",
  "--heap-growing-percent=10",
  "--optimize-for-size",
] as const;

/**
 * The command that starts a process for an actor.
 *
 * It has the nearest configuration to the main module of this program, so that an import means the
 * same in both.
 *
 * @param memoryLimitMb limit of its JavaScript heap; buffers do not count.
 * @param permissions flags that say what it may do.
 */
export function commandOf(
  memoryLimitMb: number | undefined,
  permissions: readonly string[],
): Deno.Command {
  const args = ["run", "--quiet", "--no-prompt", ...configFlags(), ...permissions];
  const limit = memoryLimitMb === undefined ? [] : [`--max-old-space-size=${memoryLimitMb}`];
  args.push(`--v8-flags=${[...limit, ...HEAP_FLAGS].join()}`);
  args.push(new URL("./entry.ts", import.meta.url).href);
  return new Deno.Command(Deno.execPath(), {
    args,
    env: { DENO_NO_UPDATE_CHECK: "1" },
    stdin: "piped",
    stdout: "inherit",
    stderr: "inherit",
  });
}

/** Without a configuration of the program, Deno finds that of this package. */
function configFlags(): string[] {
  const config = nearestConfig();
  return config === undefined ? [] : ["--config", config];
}

/** The configuration that is nearest to the main module, or to a folder. */
export function nearestConfig(from?: string): string | undefined {
  if (from === undefined) {
    if (!URL.canParse(Deno.mainModule) || new URL(Deno.mainModule).protocol !== "file:") return;
    from = dirname(fileURLToPath(Deno.mainModule));
  }
  for (let folder = from;; folder = dirname(folder)) {
    const found = CONFIGS.map((name) => join(folder, name)).find(isFile);
    if (found !== undefined || dirname(folder) === folder) return found;
  }
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}
