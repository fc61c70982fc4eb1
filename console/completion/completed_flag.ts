/**
 * The flags of a command as completion wants them: all their names, and what may follow.
 *
 * @module
 */

import { type CommandSyntax, flagsOf } from "../flags/command_syntax.ts";
import type { FlagAlias } from "../flags/flag.ts";

/** A flag that can be completed. */
export interface CompletedFlag {
  /** With its dashes: `--device`, `-h`. */
  readonly spelling: string;
  /** What it does. */
  readonly help: string;
  /** What follows it: nothing, one of some values, a file, or anything. */
  readonly follows: "nothing" | "file" | "anything" | readonly string[];
}

/** The flags of a command, aliases included. */
export function completedFlags(syntax: CommandSyntax): CompletedFlag[] {
  return Object.entries(flagsOf(syntax)).flatMap(([name, flag]) => {
    const { kind, help, choices, aliases = [] } = flag;
    const follows = kind === "switch"
      ? "nothing"
      : kind === "choice" || kind === "part"
      ? choices!
      : kind === "path"
      ? "file"
      : "anything";
    const own: CompletedFlag = { spelling: spelled(name), help, follows };
    return [own, ...aliases.map((alias) => aliasOf(own, alias))];
  });
}

function aliasOf(flag: CompletedFlag, alias: FlagAlias): CompletedFlag {
  return typeof alias === "string"
    ? { ...flag, spelling: spelled(alias) }
    : { spelling: spelled(alias.name), help: flag.help, follows: "nothing" };
}

const spelled = (name: string) => name.length === 1 ? `-${name}` : `--${name}`;
