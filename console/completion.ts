/**
 * `troupe completion`: scripts by which a shell completes commands and flags.
 *
 * @module
 */

import { commandLine } from "../actors/options/limits.ts";
import { suggest } from "../actors/options/option.ts";
import { type Command, defineCommand } from "./commands/common.ts";
import { type CommandSyntax, flagsOf } from "./flag.ts";
import { ensure, print, quoted } from "./terminal.ts";

/** A flag that can be completed. */
type CompletedFlag = ReturnType<typeof completedFlags>[number];

const FOLLOWS: Readonly<Record<string, "nothing" | "file">> = { switch: "nothing", path: "file" };

/** Returns the flags of a command, including aliases. */
function completedFlags(syntax: CommandSyntax) {
  return Object.entries(flagsOf(syntax)).flatMap(([name, flag]) => {
    const { kind, help, choices, aliases = [] } = flag;
    const isListed = kind === "choice" || kind === "part";
    /** Kind of its value: none, one of a list, a file, or anything. */
    const follows = isListed ? choices! : FOLLOWS[kind] ?? "anything" as const;
    return [name, ...aliases].map((one) =>
      typeof one === "string"
        ? { spelling: spelled(one), help, follows }
        : { spelling: spelled(one.name), help, follows: "nothing" as const }
    );
  });
}

/** Returns a name with its dashes: `--device`, `-h`. */
const spelled = (name: string) => name.length === 1 ? `-${name}` : `--${name}`;

/** Returns a script for bash to source. */
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

/** Returns cases of bash that complete the values of flags. */
function valueCases(syntax: CommandSyntax): string[] {
  return completedFlags(syntax).flatMap(({ spelling, follows }) => {
    const pattern = `    "${syntax.name} ${spelling}")`;
    if (follows === "nothing") return [];
    if (follows === "file") return [`${pattern} _troupe_files "$word"; return ;;`];
    if (follows === "anything") return [`${pattern} return ;;`];
    return [`${pattern} words="${follows.join(" ")}" ;;`];
  });
}

/** Returns cases of bash that complete flags and first words of a command. */
function wordCases(syntax: CommandSyntax): string[] {
  const { name, words } = syntax;
  const flags = completedFlags(syntax).map(({ spelling }) => spelling).join(" ");
  return [
    `    *" ${name} -"*) words="${flags}" ;;`,
    ...(words ? [`    "2 ${name} "*) words="${words.join(" ")}" ;;`] : []),
  ];
}

/** Returns a script for fish to source. */
function fishCompletion(commands: readonly CommandSyntax[]): string {
  return [
    "complete -c troupe -e",
    ...commands.map(({ name, summary }) =>
      `complete -c troupe -n __fish_use_subcommand -f -a ${name} -d ${word(summary)}`
    ),
    ...commands.flatMap((syntax) => {
      const here = `complete -c troupe -n "__fish_seen_subcommand_from ${syntax.name}"`;
      return [
        ...(syntax.words ? [`${here} -a ${word(syntax.words.join(" "))}`] : []),
        ...completedFlags(syntax).map((flag) => `${here} ${flagSpec(flag)}`),
      ];
    }),
  ].join("\n");
}

function flagSpec({ spelling, help, follows }: CompletedFlag): string {
  const dashes = /^-+/.exec(spelling)![0], name = spelling.slice(dashes.length);
  const told = `${dashes === "-" ? "-s" : "-l"} ${name} -d ${word(help)}`;
  if (follows === "nothing") return told;
  if (follows === "file") return `${told} -r -F`;
  return follows === "anything" ? `${told} -x` : `${told} -x -a ${word(follows.join(" "))}`;
}

const word = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;

/** Returns a script for zsh to source, or to save as `_troupe` on its `fpath`. */
function zshCompletion(commands: readonly CommandSyntax[]): string {
  const names = commands.map(({ name, summary }) => zshWord(`${name}:${summary}`)).join(" ");
  return [
    "#compdef troupe",
    "_troupe() {",
    "  if (( CURRENT == 2 )); then",
    `    local -a commands=(${names})`,
    "    _describe command commands",
    "    return",
    "  fi",
    "  case $words[2] in",
    ...commands.map(commandCase),
    "  esac",
    "}",
    "compdef _troupe troupe",
  ].join("\n");
}

function commandCase(syntax: CommandSyntax): string {
  const first = syntax.words ? [`'2:word:(${syntax.words.join(" ")})'`] : [];
  const specs = [...completedFlags(syntax).map(zshFlag), ...first, `'*:file:_files' ;;`];
  return [`    ${syntax.name}) _arguments -S`, ...specs].join(" \\\n      ");
}

/** Formats a flag for `_arguments`. A `=` means that a value may be joined to it. */
function zshFlag({ spelling, help, follows }: CompletedFlag): string {
  const words = help.replaceAll(/[\[\]:]/g, "\\$&");
  const told = `${spelling}${follows === "nothing" ? "" : "="}[${words}]`;
  if (follows === "nothing") return zshWord(told);
  if (follows === "file") return zshWord(`${told}:file:_files`);
  return zshWord(`${told}:value:${follows === "anything" ? "" : `(${follows.join(" ")})`}`);
}

const zshWord = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** Returns the completion script, by shell. */
const SHELLS: Readonly<Record<string, (commands: readonly CommandSyntax[]) => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/** `troupe completion`, for all commands. */
export const completionCommand = (commands: () => readonly CommandSyntax[]): Command =>
  defineCommand({
    name: "completion",
    summary: "prints a script with which a shell completes commands and flags",
    usage: ["bash|zsh|fish"],
    about: [
      "Prints a script with which a shell completes the commands and flags of a program named troupe:",
      "",
      "  source <(troupe completion bash)      in ~/.bashrc",
      "  source <(troupe completion zsh)       in ~/.zshrc, after compinit",
      "  troupe completion fish | source       in ~/.config/fish/config.fish",
      "",
      "Such a program is made by deno install -gA -n troupe jsr:@troupe/troupe/cli, or is an alias:",
      `  alias troupe="${commandLine().replace("task", "task --quiet")}"`,
    ],
    words: Object.keys(SHELLS),
    flags: {},
    needsArguments: true,
    run: ({ words }) => {
      const [shell = ""] = words, names = Object.keys(SHELLS);
      const must = `the shell must be one of ${names.join(", ")}`;
      const received = `${quoted(words.join(" "))}${suggest(shell, names)}`;
      ensure(words.length === 1 && Object.hasOwn(SHELLS, shell), "complete", must, received);
      print(SHELLS[shell]!(commands()));
    },
  });
