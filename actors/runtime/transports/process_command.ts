/**
 * The command line of a child process: this program's own, as far as a program can know it.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const PERMISSIONS = ["run", "read", "write", "net", "env", "sys", "ffi", "import"] as const;

const CONFIGS = ["deno.json", "deno.jsonc"];

/**
 * The command that starts a process for an actor.
 *
 * It has the permissions that this program has in full (what a program may read of a list of
 * folders it cannot find out), and the nearest configuration to its main module, so that an import
 * means the same in both.
 *
 * @param memoryLimitMb limit of its JavaScript heap; buffers do not count.
 */
export function commandOf(memoryLimitMb: number | undefined): Deno.Command {
  const args = ["run", "--quiet", "--no-prompt", ...configFlags(), ...permissionFlags()];
  if (memoryLimitMb !== undefined) args.push(`--v8-flags=--max-old-space-size=${memoryLimitMb}`);
  args.push(new URL("./process_entry.ts", import.meta.url).href);
  return new Deno.Command(Deno.execPath(), {
    args,
    stdin: "piped",
    stdout: "inherit",
    stderr: "inherit",
  });
}

function permissionFlags(): string[] {
  const granted = PERMISSIONS.filter((name) =>
    Deno.permissions.querySync({ name } as Deno.PermissionDescriptor).state === "granted"
  );
  return granted.length === PERMISSIONS.length ? ["-A"] : granted.map((name) => `--allow-${name}`);
}

/** Without a configuration of the program, Deno finds that of this package. */
function configFlags(): string[] {
  if (!URL.canParse(Deno.mainModule) || new URL(Deno.mainModule).protocol !== "file:") return [];
  let folder = dirname(fileURLToPath(Deno.mainModule));
  for (;;) {
    for (const name of CONFIGS) {
      if (isFile(join(folder, name))) return ["--config", join(folder, name)];
    }
    const parent = dirname(folder);
    if (parent === folder) return [];
    folder = parent;
  }
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}
