import assert from "node:assert/strict";
import { join } from "node:path";
import { nativeLibraryPath } from "../../../kernels/devices/onnx_runtime/native_library.ts";
import {
  ENVIRONMENT,
  jsonLines,
  ROOT,
  someTokens,
  TINY,
  writeTokens,
} from "../../console/command.ts";
import { addBeside, changeBit, editedCache } from "../files/edited_cache_helper.ts";

/** How a run ended, and what computed. */
interface Outcome {
  readonly code: number;
  readonly device: unknown;
  readonly stderr: string;
}

/** Trains where the native library is edited. */
async function trainWith(edit: (path: string) => Promise<void>, device: string): Promise<Outcome> {
  const folder = await Deno.makeTempDir(), cache = join(folder, "cache");
  try {
    await Deno.mkdir(cache);
    await editedCache(cache, await nativeLibraryPath(), edit);
    const tokens = await writeTokens(folder, someTokens(600));
    // What the program itself imports comes from the true cache.
    const preloaded = join(folder, "preloaded.js");
    await Deno.writeTextFile(preloaded, `Deno.env.set("DENO_DIR", ${JSON.stringify(cache)});`);
    const output = await new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "-A", "--preload", preloaded, "cli.ts", "train", ...TINY, "--json"],
        ...["--tokens", tokens, "--device", device, "--steps", "1", "--workers", "1"],
      ],
      cwd: ROOT,
      env: ENVIRONMENT,
      stdin: "null",
    }).output();
    const [stdout, stderr] = [output.stdout, output.stderr].map((bytes) =>
      new TextDecoder().decode(bytes).trim()
    ) as [string, string];
    const last = stdout && jsonLines(stdout + "\n").at(-1);
    return { code: output.code, device: last ? last["device"] : undefined, stderr };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const EDITS: Readonly<Record<string, (path: string) => Promise<void>>> = {
  "has one bit changed": changeBit,
  "is cut short": (path) => Deno.truncate(path, 1_000_000),
  "is given a library to load": addBeside("libstdc++.so.6"),
};

for (const [name, edit] of Object.entries(EDITS)) {
  Deno.test(`a native library that ${name} is not loaded: wasm computes, and the reason is told`, async () => {
    const { code, device, stderr } = await trainWith(edit, "auto");
    assert.deepEqual({ code, device }, { code: 0, device: "wasm" }, stderr);
    assert.match(
      stderr,
      /^device wasm (\(webgpu is not available: .*\) )?\(native is not available: Cannot use npm:onnxruntime-node@1\.30\.0: .*\)$/,
    );
  });
}

Deno.test("an edited native library that was asked for by name ends the run in one sentence", async () => {
  const result = await trainWith(changeBit, "native");
  assert.deepEqual({ ...result, stderr: "" }, { code: 2, device: undefined, stderr: "" });
  assert.match(result.stderr, /^Cannot use npm:onnxruntime-node@1\.30\.0: [^\n]+$/);
});

for (const [name, edit] of [["changed", changeBit], ["whole", async () => {}]] as const) {
  Deno.test(`a wasm binary that is ${name} is ${name === "whole" ? "" : "not "}run`, async () => {
    const folder = await Deno.makeTempDir(), module = "ort-wasm-simd-threaded";
    try {
      await Deno.mkdir(join(folder, "dist"));
      for (const file of [`${module}.mjs`, `${module}.wasm`]) {
        const source = new URL(import.meta.resolve(`onnxruntime-web/${module}.mjs`));
        await Deno.copyFile(new URL(file, source), join(folder, "dist", file));
      }
      await edit(join(folder, "dist", `${module}.wasm`));
      const { imports } = JSON.parse(await Deno.readTextFile(join(ROOT, "deno.json")));
      await Deno.writeTextFile(
        join(folder, "deno.json"),
        JSON.stringify({
          imports: { ...imports, "onnxruntime-web/": "./dist/" },
          nodeModulesDir: "none",
        }),
      );
      const wasm = new URL("../../../kernels/devices/wasm/wasm.ts", import.meta.url).href;
      const { stdout } = await new Deno.Command(Deno.execPath(), {
        args: [
          ...["eval", "--no-lock", "--config", join(folder, "deno.json")],
          `import { openWasm } from "${wasm}";
          console.log(await openWasm().then(({ name }) => name, ({ message }) => message));`,
        ],
        env: ENVIRONMENT,
      }).output();
      const expected = name === "whole"
        ? /^wasm\n$/
        : /^Cannot use npm:onnxruntime-web@1\.30\.0: its files [^\n]+\n$/;
      assert.match(new TextDecoder().decode(stdout), expected);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}
