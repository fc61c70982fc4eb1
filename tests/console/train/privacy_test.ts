import assert from "node:assert/strict";
import { join } from "node:path";
import { nativeLibraryPath } from "../../../kernels/devices/onnx_runtime/native_library.ts";
import { namesIn } from "../../in_folder.ts";
import { denoFolder } from "../../kernels/files/edited_cache_helper.ts";
import { ENVIRONMENT, inFolder, ROOT, someTokens, TINY, writeTokens } from "../command.ts";

/** All that is anywhere in a folder. */
async function allIn(folder: string): Promise<string[]> {
  const entries = await Array.fromAsync(Deno.readDir(folder));
  const below = await Promise.all(
    entries.map(async ({ name, isDirectory }) =>
      [name].concat(
        isDirectory ? (await allIn(join(folder, name))).map((path) => join(name, path)) : [],
      )
    ),
  );
  return below.flat().sort();
}

for (
  const [device, isolation] of [["native", "worker"], ["native", "process"], ["wasm", "worker"]]
) {
  Deno.test(`a run on ${device} with --isolation ${isolation} leaves no file at home nor among temporary ones`, () =>
    inFolder(async (folder) => {
      await nativeLibraryPath(); // what is fetched, is fetched from the home that knows how
      const [home, temporary, out] = ["home", "tmp", "out"].map((name) => join(folder, name));
      for (const path of [home!, temporary!]) await Deno.mkdir(path);
      const tokens = await writeTokens(folder, someTokens(600));
      const { code, stderr } = await new Deno.Command(Deno.execPath(), {
        args: [
          ...["run", "-A", "cli.ts", "train", ...TINY, "--tokens", tokens, "--out", out!],
          ...["--device", device, "--isolation", isolation, "--workers", "2", "--steps", "2"],
          ...["--layers", "2", "--json"],
        ] as string[],
        cwd: ROOT,
        env: {
          ...ENVIRONMENT,
          DENO_DIR: await denoFolder(),
          HOME: home!,
          USERPROFILE: home!,
          LOCALAPPDATA: join(home!, "local"),
          XDG_CACHE_HOME: join(home!, "cache"),
          XDG_CONFIG_HOME: join(home!, "config"),
          XDG_DATA_HOME: join(home!, "data"),
          TMPDIR: temporary!,
          TMP: temporary!,
          TEMP: temporary!,
          // Whoever starts the tests may have switched it off already.
          ORT_DISABLE_TELEMETRY: "0",
        },
        stdin: "null",
      }).output();
      assert.equal(code, 0, new TextDecoder().decode(stderr));
      assert.deepEqual(await allIn(home!), []);
      assert.deepEqual(await allIn(temporary!), []);
      assert.deepEqual(await namesIn(out!), ["metrics.jsonl", "run.json", "step-00000002"]);
    }));
}
