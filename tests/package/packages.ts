/** Packages on this machine: copies of this one, and registries and servers that others come from. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { dirname, join } from "node:path";
import { type Environment, type Outcome, runProgram } from "../console/command.ts";
import { filesBelow, ROOT } from "../repository.ts";

export type { Environment } from "../console/command.ts";

/** A running server. */
export interface Served extends AsyncDisposable {
  /** Its address, with a slash at the end. */
  readonly url: string;
  /** Paths that it was asked for. */
  readonly asked: readonly string[];
}

/** Runs Deno in a folder to its end. */
export const runDeno = (cwd: string, args: readonly string[], env: Environment = {}) =>
  runProgram(Deno.execPath(), args, { cwd, env });

/** Runs Deno in a folder to a good end. */
export async function deno(cwd: string, args: readonly string[], env: Environment = {}) {
  const outcome = await runDeno(cwd, args, env);
  assert.equal(outcome.code, 0, `deno ${args.join(" ")}\n${outcome.stdout}${outcome.stderr}`);
  return outcome;
}

/** Runs several commands of Troupe in one process and a folder, one after another. */
export async function runCommands(cwd: string, commands: readonly string[], env: Environment = {}) {
  const entry = join(ROOT, "tests/package/commands_entry.ts");
  const run = ["run", "-A", "--no-lock", `--config=${join(ROOT, "deno.json")}`, entry];
  const { stdout, stderr } = await deno(cwd, [...run, JSON.stringify(commands)], env);
  const outcomes: Outcome[] = JSON.parse(stdout.trimEnd().split("\n").at(-1)!);
  assert.equal(outcomes.length, commands.length, stderr);
  return outcomes;
}

/** Writes files, and the folders that they are in. */
export async function writeFiles(folder: string, files: Readonly<Record<string, string>>) {
  for (const [path, text] of Object.entries(files)) {
    await Deno.mkdir(dirname(join(folder, path)), { recursive: true });
    await Deno.writeTextFile(join(folder, path), text);
  }
}

/** Returns the first block of a language on a page. */
export async function block(page: string, language: string): Promise<string> {
  const text = await Deno.readTextFile(join(ROOT, page));
  const [, code] = new RegExp(`^\`\`\`${language}\\b.*?\n(.*?)^\`\`\``, "ms").exec(text) ?? [];
  assert.ok(code, `${page} must have a block of ${language}`);
  return code;
}

let caches: Promise<{ npmCache: string; typescriptCache: string }> | undefined;

/** A cache below a folder, without modules of others, except for those of npm. */
export async function freshCache(folder: string): Promise<string> {
  caches ??= deno(ROOT, ["info", "--json"]).then(({ stdout }) => JSON.parse(stdout));
  const { npmCache, typescriptCache } = await caches;
  const cache = await Deno.makeTempDir({ dir: folder, prefix: "cache-" });
  await Deno.symlink(npmCache, join(cache, "npm"), { type: "dir" });
  // All folders can use the compiled files of this machine.
  await Deno.mkdir(join(cache, "gen"));
  await Deno.symlink(join(typescriptCache, "file"), join(cache, "gen", "file"), { type: "dir" });
  return cache;
}

/** Copies this repository into a folder; returns where it is there. */
export async function copyRepository(folder: string): Promise<string> {
  const troupe = join(folder, "troupe");
  for (const path of filesBelow(ROOT)) {
    await Deno.mkdir(dirname(join(troupe, path)), { recursive: true });
    await Deno.copyFile(join(ROOT, path), join(troupe, path));
  }
  return troupe;
}

/**
 * Makes a workspace of this package and of the stand-ins in `compat/` beside it: `deno publish`
 * refuses links into the folder of the package itself.
 *
 * @returns the package's folder.
 */
export async function makeWorkspace(folder: string): Promise<string> {
  const troupe = await copyRepository(folder);
  await Deno.rename(join(troupe, "compat"), join(folder, "compat"));
  const { workspace, links, nodeModulesDir, allowScripts, compilerOptions, ...config } = JSON.parse(
    await Deno.readTextFile(join(troupe, "deno.json")),
  );
  const members = workspace.map((path: string) => `./${join("troupe", path)}`);
  const shared = { links, nodeModulesDir, allowScripts, compilerOptions };
  await writeFiles(folder, {
    "deno.json": JSON.stringify({ workspace: ["./troupe", ...members], ...shared }),
    "troupe/deno.json": JSON.stringify(config),
  });
  return troupe;
}

type Answer = (pathname: string, request: Request) => Response | Promise<Response>;

function serve(answer: Answer, tls?: { cert: string; key: string }): Served {
  const asked: string[] = [];
  const options = { hostname: "127.0.0.1", port: 0, onListen() {}, ...tls };
  const server = Deno.serve(options, (request) => {
    const { pathname } = new URL(request.url);
    asked.push(pathname);
    return answer(pathname, request);
  });
  const host = tls ? "https://localhost" : "http://127.0.0.1";
  return {
    url: `${host}:${server.addr.port}/`,
    asked,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

const absent = () => Response.json({ code: "notFound", message: "no such thing" }, { status: 404 });

const readModule = async (path: string) => {
  const type = path.endsWith(".ts") ? "text/typescript" : "text/plain";
  return new Response(await Deno.readFile(path), { headers: { "content-type": type } });
};

const TLS = join(ROOT, "tests", "fixtures", "tls");

/** Serves the modules of a folder over https. */
export function serveFolder(folder: string): Served {
  const [cert, key] = ["localhost.pem", "localhost.key"].map((name) =>
    Deno.readTextFileSync(join(TLS, name))
  ) as [string, string];
  return serve((path) => readModule(join(folder, path)).catch(absent), { cert, key });
}

/**
 * The environment of a program that trusts that server, with a fresh cache: a port may have served
 * another text once.
 */
export async function trustingEnvironment(folder: string) {
  return { DENO_CERT: join(TLS, "ca.pem"), DENO_DIR: await freshCache(folder) };
}

/**
 * Opens a registry that speaks JSR's protocol and keeps packages below a folder. Deno asks it in place
 * of jsr.io where `JSR_URL` says so.
 *
 * [Note: JSR's protocol] A version is one gzipped tar file, posted to the API; Deno first asks
 * whether it exists already. Those who use it read `meta.json` (the versions) and
 * `VERSION_meta.json` (its entries, and the SHA-256 of every file), then each module by its path.
 */
export function openJsr(root: string): Served {
  return serve(async (path, request) => {
    const version = /^\/api\/scopes\/(\w+)\/packages\/(\w+)\/versions\/([\d.]+)$/.exec(path);
    if (version && request.method !== "POST") return absent();
    if (version) await unpack(join(root, `@${version[1]}`, ...version.slice(2)), request);
    if (path.startsWith("/api/")) return Response.json({ id: "1", status: "success" });
    const [, name, of] = /^(.*)\/([\d.]*)_?meta\.json$/.exec(path) ?? [];
    if (of) return Response.json(await manifestOf(join(root, name!, of)));
    if (name) return Response.json(versionsOf(join(root, name)));
    return await readModule(join(root, path)).catch(absent);
  });
}

async function unpack(folder: string, tarball: Request): Promise<void> {
  await Deno.mkdir(folder, { recursive: true });
  const tar = new Deno.Command("tar", { args: ["xzf", "-"], cwd: folder, stdin: "piped" }).spawn();
  await tarball.body!.pipeTo(tar.stdin);
  assert.ok((await tar.status).success, `tar must unpack the upload in ${folder}`);
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

/** Opens a registry that speaks npm's protocol: a folder, with its package.json, is its only package. */
export async function openNpm(folder: string): Promise<Served> {
  const own = JSON.parse(await Deno.readTextFile(join(folder, "package.json")));
  const { name, version, ...rest } = own;
  const { stdout: tarball } = await new Deno.Command("tar", {
    args: ["czf", "-", "--transform=s,^\\.,package,", "."],
    cwd: folder,
  }).output();
  const integrity = `sha512-${createHash("sha512").update(tarball).digest("base64")}`;
  return serve((path, { url }) => {
    if (path.endsWith(".tgz")) return new Response(tarball);
    if (decodeURIComponent(path) !== `/${name}`) return absent();
    const dist = { tarball: `${new URL(url).origin}/${name}/-/${version}.tgz`, integrity };
    const versions = { [version]: { name, version, ...rest, dist } };
    return Response.json({ name, "dist-tags": { latest: version }, versions });
  });
}

/** The table that README's script reads: three kinds of flowers, by two sizes. */
export function flowersCsv(): string {
  const kinds = ["setosa", "versicolor", "virginica"];
  const rows = Array.from({ length: 240 }, (_, i) => {
    const petal = 1.5 + 2 * (i % 3) + 0.5 * Math.sin(i), sepal = 5 + Math.cos(i * i);
    return `${petal.toFixed(2)},${sepal.toFixed(2)},${kinds[i % 3]}`;
  });
  return ["petal,sepal,species", ...rows, ""].join("\n");
}
