/**
 * A registry on this machine that speaks JSR's protocol: what `deno publish` uploads to it is what
 * others get from it. Deno asks it in place of jsr.io where `JSR_URL` says so.
 */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { filesBelow } from "../repository.ts";

/** A running registry. */
export interface Registry extends AsyncDisposable {
  /** Its address, for `JSR_URL`. */
  readonly url: string;
}

/**
 * Opens a registry that keeps packages below a folder.
 *
 * [Note: JSR's protocol] A version is one gzipped tar file, posted to the API; Deno first asks
 * whether it exists already. Those who use it read `meta.json` (the versions) and
 * `VERSION_meta.json` (its entries, and the SHA-256 of every file), then each module by its path.
 */
export function openRegistry(root: string): Registry {
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, async (request) => {
    const { pathname } = new URL(request.url);
    const version = /^\/api\/scopes\/(\w+)\/packages\/(\w+)\/versions\/([\d.]+)$/.exec(pathname);
    if (version && request.method !== "POST") return absent();
    if (version) await unpack(join(root, `@${version[1]}`, ...version.slice(2)), request);
    if (pathname.startsWith("/api/")) return Response.json({ id: "1", status: "success" });
    return await read(root, pathname).catch(absent);
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}/`,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

const absent = () => Response.json({ code: "notFound", message: "no such thing" }, { status: 404 });

async function unpack(folder: string, tarball: Request): Promise<void> {
  await Deno.mkdir(folder, { recursive: true });
  const tar = new Deno.Command("tar", { args: ["xzf", "-"], cwd: folder, stdin: "piped" }).spawn();
  await tarball.body!.pipeTo(tar.stdin);
  assert.ok((await tar.status).success, `tar must unpack what was uploaded to ${folder}`);
}

async function read(root: string, pathname: string): Promise<Response> {
  const [, name, version] = /^(.*)\/([\d.]*)_?meta\.json$/.exec(pathname) ?? [];
  if (version) return Response.json(await manifestOf(join(root, name!, version)));
  if (name) return Response.json(versionsOf(join(root, name)));
  const type = pathname.endsWith(".ts") ? "text/typescript" : "text/plain";
  const bytes = await Deno.readFile(join(root, pathname));
  return new Response(bytes, { headers: { "content-type": type } });
}

function versionsOf(folder: string) {
  const versions = [...Deno.readDirSync(folder)].map(({ name }) => name);
  return { latest: versions[0], versions: Object.fromEntries(versions.map((name) => [name, {}])) };
}

async function manifestOf(folder: string) {
  const { exports } = JSON.parse(await Deno.readTextFile(join(folder, "deno.json")));
  const manifest: Record<string, { size: number; checksum: string }> = {};
  for (const path of filesBelow(folder)) {
    const bytes = await Deno.readFile(join(folder, path));
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    manifest[`/${path}`] = { size: bytes.length, checksum: `sha256-${sha256}` };
  }
  return { manifest, exports };
}
