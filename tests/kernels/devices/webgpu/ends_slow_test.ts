/** Ends of programs that have the GPU open, and what a whole process can have of it. */

import { type Need, program, testNeeding } from "../../../needs.ts";
import assert from "node:assert/strict";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gpuTest, hasSwiftShader, SWIFTSHADER, writeDrivers } from "../../../gpu.ts";
import { runProgram } from "../../../console/command.ts";
import { folderTest } from "../../../in_folder.ts";

const PROGRAM = fileURLToPath(new URL("./ends_program.ts", import.meta.url));

/** Runs the program, which ends with 128 and more where a signal ends it. */
const end = (how: string, variables: Readonly<Record<string, string>> = {}) =>
  runProgram(Deno.execPath(), ["run", "-A", "--no-check", PROGRAM, how], {
    // Libraries look for a display there, and say so when there is none.
    env: { XDG_RUNTIME_DIR: "", ...variables },
  });

/** Ends well, and says no more than this. */
const quiet = (stdout: string) => ({ code: 0, stdout, stderr: "" });

const ENDS: Readonly<Record<string, readonly [code: number, said: RegExp]>> = {
  natural: [0, /^$/],
  throw: [1, /^error: Uncaught Error: thrown\n/],
  "another isolate's exit": [5, /^$/],
};

gpuTest("a program whose GPU is at work ends with its exit code", async () => {
  for (const [how, [code, said]] of Object.entries(ENDS)) {
    const { stderr, ...rest } = await end(how);
    assert.deepEqual(rest, { code, stdout: "" }, how + stderr);
    assert.match(stderr, said);
  }
});

const REFUSED =
  "Cannot open the webgpu device: one isolate of a process can use the GPU, received another that has it open; use isolation process";

const OWNERS: Readonly<Record<string, readonly [program: string, stdout: string]>> = {
  "of isolates that open the GPU concurrently exactly one gets it": [
    "race",
    "holds, refused, refused\n",
  ],
  "an isolate that was terminated leaves the GPU to the next": [
    ...["owner terminated", `${REFUSED}\nopened\n`] as const,
  ],
  "the GPU of a main isolate is refused to workers and not to children": [
    ...["owner is main", `${REFUSED}\nopened\nopened\n`] as const,
  ],
  // Once the GPU has refused a buffer, the process has no outputs over inputs any more.
  "an adapter refuses models that are too large for it, and does not compute zeros instead": [
    "limits",
    "",
  ],
};

for (const [name, [program, stdout]] of Object.entries(OWNERS)) {
  gpuTest(name, async () => assert.deepEqual(await end(program), quiet(stdout)));
}

folderTest("a process computes on the adapter of its choice, and on no other", async (folder) => {
  writeDrivers(folder);
  const { stdout, ...outcome } = await end("two adapters", { VK_DRIVER_FILES: folder });
  assert.deepEqual({ ...outcome, stdout: "" }, quiet(""));
  const { drivers, visible, loaded, refusals } = JSON.parse(stdout);
  assert.deepEqual(drivers, [`${folder}/1.json`, `${folder}/0.json`]);
  assert.equal(visible, folder);
  assert.deepEqual(loaded, [`${folder}/1.so`]);
  const refusal =
    /^Cannot open the webgpu device: a process can use one adapter, received adapter 0 .* after another; use a process for each/;
  assert.equal(refusals.length, 2);
  for (const message of refusals) assert.match(message, refusal);
}, gpuTest);

/** A C compiler makes a driver that loses its GPU. */
const LOST: Need = {
  isThere: hasSwiftShader && program("cc").isThere,
  reason: "Debian's chromium, libvulkan1 and gcc",
};

folderTest("a lost GPU is reported by each read, and is closed in silence", async (folder) => {
  const library = join(folder, "liblost_gpu.so"), manifest = join(folder, "icd.json");
  const source = fileURLToPath(new URL("./lost_gpu.c", import.meta.url));
  const compile = { args: ["-shared", "-fPIC", "-o", library, source, "-ldl"] };
  assert.ok((await new Deno.Command("cc", compile).output()).success);
  const ICD = { library_path: library, api_version: "1.1.0" };
  await Deno.writeTextFile(manifest, JSON.stringify({ file_format_version: "1.0.0", ICD }));
  const own = SWIFTSHADER["VK_DRIVER_FILES"]!,
    { ICD: driver } = JSON.parse(await Deno.readTextFile(own));
  const outcome = await end("lost", {
    VK_DRIVER_FILES: manifest,
    LOSE_AFTER: "50",
    LOSE_DRIVER: resolve(dirname(own), driver.library_path),
  });
  const said =
    "Cannot read from the webgpu device: the GPU must answer, received that it is lost, as when its driver is reset; another process can open it again\n";
  assert.deepEqual(outcome, quiet(said.repeat(2)));
}, (name, fn) => testNeeding(LOST, name, fn));

Deno.test({
  name: "writes of a library to standard error while it opens are not seen, and later ones are",
  ignore: Deno.build.os === "windows",
  async fn() {
    const program = `
      import { quietly } from "${
      import.meta.resolve("../../../../kernels/devices/webgpu/gpu_api.ts")
    }";
      const write = (text) => Deno.stderr.writeSync(new TextEncoder().encode(text));
      const openFiles = () => [...Deno.readDirSync("/dev/fd")].length, before = openFiles();
      for (let i = 0; i < 2; i++) {
        quietly(() => write("noise"));
        try { quietly(() => { write("noise"); throw new Error("thrown"); }); } catch { write("said "); }
      }
      Deno.exit(openFiles() - before);`;
    const outcome = await runProgram(Deno.execPath(), ["eval", "--ext=js", program]);
    assert.deepEqual(outcome, { ...quiet(""), stderr: "said said " }, "no file may be left open");
  },
});
