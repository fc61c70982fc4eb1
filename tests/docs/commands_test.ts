/**
 * Every command of README and the guides runs, in the order in which a page has them, in a folder of
 * its own; models are made small and steps few. What is not run is named, with the reason.
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { PAGES } from "../../docs/build.ts";
import { HANG_LIMIT_MS } from "../hang_limit.ts";
import { ENVIRONMENT, inFolder, ROOT } from "../console/command.ts";

/** What is not run here, and why. */
const NOT_RUN: readonly (readonly [command: RegExp, why: string])[] = [
  [/^apt-get /, "installs packages of the system"],
  [/^(npx .* task|deno task) (check|test(:\w+)?)$/, "is this suite"],
  [/^npx -y deno@2\.9\.6 task train$/, "fetches Deno; what it runs is run as deno task train"],
  [
    /^deno task (bench|campaign|simd|onnx-proto|docs)\b/,
    "takes minutes, or makes files of this repository",
  ],
  [
    /^deno (add|unlink) |^deno run -A jsr:/,
    "needs a registry: tests/package/install_test.ts has one",
  ],
  [/^mpirun |troupe launch /, "needs MPI: tests/console/launch and tests/actors/runtime/mpi"],
  [
    /--device webgpu|^export VK_/,
    "needs a GPU: tests/console and tests/actors/run have it in alone tests",
  ],
  [/jsr:@you\//, "names a package that is the reader's"],
  [/^deno (test|run) .*\b(examples|tests)\//, "is run by tests/examples, or a test of this suite"],
  [
    /troupe dashboard |examples\/browser\/serve/,
    "serves until Ctrl-C: tests/console/dashboard, tests/examples",
  ],
  [/troupe (profile|plan) check$/, "measures for minutes, on a machine that is left alone"],
  [/troupe profile papers/, "takes a minute; tests/actors/foresight/papers has its rows"],
  [/^deno doc |^deno publish/, "is run by tests/package"],
];

/** Sizes of a model that are given are taken out, as are those of other names. */
const SIZES = / --(layers|hidden|heads|seq|micro-batch|n_layer|n_head|n_embd|block_size)[ =]\S+/g;

/** A GPT that trains in a second. */
const TINY = " --layers 4 --hidden 16 --heads 2 --seq 16 --micro-batch 2";

/** A few steps in place of many: more stay more. */
const fewer = (steps: number) => 2 * Math.max(1, Math.round(steps / 300));

/** A command as it is run: the same, with a small model, few steps and few seeds. */
export function shrunk(command: string): string {
  if (/^deno task troupe explore/.test(command)) {
    return command.replace(/--seeds \d+/, "--seeds 20");
  }
  if (!/^deno task train\b/.test(command) || /--help|--version/.test(command)) return command;
  const steps = / --(steps|max_iters) (\d+)/;
  const few = steps.test(command)
    ? command.replace(steps, (_, name, count) => ` --${name} ${fewer(Number(count))}`)
    : /--resume|--config/.test(command)
    ? command
    : `${command} --steps 2`;
  return /--(resume|config|weights|model)\b/.test(few) ? few : few.replace(SIZES, "") + TINY;
}

/** The commands of a page, in order. */
function commandsOf(text: string): string[] {
  const blocks = [...text.matchAll(/^```sh\n(.*?)^```/gms)].map(([, block]) => block!);
  return blocks.flatMap((block) =>
    block.replaceAll("\\\n", " ").split("\n").flatMap((line) =>
      line.replace(/(^|\s+)#.*$/, "").split("&&").map((command) => command.trim())
    )
  ).filter((command) => command !== "");
}

/** Runs one in a folder. */
async function run(command: string, cwd: string): Promise<{ code: number; printed: string }> {
  const words = shrunk(command).match(/"[^"]*"|'[^']*'|\S+/g)!.map((word) =>
    word.replace(/^(["'])(.*)\1$/, "$2")
  );
  const [deno, task, name, ...args] = words;
  assert.deepEqual([deno, task], ["deno", "task"], `${command}: nobody knows how to run it`);
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "-A", "--config", join(ROOT, "deno.json"), join(ROOT, "cli.ts")],
      ...name === "troupe" ? args : [name!, ...args],
    ],
    cwd,
    env: ENVIRONMENT,
    stdin: "null",
    signal: AbortSignal.timeout(HANG_LIMIT_MS),
  }).output();
  const decoder = new TextDecoder();
  return { code, printed: decoder.decode(stdout) + decoder.decode(stderr) };
}

/** Models as PyTorch exports them, and tokens for one. */
const ONNX = join(ROOT, "tests", "fixtures", "onnx");
const ONNX_FILES = [
  ["resnet.onnx", "resnet/model.onnx"],
  ["pretrained.onnx", "gpt/model.onnx"],
  ["gpt.bin", "gpt/tokens.bin"],
] as const;

/** What pages speak of that is the reader's. */
async function makeFiles(folder: string): Promise<void> {
  await Deno.writeTextFile(
    join(folder, "my.txt"),
    "Fellow citizens, the tale goes on. ".repeat(400),
  );
  const tokens = Uint16Array.from({ length: 4000 }, (_, i) => (i * i) % 50257);
  await Deno.writeFile(join(folder, "my.bin"), new Uint8Array(tokens.buffer));
  await Deno.writeTextFile(
    join(folder, "run.toml"),
    "steps = 2\nlayers = 4\nhidden = 16\nheads = 2\n",
  );
  for (const [name, file] of ONNX_FILES) await Deno.copyFile(join(ONNX, file), join(folder, name));
  await Deno.symlink(join(ROOT, "examples"), join(folder, "examples"));
}

for (const path of PAGES.flatMap(([, paths]) => paths)) {
  const commands = commandsOf(await Deno.readTextFile(join(ROOT, path)));
  const isRun = (command: string) => !NOT_RUN.some(([pattern]) => pattern.test(command));
  if (!commands.some(isRun)) continue;
  Deno.test(`the commands of ${path} run`, () =>
    inFolder(async (folder) => {
      await makeFiles(folder);
      for (const command of commands.filter(isRun)) {
        const { code, printed } = await run(command, folder);
        assert.equal(code, 0, `${command}\n(run as ${shrunk(command)})\n${printed}`);
      }
    }));
}
