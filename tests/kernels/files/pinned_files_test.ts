import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { checkPackage } from "../../../kernels/data/npm_packages.ts";
import { folderTest, inFolder } from "../../in_folder.ts";
import { addBeside, changeBit } from "./edited_cache_helper.ts";

const PINNED = {
  name: "poems",
  version: "1.0.0",
  folder: "data/",
  files: /\.txt$/,
  // (cd data && sha256sum a.txt deep/b.txt) | sha256sum
  sha256: "7cc03e244bc3e8e334c1fd4e6efe73efa3176c1b17a7b381bb5f167e615b4b6d",
};

/** A package of two poems and a file that is not read. */
async function writePoems(root: string): Promise<URL> {
  await Deno.mkdir(join(root, "data/deep"), { recursive: true });
  await Deno.writeTextFile(join(root, "data/a.txt"), "To see a World in a Grain of Sand\n");
  await Deno.writeTextFile(join(root, "data/deep/b.txt"), "And a Heaven in a Wild Flower\n");
  await Deno.writeTextFile(join(root, "data/unread.json"), "{}");
  return pathToFileURL(`${root}/`);
}

folderTest("unchanged files are found, sorted", async (folder) => {
  const root = await writePoems(folder);
  await changeBit(join(folder, "data/unread.json"));
  const found = checkPackage(PINNED, root);
  assert.deepEqual(found, { folder: new URL("data/", root), paths: ["a.txt", "deep/b.txt"] });
});

const EDITS: Readonly<Record<string, (path: string) => Promise<void>>> = {
  "one bit changed": changeBit,
  "cut short": (path) => Deno.truncate(path, 9),
  "empty": (path) => Deno.truncate(path, 0),
  "removed": Deno.remove,
  "renamed": (path) => Deno.rename(path, path.replace(/\w\.txt/, "c.txt")),
  "another added": addBeside("z.txt"),
};

for (const [name, edit] of Object.entries(EDITS)) {
  Deno.test(`a package with a file ${name} is refused in one sentence`, async () => {
    for (const path of ["data/a.txt", "data/deep/b.txt"]) {
      await inFolder(async (folder) => {
        const root = await writePoems(folder);
        await edit(join(folder, path));
        const message =
          /^Cannot use npm:poems@1\.0\.0: its files must be .* SHA-256 7cc03e244bc3e8e334c1fd4e6efe73efa3176c1b17a7b381bb5f167e615b4b6d, received [0-9a-f]{64}; to fetch it again, remove .*\/$/;
        assert.throws(() => checkPackage(PINNED, root), { name: "Error", message });
      });
    }
  });
}

folderTest("a package without the folder is refused in one sentence", (folder) => {
  const message =
    /^Cannot use npm:poems@1\.0\.0: its files must be [^\n]+, received No such file[^\n]+$/;
  const check = () => checkPackage(PINNED, pathToFileURL(`${folder}/`));
  assert.throws(check, { name: "Error", message });
  return Promise.resolve();
});
