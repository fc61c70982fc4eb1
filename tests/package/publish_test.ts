/** What is published, and that it can be. */

import assert from "node:assert/strict";
import { inFolder } from "../console/command.ts";
import { ROOT } from "../repository.ts";
import { deno, makeWorkspace } from "./workspace.ts";

const NAMES_MAX = 60;

/** Source alone stays below it; a library, a data set or a model would not. */
const BYTES_MAX = 5 << 20;

Deno.test(`the root exports at most ${NAMES_MAX} names, types included`, async () => {
  const { stdout } = await deno(ROOT, ["doc", "--json", "mod.ts"]);
  const [root] = Object.values<{ symbols: { name: string }[] }>(JSON.parse(stdout).nodes);
  const names = root!.symbols.map(({ name }) => name);
  assert.ok(names.includes("train"));
  assert.ok(names.length <= NAMES_MAX, `${names.length}: ${names.join(", ")}`);
});

Deno.test("all that the entries export is documented, and of types that they export too", async () => {
  const { exports } = JSON.parse(await Deno.readTextFile(`${ROOT}/deno.json`));
  await deno(ROOT, ["doc", "--lint", ...Object.values<string>(exports)]);
});

Deno.test("the package can be published, and holds what its users need and nothing else", async () => {
  await inFolder(async (folder) => {
    const troupe = await makeWorkspace(folder);
    const { stderr } = await deno(troupe, ["publish", "--dry-run", "--allow-dirty"]);
    assert.match(stderr, /Checking for slow types in the public API/);
    const files = [...stderr.matchAll(/^ +file:\/\/\S+?\/troupe\/(\S+) \(([\d.]+)(K?)B\)$/gm)];
    const top = new Set(files.map(([, path]) => path!.replace(/\/.*/, "/")));
    assert.deepEqual([...top].sort(), [
      ...["ACTORS.md", "CHANGELOG.md", "LICENSE", "NOTICE.md", "README.md", "SIMULATION.md"],
      ...["actors/", "cli.ts", "console/", "deno.json", "docs/", "examples/", "kernels/", "lint/"],
      ...["mod.ts", "schedules/", "testing.ts"],
    ]);
    const bytes = files.reduce((sum, [, , size, k]) => sum + Number(size) * (k ? 1024 : 1), 0);
    assert.ok(bytes < BYTES_MAX, `${files.length} files have ${Math.ceil(bytes)} bytes`);
  });
});
