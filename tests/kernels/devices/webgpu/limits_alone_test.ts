import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { gpuTest } from "../../../gpu.ts";

// Once the GPU has refused a buffer, outputs that lie over inputs are refused as long as the process
// lives, also after the device was closed: that must not befall other tests.
gpuTest(
  "what does not fit on an adapter is refused: the checks pass in a process of their own",
  async () => {
    const checks = fileURLToPath(new URL("./limits_checks.ts", import.meta.url));
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "-A", "--no-check", checks],
      env: { NO_COLOR: "1" },
      stdin: "null",
    }).output();
    const [report, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
    assert.equal(code, 0, `${report}${errors}`);
    assert.match(report!, /^ok \| [1-9]\d* passed \| 0 failed/m);
  },
);
