/**
 * `deno task docs`: builds the site, a folder of HTML files with the guides and, by `deno doc --html`,
 * all public symbols.
 *
 * @module
 */

import { dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { marked } from "npm:marked@18.2.1";
import about from "../deno.json" with { type: "json" };
import { buildPlayground, BUILT } from "../console/playground/build.ts";
import { opsPage } from "./ops.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

const GUIDES =
  "runs script models onnx hugging_face schedules own_schedule plan papers memory gpu " +
  "many_hosts nats failures registry own_actor from_pytorch ops glossary";

/** The pages in the order of their list; the first is the start page. */
export const PAGES: readonly (readonly [group: string, paths: readonly string[]])[] = [
  ["Troupe", ["README.md", "docs/guides.md", "docs/install.md", "docs/first_model.md"]],
  ["Guides", GUIDES.split(" ").map((name) => `docs/${name}.md`)],
  ["In depth", ["ACTORS.md", "SIMULATION.md", "ARCHITECTURE.md", "BENCHMARKS.md"]],
  ["More", ["docs/compare.md", "docs/promises.md", "CONTRIBUTING.md", "CHANGELOG.md"]],
];

/** Files that the pages show. */
const ASSETS = "docs/style.css docs/dashboard.png docs/readiness.svg examples/1f1b.svg " +
  "architecture.svg";

/** The folder of the public symbols in the site. */
const API = "api";

/** The page to play with schedules in the site. */
const PLAYGROUND = "playground.html";

/** Returns the path of a page in the site. */
const htmlOf = (path: string) =>
  path === "README.md" ? "index.html" : path.replace(/\.md$/, ".html").toLowerCase();

/**
 * Builds the site.
 *
 * @param out the folder of the site, created if it does not exist.
 */
export async function buildSite(out: string): Promise<void> {
  const paths = PAGES.flatMap(([, paths]) => paths);
  const texts = new Map(paths.map((path) => [path, Deno.readTextFileSync(join(ROOT, path))]));
  const titles = new Map([...texts].map(([path, text]) => [path, titleOf(text)]));
  for (const [path, text] of texts) {
    const file = join(out, htmlOf(path));
    await Deno.mkdir(dirname(file), { recursive: true });
    await Deno.writeTextFile(file, page(path, titles, await bodyOf(path, text, titles)));
  }
  for (const path of ASSETS.split(" ")) {
    await Deno.mkdir(dirname(join(out, path)), { recursive: true });
    await Deno.copyFile(join(ROOT, path), join(out, path));
  }
  await Deno.writeTextFile(join(out, PLAYGROUND), await buildPlayground());
  await describeSymbols(join(out, API));
}

/** Writes the pages of all public symbols. */
async function describeSymbols(output: string): Promise<void> {
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["doc", "--html", "--name=Troupe", `--output=${output}`, ...Object.values(about.exports)],
    cwd: ROOT,
    env: { NO_COLOR: "1" },
  }).output();
  if (code !== 0) throw new Error(`Cannot build the site: ${new TextDecoder().decode(stderr)}`);
}

const titleOf = (text: string) => /^# (.+)$/m.exec(text)![1]!;

/** Converts a page to HTML. Links lead to other pages; a source file becomes a name without a link. */
async function bodyOf(
  path: string,
  text: string,
  titles: ReadonlyMap<string, string>,
): Promise<string> {
  const html = await marked.parse(text);
  const withIds = html.replace(/<h([23])>(.*?)<\/h\1>/g, (_, level, heading: string) => {
    const id = heading.replace(/<[^>]+>|[^\p{L}\p{N} -]/gu, "").toLowerCase().replaceAll(" ", "-");
    return `<h${level} id="${id}">${heading}</h${level}>`;
  });
  return withIds.replace(/<a href="([^"]+)">(.*?)<\/a>/gs, (link, to: string, words: string) => {
    if (/^(https?:|#)/.test(to)) return link;
    const [file, anchor] = posix.join(posix.dirname(path), to).split("#") as [string, string?];
    if (!titles.has(file)) return `<span class="file" title="${file}">${words}</span>`;
    return `<a href="${linkTo(path, htmlOf(file))}${anchor ? `#${anchor}` : ""}">${words}</a>`;
  });
}

/** Returns the relative link from a page to a file of the site. */
const linkTo = (from: string, file: string) => posix.relative(posix.dirname(htmlOf(from)), file);

function page(path: string, titles: ReadonlyMap<string, string>, body: string): string {
  const list = PAGES.map(([group, paths]) => {
    const items = paths.map((one) => {
      const here = one === path ? ' aria-current="page"' : "";
      return `<li><a href="${linkTo(path, htmlOf(one))}"${here}>${titles.get(one)}</a></li>`;
    });
    return `<h2>${group}</h2><ul>${items.join("")}</ul>`;
  });
  const symbols = linkTo(path, `${API}/index.html`), playground = linkTo(path, PLAYGROUND);
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${titles.get(path)}${path === "README.md" ? "" : " · Troupe"}</title>
<link rel="stylesheet" href="${linkTo(path, "docs/style.css")}">
<nav aria-label="Pages">${list.join("\n")}
<h2>Reference</h2><ul><li><a href="${symbols}">Every public symbol</a></li>
<li><a href="${playground}">Playground of schedules</a></li></ul></nav>
<main>${body}</main>
</html>
`;
}

if (import.meta.main) {
  const [out = "site"] = Deno.args;
  await Deno.writeTextFile(join(ROOT, "docs/ops.md"), opsPage());
  await buildSite(out);
  await Deno.copyFile(join(out, PLAYGROUND), BUILT); // for the package
  // deno-lint-ignore no-console -- a script says where its result is
  console.log(join(out, "index.html"));
}
