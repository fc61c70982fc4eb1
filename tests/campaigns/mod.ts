/**
 * Long campaigns against the promises of the README, too long for the test suite:
 *
 *     deno task campaign [NAME ...] [--cases N] [--seed N] [--runtime NAME]
 *
 * Without names, all campaigns run one after another. A campaign is a separate program in this folder:
 * it prints its progress, ends with a line `NAME: N cases, N survived`, and exits with 0 only if all
 * survived. `--cases` scales it and `--seed` repeats it; `kills` runs only its long runs with `--runtime`.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { printError } from "../../console/terminal.ts";

const FOLDER = new URL("./", import.meta.url);
const FLAGS = ["cases", "seed", "runtime"];
/** Suffixes of the files in this folder that are not campaigns. */
const HELPERS = /^(mod|.*_(entry|helper))\.ts$/;

async function campaigns(): Promise<string[]> {
  const names = [];
  for await (const { name, isFile } of Deno.readDir(FOLDER)) {
    if (isFile && name.endsWith(".ts") && !HELPERS.test(name)) names.push(name.slice(0, -3));
  }
  return names.sort();
}

/** Runs one campaign; returns whether all its cases survived. */
async function run(name: string, flags: readonly string[]): Promise<boolean> {
  const file = new URL(`${name}.ts`, FOLDER).href;
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", file, ...flags],
    ...{ stdin: "null", stdout: "inherit", stderr: "inherit" },
  });
  return (await command.output()).success;
}

if (import.meta.main) {
  const { _: asked, ...given } = parseArgs(Deno.args, { string: FLAGS });
  const known = await campaigns(), all = [...known, ...FLAGS.map((name) => `--${name}`)];
  const words = [...asked.map(String), ...Object.keys(given).map((name) => `--${name}`)];
  const unknown = words.find((word) => !all.includes(word));
  if (unknown !== undefined) {
    printError(`Cannot run campaigns: words must be of ${all.join(", ")}, received ${unknown}`);
    Deno.exit(2);
  }
  const flags = Object.entries(given).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const failed = [];
  for (const name of asked.length > 0 ? asked.map(String) : known) {
    if (!await run(name, flags)) failed.push(name);
  }
  if (failed.length > 0) {
    printError(`failed: ${failed.join(", ")}`);
    Deno.exit(1);
  }
}
