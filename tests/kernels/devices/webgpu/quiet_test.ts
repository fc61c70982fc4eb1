import assert from "node:assert/strict";

const QUIET = new URL("../../../../kernels/devices/webgpu/quiet.ts", import.meta.url).href;

Deno.test({
  name:
    "what a library writes to standard error while it opens is not seen, and what comes later is",
  ignore: Deno.build.os === "windows",
  async fn() {
    const program = `
      import { quietly } from ${JSON.stringify(QUIET)};
      const write = (text) => Deno.stderr.writeSync(new TextEncoder().encode(text));
      const openFiles = () => [...Deno.readDirSync("/dev/fd")].length, before = openFiles();
      for (let i = 0; i < 2; i++) {
        quietly(() => write("noise"));
        try { quietly(() => { write("noise"); throw new Error("thrown"); }); } catch { write("told "); }
      }
      Deno.exit(openFiles() - before);`;
    const { code, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["eval", "--ext=js", program],
    }).output();
    assert.equal(new TextDecoder().decode(stderr), "told told ");
    assert.equal(code, 0, "no file may be left open");
  },
});
