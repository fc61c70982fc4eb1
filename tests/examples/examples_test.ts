/** Examples: scripts that a reader finishes in one sitting, and that run. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { ENVIRONMENT, inFolder, ROOT } from "../console/command.ts";

/** How each is run, and what it then prints. */
const RUNS: Readonly<Record<string, readonly [args: readonly string[], printed: RegExp]>> = {
  "train_gpt.ts": [["run", "-A", "examples/train_gpt.ts", "2", "native"], /^The [^]{100,}/],
  "train_mnist.ts": [
    ["run", "-A", "examples/train_mnist.ts", "60", "native"],
    /^20 [\d.]+\n40 [\d.]+\n60 [\d.]+\n[89]\d\.\d % of the held-out digits are recognised\n$/,
  ],
  "own_layer.ts": [
    ["run", "-A", "examples/own_layer.ts", "60", "native"],
    /^0 embedding, block 0, .*\n1 .*, classifier\n20 [\d.]+\n40 [\d.]+\n60 0\.[0-3]\d+\n$/,
  ],
  "vision_transformer.ts": [
    ["run", "-A", "examples/vision_transformer.ts", "40", "native"],
    /^0 patches, blocks.0\n1 .*, head\n20 [\d.]+\n40 1\.[0-8]\d+\n$/,
  ],
  "custom_schedule.ts": [
    ["run", "-A", "examples/custom_schedule.ts"],
    /^eager-1f1b: time 36, [^]*\n1f1b: time 41, [^]*\ndrawn in \S+\.svg\n$/,
  ],
  "replay_test.ts": [["test", "-A", "examples/replay_test.ts"], /ok \| 2 passed/],
};

/** The most lines of each. */
const LINES_MAX: Readonly<Record<string, number>> = { "train_gpt.ts": 50 };

const scripts = () =>
  [...Deno.readDirSync(join(ROOT, "examples"))].map(({ name }) => name)
    .filter((name) => name.endsWith(".ts")).sort();

Deno.test("every example runs", () =>
  inFolder(async (TMPDIR) => {
    assert.deepEqual(scripts(), Object.keys(RUNS).sort());
    await Promise.all(
      Object.entries(RUNS).map(async ([name, [args, printed]]) => {
        const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
          args: [...args],
          cwd: ROOT,
          env: { ...ENVIRONMENT, TMPDIR },
          stdin: "null",
        }).output();
        const decoder = new TextDecoder();
        assert.equal(code, 0, decoder.decode(stderr));
        assert.match(decoder.decode(stdout), printed, name);
      }),
    );
  }));

Deno.test("examples are short, and import the package alone", async () => {
  for (const name of scripts()) {
    const text = await Deno.readTextFile(join(ROOT, "examples", name));
    const lines = text.split("\n").length - 1, limit = LINES_MAX[name] ?? 120;
    assert.ok(lines <= limit, `${name} has ${lines} lines, at most ${limit} are allowed`);
    for (const [, from] of text.matchAll(/\bfrom "([^"]+)"/g)) {
      assert.match(from!, /^(\.\.\/(kernels\/)?mod\.ts|\.\.\/testing\.ts|node:[\w/]+)$/, name);
    }
  }
});
