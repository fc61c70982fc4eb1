/** The actor of a package in a worker, where the program was started for that, and elsewhere if not. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { inFolder } from "../../../in_folder.ts";

const SAYER = `const SAYINGS = {
  pid: () => Deno.pid,
  read: () => Deno.readTextFileSync("/etc/passwd"),
  npm: () => import("npm:" + "chrome-trace-event@1.0.4"),
  wait: () => new Promise(() => {}),
};
export const actor = { name: "sayer", protocol: 1, messages: { Say: {} },
  create: (ctx) => ({ async Say({ what }) {
    try { ctx.reply(String(await SAYINGS[what]())); } catch (error) { ctx.reply(String(error)); }
  } }) };`;

const SAFE = ["--cached-only", "--frozen"], OPTION = "--unstable-worker-options";

/** Runs the program with these flags. */
function told(flags: readonly string[]): Promise<Record<string, unknown>> {
  return inFolder(async (folder) => {
    const path = join(folder, "sayer.js");
    await Deno.writeTextFile(path, SAYER);
    const program = fileURLToPath(new URL("./worker_program.ts", import.meta.url));
    const { stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-prompt", ...flags, program, pathToFileURL(path).href],
      stdin: "null",
    }).output();
    const text = new TextDecoder().decode(stdout);
    return JSON.parse(text || assert.fail(new TextDecoder().decode(stderr)));
  });
}

const NOT_CAPABLE =
  'NotCapable: Requires read access to "/etc/passwd", run again with the --allow-read flag';

Deno.test("worker: the actor of a package has the permissions that it was granted", async () => {
  const { npm, ...rest } = await told([OPTION, ...SAFE]);
  assert.deepEqual(rest, {
    isWorker: true,
    read: NOT_CAPABLE,
    ended: 'the worker of "sayer" has ended: one step must take at most 1000 ms',
    events: [],
  });
  assert.match(npm as string, /^TypeError: /);
});

for (
  const [flags, why] of [
    [
      [],
      /^sayer to process: permissions of workers want .* --unstable-worker-options, or its deno/,
    ],
    [[OPTION], /^sayer to process: a worker may import any package of npm unless/],
    [[OPTION, "--frozen"], /^sayer to process: a worker may import any package of npm unless/],
  ] as const
) {
  Deno.test(`worker: with ${flags.join(" ") || "no flag"}, it lives in a process, which is told`, async () => {
    const { isWorker, read, ended, events } = await told(flags);
    assert.deepEqual({ isWorker, read }, { isWorker: false, read: NOT_CAPABLE });
    assert.match(ended as string, /one step must take at most 1000 ms/);
    assert.match((events as string[]).find((event) => event !== "denied")!, why);
  });
}
