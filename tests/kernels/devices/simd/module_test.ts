/** The built module of our kernels. */

import assert from "node:assert/strict";
import {
  buildKernels,
  MODULE_FILE,
  moduleText,
} from "../../../../kernels/devices/simd/source/build.ts";
import { KERNELS_MODULE } from "../../../../kernels/devices/simd/kernels_module.ts";

Deno.test("the module of kernels is what their source builds: deno task simd", async () => {
  assert.equal(await Deno.readTextFile(MODULE_FILE), moduleText(await buildKernels()));
});

Deno.test("the module has no memory of its own, and writes none that it was not told to", () => {
  const module = new WebAssembly.Module(Uint8Array.fromBase64(KERNELS_MODULE));
  assert.deepEqual(WebAssembly.Module.imports(module).map(({ kind }) => kind), ["memory"]);
  assert.ok(WebAssembly.Module.exports(module).every(({ kind }) => kind === "function"));
  // With no data and none to be shared out, a module that is instantiated leaves memory as it was.
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 65_536, shared: true });
  new WebAssembly.Instance(module, { env: { memory } });
  assert.ok(new Uint8Array(memory.buffer).every((byte) => byte === 0));
});
