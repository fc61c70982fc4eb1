/** The library of the native and the wasm device: edited, absent, and in processes with many workers. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { nativeLibraryPath } from "../../../kernels/devices/onnx_runtime/native_library.ts";
import {
  ENVIRONMENT,
  inFolder,
  jsonLines,
  ROOT,
  someTokens,
  TINY,
  writeTokens,
} from "../../console/command.ts";
import { addBeside, changeBit, editedCache } from "../files/edited_cache_helper.ts";

/** Runs Deno to its end. */
async function runDeno(args: readonly string[]) {
  const { code, signal, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd: ROOT,
    env: ENVIRONMENT,
    stdin: "null",
  }).output();
  const [out, error] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes).trim());
  return { code, signal, stdout: out!, stderr: error! };
}

const runNative = async (program: "terminate" | "share") =>
  await runDeno([
    ...["run", "-A", "--no-check", "--quiet"],
    ...[fileURLToPath(import.meta.resolve("./native_program.ts")), program],
    await nativeLibraryPath(),
  ]);

Deno.test("the process outlives a worker that is terminated in the middle of a run", async () => {
  const outcome = await runNative("terminate");
  assert.deepEqual(outcome, { code: 0, signal: null, stdout: "", stderr: "" });
});

Deno.test("isolates that come and go share one arena, which keeps nothing when they have gone", async () => {
  const { code, stdout, stderr } = await runNative("share");
  assert.equal(code, 0, stderr);
  const { computed, joined, left } = JSON.parse(stdout) as Record<string, number[]>;
  const matrix = (size: number) => 4 * size * size, [held] = computed!, [both] = joined!;
  // Eight compute at once, or after each other in what the one before has left.
  assert.deepEqual(computed, Array(8).fill(held));
  assert.ok(held! >= matrix(256) && held! <= 8 * 2 * matrix(256), `${computed}`);
  assert.deepEqual(joined, [both, both]);
  assert.ok(both! >= matrix(512) && both! < 2 * matrix(512), `${joined}`);
  assert.deepEqual(left, [0, 0]);
});

Deno.test("a library that is not there or cannot be fetched is named", () =>
  inFolder(async (cache) => {
    const module = import.meta.resolve("../../../kernels/devices/native/native.ts");
    const fetches = module.replace("native/native.ts", "onnx_runtime/native_library.ts");
    const program = `
      import { openNative } from "${module}";
      import { nativeLibraryPath } from "${fetches}";
      await openNative({ library: "./no_such_library.so" }).catch((e) => console.log(e.message));
      Deno.env.set("DENO_DIR", "${cache}"); // empty
      Deno.env.set("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9/"); // none
      await nativeLibraryPath((line) => console.log(line)).catch((e) => console.log(e.message));`;
    const { stdout } = await runDeno(["eval", program]);
    const [absent, announced, reason] = stdout.split("\n");
    assert.match(absent!, /no_such_library/);
    assert.equal(announced, "Fetching npm:onnxruntime-node@1.30.0 (290 MB, once)");
    assert.match(reason!, /^Cannot load npm:onnxruntime-node@1\.30\.0: ./);
  }));

type Edit = (path: string) => Promise<void>;

/** Trains where the native library is edited. */
const trainWith = (edit: Edit, device: string) =>
  inFolder(async (folder) => {
    const cache = join(folder, "cache"), preloaded = join(folder, "preloaded.js");
    await Deno.mkdir(cache);
    await editedCache(cache, await nativeLibraryPath(), edit);
    const tokens = await writeTokens(folder, someTokens(600));
    // What the program itself imports comes from the true cache.
    await Deno.writeTextFile(preloaded, `Deno.env.set("DENO_DIR", ${JSON.stringify(cache)});`);
    const { code, stdout, stderr } = await runDeno([
      ...["run", "-A", "--no-check", "--preload", preloaded, "cli.ts", "train", ...TINY, "--json"],
      ...["--tokens", tokens, "--device", device, "--steps", "1", "--workers", "1"],
    ]);
    const last = stdout && jsonLines(stdout + "\n").at(-1);
    return { code, device: last ? last["device"] : undefined, stderr };
  });

const EDITS: Readonly<Record<string, Edit>> = {
  "has one bit changed": changeBit,
  "is cut short": (path) => Deno.truncate(path, 1_000_000),
  "is given a library to load": addBeside("libstdc++.so.6"),
};

for (const [name, edit] of Object.entries(EDITS)) {
  Deno.test(`a native library that ${name} is not loaded: wasm computes, and the reason is given`, async () => {
    const { stderr, ...outcome } = await trainWith(edit, "auto");
    assert.deepEqual(outcome, { code: 0, device: "wasm" }, stderr);
    assert.match(
      stderr,
      /^device wasm (\(webgpu is not available: .*\) )?\(native is not available: Cannot use npm:onnxruntime-node@1\.30\.0: .*\)$/,
    );
  });
}

Deno.test("an edited native library that was asked for by name ends the run in one sentence", async () => {
  const { stderr, ...outcome } = await trainWith(changeBit, "native");
  assert.deepEqual(outcome, { code: 2, device: undefined });
  assert.match(stderr, /^Cannot use npm:onnxruntime-node@1\.30\.0: [^\n]+$/);
});

Deno.test("a wasm binary that is changed is not run, and a whole one is", () =>
  inFolder(async (folder) => {
    const config = join(folder, "deno.json"), dist = join(folder, "dist");
    const [module, binary] = ["mjs", "wasm"].map((kind) => `ort-wasm-simd-threaded.${kind}`);
    await Deno.mkdir(dist);
    for (const file of [module!, binary!]) {
      const source = new URL(file, import.meta.resolve(`onnxruntime-web/${module}`));
      await Deno.copyFile(source, join(dist, file));
    }
    const { imports } = JSON.parse(await Deno.readTextFile(join(ROOT, "deno.json")));
    const own = { ...imports, "onnxruntime-web/": "./dist/" };
    await Deno.writeTextFile(config, JSON.stringify({ imports: own, nodeModulesDir: "none" }));
    const program = `
      import { openWasm } from "${import.meta.resolve("../../../kernels/devices/wasm/wasm.ts")}";
      console.log(await openWasm().then(({ name }) => name, ({ message }) => message));`;
    const opened = () => runDeno(["eval", "--no-lock", "--config", config, program]);
    assert.equal((await opened()).stdout, "wasm");
    await changeBit(join(dist, binary!));
    const { stdout } = await opened();
    assert.match(stdout, /^Cannot use npm:onnxruntime-web@1\.30\.0: its files [^\n]+$/);
  }));
