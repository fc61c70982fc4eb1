/**
 * Completion for fish.
 *
 * @module
 */

import type { CommandSyntax } from "../flags/command_syntax.ts";
import { type CompletedFlag, completedFlags } from "./completed_flag.ts";

/** A script that fish sources. */
export function fishCompletion(commands: readonly CommandSyntax[]): string {
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
