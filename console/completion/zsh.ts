/**
 * Completion for zsh.
 *
 * @module
 */

import type { CommandSyntax } from "../flags/command_syntax.ts";
import { type CompletedFlag, completedFlags } from "./completed_flag.ts";

/** A script that zsh sources, or a file `_troupe` on its `fpath`. */
export function zshCompletion(commands: readonly CommandSyntax[]): string {
  return [
    "#compdef troupe",
    "_troupe() {",
    "  if (( CURRENT == 2 )); then",
    `    local -a commands=(${
      commands.map(({ name, summary }) => word(`${name}:${summary}`)).join(" ")
    })`,
    "    _describe command commands",
    "    return",
    "  fi",
    "  case $words[2] in",
    ...commands.flatMap(commandCase),
    "  esac",
    "}",
    "compdef _troupe troupe",
  ].join("\n");
}

function commandCase(syntax: CommandSyntax): string[] {
  const first = syntax.words ? [`'2:word:(${syntax.words.join(" ")})'`] : [];
  return [
    `    ${syntax.name}) _arguments -S \\`,
    ...[...completedFlags(syntax).map(flagSpec), ...first, `'*:file:_files'`].map((spec, i, all) =>
      `      ${spec}${i + 1 < all.length ? " \\" : " ;;"}`
    ),
  ];
}

/** A flag as `_arguments` wants it; `=` says that a value may be joined to it. */
function flagSpec({ spelling, help, follows }: CompletedFlag): string {
  const told = `${spelling}${follows === "nothing" ? "" : "="}[${
    help.replaceAll(/[\[\]:]/g, "\\$&")
  }]`;
  if (follows === "nothing") return word(told);
  if (follows === "file") return word(`${told}:file:_files`);
  return word(`${told}:value:${follows === "anything" ? "" : `(${follows.join(" ")})`}`);
}

const word = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
