/**
 * `troupe completion`: what makes a shell complete commands and flags.
 *
 * @module
 */

import { didYouMean } from "../../actors/run/options/did_you_mean.ts";
import { bashCompletion } from "../completion/bash.ts";
import { fishCompletion } from "../completion/fish.ts";
import { zshCompletion } from "../completion/zsh.ts";
import { quoted } from "../escape.ts";
import { answersItself } from "../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import { helpOf } from "../flags/help.ts";
import { parseArguments } from "../flags/parse.ts";
import { print } from "../print.ts";

/** What makes each shell complete. */
const SHELLS: Readonly<Record<string, (commands: readonly CommandSyntax[]) => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/** The declaration of `troupe completion`. */
export const COMPLETION_SYNTAX: CommandSyntax = {
  name: "completion",
  summary: "prints what makes a shell complete commands and flags",
  usage: ["bash|zsh|fish"],
  about: [
    "Prints what makes a shell complete the commands and flags of a program named troupe:",
    "",
    "  source <(troupe completion bash)      in ~/.bashrc",
    "  source <(troupe completion zsh)       in ~/.zshrc, after compinit",
    "  troupe completion fish | source       in ~/.config/fish/config.fish",
    "",
    "Such a program is made by deno install -gA -n troupe jsr:@troupe/troupe/cli, or is an alias:",
    '  alias troupe="deno task --quiet troupe"',
  ],
  words: Object.keys(SHELLS),
  groups: [{ flags: COMMON_FLAGS }],
};

/**
 * Runs `troupe completion`; returns the exit code.
 *
 * @param commands all commands.
 * @throws {TypeError} (as a rejection) when no shell is named, or one that is not served.
 */
export function completionCommand(
  args: readonly string[],
  commands: readonly CommandSyntax[],
): Promise<number> {
  if (args.length === 0) print(helpOf(COMPLETION_SYNTAX));
  else if (!answersItself(args, COMPLETION_SYNTAX)) {
    const { words } = parseArguments(args, COMMON_FLAGS, { takesWords: true });
    const [shell = ""] = words, names = Object.keys(SHELLS);
    if (words.length !== 1 || !Object.hasOwn(SHELLS, shell)) {
      throw new TypeError(
        `Cannot complete: the shell must be one of ${names.join(", ")}, received ${
          quoted(words.join(" "))
        }${didYouMean(shell, names)}`,
      );
    }
    print(SHELLS[shell]!(commands));
  }
  return Promise.resolve(0);
}
