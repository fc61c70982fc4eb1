/**
 * What every command answers, whatever else it is told: its help and its version.
 *
 * @module
 */

import { print } from "../print.ts";
import { type CommandSyntax, flagsOf } from "./command_syntax.ts";
import { helpOf } from "./help.ts";
import { respell } from "./spelling.ts";
import { VERSION } from "./version.ts";

/** Prints the help or the version if a command is asked for it. */
export function answersItself(args: readonly string[], syntax: CommandSyntax): boolean {
  const asked = respell(args, flagsOf(syntax));
  if (asked.includes("--help")) print(helpOf(syntax));
  else if (asked.includes("--version")) print(VERSION);
  else return false;
  return true;
}
