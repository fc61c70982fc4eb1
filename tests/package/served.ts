/** Packages served from this machine, and who trusts it: a CA that nobody else trusts, a fresh cache. */

import { join } from "node:path";
import { ROOT } from "../repository.ts";
import { deno } from "./workspace.ts";

/** A running server. */
export interface Served extends AsyncDisposable {
  /** Its address, without a slash at the end. */
  readonly url: string;
  /** Paths that it was asked for. */
  readonly asked: readonly string[];
}

const TLS = join(ROOT, "tests", "fixtures", "tls");

/** Serves the modules of a folder over https. */
export function serveFolder(folder: string): Served {
  const asked: string[] = [];
  const [cert, key] = ["localhost.pem", "localhost.key"].map((name) =>
    Deno.readTextFileSync(join(TLS, name))
  ) as [string, string];
  const server = Deno.serve({ port: 0, cert, key, onListen() {} }, async (request) => {
    const { pathname } = new URL(request.url);
    asked.push(pathname);
    const text = await Deno.readTextFile(join(folder, pathname)).catch(() => undefined);
    const headers = { "content-type": "text/typescript" };
    return text === undefined ? new Response("", { status: 404 }) : new Response(text, { headers });
  });
  return {
    url: `https://localhost:${server.addr.port}`,
    asked,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

/**
 * The environment of a program that trusts that server. Its cache, a folder in this one, has no
 * modules but those of npm: a port may have served another text once.
 */
export async function trustingEnvironment(
  folder: string,
): Promise<{ DENO_CERT: string; DENO_DIR: string }> {
  const { npmCache } = JSON.parse((await deno(ROOT, ["info", "--json"])).stdout);
  const DENO_DIR = await Deno.makeTempDir({ dir: folder, prefix: "cache-" });
  await Deno.symlink(npmCache, join(DENO_DIR, "npm"), { type: "dir" });
  return { DENO_CERT: join(TLS, "ca.pem"), DENO_DIR };
}
