/**
 * The command line of a child process: this program's own, as far as a program can know it.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const CONFIGS = ["deno.json", "deno.jsonc"];

/**
 * The command that starts a process for an actor.
 *
 * It has the nearest configuration to the main module of this program, so that an import means the
 * same in both.
 *
 * @param memoryLimitMb limit of its JavaScript heap; buffers do not count.
 * @param permissions flags that say what it may do.
 * @param directory the private folder, for a process whose program dies before it says so.
 */
export function commandOf(
  memoryLimitMb: number | undefined,
  permissions: readonly string[],
  directory: string,
): Deno.Command {
  const args = ["run", "--quiet", "--no-prompt", ...configFlags(), ...permissions];
  if (memoryLimitMb !== undefined) args.push(`--v8-flags=--max-old-space-size=${memoryLimitMb}`);
  args.push(new URL("./entry.ts", import.meta.url).href, directory);
  return new Deno.Command(Deno.execPath(), {
    args,
    env: { DENO_NO_UPDATE_CHECK: "1" },
    stdin: "piped",
    stdout: "inherit",
    stderr: "inherit",
  });
}

/** Names the configuration that is nearest to the main module. Without one of the program, Deno
 * finds that of this package. */
function configFlags(): string[] {
  if (!URL.canParse(Deno.mainModule) || new URL(Deno.mainModule).protocol !== "file:") return [];
  let folder = fileURLToPath(Deno.mainModule);
  while (dirname(folder) !== folder) {
    folder = dirname(folder);
    const found = CONFIGS.map((name) => join(folder, name)).find(isFile);
    if (found !== undefined) return ["--config", found];
  }
  return [];
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}
