/** `troupe completion`: what shells complete, asked of the shells themselves. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { ENVIRONMENT, inFolder, ROOT, runTroupe } from "../command.ts";

/** A line, as it stands when Tab is pressed, and what is offered. */
const LINES: readonly [line: string, offered: readonly string[]][] = [
  ["troupe tr", ["trace", "train"]],
  ["troupe j", ["journal"]],
  ["troupe train --lr", ["--lr", "--lr-schedule", "--lr_scheduler_type"]],
  ["troupe train --n_l", ["--n_layer"]],
  ["troupe train --fp", ["--fp16"]],
  ["troupe train --runtime ", ["local", "mpi", "serial", "workers"]],
  ["troupe train --json --device w", ["wasm", "webgpu"]],
  ["troupe train --steps ", []],
  ["troupe train --model ", ["gpt", "llama", "mlp", "resnet", "t5", "unet"]],
  ["troupe train --data m", ["mnist", "moby-dick"]],
  ["troupe dev", ["devices"]],
  ["troupe devices --j", ["--json"]],
  ["troupe schedule comp", ["compare"]],
  ["troupe schedule 1f1b --format p", ["pytorch"]],
  ["troupe explore dual", ["dualpipe", "dualpipe-v"]],
  ["troupe generate --from .ci/r", [".ci/run"]],
  ["troupe completion z", ["zsh"]],
];

/** Whether a shell is on this machine. */
const has = (shell: string) =>
  new Deno.Command("sh", { args: ["-c", `command -v ${shell}`] }).outputSync().success;

/** What a shell answers to each line, one line each. */
async function ask(shell: string, script: string): Promise<string[]> {
  return await inFolder(async (folder) => {
    const { stdout: completion } = await runTroupe(["completion", shell]);
    await Deno.writeTextFile(join(folder, "completion"), completion);
    await Deno.writeTextFile(join(folder, "script"), script);
    const { code, stdout, stderr } = await new Deno.Command(shell, {
      args: [join(folder, "script"), join(folder, "completion"), ...LINES.map(([line]) => line)],
      cwd: ROOT,
      env: { ...ENVIRONMENT, HOME: folder },
    }).output();
    const decoder = new TextDecoder();
    assert.deepEqual([code, decoder.decode(stderr)], [0, ""]);
    return decoder.decode(stdout).trimEnd().split("\n");
  });
}

/** Asks bash as its own Tab does: the words of the line, the last of which is under the cursor. */
const BASH = `source "$1"; shift
for line in "$@"; do
  read -ra COMP_WORDS <<<"$line"; [[ $line == *" " ]] && COMP_WORDS+=("")
  COMP_CWORD=$(( \${#COMP_WORDS[@]} - 1 )); _troupe; echo "\${COMPREPLY[*]}"
done
complete -p troupe`;

Deno.test({
  name: "bash completes commands, flags, their other names and values, and files",
  ignore: !has("bash"),
  async fn() {
    const answers = await ask("bash", BASH);
    assert.equal(answers.pop(), "complete -o filenames -F _troupe troupe");
    for (const [i, [line, offered]] of LINES.entries()) {
      const words = answers[i]!.split(" ").filter((word) => word !== "").sort();
      assert.deepEqual(words, [...offered].sort(), line);
    }
  },
});

/** Asks bash for what may follow, in a folder with a file whose name has a blank. */
const BLANKS = `source "$1"; cd "$(dirname "$1")"; touch "a b.txt"
for words in "train --text a" "train --text = a" "help train"; do
  COMP_WORDS=(troupe $words); COMP_CWORD=$(( \${#COMP_WORDS[@]} - 1 )); _troupe
  printf '%s|' "\${COMPREPLY[@]}"; echo
done`;

Deno.test({
  name: "bash takes a file with a blank in its name for one, and knows what help is for",
  ignore: !has("bash"),
  async fn() {
    assert.deepEqual(await ask("bash", BLANKS), ["a b.txt|", "a b.txt|", "train|"]);
  },
});

Deno.test({
  name: "fish completes the same",
  ignore: !has("fish"),
  async fn() {
    const script = "source $argv[1]\nfor line in $argv[2..-1]\n" +
      "  echo (complete -C $line | string replace -r '\\t.*' '')\nend";
    const answers = await ask("fish", script);
    for (const [i, [line, offered]] of LINES.entries()) {
      // It offers files beside the first words.
      const words = answers[i]!.split(" ").filter((word) => word !== "" && !word.endsWith("/"));
      assert.deepEqual(words.sort(), [...offered].sort(), line);
    }
  },
});

Deno.test("each shell's script names every command and flag, and zsh can read its own", async () => {
  for (const shell of ["bash", "zsh", "fish"]) {
    const { code, stdout } = await runTroupe(["completion", shell]);
    assert.equal(code, 0);
    for (const word of ["generate", "journal", "micro-batches", "n_embd", "pytorch", "chimera"]) {
      assert.ok(stdout.includes(word), `${shell} knows ${word}`);
    }
  }
  if (!has("zsh")) return;
  assert.equal((await ask("zsh", 'zsh -n "$1" && echo fine'))[0], "fine");
});

Deno.test("another shell is refused, with the one that was probably meant", async () => {
  const { code, stderr } = await runTroupe(["completion", "bsh"]);
  assert.equal(code, 2);
  assert.match(stderr, /must be one of bash, zsh, fish, received "bsh"; did you mean bash\?\n$/);
});
