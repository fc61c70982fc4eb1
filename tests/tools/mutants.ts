/**
 * Tests the tests: applies deliberate bugs one at a time and runs the tests that cover them.
 *
 *     deno task mutants [--room ROOM] [--find WORDS]
 *
 * The bugs of a room are in `tests/mutants/ROOM.json`, each with the promise that it breaks, a text
 * that is unique in the sources, its replacement, and the test file that fails first. Where that
 * file passes, all tests of the room run. `--find` selects bugs by words of their promise. The exit
 * code is 1 if a bug survives, and 2 if a patch does not apply or a test fails without it.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { dirname, join } from "node:path";
import { print, printError } from "../../console/terminal.ts";
import { ROOT } from "../repository.ts";
import { inLanes } from "../lanes.ts";
import { killAll, runTests } from "./test_process.ts";

/** A deliberate bug. */
interface Patch {
  /** The promise that it breaks, in a sentence. */
  readonly breaks: string;
  /** A text that is in the sources once; runs of white space are equal. */
  readonly find: string;
  readonly replace: string;
  /** The test file that fails first. */
  readonly killedBy: string;
}

/** The bugs of a room. */
interface Room {
  readonly name: string;
  /** Files and folders of all tests that cover the room. */
  readonly tests: readonly string[];
  readonly patches: readonly Patch[];
}

/** A patch with the file that it changes. */
interface Mutant {
  readonly room: Room;
  readonly patch: Patch;
  readonly path: string;
  readonly mutated: string;
}

const FOLDER = join(ROOT, "tests", "mutants");
const LANES = 2;
/** A mutant whose tests take longer hangs, which a test has noticed. */
const LIMIT_SECONDS = 240;
const NOT_ALONE = ["--parallel", "--ignore=**/*_alone_test.ts,**/*_deep_test.ts"];

class PatchError extends Error {}

function readRooms(name: string | undefined): Room[] {
  const names = Array.from(Deno.readDirSync(FOLDER), (entry) => entry.name.replace(/\.json$/, ""));
  if (name !== undefined && !names.includes(name)) {
    throw new PatchError(
      `Cannot test the tests: --room must be one of ${names.sort().join(", ")}, received ${name}`,
    );
  }
  return names.filter((known) => name === undefined || known === name).sort().map((known) => ({
    name: known,
    ...JSON.parse(Deno.readTextFileSync(join(FOLDER, `${known}.json`))),
  }));
}

/** Finds the place of a patch; it must be one. */
function mutantOf(room: Room, patch: Patch, sources: ReadonlyMap<string, string>): Mutant {
  const words = patch.find.trim().split(/\s+/).map((word) => RegExp.escape(word));
  const pattern = new RegExp(words.join("\\s+"), "g");
  const places = [...sources].flatMap(([path, text]) =>
    Array.from(text.matchAll(pattern), ({ index, 0: found }) => ({ path, text, index, found }))
  );
  const [place] = places;
  if (!place || places.length > 1) {
    const found = place ? `${places.length} places, ${places.map((p) => p.path)}` : "no place";
    throw new PatchError(
      `Cannot apply a patch of ${room.name} ("${patch.breaks}"): its text must be in one place, found ${found}`,
    );
  }
  const { path, text, index, found } = place;
  const mutated = text.slice(0, index) + patch.replace + text.slice(index + found.length);
  return { room, patch, path, mutated };
}

/** Copies the files of this checkout that git tracks or would track. */
async function copyCheckout(paths: readonly string[], folder: string): Promise<void> {
  for (const path of paths) {
    await Deno.mkdir(join(folder, dirname(path)), { recursive: true });
    await Deno.copyFile(join(ROOT, path), join(folder, path)).catch((error) => {
      if (!(error instanceof Deno.errors.NotFound)) throw error; // deleted, but still in the index
    });
  }
}

async function trackedFiles(): Promise<string[]> {
  const args = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
  const { stdout } = await new Deno.Command("git", { args, cwd: ROOT }).output();
  return new TextDecoder().decode(stdout).split("\0").filter((path) => path !== "");
}

/** Runs the tests of a mutant; returns what killed it, or undefined. */
async function killerOf({ room, patch }: Mutant, checkout: string): Promise<string | undefined> {
  const runs = [
    ["--fail-fast", patch.killedBy],
    ["--fail-fast", ...NOT_ALONE, ...room.tests],
    ["--fail-fast", "--permit-no-files", "--ignore=**/*_deep_test.ts", ...room.tests],
  ];
  for (const args of runs) {
    const { isPassed, failure } = await runTests(checkout, args, LIMIT_SECONDS);
    if (!isPassed) return failure;
  }
}

async function main(): Promise<number> {
  const { room, find, _: words, ...others } = parseArgs(Deno.args, { string: ["room", "find"] });
  const [unknown] = [...words, ...Object.keys(others).map((name) => `--${name}`)];
  if (unknown !== undefined) {
    printError(`Cannot run mutants: flags must be --room or --find, received ${unknown}`);
    return 2;
  }
  const paths = await trackedFiles();
  const sources = new Map(
    paths.filter((path) => /(?<!_test)\.(ts|js|as)$/.test(path) && !/^(tests|bench)\//.test(path))
      .map((path) => [path, Deno.readTextFileSync(join(ROOT, path))]),
  );
  const mutants = readRooms(room).flatMap((own) =>
    own.patches.filter(({ breaks }) => breaks.includes(find ?? ""))
      .map((patch) => mutantOf(own, patch, sources))
  );
  const work = await Deno.makeTempDir({ prefix: "troupe-mutants-" });
  const checkouts = Array.from({ length: LANES }, (_, lane) => join(work, String(lane), "troupe"));
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    Deno.addSignalListener(signal, () => {
      killAll();
      Deno.removeSync(work, { recursive: true });
      Deno.exit(signal === "SIGINT" ? 130 : 143);
    });
  }
  try {
    for (const checkout of checkouts) await copyCheckout(paths, checkout);
    return await killThem(mutants, checkouts);
  } finally {
    killAll();
    await Deno.remove(work, { recursive: true });
  }
}

/** Checks that the tests pass without a patch, then runs them with each. */
async function killThem(mutants: readonly Mutant[], checkouts: readonly string[]): Promise<number> {
  const files = [...new Set(mutants.map(({ patch }) => patch.killedBy))], broken: string[] = [];
  await inLanes(files, async (file, lane) => {
    if (!(await runTests(checkouts[lane]!, [file])).isPassed) broken.push(file);
  }, checkouts.length);
  if (broken.length > 0) {
    throw new PatchError(`Cannot test the tests: they fail without a patch: ${broken.join(", ")}`);
  }
  const survived: Mutant[] = [], started = performance.now();
  await inLanes(mutants, async (mutant, lane) => {
    const checkout = checkouts[lane]!, before = performance.now(), { room, patch, path } = mutant;
    await Deno.writeTextFile(join(checkout, path), mutant.mutated);
    const killer = await killerOf(mutant, checkout);
    await Deno.copyFile(join(ROOT, path), join(checkout, path));
    const seconds = ((performance.now() - before) / 1000).toFixed(1);
    if (killer === undefined) survived.push(mutant);
    print(`${killer === undefined ? "SURVIVED" : "killed"}  ${room.name}: ${patch.breaks}`);
    print(
      `  ${seconds} s  ${killer === undefined ? `${path} passes all tests` : `by "${killer}"`}`,
    );
  }, checkouts.length);
  const minutes = ((performance.now() - started) / 60_000).toFixed(1);
  const killed = mutants.length - survived.length;
  print(`${killed} killed, ${survived.length} survived in ${minutes} min`);
  return survived.length > 0 ? 1 : 0;
}

if (import.meta.main) {
  Deno.exit(
    await main().catch((error) => {
      if (!(error instanceof PatchError)) throw error;
      printError(error.message);
      return 2;
    }),
  );
}
