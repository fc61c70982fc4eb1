/** The library of the native and the wasm device: edited, absent, and in processes with many workers. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { nativeLibraryPath } from "../../../kernels/devices/cpu/ort_library.ts";
import { openNative } from "../../../kernels/devices/cpu/native.ts";
import { openReference } from "../../../kernels/devices/reference.ts";
import { openWasm } from "../../../kernels/devices/cpu/wasm.ts";
import { type Outcome, ROOT, runProgram } from "../../console/command.ts";
import { folderTest } from "../../in_folder.ts";
import { atDepth } from "../../depth.ts";
import { addBeside, changeBit, editedCache } from "../files/edited_cache_helper.ts";
import { testBits, testGradients, testOperators } from "./operators.ts";
import { preparing } from "./webgpu/preparing.ts";

const runDeno = (...args: readonly string[]): Promise<Outcome> => runProgram(Deno.execPath(), args);

const runNative = async (program: "terminate" | "share") => {
  const script = fileURLToPath(import.meta.resolve("./native_program.ts"));
  return await runDeno("run", "-A", "--no-check", script, program, await nativeLibraryPath());
};

Deno.test("the process outlives a worker that is terminated in the middle of a run", async () => {
  assert.deepEqual(await runNative("terminate"), { code: 0, stdout: "", stderr: "" });
});

Deno.test("isolates that come and go share one arena, which keeps nothing when they have gone", async () => {
  const { code, stdout, stderr } = await runNative("share");
  assert.equal(code, 0, stderr);
  const { computed, joined, left } = JSON.parse(stdout) as Record<string, number[]>;
  const matrix = (size: number) => 4 * size * size, [held] = computed!, [both] = joined!;
  // Four compute concurrently, or one after the other in the same memory.
  assert.deepEqual(computed, Array(4).fill(held));
  assert.ok(held! >= matrix(256) && held! <= 4 * 2 * matrix(256), `${computed}`);
  assert.deepEqual(joined, [both, both]);
  assert.ok(both! >= matrix(512) && both! < 2 * matrix(512), `${joined}`);
  assert.deepEqual(left, [0, 0]);
});

folderTest("a library that is not there or cannot be fetched is named", async (cache) => {
  const module = import.meta.resolve("../../../kernels/devices/cpu/native.ts");
  const fetches = module.replace("native.ts", "ort_library.ts");
  const program = `
      import { openNative } from "${module}";
      import { nativeLibraryPath } from "${fetches}";
      await openNative({ library: "./no_such_library.so" }).catch((e) => console.log(e.message));
      Deno.env.set("DENO_DIR", "${cache}"); // empty
      Deno.env.set("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9/"); // none
      await nativeLibraryPath((line) => console.log(line)).catch((e) => console.log(e.message));`;
  const { stdout } = await runDeno("eval", program);
  const [absent, announced, reason] = stdout.split("\n");
  assert.match(absent!, /no_such_library/);
  assert.equal(announced, "Fetching npm:onnxruntime-node@1.30.0 (290 MB, once)");
  assert.match(reason!, /^Cannot load npm:onnxruntime-node@1\.30\.0: ./);
});

folderTest("an edited native library is not loaded, and wasm is taken instead", async (folder) => {
  const edits = [
    changeBit,
    (path: string) => Deno.truncate(path, 1_000_000),
    addBeside("libstdc++.so.6"),
  ];
  const library = await nativeLibraryPath(), caches = edits.map((_, i) => join(folder, `${i}`));
  for (const [i, edit] of edits.entries()) {
    await Deno.mkdir(caches[i]!);
    await editedCache(caches[i]!, library, edit);
  }
  const program = `
      import { resolveDevice } from "${import.meta.resolve("../../../kernels/devices/table.ts")}";
      for (const cache of ${JSON.stringify(caches)}) {
        Deno.env.set("DENO_DIR", cache);
        await resolveDevice("auto", (line) => console.log(line));
        await resolveDevice("native").catch(({ message }) => console.log(message));
      }`;
  const { stdout, stderr } = await runDeno("eval", program), lines = stdout.split("\n");
  assert.equal(lines.length, 1 + 2 * edits.length, stderr);
  const reason = "Cannot use npm:onnxruntime-node@1\\.30\\.0: .*";
  const chosen =
    `device wasm (\\(webgpu is not available: .*\\) )?\\(native is not available: ${reason}\\)`;
  lines.slice(0, -1).forEach((line, i) =>
    assert.match(line, new RegExp(`^${i % 2 === 0 ? chosen : reason}$`))
  );
});

folderTest("a wasm binary that is changed is not run, and a whole one is", async (folder) => {
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
      import { openWasm } from "${import.meta.resolve("../../../kernels/devices/cpu/wasm.ts")}";
      console.log(await openWasm().then(({ name }) => name, ({ message }) => message));`;
  const opened = () => runDeno("eval", "--no-lock", "--config", config, program);
  assert.equal((await opened()).stdout, "wasm\n");
  await changeBit(join(dist, binary!));
  const { stdout } = await opened();
  assert.match(stdout, /^Cannot use npm:onnxruntime-web@1\.30\.0: its files [^\n]+\n$/);
});

const NATIVE = { name: "native", open: () => openNative() };
const WASM = { name: "wasm", open: openWasm, runs: atDepth(2, 20) };
const REWRITING = { name: "rewriting", open: async () => preparing(await openReference()) };

for (const tested of [NATIVE, WASM, REWRITING]) {
  testOperators(tested);
  testGradients(tested);
}

testBits(NATIVE);
const THREADS = { name: "native (2 threads)", open: () => openNative({ threads: 2 }) };
testBits({ ...THREADS, cases: atDepth(2, Infinity) });
testBits(WASM);
