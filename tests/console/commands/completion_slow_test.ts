/** `troupe completion`, with the shells that complete the lines. */

import { program, testNeeding } from "../../needs.ts";
import assert from "node:assert/strict";
import { join } from "node:path";
import { inFolder, printedHere, refusedHere, runProgram } from "../command.ts";
import COMPLETIONS from "./completions.json" with { type: "json" };

/** Lines before Tab, with their completions. */
const LINES = Object.entries<string>(COMPLETIONS);

/** Returns the answers of a shell, one line each. */
const ask = (shell: string, script: string) =>
  inFolder(async (folder) => {
    const [file, completion] = [join(folder, "script"), join(folder, "completion")];
    await Deno.writeTextFile(completion, await printedHere("completion", shell));
    await Deno.writeTextFile(file, script);
    const args = [file, completion, ...LINES.map(([line]) => line)];
    const { code, stdout, stderr } = await runProgram(shell, args, { env: { HOME: folder } });
    assert.deepEqual([code, stderr], [0, ""]);
    return stdout.trimEnd().split("\n");
  });

/** Asks bash as its Tab key does: with the words of the line, the cursor at the last one. */
const BASH = `source "$1"; shift
for line in "$@"; do
  read -ra COMP_WORDS <<<"$line"; [[ $line == *" " ]] && COMP_WORDS+=("")
  COMP_CWORD=$(( \${#COMP_WORDS[@]} - 1 )); _troupe; echo "\${COMPREPLY[*]}"
done
complete -p troupe`;

/** Compares the answers with the expected ones; fish also offers folders after the first words. */
function compare(answers: readonly string[], isOurs = (_: string) => true): void {
  for (const [i, [line, offered]] of LINES.entries()) {
    const words = answers[i]!.split(" ").filter((word) => word !== "" && isOurs(word));
    assert.equal(words.sort().join(" "), offered, line);
  }
}

/** Compares completions of values, in a folder with a file whose name contains a space. */
const BLANKS = `source "$1"; cd "$(dirname "$1")"; touch "a b.txt"
for words in "train --text a" "train --text = a" "help train"; do
  COMP_WORDS=(troupe $words); COMP_CWORD=$(( \${#COMP_WORDS[@]} - 1 )); _troupe
  printf '%s|' "\${COMPREPLY[@]}"; echo
done`;

testNeeding(program("bash"), "bash completes commands, flags, values, and files", async () => {
  const answers = await ask("bash", BASH);
  assert.equal(answers.pop(), "complete -o filenames -F _troupe troupe");
  compare(answers);
  assert.deepEqual(await ask("bash", BLANKS), ["a b.txt|", "a b.txt|", "train|"]);
});

testNeeding(program("fish"), "fish completes the same", async () => {
  const script = "source $argv[1]\nfor line in $argv[2..-1]\n" +
    "  echo (complete -C $line | string replace -r '\\t.*' '')\nend";
  compare(await ask("fish", script), (word) => !word.endsWith("/"));
});

Deno.test("the script of each shell names every command and flag, and zsh can read it", async () => {
  for (const shell of ["bash", "zsh", "fish"]) {
    const script = await printedHere("completion", shell);
    for (const word of ["generate", "journal", "micro-batches", "n_embd", "pytorch", "chimera"]) {
      assert.ok(script.includes(word), `${shell} knows ${word}`);
    }
  }
  if (program("zsh").isThere) {
    assert.equal((await ask("zsh", 'zsh -n "$1" && echo fine'))[0], "fine");
  }
});

Deno.test("an unknown shell is refused with a suggestion", async () => {
  const meant = /must be one of bash, zsh, fish, received "bsh"; did you mean bash\?$/;
  await refusedHere(["completion", "bsh"], meant);
});
