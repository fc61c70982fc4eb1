/**
 * The help of a command, made from its declaration.
 *
 * @module
 */

import { commandLine } from "../../actors/run/command_line.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import type { CommandSyntax } from "./command_syntax.ts";
import type { Flag, Flags } from "./flag.ts";
import { boundsOf } from "./values.ts";

/**
 * The help of a command: how it is called, what it does, and its flags.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { helpOf } from "@troupe/troupe/cli";
 *
 * const steps = {
 *   kind: "integer",
 *   aliases: ["max_steps"],
 *   default: 300,
 *   maximum: 1000,
 *   help: "optimizer steps",
 * } as const;
 * const help = helpOf({
 *   name: "fit",
 *   summary: "fits a line",
 *   usage: ["[flags]"],
 *   groups: [{ flags: { steps } }],
 * });
 * assert.match(help, /^Usage: deno task troupe fit \[flags\]\n\nFits a line\.\n/);
 * assert.match(help, /--steps N {2}optimizer steps \(300; 1 to 1000; also --max_steps\)$/);
 * ```
 */
export function helpOf({ name, usage, about, summary, groups, notes = [] }: CommandSyntax): string {
  const calls = usage.map((words, i) =>
    `${i === 0 ? "Usage:" : "      "} ${commandLine()} ${name} ${words}`
  );
  const flags = groups.flatMap(({ title, flags }) => [
    "",
    ...(title === undefined ? [] : [title]),
    ...helpLines(flags),
  ]);
  return [
    ...calls,
    "",
    ...(about ?? [`${summary[0]!.toUpperCase()}${summary.slice(1)}.`]),
    ...flags,
    ...(notes.length > 0 ? ["", ...notes] : []),
  ].join("\n");
}

/** Flags that are longer, with their values, stand on a line of their own. */
const LEFT_WIDTH = 32;

/** The flags as lines of help: their values, what they do, defaults, bounds and other names. */
export function helpLines(flags: Flags): string[] {
  const rows = Object.entries(flags).map(([name, flag]) => {
    const short = shortOf(flag), value = flag.value ?? flag.choices?.join("|") ?? "N";
    const long = flag.kind === "switch" ? `--${name}` : `--${name} ${value}`;
    const details = detailsOf(flag);
    const right = details.length === 0 ? flag.help : `${flag.help} (${details.join("; ")})`;
    return [`  ${long}${short === undefined ? "" : `, -${short}`}`, right];
  });
  return formatTable(rows, { left: [0, 1], firstWidthMax: LEFT_WIDTH });
}

const namesOf = ({ aliases = [] }: Flag): string[] =>
  aliases.map((alias) => typeof alias === "string" ? alias : alias.name);

/** The letter of a flag, if it has one. */
export const shortOf = (flag: Flag): string | undefined =>
  namesOf(flag).find((name) => name.length === 1);

/** What stands in brackets: default, bounds, other names. */
function detailsOf(flag: Flag): string[] {
  const long = (flag.aliases ?? []).flatMap((alias) =>
    typeof alias === "string"
      ? alias.length > 1 ? [`--${alias}`] : []
      : [`--${alias.name} for ${alias.means}`]
  );
  return [
    ...[flag.default ?? flag.otherwise ?? []].flat().map(String),
    ...boundsInWords(flag),
    ...(long.length > 0 ? [`also ${long.join(", ")}`] : []),
  ];
}

/** What values may be, where their kind does not say it. */
function boundsInWords(flag: Flag): string[] {
  if (flag.must !== undefined) return [flag.must];
  if (flag.kind !== "integer" && flag.kind !== "number") return [];
  const [minimum] = boundsOf(flag), { maximum, below } = flag;
  if (maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER) {
    return [`${minimum} to ${maximum}`];
  }
  return [below === undefined ? `from ${minimum}` : `from ${minimum}, below ${below}`];
}
