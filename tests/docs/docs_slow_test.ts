/**
 * Builds the site, and runs all commands of README and the guides, in the order of each page, in a
 * temporary folder, with small models and few steps. Commands that are not run are listed with the
 * reason, and their flags are checked.
 */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { buildSite, PAGES } from "../../docs/build.ts";
import { opsPage } from "../../docs/ops.ts";
import { actorsCommand } from "../../console/commands/actors.ts";
import { dashboardCommand, playgroundCommand } from "../../console/commands/dashboard.ts";
import { joinCommand } from "../../console/commands/hosts.ts";
import { type CommandSyntax, flagsOf } from "../../console/flag.ts";
import { parseArguments } from "../../console/parse.ts";
import { planCommand } from "../../console/commands/plan.ts";
import { profileCommand } from "../../console/commands/profile.ts";
import { LAUNCH_SYNTAX } from "../../console/launch/flags.ts";
import { TRAIN_SYNTAX } from "../../console/train/flags.ts";
import { IS_DEEP } from "../depth.ts";
import { folderTest, inFolder } from "../in_folder.ts";
import { inLanes } from "../lanes.ts";
import { BF16 } from "../needs.ts";
import { ROOT } from "../repository.ts";
import { runCommands } from "../package/packages.ts";

/** Commands that are not run, with the reason. */
const NOT_RUN: readonly (readonly [command: RegExp, why: string])[] = [
  [/^apt-get /, "installs packages of the system"],
  [/^(npx .* task|deno task) (check|test(:\w+)?)$/, "is this suite"],
  [/^npx -y deno@2\.9\.6 task train$/, "fetches Deno; deno task train is run instead"],
  [
    /^deno task (bench|campaign|mutants|simd|onnx-proto|docs)\b/,
    "takes minutes, or makes files of this repository",
  ],
  [
    /^deno (add|unlink) |^deno run -A jsr:/,
    "needs a registry: tests/package/package_slow_test.ts has one",
  ],
  [/^nats-server |--runtime nats|troupe join /, "needs NATS: tests/actors/run/nats_slow_test.ts"],
  [/^mpirun |troupe launch /, "needs MPI: tests/console/launch and tests/actors/runtime/mpi"],
  [
    /--device webgpu|^export VK_/,
    "needs a GPU: tests/console and tests/actors/run have it in alone tests",
  ],
  ...BF16.isThere ? [] : [[/--precision bf16/, `needs ${BF16.reason}`] as const],
  [/jsr:@you\//, "names a package that is the reader's"],
  [/^deno (test|run) .*\b(examples|tests)\//, "is run by tests/examples, or a test of this suite"],
  [
    /troupe (dashboard |playground)|examples\/browser\/serve/,
    "serves until Ctrl-C: tests/console/dashboard, tests/console/playground, tests/examples",
  ],
  [/troupe profile check$/, "measures for minutes, on a machine that is left alone"],
  [/^deno doc |^deno publish/, "is run by tests/package"],
];

/** Sizes of a model that are given are taken out, as are those of other names. */
const SIZES = / --(layers|hidden|heads|seq|micro-batch|n_layer|n_head|n_embd|block_size)[ =]\S+/g;

/** Flags of a GPT that trains in a second. */
const SMALL = " --hidden 16 --heads 2 --seq 16";

/** A few steps in place of many: more stay more. */
const fewer = (steps: number) => steps < 10 ? steps : 1 + Math.ceil(steps / 500);

/** A command as it is run: the same, with a small model, few steps and few seeds. */
function shrunk(command: string): string {
  const asked = command.replace(/--seeds \d+/, "--seeds 20");
  if (/troupe (profile|plan) /.test(command)) {
    const fewer = asked.replace("--rounds 2", "--rounds 1").replace("--batch 32", "--batch 8");
    return `${
      fewer.replace("--micro-batch-size 1,2,4", "--micro-batch-size 1,2")
    } --layers 2${SMALL}`;
  }
  if (!/^deno task train\b/.test(command) || /--help|--version/.test(command)) return asked;
  const steps = / --(steps|max_iters) (\d+)/;
  const few = steps.test(command)
    ? command.replace(steps, (_, name, count) => ` --${name} ${fewer(Number(count))}`)
    : /--resume|--config/.test(command)
    ? command
    : `${command} --steps 2`;
  // To cut all speeches into the tokens of an export takes most of the time of this file.
  const short = IS_DEEP ? few : few.replace(/(--weights .*)--data sotu/, "$1--text my.txt");
  if (/--(resume|config|weights|model)\b/.test(few)) return short;
  return `${few.replace(SIZES, "")} --layers 4${SMALL} --micro-batch-size 2`;
}

/** Saves time: a training that is not the first of its page has its actors in one isolate. */
function quickened(command: string, nth: number): string {
  const isSlow = nth > 0 && command.startsWith("train ") &&
    !/--(journal|runtime|help)/.test(command);
  return isSlow && !IS_DEEP ? `${command} --runtime local` : command;
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

/** Models as PyTorch exports them, and tokens for one. */
const ONNX = join(ROOT, "tests", "fixtures", "onnx");
const ONNX_FILES = [
  ["resnet.onnx", "resnet/model.onnx"],
  ["pretrained.onnx", "gpt/model.onnx"],
  ["gpt.bin", "gpt/tokens.bin"],
] as const;

/** Names that belong to the reader. */
async function makeFiles(folder: string): Promise<void> {
  const tale = "Fellow citizens, the tale goes on. ".repeat(400);
  await Deno.writeTextFile(join(folder, "my.txt"), tale);
  const tokens = Uint16Array.from({ length: 4000 }, (_, i) => (i * i) % 50257);
  await Deno.writeFile(join(folder, "my.bin"), new Uint8Array(tokens.buffer));
  const lengths = Uint32Array.from({ length: 400 }, () => 10);
  await Deno.writeFile(join(folder, "my.u32"), new Uint8Array(lengths.buffer));
  await Deno.writeTextFile(join(folder, "pairs.txt"), "a goat\tune chèvre\n".repeat(700));
  const flags = "steps = 2\nlayers = 4\nhidden = 16\nheads = 2\n";
  await Deno.writeTextFile(join(folder, "run.toml"), flags);
  for (const [name, file] of ONNX_FILES) await Deno.copyFile(join(ONNX, file), join(folder, name));
  await Deno.symlink(join(ROOT, "examples"), join(folder, "examples"));
}

const PATHS = PAGES.flatMap(([, paths]) => paths);
const isRun = (command: string) => !NOT_RUN.some(([pattern]) => pattern.test(command));

/** Runs the commands of a page in a folder. */
async function runPage(path: string): Promise<void> {
  await inFolder(async (folder) => {
    await makeFiles(folder);
    const run = commandsOf(await Deno.readTextFile(join(ROOT, path))).filter(isRun);
    if (run.length === 0) return;
    const lines = run.map((command, nth) => {
      const [, line] = /^deno task (?:troupe )?(.*)$/.exec(shrunk(command)) ?? [];
      return quickened(line ?? assert.fail(`${command}: no test knows how to run it`), nth);
    });
    for (const [i, { code, stdout, stderr }] of (await runCommands(folder, lines)).entries()) {
      assert.equal(code, 0, `${path}: ${run[i]}\n(run as ${lines[i]})\n${stdout}${stderr}`);
    }
  });
}

/** The pages that a newcomer reads first, and in deep all of them. */
const READ = PAGES.filter((_, group) => IS_DEEP || group === 0).flatMap(([, paths]) => paths);

Deno.test("the commands of README and the guides run", () => inLanes(READ, runPage));

const SYNTAXES: readonly CommandSyntax[] = [
  ...[actorsCommand.syntax, dashboardCommand.syntax, joinCommand.syntax, LAUNCH_SYNTAX],
  ...[planCommand.syntax, playgroundCommand.syntax, profileCommand.syntax, TRAIN_SYNTAX],
];

Deno.test("the flags of commands that are not run are those of their commands", () => {
  let count = 0;
  for (const path of PATHS) {
    for (const command of commandsOf(Deno.readTextFileSync(join(ROOT, path)))) {
      const [, line] = /(?:deno task (?=train)|troupe )(.*)$/.exec(command) ?? [];
      if (READ.includes(path) && isRun(command) || line === undefined) continue;
      const [name, ...args] = line.replaceAll(/["']/g, "").split(" -- ")[0]!.split(/ +/);
      const syntax = SYNTAXES.find((one) => one.name === name);
      // Without a list of flags here, a command is checked in deep, where it runs.
      if (!syntax && isRun(command)) continue;
      assert.ok(syntax, `${path}: ${command}`);
      const parse = () => parseArguments(args, flagsOf(syntax), { takesWords: true });
      assert.doesNotThrow(parse, command);
      count++;
    }
  }
  assert.ok(count > 8, `${count}`);
});

Deno.test("the page of operations is what `deno task docs` writes of the tables", async () => {
  const page = await Deno.readTextFile(join(ROOT, "docs/ops.md"));
  assert.equal(page, await opsPage(), "run: deno task docs");
});

folderTest("the site has every page and symbol, and each link leads somewhere", async (folder) => {
  await buildSite(folder);
  const files = PATHS.map((path) =>
    path === "README.md" ? "index.html" : path.replace(/\.md$/, ".html").toLowerCase()
  );
  const ids = new Map<string, Set<string>>();
  const idsOf = (file: string) => {
    if (!ids.has(file)) {
      const found = Deno.readTextFileSync(file).matchAll(/ id="([^"]+)"/g);
      ids.set(file, new Set(Array.from(found, ([, id]) => id!)));
    }
    return ids.get(file)!;
  };
  let count = 0;
  for (const file of files) {
    const at = join(folder, file), html = await Deno.readTextFile(at);
    for (const [, to] of html.matchAll(/(?:href|src)="(?!https?:)([^"]+)"/g)) {
      const [path, anchor] = to!.split("#") as [string, string?];
      const target = path === "" ? at : join(dirname(at), path);
      assert.ok(existsSync(target), `${file}: ${to}`);
      if (anchor && target.endsWith(".html")) {
        assert.ok(idsOf(target).has(anchor), `${file}: ${to}`);
      }
      count++;
    }
  }
  assert.ok(count > files.length ** 2, `${count} links`);
  for (const symbol of ["train", "createSchedule", "gpt2"]) {
    assert.ok(existsSync(join(folder, "api", "~", `${symbol}.html`)), symbol);
  }
});
