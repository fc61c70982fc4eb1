/**
 * Errors of the operating system and of memory as sentences that say what to do.
 *
 * @module
 */

import { commandLine } from "../actors/run/command_line.ts";

/** Error messages of the system, of Deno and of `node:fs`, and what helps. */
const REMEDIES: readonly (readonly [message: RegExp, remedy: string])[] = [
  [/symbolic links/i, "name the file or folder itself, as its links lead back to themselves"],
  [/name too long/i, "choose a shorter name"],
  [/open files/i, "close other programs, or raise the limit with ulimit -n"],
  [/space left|quota/i, "free space on its disk, or name another"],
  [/such file/i, "make its folder first, or name another"],
  [/not a directory/i, "name another, below folders alone"],
  [/a directory/i, "name a file"],
  [/permi|read-only/i, "name another, or change what this user may do with it"],
  [/./, "name another"],
];

/** From here on sentences of other modules imply the remedy. */
const IMPLIED = 4;

/** `Is a directory (os error 21): open 'x'`, or the same of what Deno imports or starts. */
const SYSTEM_ERROR =
  /^(?:(?:Failed to \w+|Import) '([^']+)'(?: failed\.\s+0)?: )?([^'\n]+?) \(os error \d+\)(?:: \w+ '(.+)')?$/s;

/** `ELOOP: too many symbolic links encountered, open 'x'`, as `node:fs` says it. */
const NODE_ERROR = /^E[A-Z]+: ([^'\n]+), (\w+)(?= '|$)/;

/** Such an error at the end of a sentence. */
const AT_END = /received .*\(os error \d+\)[^;]*$/s;

/** What V8 says of a text or an array that cannot be made. */
const TOO_LARGE =
  /^(Invalid string length|Invalid (typed )?array length|Array buffer allocation f)/;

/**
 * Makes the message of an error a sentence with a remedy, where it is one of the system or of memory.
 *
 * @param args the command under way.
 */
export function explainSystemError(error: unknown, args: readonly string[]): unknown {
  if (!(error instanceof Error)) return error;
  const { message } = error, command = commandLine(...args);
  const [, subject, reason = "", named] =
    SYSTEM_ERROR.exec(message.replace(NODE_ERROR, "$1 (os error 0): $2")) ?? [];
  const path = named ?? subject ?? `the files of ${command}`;
  const remedyIn = (text: string) => REMEDIES.findIndex(([of]) => of.test(text));
  const remedy = REMEDIES[remedyIn(reason || message)]![1];
  if (TOO_LARGE.test(message)) {
    error.message =
      `Cannot run ${command}: each text and array that it makes must fit in memory, ` +
      "a text in 512 MiB, received a larger one; name a smaller file or size";
  } else if (reason !== "" && !message.startsWith("Cannot ")) {
    error.message =
      `Cannot use ${path}: it must be a path that this user can use, received ${reason}; ${remedy}`;
  } else if (AT_END.test(message) && remedyIn(message) < IMPLIED) {
    error.message = `${message}; ${remedy}`;
  }
  return error;
}
