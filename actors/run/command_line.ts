/**
 * How the command is typed, for the sentences that say what to do.
 *
 * @module
 */

/** Whether this is the repository and not the package of a registry. */
const IS_REPOSITORY = import.meta.url.startsWith("file:");

/**
 * The words that call the command: a task where this is the repository, else the package.
 *
 * @param words what follows `troupe`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(commandLine("train", "--resume runs/a"), "deno task train --resume runs/a");
 * assert.equal(commandLine("journal"), "deno task troupe journal");
 * ```
 */
export function commandLine(...words: string[]): string {
  const isTask = words[0] === "train" || words[0] === "generate";
  const command = IS_REPOSITORY
    ? isTask ? "deno task" : "deno task troupe"
    : "deno run -A jsr:@troupe/troupe/cli";
  return [command, ...words].join(" ");
}
