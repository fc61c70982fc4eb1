/**
 * Builds the playground: one HTML file without links, which opens from disk.
 *
 * @module
 */

import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import dashboardStyle from "../dashboard/page/style.css" with { type: "text" };
import index from "./page/index.html" with { type: "text" };
import style from "./page/style.css" with { type: "text" };

/** Bundles a module of the page. */
async function bundle(module: string): Promise<string> {
  const path = fileURLToPath(import.meta.resolve(module));
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["bundle", "--quiet", "--platform=browser", "--minify", path],
    cwd: dirname(path), // where Deno finds the configuration of the package
    env: { NO_COLOR: "1" },
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  if (code !== 0) throw new Error(`Cannot build the playground: ${decoder.decode(stderr)}`);
  // The end tag of a script within a text would end the script.
  return decoder.decode(stdout).replaceAll("</script", "<\\/script");
}

/**
 * Returns the page, built from its modules by `deno bundle`.
 *
 * @throws {Error} (as a rejection) when they cannot be bundled.
 */
export async function buildPlayground(): Promise<string> {
  const [main, worker] = await Promise.all([bundle("./page/main.ts"), bundle("./page/worker.ts")]);
  const parts = { STYLE: dashboardStyle + style, MAIN: main, WORKER: worker };
  return index.replace(
    /\/\*(STYLE|MAIN|WORKER)\*\//g,
    (_, name: keyof typeof parts) => parts[name],
  );
}

/** The page that `deno task docs` writes here, before the package is published. */
export const BUILT = new URL("./built.html", import.meta.url);

/**
 * Returns the page: a published package contains it, a checkout builds it now.
 */
export async function playgroundPage(): Promise<string> {
  if (BUILT.protocol === "file:") return await buildPlayground();
  return (await import(BUILT.href, { with: { type: "text" } })).default;
}
