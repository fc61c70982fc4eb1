/** A registry on this machine that speaks as much of npm's protocol as it takes to fetch a package. */

import { createHash } from "node:crypto";
import { join } from "node:path";

/** A running registry. */
export interface NpmRegistry extends AsyncDisposable {
  /** Its address, for an `.npmrc`. */
  readonly url: string;
}

/** Serves a folder, with its package.json, as the one version of one package. */
export async function openNpmRegistry(folder: string): Promise<NpmRegistry> {
  const { name, version, ...rest } = JSON.parse(
    await Deno.readTextFile(join(folder, "package.json")),
  );
  const { stdout: tarball } = await new Deno.Command("tar", {
    args: ["czf", "-", "--transform=s,^\\.,package,", "."],
    cwd: folder,
  }).output();
  const integrity = `sha512-${createHash("sha512").update(tarball).digest("base64")}`;
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, (request) => {
    const { pathname, origin } = new URL(request.url);
    if (pathname.endsWith(".tgz")) return new Response(tarball);
    if (decodeURIComponent(pathname) !== `/${name}`) return new Response("{}", { status: 404 });
    const dist = { tarball: `${origin}/${name}/-/${version}.tgz`, integrity };
    const versions = { [version]: { name, version, ...rest, dist } };
    return Response.json({ name, "dist-tags": { latest: version }, versions });
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}/`,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}
