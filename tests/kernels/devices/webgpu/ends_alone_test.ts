/** Ends of programs that have the GPU open: exit codes, and what is on standard error. */

import assert from "node:assert/strict";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { inFolder } from "../../../console/command.ts";
import { gpuTest, hasSwiftShader, SWIFTSHADER } from "../../../gpu.ts";
import { HANG_LIMIT_MS } from "../../../hang_limit.ts";

const PROGRAM = fileURLToPath(new URL("./ends_program.ts", import.meta.url));

async function end(how: string, variables: Readonly<Record<string, string>> = {}) {
  const { code, signal, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", PROGRAM, how],
    // Libraries look for a display there, and say so when there is none.
    env: { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1", XDG_RUNTIME_DIR: "", ...variables },
    stdin: "null",
    signal: AbortSignal.timeout(HANG_LIMIT_MS),
  }).output();
  const decoder = new TextDecoder();
  return { code, signal, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

for (
  const [how, code, told] of [
    ["natural", 0, /^$/],
    ["exit", 3, /^$/],
    ["throw", 1, /^error: Uncaught Error: thrown\n/],
    ["reject", 1, /^error: Uncaught \(in promise\) Error: rejected\n/],
    ["worker terminated", 0, /^$/],
    ["worker throws", 4, /^error: Uncaught \(in worker .*\) Error: thrown\n/],
    ["another isolate's exit", 5, /^$/],
  ] as const
) {
  gpuTest(`a program whose GPU is at work ends with its exit code: ${how}`, async () => {
    const { stderr, ...rest } = await end(how);
    assert.deepEqual(rest, { code, signal: null, stdout: "" }, stderr);
    assert.match(stderr, told);
  });
}

const REFUSED =
  "Cannot open the webgpu device: one isolate of a process can use the GPU, received another that has it open; use isolation process";

gpuTest("of isolates that open the GPU at once exactly one gets it", async () => {
  const stdout = "holds, refused, refused\n".repeat(2);
  assert.deepEqual(await end("race"), { code: 0, signal: null, stdout, stderr: "" });
});

gpuTest("an isolate that was terminated leaves the GPU to the next", async () => {
  const stdout = `${REFUSED}\nopened\nopened\n`;
  assert.deepEqual(await end("owner terminated"), { code: 0, signal: null, stdout, stderr: "" });
});

gpuTest("the GPU of a main isolate is refused to workers and not to children", async () => {
  const stdout = `${REFUSED}\nopened\nopened\n`;
  assert.deepEqual(await end("owner is main"), { code: 0, signal: null, stdout, stderr: "" });
});

/** Whether this machine has a C compiler, which a driver that loses its GPU is made with. */
const hasCompiler = await new Deno.Command("cc", { args: ["--version"] }).output().then(
  ({ success }) => success,
  () => false,
);

Deno.test({
  name: "a GPU that is lost is told in one sentence by whoever reads, and is closed without a word",
  ignore: !hasSwiftShader || !hasCompiler,
  fn: () =>
    inFolder(async (folder) => {
      const library = join(folder, "liblost_gpu.so"), manifest = join(folder, "icd.json");
      const source = fileURLToPath(new URL("./lost_gpu.c", import.meta.url));
      const compile = { args: ["-shared", "-fPIC", "-o", library, source, "-ldl"] };
      assert.ok((await new Deno.Command("cc", compile).output()).success);
      const icd = { library_path: library, api_version: "1.1.0" };
      await Deno.writeTextFile(
        manifest,
        JSON.stringify({ file_format_version: "1.0.0", ICD: icd }),
      );
      const driver =
        JSON.parse(await Deno.readTextFile(SWIFTSHADER.VK_DRIVER_FILES!)).ICD.library_path;
      const outcome = await end("lost", {
        VK_DRIVER_FILES: manifest,
        LOSE_AFTER: "50",
        LOSE_DRIVER: resolve(dirname(SWIFTSHADER.VK_DRIVER_FILES!), driver),
      });
      const told =
        "Cannot read from the webgpu device: the GPU must answer, received that it is lost, as when its driver is reset; another process can open it again\n";
      assert.deepEqual(outcome, { code: 0, signal: null, stdout: told.repeat(2), stderr: "" });
    }),
});
