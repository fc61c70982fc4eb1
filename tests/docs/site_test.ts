/** The site of the guides: built as `deno task docs` does. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { buildSite, PAGES } from "../../docs/build.ts";
import { folderTest } from "../in_folder.ts";

folderTest(
  "every page of the site is there, every link in it leads somewhere, and every symbol is described",
  async (folder) => {
    await buildSite(folder);
    const files = PAGES.flatMap(([, paths]) => paths).map((path) =>
      path === "README.md" ? "index.html" : path.replace(/\.md$/, ".html").toLowerCase()
    );
    const ids = new Map<string, Set<string>>();
    const idsOf = (file: string) => {
      if (!ids.has(file)) {
        const found = Deno.readTextFileSync(file).matchAll(/ id="([^"]+)"/g);
        ids.set(file, new Set(Array.from(found, ([, id]) => id!)));
      }
      return ids.get(file)!;
    };
    let count = 0;
    for (const file of files) {
      const at = join(folder, file), html = await Deno.readTextFile(at);
      for (const [, to] of html.matchAll(/(?:href|src)="(?!https?:)([^"]+)"/g)) {
        const [path, anchor] = to!.split("#") as [string, string?];
        const target = path === "" ? at : join(dirname(at), path);
        assert.ok(existsSync(target), `${file}: ${to}`);
        if (anchor && target.endsWith(".html")) {
          assert.ok(idsOf(target).has(anchor), `${file}: ${to}`);
        }
        count++;
      }
    }
    assert.ok(count > files.length ** 2, `${count} links`);
    for (const symbol of ["train", "createSchedule", "gpt2"]) {
      assert.ok(existsSync(join(folder, "api", "~", `${symbol}.html`)), symbol);
    }
  },
);
