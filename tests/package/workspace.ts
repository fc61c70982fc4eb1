/** A copy of the package in a workspace of its own, as it is published. */

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { ENVIRONMENT, type Outcome } from "../console/command.ts";
import { filesBelow, ROOT } from "../repository.ts";

/** Runs Deno in a folder to a good end. */
export async function deno(
  cwd: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd,
    env: { ...ENVIRONMENT, ...env },
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  const outcome = { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
  assert.equal(code, 0, `deno ${args.join(" ")}\n${outcome.stdout}${outcome.stderr}`);
  return outcome;
}

/** Copies what a clone of the repository has. */
export async function copyRepository(to: string): Promise<void> {
  for (const path of filesBelow(ROOT)) {
    await Deno.mkdir(dirname(join(to, path)), { recursive: true });
    await Deno.copyFile(join(ROOT, path), join(to, path));
  }
}

/**
 * Makes a workspace of this package and of the stand-ins in `compat/` beside it: `deno publish`
 * refuses links into the folder of the package itself.
 *
 * @returns the package's folder.
 */
export async function makeWorkspace(folder: string): Promise<string> {
  const troupe = join(folder, "troupe");
  await copyRepository(troupe);
  await Deno.rename(join(troupe, "compat"), join(folder, "compat"));
  const { workspace, links, nodeModulesDir, allowScripts, compilerOptions, ...config } = JSON.parse(
    await Deno.readTextFile(join(troupe, "deno.json")),
  );
  const members = workspace.map((path: string) => `./${join("troupe", path)}`);
  const shared = { links, nodeModulesDir, allowScripts, compilerOptions };
  const root = { workspace: ["./troupe", ...members], ...shared };
  await Deno.writeTextFile(join(folder, "deno.json"), JSON.stringify(root));
  await Deno.writeTextFile(join(troupe, "deno.json"), JSON.stringify(config));
  return troupe;
}
