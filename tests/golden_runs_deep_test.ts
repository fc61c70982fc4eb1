/**
 * The bits of short runs of every kind, and the bytes of the files that they write, as they were
 * when `golden/runs.txt` was written: each line is a hash and the commands of one case.
 *
 * `TROUPE_UPDATE=1` writes the file anew. On the native device and WebGPU bits depend on the CPU or
 * GPU: `TROUPE_GOLDEN=FILE` compares any list of cases, such as one that was written here by an
 * older commit.
 *
 * @module
 */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { RUN_FILES } from "../actors/run_folder/metrics_file.ts";
import { bitsOf, jsonLines, printedHere } from "./console/command.ts";
import { inFolder } from "./in_folder.ts";

const FILE = Deno.env.get("TROUPE_GOLDEN") ?? new URL("golden/runs.txt", import.meta.url);

async function* filesIn(folder: string): AsyncGenerator<string> {
  const entries = await Array.fromAsync(Deno.readDir(folder));
  for (const { name, isDirectory } of entries.sort((a, b) => a.name < b.name ? -1 : 1)) {
    // The record of a run and its metrics have dates and seconds.
    if (Object.values<string>(RUN_FILES).includes(name)) continue;
    if (isDirectory) yield* filesIn(join(folder, name));
    else yield join(folder, name);
  }
}

/** Runs commands, one after another, and returns a hash of what they print and write. */
const hashOf = (commands: string) =>
  inFolder(async (folder) => {
    const hash = createHash("sha256"), out = join(folder, "out");
    for (const command of commands.split(" && ")) {
      const args = command.split(" ").map((word) => word.replace(/^OUT/, out));
      const isTrain = args[0] === "train";
      const printed = await printedHere(...args, ...isTrain ? ["--json"] : []);
      hash.update(
        isTrain ? JSON.stringify(bitsOf(jsonLines(printed))) : printed.replaceAll(folder, ""),
      );
    }
    if (!commands.includes(" OUT")) return hash.digest("hex").slice(0, 16);
    for await (const path of filesIn(out)) {
      hash.update(path.slice(out.length)).update(await Deno.readFile(path));
    }
    return hash.digest("hex").slice(0, 16);
  });

Deno.test("short runs of every kind have the bits and files of the golden list", async () => {
  const lines = (await Deno.readTextFile(FILE)).trimEnd().split("\n");
  const found: string[] = [];
  for (const line of lines) {
    const commands = line.slice(line.indexOf("\t") + 1);
    const hash = await hashOf(commands).catch(({ message }) => message.replaceAll("\n", " "));
    found.push(`${hash}\t${commands}`);
  }
  if (Deno.env.has("TROUPE_UPDATE")) await Deno.writeTextFile(FILE, found.join("\n") + "\n");
  else assert.deepEqual(found, lines);
});
