/**
 * Completion for bash.
 *
 * @module
 */

import type { CommandSyntax } from "../flags/command_syntax.ts";
import { completedFlags } from "./completed_flag.ts";

/** A script that bash sources. */
export function bashCompletion(commands: readonly CommandSyntax[]): string {
  const names = commands.map(({ name }) => name).join(" ");
  return [
    "_troupe_files() {", // names with blanks are one word
    "  local IFS=$'\\n'",
    '  COMPREPLY=($(compgen -f -- "$1"))',
    "}",
    "_troupe() {",
    '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
    '  if [[ $word == "=" ]]; then word=""', // bash cuts --flag=value in three
    '  elif [[ $before == "=" ]]; then before="${COMP_WORDS[COMP_CWORD-2]}"; fi',
    "  COMPREPLY=()",
    '  case "${COMP_WORDS[1]} $before" in',
    ...commands.flatMap(valueCases),
    "  esac",
    '  if [[ -z $words ]]; then case "$COMP_CWORD ${COMP_WORDS[1]} $word" in',
    `    "1 "*) words="${names} help --help --version" ;;`,
    `    "2 help "*) words="${names}" ;;`,
    ...commands.flatMap(wordCases),
    "  esac; fi",
    '  if [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$word"))',
    '  else _troupe_files "$word"; fi',
    "}",
    "complete -o filenames -F _troupe troupe",
  ].join("\n");
}

/** What may follow the flags of a command. */
function valueCases(syntax: CommandSyntax): string[] {
  return completedFlags(syntax).flatMap(({ spelling, follows }) => {
    const pattern = `    "${syntax.name} ${spelling}")`;
    if (follows === "nothing") return [];
    if (follows === "file") return [`${pattern} _troupe_files "$word"; return ;;`];
    if (follows === "anything") return [`${pattern} return ;;`];
    return [`${pattern} words="${follows.join(" ")}" ;;`];
  });
}

/** The flags of a command, and its first words. */
function wordCases(syntax: CommandSyntax): string[] {
  const { name, words } = syntax;
  const flags = completedFlags(syntax).map(({ spelling }) => spelling).join(" ");
  return [
    `    *" ${name} -"*) words="${flags}" ;;`,
    ...(words ? [`    "2 ${name} "*) words="${words.join(" ")}" ;;`] : []),
  ];
}
