/**
 * Serves the page beside it, on this machine only, with a model that `troupe export` made:
 *
 *     deno task troupe export runs/mine --format onnx --out gpt.onnx
 *     deno run -A examples/browser/serve.ts gpt.onnx
 *
 * If the run has a `tokenizer.json`, it must be next to the model.
 *
 * The page needs no build and no network: onnxruntime-web comes from Deno's cache of npm. It could as
 * well be copied to any web server, with the files that are named here.
 */
// deno-lint-ignore-file no-console -- the output of the script

import { stripTypeScriptTypes } from "node:module";
import { dirname, join } from "node:path";
import { npmPackageFolder } from "@troupe/troupe/kernels";

const [model = "", port = "8000"] = Deno.args;
const isFile = await Deno.stat(model).then((found) => found.isFile, () => false);
if (!isFile || !/^\d{1,5}$/.test(port)) {
  console.error("Usage: deno run -A examples/browser/serve.ts MODEL.onnx [PORT]");
  Deno.exit(2);
}

/** Folders of packages, by the first part of their paths. */
const FOLDERS: Readonly<Record<string, () => URL | Promise<URL>>> = {
  onnxruntime: () => new URL("./", import.meta.resolve("onnxruntime-web/wasm")),
  huggingface: () => new URL("./", import.meta.resolve("@huggingface/tokenizers")),
  // Asked for only where a model's tokens are GPT-2's.
  "gpt-tokenizer": async () => {
    const gptTokenizer = { name: "gpt-tokenizer", version: "4.0.0", megabytes: 30 };
    return new URL("esm/", await npmPackageFolder(gptTokenizer, console.error));
  },
};

/** Rules of tokenizers that the library applies in another way. */
const RULES = new URL("data/tokenizer_rules.ts", import.meta.resolve("@troupe/troupe/kernels"));

const TYPES: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript",
  json: "application/json",
  mjs: "text/javascript",
  ts: "text/javascript", // without its types
  wasm: "application/wasm",
};

/** Returns the file of a path. */
async function locate(path: string): Promise<URL | string | undefined> {
  if (path === "/model.onnx") return model;
  if (path === "/tokenizer.json") return join(dirname(model), "tokenizer.json");
  if (path === "/tokenizer_rules.js") return RULES;
  if (path === "/") return new URL("index.html", import.meta.url);
  if (/^\/(sample|tokenizers)\.js$/.test(path)) return new URL(`.${path}`, import.meta.url);
  // With a slash before it, a file would be anywhere on this machine.
  const [, name, file] = /^\/([\w-]+)\/(\w[\w./-]*)$/.exec(path) ?? [];
  if (file === undefined || !Object.hasOwn(FOLDERS, name!)) return undefined;
  return new URL(file, await FOLDERS[name!]!());
}

async function contentsOf(at: URL | string) {
  if (at === RULES) return stripTypeScriptTypes(await (await fetch(at)).text());
  return (await Deno.open(at).catch(() => undefined))?.readable;
}

const onListen = ({ port }: { port: number }) =>
  console.log(`${model} is at http://127.0.0.1:${port}/ until Ctrl-C`);

Deno.serve({ hostname: "127.0.0.1", port: Number(port), onListen }, async (request) => {
  const at = await locate(new URL(request.url).pathname);
  const contents = at && await contentsOf(at);
  if (contents === undefined) return new Response("There is no such file\n", { status: 404 });
  return new Response(contents, {
    headers: {
      "content-type": TYPES[String(at).split(".").at(-1)!] ?? "application/octet-stream",
      // With these two a page may compute on several threads.
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-embedder-policy": "require-corp",
    },
  });
});
