/** Checks that all files and names in the pages exist. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { PAGES as SITE } from "../docs/build.ts";
import { runTroupe } from "./console/command.ts";

const ROOT = new URL("../", import.meta.url);
const PAGES = SITE.flatMap(([, paths]) => paths);

const read = (page: string) => Deno.readTextFileSync(new URL(page, ROOT));

for (const page of PAGES) {
  Deno.test(`every link of ${page} to a file leads to one`, () => {
    const links = read(page).matchAll(/(\w+\.ts)?\]\((?!https?:|#)([^)#]+)/g);
    const at = new URL(page, ROOT), broken: string[] = [];
    for (const [link, name, to] of links) {
      const isNamed = name === undefined || name === basename(to!);
      if (!isNamed || !existsSync(fileURLToPath(new URL(to!, at)))) broken.push(link);
    }
    assert.deepEqual(broken, []);
  });
}

Deno.test("the names in the walk of a micro-batch are in their files", () => {
  const rows = read("ARCHITECTURE.md").matchAll(
    /^\| \d+ +\| \[[^\]]+\]\(([^)]+)\) +\| ([^|]+)\|/gm,
  );
  let count = 0;
  for (const [, file, names] of rows) {
    const text = read(file!);
    for (const [, name] of names!.matchAll(/`([^`]+)`/g)) {
      count++;
      assert.match(text, new RegExp(`\\b${name}\\b`), `${file} has no ${name}`);
    }
  }
  assert.ok(count >= 18, `${count} names were found`);
});

Deno.test("the picture of README is what its command draws", async () => {
  const [, words] = /drawn by `deno task troupe (schedule [^`]+)`/.exec(read("README.md"))!;
  const { stdout } = await runTroupe(words!.split(" "));
  assert.equal(stdout, read("examples/1f1b.svg"));
});

Deno.test("campaigns and mutants refuse flags that they do not have, as they run for hours", async () => {
  for (const file of ["tests/campaigns/mod.ts", "tests/tools/mutants.ts"]) {
    const args = ["run", "-A", "--no-check", file, "--help"];
    const { code, stderr } = await new Deno.Command(Deno.execPath(), { args, cwd: ROOT }).output();
    assert.equal(code, 2);
    assert.match(new TextDecoder().decode(stderr), /^Cannot run .*, received --help\n$/);
  }
});
