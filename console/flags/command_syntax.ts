/**
 * What a command is told: its words and flags, for the parser, the help and completion.
 *
 * @module
 */

import type { Flag, Flags } from "./flag.ts";

/** The declaration of a command. */
export interface CommandSyntax {
  /** Its name, after `troupe`. */
  readonly name: string;
  /** What it does, in one line. */
  readonly summary: string;
  /** How it is called, after its name: a line for each way. */
  readonly usage: readonly string[];
  /** What it does, in more lines than one. */
  readonly about?: readonly string[];
  /** The words that it may begin with, for completion. */
  readonly words?: readonly string[];
  /** Its flags, in groups with titles. */
  readonly groups: readonly FlagGroup[];
  /** What else there is to know: exit codes and the like. */
  readonly notes?: readonly string[];
}

/** Flags that belong together. */
export interface FlagGroup {
  /** What they are, ending with a colon; none where there is but one group. */
  readonly title?: string;
  /** The flags. */
  readonly flags: Flags;
}

/** The flags of every command. */
export const COMMON_FLAGS: Readonly<Record<"help" | "version", Flag & { kind: "switch" }>> = {
  help: { kind: "switch", aliases: ["h"], help: "show this" },
  version: { kind: "switch", aliases: ["V"], help: "show the version" },
};

/** All flags of a command. */
export function flagsOf({ groups }: CommandSyntax): Flags {
  return Object.assign({}, ...groups.map(({ flags }) => flags));
}
